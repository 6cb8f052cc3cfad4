//! Remediation: what is decided, how far it goes, and what a crash leaves.

use std::collections::BTreeMap;

use insight::remediation::{
    ActionRule, Ask, Book, By, Ceiling, Checkpoint, Command, Deed, Facts, Guards, Hook, Job, Kind, Mode,
    Next, Node, Outcome, Plan, Policy, Pool, Quiet, Refusal, Replay, State, Status, Step, Sure, Trigger,
    Validation, Word, is_plain,
};
use model::Action;

const SECOND: i64 = 1_000_000_000;
const MINUTE: i64 = 60 * SECOND;
const NOW: i64 = 1_700_000_000 * SECOND;

fn command(kind: Kind, does: Option<State>) -> Command {
    let is_idempotent = matches!(kind, Kind::Kubectl { .. } | Kind::Scontrol { .. });
    Command { kind, limit_ns: 60 * SECOND, is_idempotent, may_fail: false, does }
}

fn drain() -> Command {
    command(Kind::Scontrol { word: Word::Drain }, Some(State::Draining))
}

fn reset() -> Command {
    let args = vec!["{host}".to_owned(), "{gpu}".to_owned()];
    command(Kind::Exec { program: "reset-gpu".to_owned(), args }, Some(State::Resetting))
}

fn hook(name: &str) -> Command {
    command(Kind::Hook { name: name.to_owned() }, None)
}

fn rule(name: &str, on: Action, mode: Mode) -> ActionRule {
    ActionRule {
        name: name.to_owned(),
        on: Trigger::Incident(on),
        pools: Vec::new(),
        mode,
        commands: vec![drain(), reset()],
        validation: Some(Validation {
            quiet_ns: 120 * SECOND,
            limit_ns: 600 * SECOND,
            probe: None,
            probe_min_ratio: 0.9,
        }),
        after: vec![command(Kind::Scontrol { word: Word::Return }, None)],
    }
}

fn policy(mode: Mode) -> Policy {
    let pool = Pool {
        name: "train".to_owned(),
        hosts: vec!["host-*".to_owned()],
        spares: vec!["host-39".to_owned()],
        guards: Guards::default(),
        quiet: Vec::new(),
    };
    let hook = |url: &str| Hook::Url(url.to_owned());
    Policy {
        name: "fleet-default".to_owned(),
        revision: 7,
        pools: vec![pool],
        rules: vec![rule("actions 1", Action::DrainReset, mode)],
        programs: BTreeMap::from([("reset-gpu".to_owned(), "/opt/reset-gpu".to_owned())]),
        hooks: BTreeMap::from([
            ("checkpoint-now".to_owned(), hook("http://127.0.0.1:1/c")),
            ("restart".to_owned(), hook("http://127.0.0.1:1/r")),
        ]),
    }
}

fn ask(host: &str, at: i64) -> Ask {
    Ask {
        incident: format!("{host}/0000:43:00.0/{at}"),
        host: host.to_owned(),
        gpu: "1".to_owned(),
        uuid: format!("GPU-{host}"),
        boot_id: "7f2a".to_owned(),
        trigger: Trigger::Incident(Action::DrainReset),
        sure: Sure::High,
        is_ready: true,
        first_ns: at,
        last_ns: at,
        common: None,
        title: "Xid 48: double-bit error".to_owned(),
        text: "Move the work off the node, then reset the GPU.".to_owned(),
        evidence: vec!["NVRM: Xid (PCI:0000:43:00): 48".to_owned()],
        jobs: Vec::new(),
        gain_ratio: None,
        then: None,
        unconfirmed: None,
    }
}

/// 40 machines that are well, and what asks for something.
fn facts(asks: Vec<Ask>, heard: i64) -> Facts {
    let node = |n: usize| Node {
        host: format!("host-{n}"),
        heard_ns: heard,
        boot_id: "7f2a".to_owned(),
        pci: Some((heard, 8.0)),
        driver: Some((heard, 8.0)),
        ..Node::default()
    };
    Facts { asks, nodes: (0..40).map(node).collect() }
}

/// What is known later, when, and what is said of it.
type Case<'a> = (&'a dyn Fn(i64) -> Facts, i64, &'a str);

fn good() -> Outcome {
    Outcome { is_good: true, text: String::new(), took_ns: SECOND }
}

/// Runs what may run until it waits, and gives what ran.
fn run(book: &mut Book, now: i64) -> Vec<String> {
    let mut ran = Vec::new();
    while let Some(id) = book.runnable().first().copied() {
        if let Next::Run(step) = book.begin(id, now) {
            ran.push(step.text);
            book.ended(id, &good(), now);
        }
    }
    ran
}

fn only(book: &Book) -> &Plan {
    let plans: Vec<&Plan> = book.plans().collect();
    assert_eq!(plans.len(), 1, "{plans:#?}");
    plans[0]
}

fn state(book: &Book, host: &str) -> State {
    book.hosts().get(host).copied().unwrap_or_default()
}

#[test]
fn a_machine_goes_through_every_state_and_back_to_work() {
    let policy = policy(Mode::Auto);
    let mut book = Book::default();
    let asks = vec![ask("host-3", NOW)];
    book.look(&policy, Ceiling::Real, &facts(asks.clone(), NOW), NOW);
    assert_eq!(
        run(&mut book, NOW),
        ["scontrol update nodename=host-3 state=drain reason=tg-1", "exec reset-gpu host-3 1"]
    );
    assert_eq!(state(&book, "host-3"), State::Validating);
    let later = NOW + 60 * SECOND;
    book.look(&policy, Ceiling::Real, &facts(asks.clone(), later), later);
    assert_eq!((state(&book, "host-3"), run(&mut book, later)), (State::Validating, Vec::new()));
    let later = NOW + 121 * SECOND;
    book.look(&policy, Ceiling::Real, &facts(asks.clone(), later), later);
    assert_eq!(run(&mut book, later), ["scontrol update nodename=host-3 state=resume"]);
    assert_eq!((state(&book, "host-3"), only(&book).status), (State::Healthy, Status::Done));
    let changes = book.take_changes();
    assert_eq!(changes.healed, [asks[0].incident.clone()]);
    let mut walked: Vec<State> = vec![State::Healthy];
    for edge in &changes.edges {
        assert_eq!(Some(&edge.from), walked.last(), "{edge:?}");
        if edge.to != edge.from {
            walked.push(edge.to);
        }
    }
    let want = [
        State::Healthy,
        State::Suspect,
        State::Cordoned,
        State::Draining,
        State::Resetting,
        State::Validating,
        State::Healthy,
    ];
    assert_eq!(walked, want);
    // The incident is not over yet, and was dealt with: nothing comes of it again.
    book.look(&policy, Ceiling::Real, &facts(asks, later), later + MINUTE);
    assert!(book.take_changes().is_empty());
}

