//! What a look of remediation costs: `cargo run -p insight --example remediation`.

#![expect(clippy::print_stdout, reason = "an example says what it measured")]

use std::collections::BTreeMap;
use std::time::Instant;

use insight::remediation::{
    ActionRule, Ask, Book, Ceiling, Command, Facts, Guards, Kind, Mode, Node, Policy, Pool, State, Sure,
    Trigger, Word,
};
use model::Action;

const NODES: usize = 2_048;
const INCIDENTS: usize = 200;
const LOOKS: u32 = 20;
const SECOND: i64 = 1_000_000_000;
const NOW: i64 = 1_700_000_000 * SECOND;

fn policy() -> Policy {
    let drain = Command {
        kind: Kind::Scontrol { word: Word::Drain },
        limit_ns: 60 * SECOND,
        is_idempotent: true,
        may_fail: false,
        does: Some(State::Draining),
    };
    let rule = ActionRule {
        name: "out".to_owned(),
        on: Trigger::Incident(Action::DrainReset),
        pools: Vec::new(),
        mode: Mode::Approve,
        commands: vec![drain],
        validation: None,
        after: Vec::new(),
    };
    let pool = Pool {
        name: "all".to_owned(),
        hosts: vec!["host-*".to_owned()],
        spares: Vec::new(),
        guards: Guards::default(),
        quiet: Vec::new(),
    };
    let (programs, hooks) = (BTreeMap::new(), BTreeMap::new());
    Policy { name: "cost".to_owned(), revision: 1, pools: vec![pool], rules: vec![rule], programs, hooks }
}

fn ask(at: usize) -> Ask {
    let host = format!("host-{}", at * NODES / INCIDENTS);
    let incident = format!("{host}/0000:43:00.0/{at}");
    let trigger = Trigger::Incident(Action::DrainReset);
    let title = "Xid 48: double-bit memory error".to_owned();
    Ask { incident, trigger, title, sure: Sure::High, ..Ask::by_hand(&host, &format!("GPU-{at}"), NOW) }
}

fn main() {
    let policy = policy();
    let node = |at: usize| Node { host: format!("host-{at}"), heard_ns: NOW, ..Node::default() };
    let facts = Facts { asks: (0..INCIDENTS).map(ask).collect(), nodes: (0..NODES).map(node).collect() };
    let mut book = Book::default();
    let mut spent = |what: &str, now_ns: i64, looks: u32| {
        let began = Instant::now();
        for _ in 0..looks {
            book.look(&policy, Ceiling::Real, &facts, now_ns);
        }
        let edges = book.take_changes().edges.len();
        let millis = began.elapsed().as_secs_f64() * 1e3 / f64::from(looks);
        println!("{what}: {millis:.1} ms, {edges} lines of the audit");
    };
    println!("{NODES} nodes, {INCIDENTS} open incidents");
    spent("the first look, which makes the plans", NOW, 1);
    spent("each look after it", NOW + SECOND, LOOKS);
}
