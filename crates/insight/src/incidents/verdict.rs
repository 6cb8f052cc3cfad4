//! What is to be done about an incident.

use super::{Action, Code, Incident, Part, VERDICT_WAIT_NS};

/// Who says what is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Provenance {
    /// The driver, in Xid 154.
    DriverXid,
    /// The driver, asked through its library.
    DriverLibrary,
    /// The maker's catalogue.
    Catalogue,
    /// Rules of ours, or of the site.
    Policy,
}

impl Provenance {
    /// As labels and APIs write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::DriverXid => "driver-154",
            Self::DriverLibrary => "nvml-recovery",
            Self::Catalogue => "nvidia-catalog",
            Self::Policy => "local-policy",
        }
    }
}

/// How sure a verdict is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Confidence {
    /// A fault decided that nobody knows, or registers that no table has.
    Low,
    /// Driver and catalogue disagree.
    Medium,
    /// Nothing speaks against it.
    High,
}

/// Driver and catalogue say different things.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conflict {
    /// What the driver says.
    pub driver: Action,
    /// What the catalogue says.
    pub catalogue: Action,
}

/// What is to be done, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// What.
    pub action: Action,
    /// What comes after it when it did not help.
    pub then: Option<Action>,
    /// Who says so.
    pub provenance: Provenance,
    /// How sure it is.
    pub confidence: Confidence,
    /// The fault that decided; nothing when the driver did.
    pub code: Option<Code>,
    /// The driver and the catalogue disagree.
    pub conflict: Option<Conflict>,
    /// Nobody acts before this, nanoseconds: the driver may still speak.
    pub waits_until_ns: Option<i64>,
}

impl Verdict {
    /// Nothing is to be done.
    pub(super) const NOTHING: Self = Self {
        action: Action::None,
        then: None,
        provenance: Provenance::Catalogue,
        confidence: Confidence::High,
        code: None,
        conflict: None,
        waits_until_ns: None,
    };

    /// Whether it may be acted on now.
    pub fn is_ready(&self, now_ns: i64) -> bool {
        self.action > Action::None && self.waits_until_ns.is_none_or(|until| now_ns >= until)
    }
}

/// Judges an incident from all that is known of it, so that the order of reports does not count.
pub(super) fn judge(incident: &Incident) -> Verdict {
    let table = table(incident);
    // What the driver says once all is well again is not about what went before.
    let mut said = incident.said.values().rev().copied();
    let last = if incident.cleared.is_some() {
        said.find(|(action, _)| *action > Action::None)
    } else {
        said.next()
    };
    let Some((driver, provenance)) = last else {
        return Verdict { waits_until_ns: waits_until(incident), ..table };
    };
    let conflict = Conflict { driver, catalogue: table.action };
    // A GPU that needs nothing done to it may still have an application that does.
    let agrees = driver == table.action || (driver == Action::None && table.action <= Action::RestartApp);
    let conflict = (!agrees && !incident.codes.is_empty()).then_some(conflict);
    if driver == Action::None {
        let confidence =
            if conflict.is_some() { table.confidence.min(Confidence::Medium) } else { table.confidence };
        return Verdict { confidence, conflict, ..table };
    }
    let then = table.then.filter(|then| *then > driver);
    Verdict {
        action: driver,
        then,
        provenance,
        confidence: Confidence::High,
        code: None,
        conflict,
        waits_until_ns: None,
    }
}

/// What the catalogue says: the strongest of the causes, or of the details when no cause is there.
fn table(incident: &Incident) -> Verdict {
    let of = |part: Part| incident.codes.keys().filter(move |code| incident.codes[*code].part() == part);
    let causes: Vec<&Code> = of(Part::Cause).collect();
    let counted = if causes.is_empty() { of(Part::Detail).collect() } else { causes };
    let mut best = Verdict::NOTHING;
    for code in counted {
        let verdict = of_code(incident, code);
        let is_first = best.code.is_none();
        let then = best.then.max(verdict.then);
        if is_first || verdict.action > best.action {
            best = verdict;
        }
        best.then = then;
    }
    best.then = best.then.filter(|then| *then > best.action);
    best
}

fn of_code(incident: &Incident, code: &Code) -> Verdict {
    let seen = &incident.codes[code];
    let of = Some(code.clone());
    let Some(rule) = &seen.rule else {
        let action = seen.decided.map_or(Action::Inspect, |decided| decided.action);
        return Verdict {
            action,
            confidence: Confidence::Low,
            provenance: Provenance::Policy,
            code: of,
            ..Verdict::NOTHING
        };
    };
    let mut action = seen.decided.map_or(rule.action, |decided| decided.action);
    let confidence = seen.decided.map_or(Confidence::High, |decided| decided.confidence);
    if let Some((others, stronger)) = &rule.together
        && others.iter().any(|other| incident.codes.contains_key(other))
    {
        action = action.max(*stronger);
    }
    if let Some(stronger) = rule.repeated
        && incident.came_back + 1 >= super::COMES_BACK_TIMES
    {
        action = action.max(stronger);
    }
    Verdict { action, then: rule.then, provenance: rule.provenance, confidence, code: of, ..Verdict::NOTHING }
}

fn waits_until(incident: &Incident) -> Option<i64> {
    let waits =
        incident.codes.values().filter(|seen| seen.rule.as_ref().is_some_and(|rule| rule.awaits_verdict));
    Some(waits.map(|seen| seen.first_ns).min()?.saturating_add(VERDICT_WAIT_NS))
}
