//! What is to be done about a fault: the catalogues, and rows of ours for what they do not number.

use insight::incidents::{Action, Code, Part, Provenance, Rule};
use semconv::xid::{Role, SWITCH_UNKNOWN, UNKNOWN, sxid, xid};

/// A card that the driver does not list any more, told by no line.
pub(super) const GONE: &str = "gone";
/// A card whose driver answers no questions.
pub(super) const UNAVAILABLE: &str = "unavailable";
/// A row of memory that could not be replaced, told by a counter.
pub(super) const REMAP_FAILED: &str = "row_remap_failed";

/// A fault without a number.
struct Named {
    name: &'static str,
    title: &'static str,
    action: Action,
    then: Option<Action>,
    part: Part,
}

const fn named(name: &'static str, title: &'static str, action: Action) -> Named {
    Named { name, title, action, then: None, part: Part::Cause }
}

const NAMED: [Named; 9] = [
    Named {
        part: Part::Detail,
        then: Some(Action::Contact),
        ..named(GONE, "the card is not there any more", Action::RebootNode)
    },
    Named {
        part: Part::Detail,
        ..named(UNAVAILABLE, "the driver does not answer for the card", Action::Inspect)
    },
    named(REMAP_FAILED, "a row of memory could not be replaced", Action::Contact),
    Named {
        then: Some(Action::ResetGpu),
        ..named("ring_timeout", "work on the card did not end in time", Action::RestartApp)
    },
    Named {
        then: Some(Action::Contact),
        ..named("uncorrectable", "an uncorrectable error of the hardware", Action::ResetGpu)
    },
    Named { part: Part::Detail, ..named("detail", "a line of the hardware's error log", Action::Inspect) },
    Named { part: Part::Symptom, ..named("reset_begins", "a reset of the card has begun", Action::None) },
    Named {
        then: Some(Action::Contact),
        ..named("reset_failed", "a reset of the card has failed", Action::RebootNode)
    },
    Named {
        then: Some(Action::Contact),
        ..named("uncorrected_errors", "errors of memory that could not be corrected", Action::ResetGpu)
    },
];

fn row(name: &str) -> Option<&'static Named> {
    NAMED.iter().find(|row| row.name == name)
}

/// The rule of a fault; nothing of one that is in no table.
pub(super) fn rule(code: &Code) -> Option<Rule> {
    let base = |action, provenance| Rule {
        action,
        then: None,
        repeated: None,
        together: None,
        part: Part::Cause,
        awaits_verdict: false,
        remap_pending: false,
        provenance,
    };
    match code {
        Code::Xid(number) => {
            let row = Some(xid(*number)).filter(|row| **row != UNKNOWN)?;
            let others = |codes: &[u32]| codes.iter().map(|code| Code::Xid(*code)).collect();
            Some(Rule {
                then: row.then,
                repeated: row.repeated,
                together: row.together.map(|(codes, action)| (others(codes), action)),
                part: match row.role {
                    Role::Cause => Part::Cause,
                    Role::Symptom | Role::Verdict => Part::Symptom,
                    Role::Detail => Part::Detail,
                },
                awaits_verdict: row.awaits_verdict(None),
                remap_pending: row.remap_pending,
                ..base(row.action, Provenance::Catalogue)
            })
        }
        Code::Sxid(number) => {
            let row = Some(sxid(*number)).filter(|row| **row != SWITCH_UNKNOWN)?;
            Some(base(row.action, Provenance::Catalogue))
        }
        Code::Named(name) => {
            let row = row(name)?;
            Some(Rule { then: row.then, part: row.part, ..base(row.action, Provenance::Policy) })
        }
    }
}

/// What a fault is, in words.
pub(super) fn title(code: &Code) -> &'static str {
    match code {
        Code::Xid(number) => xid(*number).name,
        Code::Sxid(number) => sxid(*number).name,
        Code::Named(name) => row(name).map_or("a fault that no table has", |row| row.title),
    }
}

/// The number of a fault that has one.
pub(super) fn number(code: &Code) -> Option<u32> {
    match code {
        Code::Xid(number) | Code::Sxid(number) => Some(*number),
        Code::Named(_) => None,
    }
}