#[test]
fn a_rehearsal_writes_the_same_lines_and_runs_nothing() {
    for (mode, ceiling) in [(Mode::Auto, Ceiling::DryRun), (Mode::DryRun, Ceiling::Real)] {
        let mut book = Book::default();
        let scene = facts(vec![ask("host-3", NOW)], NOW);
        book.look(&policy(mode), ceiling, &scene, NOW);
        assert!(run(&mut book, NOW).is_empty());
        assert_eq!((only(&book).status, state(&book, "host-3")), (Status::Rehearsed, State::Suspect));
        let edges = book.take_changes().edges;
        let last = edges.last().unwrap();
        assert!(last.dry_run, "{last:?}");
        assert_eq!(
            last.commands,
            [
                "scontrol update nodename=host-3 state=drain reason=tg-1",
                "exec reset-gpu host-3 1",
                "validate",
                "scontrol update nodename=host-3 state=resume"
            ]
        );
        // The incident ends.
        book.look(&policy(mode), ceiling, &facts(Vec::new(), NOW), NOW + MINUTE);
        assert_eq!((only(&book).status, state(&book, "host-3")), (Status::Withdrawn, State::Healthy));
    }
}

#[test]
fn a_storm_is_bounded_by_the_budget_and_then_by_the_breaker() {
    let policy = policy(Mode::Auto);
    let mut book = Book::default();
    let mut asks = Vec::new();
    let mut ran = Vec::new();
    for n in 0..12 {
        let at = NOW + n * SECOND;
        asks.push(ask(&format!("host-{n}"), at));
        book.look(&policy, Ceiling::Real, &facts(asks.clone(), at), at);
        ran.extend(run(&mut book, at));
    }
    let count = |book: &Book, status| book.plans().filter(|plan| plan.status == status).count();
    assert_eq!((count(&book, Status::Validating), count(&book, Status::Queued)), (2, 10));
    assert_eq!(ran.iter().filter(|line| line.starts_with("exec")).count(), 2);
    let scene = facts(asks.clone(), NOW + 12 * SECOND);
    let now = book.pool_now("train", &policy, Ceiling::Real, &scene, NOW + 12 * SECOND);
    assert_eq!((now.out, now.budget, now.is_open), (2, 2, true));
    // Long after, the two are back; those of the storm still wait for a person.
    let later = NOW + 20 * MINUTE;
    for at in [later, later + SECOND, later + MINUTE] {
        book.look(&policy, Ceiling::Real, &facts(asks.clone(), at), at);
        run(&mut book, at);
    }
    assert_eq!((count(&book, Status::Done), count(&book, Status::Queued)), (2, 10));
    let waiting = book.plans().find(|plan| plan.status == Status::Queued).unwrap().id;
    let scene = facts(asks, later);
    book.approve(waiting, "ops", false, (&policy, Ceiling::Real, &scene), later + 2 * MINUTE).unwrap();
    assert_eq!(run(&mut book, later + 2 * MINUTE).len(), 2);
}

#[test]
fn nobody_agrees_around_the_hard_guards() {
    let policy = policy(Mode::Approve);
    let job = |id: &str, is_dead| Job { id: id.to_owned(), is_dead, ..Job::default() };
    let with = |host: &str, jobs: Vec<Job>| Ask { jobs, ..ask(host, NOW - 10 * MINUTE) };
    let mut book = Book::default();
    let asks = vec![
        with("host-1", vec![job("4127", false)]),
        with("host-2", vec![job("4127", false)]),
        with("host-3", vec![]),
    ];
    let scene = facts(asks, NOW);
    book.look(&policy, Ceiling::Real, &scene, NOW);
    let all = |ceiling| (&policy, ceiling, &scene);
    let refused = |result: Result<(), Refusal>| match result {
        Err(Refusal::Guard(guard)) => guard.name,
        other => panic!("{other:?}"),
    };
    // A server of rehearsals never runs anything, whoever agrees.
    assert_eq!(refused(book.approve(1, "ops", false, all(Ceiling::DryRun), NOW)), "mode");
    book.approve(1, "ops", true, all(Ceiling::DryRun), NOW).unwrap();
    assert!(run(&mut book, NOW).is_empty());
    book.approve(1, "ops", false, all(Ceiling::Real), NOW).unwrap();
    assert_eq!(refused(book.approve(2, "ops", false, all(Ceiling::Real), NOW)), "job");
    book.approve(3, "ops", false, all(Ceiling::Real), NOW).unwrap();
    assert_eq!(
        book.approve(3, "ops", false, all(Ceiling::Real), NOW),
        Err(Refusal::NotWaiting(Status::Executing))
    );
    assert_eq!(book.approve(9, "ops", false, all(Ceiling::Real), NOW), Err(Refusal::Unknown));
    // The job is dead: now its second machine is held back by the budget alone.
    let dead = facts(vec![with("host-2", vec![job("4127", true)])], NOW);
    let mut other = Book::default();
    other.look(&policy, Ceiling::Real, &dead, NOW);
    other.approve(1, "ops", false, (&policy, Ceiling::Real, &dead), NOW).unwrap();
}

#[test]
fn approval_ends_and_nothing_is_done() {
    let policy = policy(Mode::Approve);
    let mut book = Book::default();
    let scene = facts(vec![ask("host-3", NOW)], NOW);
    book.look(&policy, Ceiling::Real, &scene, NOW);
    let late = NOW + 121 * MINUTE;
    let refused = book.approve(1, "ops", false, (&policy, Ceiling::Real, &scene), late);
    assert_eq!(refused, Err(Refusal::NotWaiting(Status::Expired)));
    book.look(&policy, Ceiling::Real, &scene, late);
    assert_eq!((only(&book).status, run(&mut book, late)), (Status::Expired, Vec::new()));
    book.look(&policy, Ceiling::Real, &scene, late + MINUTE);
    assert_eq!(only(&book).status, Status::Expired);
    // A person said no: the same.
    let mut book = Book::default();
    book.look(&policy, Ceiling::Real, &scene, NOW);
    book.reject(1, "ops", "it is being replaced today", NOW).unwrap();
    book.look(&policy, Ceiling::Real, &scene, NOW + MINUTE);
    assert_eq!((only(&book).status, state(&book, "host-3")), (Status::Rejected, State::Suspect));
}

