//! Which runs are under way. What a run's record says of that is by the clocks of its processes, which may be minutes
//! off, and a run that was silent while there was no server had nobody to talk to.

use model::{NANOS_PER_SECOND, RunRecord, RunState, SESSION_HEARTBEAT_SECONDS, STALE_AFTER_SECONDS};

use super::Known;
use super::inbox::{Mail, Sign};
use crate::far::is_copy;

/// For how long signs of life have to keep pace with this server's clock, and how exactly, nanoseconds.
const PACE_NS: i64 = 3 * SESSION_HEARTBEAT_SECONDS as i64 * NANOS_PER_SECOND / 2;
const OFF_NS: i64 = 2 * NANOS_PER_SECOND;
const SILENCE_NS: i64 = STALE_AFTER_SECONDS as i64 * NANOS_PER_SECOND;

/// Signs of life of a run that seems to have fallen silent: those of one whose clocks are behind come as fast as time
/// passes, those that were kept come all at once.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// The first and the latest time that was told, each with when that came in, nanoseconds.
    first: (i64, i64),
    latest: (i64, i64),
}

impl Pace {
    pub(super) fn is_old(&self, now_ns: i64) -> bool {
        now_ns.saturating_sub(self.latest.1) > SILENCE_NS
    }

    /// Takes the latest time that a run's processes tell. Whether they keep pace.
    fn keeps(&mut self, told_ns: i64, now_ns: i64) -> bool {
        if told_ns > self.latest.0 {
            self.latest = (told_ns, now_ns);
        }
        let told_ns = self.latest.0.saturating_sub(self.first.0);
        let came_ns = self.latest.1.saturating_sub(self.first.1);
        if told_ns.abs_diff(came_ns) > OFF_NS.unsigned_abs() {
            self.first = self.latest;
            return false;
        }
        came_ns >= PACE_NS
    }
}

/// The latest time of its own clock that a process says with its signs of life.
fn told_ns(mail: &Mail) -> Option<i64> {
    let clocks = mail.signs.iter().filter(|(_, _, sign)| matches!(sign, Sign::Clock { .. }));
    clocks.map(|(_, time_ns, _)| *time_ns).max()
}

impl Known {
    /// Whether a run is under way, as far as this server can tell; `mail` is what came of it now.
    pub(super) fn is_under_way(&mut self, run: &RunRecord, mail: Option<&Mail>, now_ns: i64) -> bool {
        if is_copy(run) {
            return false;
        }
        let id = run.id();
        let state = run.state(now_ns).0;
        match (state, self.watches.get(&id)) {
            (RunState::Running | RunState::Stale, Some(watch)) => {
                // What comes now says that it goes on, whatever the clocks say.
                mail.is_some() || watch.lives(run, now_ns)
            }
            (RunState::Running, None) => true,
            (RunState::Stale, None) => {
                let Some(told_ns) = mail.and_then(told_ns) else { return false };
                let start = (told_ns, now_ns);
                self.paces.entry(id).or_insert(Pace { first: start, latest: start }).keeps(told_ns, now_ns)
            }
            _ => false,
        }
    }

    /// Whether a run's verdicts are over with it.
    pub(super) fn is_gone(&self, run: &RunRecord, now_ns: i64) -> bool {
        if is_copy(run) {
            return true;
        }
        let state = run.state(now_ns).0;
        match (state, self.watches.get(&run.id())) {
            (RunState::Running | RunState::Stale, Some(watch)) => !watch.lives(run, now_ns),
            (RunState::Running, None) => false,
            (RunState::Stale, None) => {
                let longest = run.sessions.iter().map(|session| session.facts.silent_after_seconds).max();
                let silence_ns = SILENCE_NS.max(i64::from(longest.unwrap_or(0)) * NANOS_PER_SECOND);
                now_ns.saturating_sub(self.begun_ns) >= silence_ns
            }
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = NANOS_PER_SECOND;

    /// Whether the last of some signs keeps pace; each is when it came and what it told, seconds.
    fn keeps(signs: &[(i64, i64)]) -> bool {
        let first = (signs[0].1 * S, signs[0].0 * S);
        let mut pace = Pace { first, latest: first };
        signs.iter().fold(false, |_, (came, told)| pace.keeps(told * S, came * S))
    }

    #[test]
    fn what_comes_as_fast_as_time_passes_lives_and_what_was_kept_does_not() {
        assert!(keeps(&[(1_000, 700), (1_010, 710), (1_020, 720)]));
        assert!(!keeps(&[(1_000, 700), (1_010, 710)]), "not sure yet");
        assert!(!keeps(&[(1_000, 700), (1_000, 710), (1_001, 720), (1_001, 730), (1_002, 740)]));
        assert!(keeps(&[(1_000, 100), (1_001, 500), (1_002, 700), (1_010, 708), (1_020, 718)]), "caught up");
    }
}
