//! The sampler where there is no Linux: it says once that nothing is captured.

use std::sync::Arc;

use model::{CaptureReport, CaptureState};

use crate::config::Config;
use crate::shared::Shared;

/// Never runs here.
#[derive(Debug)]
pub(crate) struct Sampler;

impl Sampler {
    /// Says that there is nothing to be had.
    pub(crate) fn start(shared: &Arc<Shared>, is_child: bool) -> Option<Self> {
        let is_wanted = shared.config.capture_system_metrics;
        if !is_child {
            shared.report_capture(blank(&shared.config, &shared.facts.host));
        }
        if is_wanted {
            let message = "system metrics are captured on Linux only: the run has none from this host";
            shared.warn("capture_unsupported", message.into());
        }
        None
    }

    /// Has nothing to end.
    pub(crate) fn stop(self) {}
}

fn blank(config: &Config, host: &str) -> CaptureReport {
    let state = if config.capture_system_metrics { CaptureState::NotLinux } else { CaptureState::Off };
    CaptureReport {
        host: host.to_owned(),
        pid: std::process::id(),
        rank: config.launch.rank,
        local_rank: config.launch.local_rank,
        time_ns: crate::clock::now_ns(),
        state,
        switched_off_by: config.capture_off_switch(),
        ..CaptureReport::default()
    }
}

/// What a run with these settings would capture in this process: nothing, on this platform.
pub fn preview(config: &Config) -> CaptureReport {
    blank(config, &collect::hostname())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use super::*;
    use crate::shared::lock;

    #[test]
    fn off_linux_the_run_works_and_says_once_that_it_captures_nothing() {
        static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());
        assert!(crate::set_warning_hook(|warning| lock(&SAID).push(warning.message)));
        let folder = tempfile::tempdir().unwrap();
        let spool_dir = Some(folder.path().to_owned());
        let run = crate::Run::start(crate::Config { offline: true, spool_dir, ..crate::Config::default() });
        let run = run.unwrap();
        let loss = run.series("loss", &[], "").unwrap();
        run.log(loss, 1.0, None, None);
        assert_eq!(run.capture().map(|report| report.state), Some(CaptureState::NotLinux));
        run.close(model::SessionEnd::Finished, "", Duration::from_secs(5), &mut || false);
        assert_eq!(run.counters().logged, 1);
        let said = lock(&SAID).iter().filter(|message| message.contains("on Linux only")).count();
        assert_eq!(said, 1);
    }
}