#[test]
fn a_third_reset_within_a_day_needs_a_human() {
    let policy = policy(Mode::Auto);
    let mut book = Book::default();
    for turn in 0..3 {
        let at = NOW + turn * 60 * MINUTE;
        let asks = vec![ask("host-3", at)];
        book.look(&policy, Ceiling::Real, &facts(asks.clone(), at), at);
        run(&mut book, at);
        let later = at + 3 * MINUTE;
        book.look(&policy, Ceiling::Real, &facts(asks, later), later);
        run(&mut book, later);
    }
    let statuses: Vec<Status> = book.plans().map(|plan| plan.status).collect();
    assert_eq!(statuses, [Status::Done, Status::Done, Status::Failed]);
    assert_eq!(state(&book, "host-3"), State::NeedsHuman);
    // Nothing more happens there until a person says so.
    let at = NOW + 300 * MINUTE;
    book.look(&policy, Ceiling::Real, &facts(vec![ask("host-3", at)], at), at);
    assert_eq!(book.plans().count(), 3);
    book.heal("host-3", "ops", "the card was replaced", at).unwrap();
    assert_eq!(state(&book, "host-3"), State::Healthy);
}

#[test]
fn after_a_crash_only_what_may_run_twice_runs_twice() {
    let policy = policy(Mode::Auto);
    // In the middle of the drain, and in the middle of the reset.
    for (steps, want_twice) in [(1, true), (2, false)] {
        let mut book = Book::default();
        let scene = facts(vec![ask("host-3", NOW)], NOW);
        book.look(&policy, Ceiling::Real, &scene, NOW);
        let mut begun = Vec::new();
        for at in 0..steps {
            let Next::Run(step) = book.begin(1, NOW) else { panic!("nothing to run") };
            begun.push(step.text);
            if at + 1 < steps {
                book.ended(1, &good(), NOW);
            }
        }
        let changes = book.take_changes();
        let mut again = Book::restore(changes.units, changes.plans);
        again.recover(NOW + MINUTE);
        again.look(&policy, Ceiling::Real, &scene, NOW + MINUTE);
        let ran = run(&mut again, NOW + MINUTE);
        let twice = ran.iter().any(|line| Some(line) == begun.last());
        assert_eq!(twice, want_twice, "{begun:?} {ran:?}");
        assert_eq!(ran.iter().chain(&begun).filter(|line| line.starts_with("exec")).count(), 1);
        assert_eq!(state(&again, "host-3"), State::Validating);
        // A plan made before is the plan of this incident: none is made anew.
        assert_eq!(again.plans().count(), 1);
    }
}

