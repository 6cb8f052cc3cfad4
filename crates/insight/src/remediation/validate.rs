//! Whether a machine may get work again.

use serde::{Deserialize, Serialize};

use super::{At, Node, spoken};

/// One thing that has to hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// A word for programs.
    pub name: String,
    /// Whether it holds; nothing while that is not known.
    pub ok: Option<bool>,
    /// With its numbers.
    pub text: String,
}

fn check(name: &str, ok: impl Into<Option<bool>>, text: impl Into<String>) -> Check {
    Check { name: name.to_owned(), ok: ok.into(), text: text.into() }
}

/// Judges a machine, or a card of it, since a time. Only what was said after that time counts; a number that
/// a card never told is not waited for. With `boot_before` another boot has to have come.
pub fn judge(
    node: Option<&Node>,
    uuid: &str,
    (since_ns, now_ns): (i64, i64),
    quiet_ns: i64,
    boot_before: Option<&str>,
) -> Vec<Check> {
    let Some(node) = node.filter(|node| node.heard_ns > since_ns) else {
        return vec![check("heard", None, "nothing was heard of the node since")];
    };
    let mut checks = vec![check("heard", true, "the node is heard")];
    if let Some(before) = boot_before.filter(|before| !before.is_empty()) {
        let is_new = !node.boot_id.is_empty() && node.boot_id != before;
        checks.push(check("boot", is_new.then_some(true), "another boot"));
    }
    checks.push(inventory(node, since_ns));
    let card = node.cards.get(uuid).copied().unwrap_or_default();
    checks.push(zero("recovery_action", "recovery action", card.recovery_action, since_ns));
    checks.push(zero("remap_pending", "rows that wait to be replaced", card.remap_pending, since_ns));
    let fault = node
        .faults
        .iter()
        .find(|(at, whose, _)| *at > since_ns && (uuid.is_empty() || whose.is_empty() || whose == uuid));
    let passed = now_ns.saturating_sub(since_ns);
    checks.push(match fault {
        Some((_, _, what)) => check("quiet", false, format!("a new fault: {what}")),
        None if passed >= quiet_ns => check("quiet", true, format!("no new fault in {}", spoken(passed))),
        None => {
            check("quiet", None, format!("no new fault in {}, {} wanted", spoken(passed), spoken(quiet_ns)))
        }
    });
    checks
}

fn inventory(node: &Node, since_ns: i64) -> Check {
    let fresh = |at: Option<At>| at.filter(|(at, _)| *at > since_ns).map(|(_, count)| count);
    match (fresh(node.pci), fresh(node.driver)) {
        (Some(pci), Some(driver)) if driver >= pci && pci > 0.0 => {
            check("inventory", true, format!("{driver} of {pci} GPUs"))
        }
        (Some(pci), Some(driver)) => check("inventory", None, format!("{driver} of {pci} GPUs")),
        _ if node.pci.is_none() => check("inventory", true, "nobody counts the GPUs of this node"),
        _ => check("inventory", None, "the GPUs were not counted since"),
    }
}

fn zero(name: &str, what: &str, at: Option<At>, since_ns: i64) -> Check {
    match at {
        None => check(name, true, format!("{what}: not told by this GPU")),
        Some((at, _)) if at <= since_ns => check(name, None, format!("{what}: no word since")),
        Some((_, value)) => check(name, (value == 0.0).then_some(true), format!("{what}: {value}")),
    }
}