#[test]
fn what_fails_or_does_not_come_back_needs_a_human() {
    let policy = policy(Mode::Auto);
    let mut book = Book::default();
    let scene = facts(vec![ask("host-3", NOW)], NOW);
    book.look(&policy, Ceiling::Real, &scene, NOW);
    book.begin(1, NOW);
    let bad = Outcome { is_good: false, text: "exit code 1".to_owned(), took_ns: SECOND };
    book.ended(1, &bad, NOW);
    assert_eq!((only(&book).status, state(&book, "host-3")), (Status::Failed, State::NeedsHuman));
    // It is still out, and counts against the budget until a person has looked.
    assert_eq!(book.pool_now("train", &policy, Ceiling::Real, &scene, NOW).out, 1);
    let fault = |at| {
        let mut scene = facts(vec![ask("host-3", NOW)], at);
        scene.nodes[3].faults = vec![(at - SECOND, "GPU-host-3".to_owned(), "Xid 79".to_owned())];
        scene
    };
    let silent = |_| facts(vec![ask("host-3", NOW)], NOW);
    let cases: [Case<'_>; 2] =
        [(&fault, MINUTE, "a new fault: Xid 79"), (&silent, 11 * MINUTE, "nothing was heard")];
    for (scene_at, after, want) in cases {
        let mut book = Book::default();
        book.look(&policy, Ceiling::Real, &scene, NOW);
        run(&mut book, NOW);
        let at = NOW + after;
        book.look(&policy, Ceiling::Real, &scene_at(at), at);
        assert_eq!(state(&book, "host-3"), State::NeedsHuman);
        assert!(only(&book).outcome.contains(want), "{}", only(&book).outcome);
    }
}

#[test]
fn hostile_names_never_reach_a_command() {
    for name in
        ["$(rm -rf /)", "-n", "a b", "a\nb", "", "a;b", "../x", "a'b", "a\u{202e}b", "a=b", "host-3/.."]
    {
        assert!(!is_plain(name), "{name:?}");
        let host = format!("host-{name}");
        if is_plain(&host) {
            continue;
        }
        let mut book = Book::default();
        let scene = facts(vec![ask(&host, NOW)], NOW);
        book.look(&policy(Mode::Auto), Ceiling::Real, &scene, NOW);
        assert!(run(&mut book, NOW).is_empty());
        assert_eq!(state(&book, &host), State::NeedsHuman, "{name:?}");
        assert!(only(&book).steps.is_empty());
    }
    let mut all = policy(Mode::Auto);
    all.pools[0].hosts = vec!["*".to_owned()];
    let mut book = Book::default();
    book.look(&all, Ceiling::Real, &facts(vec![ask("--force", NOW)], NOW), NOW);
    assert_eq!(state(&book, "--force"), State::NeedsHuman);
    // A card's index that is none.
    let mut book = Book::default();
    let hostile = Ask { gpu: "1 --all".to_owned(), ..ask("host-3", NOW) };
    book.look(&all, Ceiling::Real, &facts(vec![hostile], NOW), NOW);
    assert!(run(&mut book, NOW).is_empty());
    assert_eq!(state(&book, "host-3"), State::NeedsHuman);
}

#[test]
fn hooks_go_to_each_run_and_a_hostile_runs_name_is_left_out() {
    let mut policy = policy(Mode::Approve);
    policy.rules[0].commands = vec![hook("checkpoint-now"), drain(), hook("restart"), reset()];
    assert_eq!(policy.contradictions(), []);
    let job = |id: &str, name: &str| Job {
        id: id.to_owned(),
        name: name.to_owned(),
        is_run: true,
        ..Job::default()
    };
    let jobs = vec![job("00112233445566aa", "pretrain-7b"), job("00112233445566bb", "x; rm -rf /")];
    let mut book = Book::default();
    book.look(&policy, Ceiling::Real, &facts(vec![Ask { jobs, ..ask("host-3", NOW) }], NOW), NOW);
    let lines: Vec<&str> = only(&book).steps.iter().map(|step: &Step| step.text.as_str()).collect();
    assert_eq!(
        lines[..3],
        [
            "hook checkpoint-now run=pretrain-7b",
            "hook checkpoint-now run=00112233445566bb",
            "scontrol update nodename=host-3 state=drain reason=tg-1"
        ]
    );
    // What is started again says from where.
    let checkpoint = Some(Checkpoint { step: 6_000, steps_lost: Some(263), ..Checkpoint::default() });
    let jobs = vec![Job { checkpoint, ..job("00112233445566aa", "pretrain-7b") }];
    let mut book = Book::default();
    let scene = facts(vec![Ask { jobs, ..ask("host-3", NOW) }], NOW);
    book.look(&policy, Ceiling::Real, &scene, NOW);
    book.approve(1, "ops", false, (&policy, Ceiling::Real, &scene), NOW).unwrap();
    run(&mut book, NOW);
    let want = "done in 1 s: hook restart run=pretrain-7b, from step 6000, 263 steps are repeated";
    let edges = book.take_changes().edges;
    let edge = edges.iter().find(|edge| edge.text == want).unwrap();
    assert_eq!(edge.run_id.as_deref(), Some("00112233445566aa"));
}

#[test]
fn what_contradicts_itself_is_named_with_both_sides() {
    let says = |change: &dyn Fn(&mut Policy), want: &str| {
        let mut policy = policy(Mode::Auto);
        change(&mut policy);
        let found: Vec<String> = policy.contradictions().into_iter().map(|c| c.0).collect();
        assert!(found.iter().any(|text| text.contains(want)), "{want}: {found:#?}");
    };
    assert_eq!(policy(Mode::Auto).contradictions(), []);
    says(
        &|p| p.rules.push(rule("actions 2", Action::DrainReset, Mode::DryRun)),
        "`actions 1` and `actions 2` both say what is done on `drain_reset` in every pool",
    );
    let beside = |p: &mut Policy, host: &str| {
        let hosts = vec!["serve-1".to_owned(), host.to_owned()];
        p.pools.push(Pool { name: "other".to_owned(), hosts, ..p.pools[0].clone() });
    };
    for host in ["host-3", "*-3", "*", "h*t-*5", "host-**"] {
        let want = format!("`host-*` of the pool `train` and `{host}` of `other` have machines in common");
        says(&|p| beside(p, host), &want);
    }
    for host in ["hos-*", "*-3x-host", "gpu-*"] {
        let mut apart = policy(Mode::Auto);
        apart.pools[0].hosts = vec!["host-*5".to_owned()];
        beside(&mut apart, host);
        assert_eq!(apart.contradictions(), [], "{host}");
    }
    for host in ["host-[0-9]+", "", "host 3", "-n", "$(reboot)"] {
        says(
            &|p| p.pools[0].hosts.push(host.to_owned()),
            &format!("`{host}` of the pool `train` fits no machine"),
        );
    }
    says(&|p| p.pools[0].spares.push("host-*".to_owned()), "`host-*` of the pool `train` fits no machine");
    says(
        &|p| (p.pools[0].guards.budget_min, p.pools[0].guards.budget_ratio) = (0, 0.0),
        "`budget_min` and `budget_ratio` are 0: no machine may ever be taken out",
    );
    says(&|p| p.rules[0].commands.reverse(), "before its work is moved away");
    says(&|p| p.rules[0].commands = vec![reset()], "asks for the work to be moved away first");
    says(&|p| p.rules[0].validation = None, "has no `validate`");
    says(&|p| p.rules[0].on = Trigger::Straggler, "a person agrees first");
    says(&|p| p.rules[0].on = Trigger::Incident(Action::Inspect), "where a person is to look");
    says(&|p| p.rules[0].pools = vec!["trian".to_owned()], "did you mean `train`?");
    says(&|p| p.rules[0].after = vec![drain()], "takes the machine out again");
    says(
        &|p| p.rules[0].commands.insert(0, hook("restart")),
        "started again before the machine is taken out",
    );
    says(&|p| p.rules[0].commands.push(hook("checkpoint-now")), "after the work is gone");
    says(&|p| p.rules[0].commands.push(hook("restrat")), "did you mean `restart`?");
    says(&|p| p.programs.clear(), "the program `reset-gpu`");
    says(&|p| p.pools[0].guards.budget_ratio = 0.2, "the breaker opens before the budget is used");
    says(
        &|p| {
            p.rules[0].commands[1].kind =
                Kind::Exec { program: "reset-gpu".to_owned(), args: vec!["{hots}".to_owned()] }
        },
        "did you mean `{host}`?",
    );
}

#[test]
fn quiet_times_low_confidence_and_company_wait_for_a_person() {
    // 14 November 2023 was a Tuesday, 22:13 UTC.
    let quiet = |days: &[u8], from, to| Quiet { days: days.to_vec(), from, to };
    assert!(quiet(&[1], 22 * 60, 6 * 60).holds(NOW));
    assert!(quiet(&[1], 22 * 60, 6 * 60).holds(NOW + 5 * 60 * MINUTE));
    assert!(!quiet(&[1], 22 * 60, 6 * 60).holds(NOW + 9 * 60 * MINUTE));
    assert!(!quiet(&[2], 22 * 60, 6 * 60).holds(NOW));
    assert!(quiet(&[], 0, 24 * 60).holds(NOW));
    let mut still = policy(Mode::Auto);
    still.pools[0].quiet = vec![quiet(&[], 22 * 60, 23 * 60)];
    let cases: [(Policy, Ask, &str); 3] = [
        (still, ask("host-3", NOW), "quiet"),
        (policy(Mode::Auto), Ask { sure: Sure::Low, ..ask("host-3", NOW) }, "confidence"),
        (
            policy(Mode::Auto),
            Ask { common: Some("Xid 48 on 3 hosts".to_owned()), ..ask("host-3", NOW) },
            "common_cause",
        ),
    ];
    for (policy, ask, want) in cases {
        let mut book = Book::default();
        let scene = facts(vec![ask], NOW);
        book.look(&policy, Ceiling::Real, &scene, NOW);
        assert!(run(&mut book, NOW).is_empty());
        let bad: Vec<&str> =
            only(&book).guards.0.iter().filter(|g| g.ok != Some(true)).map(|g| g.name.as_str()).collect();
        assert_eq!(bad, [want]);
        book.approve(1, "ops", false, (&policy, Ceiling::Real, &scene), NOW).unwrap();
        assert_eq!(run(&mut book, NOW).len(), 2);
    }
}

#[test]
fn what_waits_for_a_guard_alone_does_not_expire() {
    let mut policy = policy(Mode::Auto);
    policy.pools[0].quiet = vec![Quiet { days: Vec::new(), from: 22 * 60, to: 6 * 60 }];
    let mut book = Book::default();
    let asks = vec![ask("host-3", NOW)];
    for hours in 0..8 {
        let now = NOW + hours * 60 * MINUTE;
        book.look(&policy, Ceiling::Real, &facts(asks.clone(), now), now);
        assert_eq!((only(&book).status, run(&mut book, now)), (Status::Queued, Vec::new()), "{hours} h");
    }
    let morning = NOW + 8 * 60 * MINUTE;
    book.look(&policy, Ceiling::Real, &facts(asks, morning), morning);
    assert_eq!(run(&mut book, morning).len(), 2);
}

#[test]
fn a_graver_verdict_on_the_same_incident_is_planned_for_anew() {
    let mut policy = policy(Mode::Approve);
    policy.rules.push(rule("actions 2", Action::RebootNode, Mode::Auto));
    let graver = Ask { trigger: Trigger::Incident(Action::RebootNode), ..ask("host-3", NOW) };
    let late = NOW + 121 * MINUTE;
    for is_rejected in [false, true] {
        let mut book = Book::default();
        book.look(&policy, Ceiling::Real, &facts(vec![ask("host-3", NOW)], NOW), NOW);
        if is_rejected {
            book.reject(1, "ops", "not today", NOW).unwrap();
        }
        book.look(&policy, Ceiling::Real, &facts(vec![ask("host-3", NOW)], late), late);
        assert!(only(&book).status.is_over());
        for _ in 0..3 {
            book.look(&policy, Ceiling::Real, &facts(vec![graver.clone()], late), late);
        }
        let plans: Vec<(Trigger, Status)> = book.plans().map(|plan| (plan.trigger, plan.status)).collect();
        // Who said no is asked.
        let status = if is_rejected { Status::Queued } else { Status::Executing };
        assert_eq!(plans[1..], [(Trigger::Incident(Action::RebootNode), status)]);
        let keys: Vec<&str> = book.plans().map(|plan| plan.key.as_str()).collect();
        assert_ne!(keys[0], keys[1]);
    }
}

#[test]
fn what_seemed_over_is_proposed_again_unless_a_person_said_that_it_is_well() {
    let policy = with_straggler(Mode::Approve);
    let asks = || facts(vec![of_run("host-3", None)], NOW);
    let mut book = Book::default();
    book.look(&policy, Ceiling::Real, &asks(), NOW);
    book.look(&policy, Ceiling::Real, &facts(Vec::new(), NOW), NOW + SECOND);
    assert_eq!(only(&book).status, Status::Withdrawn);
    book.look(&policy, Ceiling::Real, &asks(), NOW + 2 * SECOND);
    let statuses: Vec<Status> = book.plans().map(|plan| plan.status).collect();
    assert_eq!(statuses, [Status::Withdrawn, Status::Queued]);
    book.heal("host-3", "ops", "looked at it", NOW + 3 * SECOND).unwrap();
    book.look(&policy, Ceiling::Real, &asks(), NOW + 4 * SECOND);
    let statuses: Vec<Status> = book.plans().map(|plan| plan.status).collect();
    assert_eq!(statuses, [Status::Withdrawn, Status::Withdrawn]);
}

/// A plan whose drain is done and whose reset comes next, as it is found so much later.
fn stands(later: i64) -> (Policy, Book, Facts) {
    let policy = policy(Mode::Auto);
    let mut book = Book::default();
    let asks = vec![ask("host-3", NOW)];
    book.look(&policy, Ceiling::Real, &facts(asks.clone(), NOW), NOW);
    assert!(matches!(book.begin(1, NOW), Next::Run(step) if step.text.starts_with("scontrol")));
    book.ended(1, &good(), NOW);
    let scene = facts(asks, later);
    book.look(&policy, Ceiling::DryRun, &scene, later);
    (policy, book, scene)
}

#[test]
fn a_plan_that_stood_still_goes_on_only_if_a_person_agrees() {
    let later = NOW + 11 * MINUTE;
    let (policy, mut book, scene) = stands(later);
    assert_eq!((run(&mut book, later), only(&book).status), (Vec::new(), Status::Queued));
    book.look(&policy, Ceiling::Real, &scene, later);
    assert_eq!((only(&book).status, state(&book, "host-3")), (Status::Queued, State::Draining));
    book.approve(1, "ops", false, (&policy, Ceiling::Real, &scene), later).unwrap();
    assert_eq!(run(&mut book, later), ["exec reset-gpu host-3 1"], "it goes on where it stood");
    // Nobody agrees, or the incident is over meanwhile: what was done stays until a person brings it back.
    for asks in [vec![ask("host-3", NOW)], Vec::new()] {
        let (policy, mut book, _) = stands(later);
        run(&mut book, later);
        let late = later + 121 * MINUTE;
        book.look(&policy, Ceiling::Real, &facts(asks, late), late);
        assert_eq!((only(&book).status, state(&book, "host-3")), (Status::Failed, State::NeedsHuman));
    }
    // A short stop is none.
    let (_, mut book, _) = stands(NOW + 9 * MINUTE);
    assert_eq!(run(&mut book, NOW + 9 * MINUTE), ["exec reset-gpu host-3 1"]);
}

#[test]
fn a_plan_between_two_steps_is_ended_by_hand() {
    let (_, mut book, _) = stands(NOW + MINUTE);
    book.reject(1, "ops", "mended by hand", NOW + MINUTE).unwrap();
    assert_eq!((only(&book).status, state(&book, "host-3")), (Status::Rejected, State::NeedsHuman));
    assert!(run(&mut book, NOW + MINUTE).is_empty());
    let (_, mut book, _) = stands(NOW + MINUTE);
    book.heal("host-3", "ops", "mended by hand", NOW + MINUTE).unwrap();
    assert_eq!((only(&book).status, state(&book, "host-3")), (Status::Withdrawn, State::Healthy));
    assert!(run(&mut book, NOW + MINUTE).is_empty());
    let (_, mut book, _) = stands(NOW + MINUTE);
    assert!(matches!(book.begin(1, NOW + MINUTE), Next::Run(_)));
    assert_eq!(book.heal("host-3", "ops", "no", NOW + MINUTE), Err(Refusal::Busy(1)));
    assert_eq!(book.reject(1, "ops", "no", NOW), Err(Refusal::NotWaiting(Status::Executing)));
}

#[test]
fn whether_a_job_lives_is_asked_again_while_a_plan_waits() {
    let policy = policy(Mode::Approve);
    let with = |host: &str, is_dead| {
        let job = Job { id: "run".to_owned(), is_run: true, is_dead, attempt: Some(1), ..Job::default() };
        Ask { jobs: vec![job], ..ask(host, NOW - 10 * MINUTE) }
    };
    let mut book = Book::default();
    // Its job seemed dead when the plans were made, and lives.
    book.look(&policy, Ceiling::Real, &facts(vec![with("host-1", true), with("host-2", true)], NOW), NOW);
    let scene = facts(vec![with("host-1", false), with("host-2", false)], NOW);
    book.look(&policy, Ceiling::Real, &scene, NOW + MINUTE);
    book.approve(1, "ops", false, (&policy, Ceiling::Real, &scene), NOW + MINUTE).unwrap();
    let refused = book.approve(2, "ops", false, (&policy, Ceiling::Real, &scene), NOW + MINUTE);
    assert!(matches!(refused, Err(Refusal::Guard(guard)) if guard.name == "job"));
}

#[test]
fn a_slow_rank_is_never_more_than_a_recommendation() {
    let mut policy = policy(Mode::Auto);
    policy.rules[0].on = Trigger::Straggler;
    let mut book = Book::default();
    let scene = facts(vec![Ask { trigger: Trigger::Straggler, ..ask("host-3", NOW) }], NOW);
    book.look(&policy, Ceiling::Real, &scene, NOW);
    assert_eq!((only(&book).mode, only(&book).status), (Mode::Approve, Status::Queued));
}

/// What a run says of a machine.
fn of_run(host: &str, unconfirmed: Option<&str>) -> Ask {
    let job = Job { id: "run".to_owned(), is_run: true, ..Job::default() };
    Ask {
        incident: format!("verdict:run:{host}"),
        trigger: Trigger::Straggler,
        unconfirmed: unconfirmed.map(str::to_owned),
        jobs: vec![job],
        ..ask(host, NOW)
    }
}

fn with_straggler(mode: Mode) -> Policy {
    let base = policy(mode);
    let slow = ActionRule { on: Trigger::Straggler, ..rule("slow", Action::DrainReset, mode) };
    Policy { rules: vec![base.rules[0].clone(), slow], ..base }
}

#[test]
fn a_runs_word_alone_moves_no_machine_and_a_person_says_that_this_is_known() {
    let policy = with_straggler(Mode::Approve);
    let mut book = Book::default();
    let doubt = Some("only the run says so");
    let look = |book: &mut Book, doubt| {
        let known = facts(vec![of_run("host-3", doubt)], NOW);
        book.look(&policy, Ceiling::Real, &known, NOW);
        known
    };
    let known = look(&mut book, doubt);
    assert_eq!((state(&book, "host-3"), only(&book).status), (State::Healthy, Status::Queued));
    let presence = only(&book).guards.0.iter().find(|guard| guard.name == "presence").unwrap();
    assert_eq!((presence.ok, presence.text.as_str()), (Some(false), "only the run says so"));
    assert_eq!(book.confirm(1, &known).unwrap(), "host-3 unconfirmed");
    // Its agent knows of it by now.
    let known = look(&mut book, None);
    assert_eq!(
        (book.confirm(1, &known).unwrap().as_str(), state(&book, "host-3")),
        ("host-3", State::Suspect)
    );
    // A name that may not stand in a command is no machine that needs a human, as long as only a run has it.
    let mut book = Book::default();
    let mut named = policy.clone();
    named.pools[0].hosts = vec!["*".to_owned()];
    book.look(&named, Ceiling::Real, &facts(vec![of_run("$(reboot)", doubt)], NOW), NOW);
    assert_eq!((book.hosts().len(), only(&book).status), (0, Status::Failed));
    // Whoever agrees makes it a person's word.
    let mut book = Book::default();
    let known = look(&mut book, doubt);
    book.approve(1, "ops", false, (&policy, Ceiling::Real, &known), NOW).unwrap();
    assert_eq!(run(&mut book, NOW).len(), 2);
    assert_eq!(state(&book, "host-3"), State::Validating);
}

#[test]
fn a_storm_has_a_bound_whether_machines_tell_of_it_or_a_run() {
    let policy = with_straggler(Mode::Approve);
    let storm: Vec<Ask> = (0..10_000)
        .map(|n| {
            let host = format!("host-{}", n % 40);
            Ask { incident: format!("in-{n}"), uuid: format!("GPU-{n}"), ..ask(&host, NOW + n) }
        })
        .collect();
    let mut book = Book::default();
    for _ in 0..3 {
        book.look(&policy, Ceiling::Real, &facts(storm.clone(), NOW), NOW);
    }
    assert_eq!((book.plans().count(), book.units().count()), (1_000, 10_000));
    let first = book.take_changes();
    assert_eq!(first.edges.len(), 11_000, "each incident was seen once and each plan made once");
    book.reject(1, "ops", "no", NOW).unwrap();
    book.look(&policy, Ceiling::Real, &facts(storm, NOW), NOW);
    assert_eq!(book.plans().count(), 1_001, "the next has its turn");
    let said: Vec<Ask> = (0..500)
        .map(|n| Ask { incident: format!("verdict:{n}"), ..of_run(&format!("host-of-{n}"), Some("word")) })
        .collect();
    let mut book = Book::default();
    book.look(&policy, Ceiling::Real, &facts(said, NOW), NOW);
    assert_eq!((book.plans().count(), book.units().count()), (100, 0));
}

#[test]
fn what_cannot_be_written_down_was_not_decided() {
    let policy = policy(Mode::Approve);
    let scene = facts(vec![ask("host-3", NOW), ask("host-4", NOW)], NOW);
    let mut book = Book::default();
    book.look(&policy, Ceiling::Real, &scene, NOW);
    book.take_changes();
    let everything = |book: &Book| -> (Vec<Plan>, Vec<String>) {
        (book.plans().cloned().collect(), book.units().map(|unit| format!("{unit:?}")).collect())
    };
    let before = everything(&book);
    let kept = book.keep("host-3");
    book.approve(1, "ops", false, (&policy, Ceiling::Real, &scene), NOW).unwrap();
    book.take_changes();
    book.take_back(kept);
    assert_eq!(everything(&book), before);
    assert!(book.runnable().is_empty());
    book.approve(1, "ops", false, (&policy, Ceiling::Real, &scene), NOW).unwrap();
    book.take_changes();
    // A step whose beginning is not on paper was not begun, and its reset does not count.
    for _ in 0..5 {
        let (kept, before) = (book.keep("host-3"), everything(&book));
        assert!(matches!(book.begin(1, NOW), Next::Run(_)));
        book.take_changes();
        book.take_back(kept);
        assert_eq!(everything(&book), before);
    }
    assert_eq!(run(&mut book, NOW).len(), 2);
    assert_eq!(book.units().map(|unit| unit.resets_ns.len()).sum::<usize>(), 1);
    // What a person proposes in vain leaves nothing behind.
    let (kept, before) = (book.keep("host-5"), everything(&book));
    let by = By { actor: "ops", reason: "fan" };
    let hand = Ask {
        trigger: Trigger::Incident(Action::DrainReset),
        gpu: "1".to_owned(),
        ..Ask::by_hand("host-5", "GPU-host-5", NOW)
    };
    book.propose(&hand, by, (&policy, Ceiling::Real, &scene), NOW).unwrap();
    book.take_changes();
    book.take_back(kept);
    assert_eq!(everything(&book), before);
    book.propose(&hand, by, (&policy, Ceiling::Real, &scene), NOW).unwrap();
}

#[test]
fn what_is_lost_is_summed_over_the_runs_that_live_or_says_what_is_missing() {
    let job = Job {
        id: "run".to_owned(),
        is_run: true,
        checkpoint: Some(Checkpoint { step: 6_000, steps_lost: Some(120), ..Checkpoint::default() }),
        step_seconds: Some(5.0),
        restart_seconds: Some(300.0),
        usd_per_hour: Some(36.0),
        ..Job::default()
    };
    let other = Job { id: "other".to_owned(), usd_per_hour: Some(72.0), ..job.clone() };
    let dead = Job { id: "dead".to_owned(), is_dead: true, checkpoint: None, ..job.clone() };
    let plan = |jobs: Vec<Job>| {
        let mut book = Book::default();
        let asked = Ask { jobs, ..ask("host-3", NOW) };
        book.look(&policy(Mode::Approve), Ceiling::Real, &facts(vec![asked], NOW), NOW);
        only(&book).clone()
    };
    let both = plan(vec![job.clone(), other, dead.clone()]);
    assert_eq!((both.steps_lost(), both.lost_seconds(), both.lost_usd()), (Ok(240), Ok(1_800.0), Ok(27.0)));
    let no_price = plan(vec![Job { usd_per_hour: None, ..job.clone() }]);
    assert_eq!(
        (no_price.lost_seconds(), no_price.lost_usd()),
        (Ok(900.0), Err("no price is known of the run's GPUs"))
    );
    assert_eq!(plan(vec![dead]).steps_lost(), Err("no run that lives has the machine"));
    // Runs go on while it waits; what comes after it is another attempt's.
    let later = Job {
        checkpoint: Some(Checkpoint { step: 6_100, steps_lost: Some(20), ..Checkpoint::default() }),
        ..job.clone()
    };
    let waits = plan(vec![job.clone()]);
    assert_eq!(waits.renewed(std::slice::from_ref(&later)).first(), Some(&later));
    let runs = Plan { status: Status::Executing, ..waits };
    assert_eq!(runs.renewed(&[Job { attempt: Some(2), ..later }]), [job]);
}

#[test]
fn a_replay_says_what_would_have_been_done() {
    let policy = policy(Mode::Auto);
    let mut asks = Vec::new();
    let mut replay = Replay::new(&policy, 10_000);
    for n in 0..12 {
        let at = NOW + n * SECOND;
        asks.push(ask(&format!("host-{n}"), at));
        replay.look(&facts(asks.clone(), at), at);
    }
    replay.look(&facts(asks.clone(), NOW), NOW + 10 * MINUTE);
    let (edges, plans, most) = replay.finish();
    assert_eq!(most, BTreeMap::from([("train".to_owned(), 2)]));
    let count = |status| plans.iter().filter(|plan| plan.status == status).count();
    assert_eq!((count(Status::Done), count(Status::Queued)), (2, 10));
    assert!(edges.iter().any(|edge| edge.to == State::Resetting));
}

#[test]
fn a_proposal_of_which_no_command_can_be_made_is_refused_and_leaves_nothing_behind() {
    let policy = policy(Mode::Auto);
    let by = By { actor: "token ops", reason: "it is loud" };
    let known = facts(Vec::new(), NOW);
    let mut book = Book::default();
    let mut by_hand = Ask::by_hand("host-3", "", NOW);
    by_hand.trigger = Trigger::Incident(Action::DrainReset);
    let refused = book.propose(&by_hand, by, (&policy, Ceiling::Real, &known), NOW);
    assert!(
        matches!(&refused, Err(Refusal::NoCommand(why)) if why.contains("is not known here")),
        "{refused:?}"
    );
    let left = book.take_changes();
    assert_eq!((left.edges.len(), book.plans().count()), (0, 0));
}

#[test]
fn what_a_person_proposes_waits_for_a_person_whatever_the_policy_says() {
    let mut policy = policy(Mode::Auto);
    policy.rules.push(ActionRule {
        commands: vec![drain()],
        validation: None,
        after: Vec::new(),
        ..rule("empty", Action::RebootNode, Mode::DryRun)
    });
    let by = By { actor: "token ops", reason: "the fan is loud" };
    let mut book = Book::default();
    // Nothing is known against it: what takes it out and breaks the least is the policy's answer.
    let on = policy.takes_out("train").unwrap();
    assert_eq!(on, Trigger::Incident(Action::RebootNode));
    let mut by_hand = Ask::by_hand("host-3", "", NOW);
    let known = facts(Vec::new(), NOW);
    let refused = book.propose(&by_hand, by, (&policy, Ceiling::Real, &known), NOW);
    let Err(Refusal::NoRule { on: wanted, known: rules, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!((wanted.as_str(), rules.len()), ("straggler", 2), "{rules:?}");
    by_hand.trigger = on;
    let id = book.propose(&by_hand, by, (&policy, Ceiling::Real, &known), NOW).unwrap();
    assert_eq!(book.propose(&by_hand, by, (&policy, Ceiling::Real, &known), NOW), Ok(id), "it waits already");
    for later in [NOW + SECOND, NOW + MINUTE] {
        book.look(&policy, Ceiling::Real, &facts(Vec::new(), later), later);
        assert_eq!((only(&book).status, run(&mut book, later)), (Status::Queued, Vec::new()));
    }
    // The rule is one that rehearses: nobody agrees around that.
    let refused = book.approve(id, "token ops", false, (&policy, Ceiling::Real, &known), NOW + MINUTE);
    assert!(matches!(refused, Err(Refusal::Guard(guard)) if guard.name == "mode"));
    let said: Vec<(String, String)> =
        book.take_changes().edges.into_iter().map(|edge| (edge.actor, edge.text)).collect();
    let line = |text: &str| ("token ops".to_owned(), text.to_owned());
    assert_eq!(
        said,
        [
            line("Proposed by hand"),
            line("proposed: the fan is loud"),
            line("proposed as well: the fan is loud")
        ]
    );
    book.reject(id, "token ops", "it was the wrong one", NOW + MINUTE).unwrap();
    book.look(&policy, Ceiling::Real, &facts(Vec::new(), NOW + 2 * MINUTE), NOW + 2 * MINUTE);
    assert_eq!(state(&book, "host-3"), State::Healthy);
    // About an incident, with a rule that goes by itself: it waits all the same, runs once somebody agrees, and what
    // was decided about the incident before does not stand against it.
    let asked = ask("host-4", NOW);
    let known = facts(vec![asked.clone()], NOW);
    let id = book.propose(&asked, by, (&policy, Ceiling::Real, &known), NOW).unwrap();
    book.look(&policy, Ceiling::Real, &known, NOW);
    assert_eq!(run(&mut book, NOW), Vec::<String>::new());
    book.approve(id, "token ops", false, (&policy, Ceiling::Real, &known), NOW).unwrap();
    assert_eq!(run(&mut book, NOW).len(), 2);
    assert_eq!(
        book.propose(&asked, by, (&policy, Ceiling::Real, &known), NOW),
        Err(Refusal::Busy(id)),
        "it is under way"
    );
    let nowhere = Ask::by_hand("printer", "", NOW);
    assert_eq!(book.propose(&nowhere, by, (&policy, Ceiling::Real, &known), NOW), Err(Refusal::NoPool));
}

#[test]
fn every_line_of_a_rehearsal_says_that_it_is_one() {
    for mode in [Mode::DryRun, Mode::Approve, Mode::Auto] {
        let policy = policy(mode);
        let mut book = Book::default();
        let known = facts(vec![ask("host-3", NOW)], NOW);
        book.look(&policy, Ceiling::DryRun, &known, NOW);
        if mode == Mode::Approve {
            book.approve(1, "token ops", true, (&policy, Ceiling::DryRun, &known), NOW).unwrap();
        }
        book.look(&policy, Ceiling::DryRun, &facts(Vec::new(), NOW), NOW + MINUTE);
        let edges = book.take_changes().edges;
        assert!(edges.iter().all(|edge| edge.dry_run && edge.deed != Deed::Done), "{edges:#?}");
        let deeds: Vec<Deed> = edges.iter().map(|edge| edge.deed).collect();
        assert_eq!(deeds, [Deed::Observed, Deed::Decided, Deed::Rehearsed, Deed::Observed], "{mode:?}");
    }
    let policy = policy(Mode::Auto);
    let mut book = Book::default();
    book.look(&policy, Ceiling::Real, &facts(vec![ask("host-3", NOW)], NOW), NOW);
    run(&mut book, NOW);
    let edges = book.take_changes().edges;
    assert!(edges.iter().all(|edge| !edge.dry_run), "{edges:#?}");
    let deeds: Vec<Deed> = edges.iter().map(|edge| edge.deed).collect();
    assert_eq!(deeds[..2], [Deed::Observed, Deed::Decided]);
    assert!(deeds[2..].iter().all(|deed| *deed == Deed::Done), "{deeds:?}");
}

#[test]
fn what_comes_next_after_a_failed_validation_is_proposed_and_a_person_agrees() {
    let mut policy = policy(Mode::Auto);
    policy.rules.push(ActionRule { commands: vec![drain()], ..rule("boot", Action::RebootNode, Mode::Auto) });
    let mut book = Book::default();
    let asked = Ask { then: Some(Trigger::Incident(Action::RebootNode)), ..ask("host-3", NOW) };
    let known = |at: i64, fault: bool| {
        let mut facts = facts(vec![asked.clone()], at);
        if fault {
            facts.nodes[3].faults = vec![(at, "GPU-host-3".to_owned(), "Xid 48".to_owned())];
        }
        facts
    };
    book.look(&policy, Ceiling::Real, &known(NOW, false), NOW);
    run(&mut book, NOW);
    let later = NOW + MINUTE;
    book.look(&policy, Ceiling::Real, &known(later, true), later);
    assert_eq!(state(&book, "host-3"), State::NeedsHuman);
    let next = book.plans().last().unwrap();
    assert_eq!(
        (next.follows, next.trigger, next.status, next.mode),
        (Some(1), Trigger::Incident(Action::RebootNode), Status::Queued, Mode::Approve)
    );
    // Nothing of it goes by itself, it is proposed once, and it stays what it is.
    for minutes in 1..5 {
        let later = later + minutes * MINUTE;
        book.look(&policy, Ceiling::Real, &known(later, true), later);
        assert_eq!((run(&mut book, later), book.plans().count()), (Vec::new(), 2));
    }
    let later = later + 5 * MINUTE;
    book.approve(2, "token ops", false, (&policy, Ceiling::Real, &known(later, false)), later).unwrap();
    assert_eq!(run(&mut book, later), ["scontrol update nodename=host-3 state=drain reason=tg-2"]);
    assert_eq!(state(&book, "host-3"), State::Validating);
    // That did not help either, and nothing comes after it.
    let later = later + MINUTE;
    book.look(&policy, Ceiling::Real, &known(later, true), later);
    book.look(&policy, Ceiling::Real, &known(later, true), later + MINUTE);
    assert_eq!((state(&book, "host-3"), book.plans().count()), (State::NeedsHuman, 2));
}

#[test]
fn what_is_won_pays_for_what_is_repeated() {
    let policy = policy(Mode::Approve);
    let checkpoint = Checkpoint { step: 4_000, steps_lost: Some(120), ..Checkpoint::default() };
    let job = Job {
        id: "a".to_owned(),
        name: "a".to_owned(),
        is_run: true,
        checkpoint: Some(checkpoint),
        step_seconds: Some(1.5),
        restart_seconds: Some(60.0),
        ..Job::default()
    };
    let pays = |asked: Ask| {
        let mut book = Book::default();
        book.look(&policy, Ceiling::Real, &facts(vec![asked], NOW), NOW);
        only(&book).pays_back_seconds()
    };
    let asked = Ask { gain_ratio: Some(0.16), jobs: vec![job.clone()], ..ask("host-3", NOW) };
    // 120 steps of 1.5 s and a minute: 240 s, of which each second of running wins 0.16.
    assert_eq!(pays(asked.clone()), Ok(1_500.0));
    let first = Job { restart_seconds: None, ..job.clone() };
    assert!(pays(Ask { jobs: vec![first], ..asked.clone() }).unwrap_err().contains("not started again"));
    let bare = Job { checkpoint: None, ..job };
    assert!(pays(Ask { jobs: vec![bare], ..asked.clone() }).unwrap_err().contains("checkpoint"));
    assert!(pays(Ask { gain_ratio: None, ..asked }).is_err());
}
