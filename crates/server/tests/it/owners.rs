//! Which run has a card: what an agent says of owners, completed by what processes of runs say of themselves.

use model::{
    CaptureDevice, CaptureReport, DeviceRole, NANOS_PER_MILLI, NANOS_PER_SECOND, RunPath, stale_marker,
};
use serde_json::Value;
use wire::push::{Attribute, PushRequest, Run, Series, Session};

use crate::fleet_peer::{Agent, Site, lately};

const BOOT: &str = "0123456789abcdef0123456789abcdef";
const CARD: &str = "GPU-8b1a2c3d-0f11-4d6a-8e22-77aa10ff3b21";
const SECOND: i64 = NANOS_PER_SECOND;

/// A process of a run that reports cards.
struct Rank {
    run: Run,
    host: &'static str,
    job_token: &'static str,
    writer: u8,
    sequence: u64,
}

impl Rank {
    fn of(run: &str, host: &'static str, job_token: &'static str, writer: u8) -> Self {
        let names = ["acme", "research", "llm", run].map(str::to_owned);
        let [organization, workspace, project, run] = names;
        Self { run: Run { organization, workspace, project, run }, host, job_token, writer, sequence: 0 }
    }

    fn id(&self) -> String {
        let Run { organization, workspace, project, run } = self.run.clone();
        RunPath { organization, workspace, project, run }.id().to_string()
    }

    /// A sign of life, with what it says of the cards that it sees.
    fn says(&mut self, site: &Site, at: i64, event: u32, cards: &[&str]) {
        let device = |uuid: &&str| CaptureDevice {
            gpu: 0,
            uuid: (*uuid).to_owned(),
            model: "Fake".into(),
            pci_bus_id: String::new(),
            compute_capability: String::new(),
            memory_account: String::new(),
            role: DeviceRole::Owned,
            unsupported: Vec::new(),
        };
        let report = CaptureReport {
            host: self.host.into(),
            boot_id: BOOT.into(),
            pid: 7,
            started_ns: at,
            devices: cards.iter().map(device).collect(),
            ..CaptureReport::default()
        };
        let value = Some(wire::push::Value::Text(wire::capture::to_json(&report)));
        self.sequence += 1;
        let request = PushRequest {
            client_id: vec![self.writer; 16],
            sequence: self.sequence,
            run: Some(self.run.clone()),
            session: Some(Session {
                time_ms: at / NANOS_PER_MILLI,
                event,
                host: self.host.into(),
                pid: 7,
                job_token: self.job_token.into(),
                ..Session::default()
            }),
            attributes: vec![Attribute { key: report.attribute(), if_absent: false, value }],
            ..PushRequest::default()
        };
        Agent::of("n1").deliver(site, &request);
    }
}

/// What a look of the agent has: the card with its power, and who owns it.
fn look(at: i64, rows: &[&[(&str, &str)]]) -> Vec<Series> {
    let agent = Agent::of("n1");
    let card = [("gpu", "3"), ("uuid", CARD)];
    let owners = rows.iter().map(|row| {
        let labels: Vec<(&str, &str)> = card.iter().chain(*row).copied().collect();
        agent.series("tg_gpu_owner_info", &labels, &[(at, 1.0)])
    });
    let info = agent.series("tg_gpu_info", &[&card[..], &[("vendor", "nvidia")]].concat(), &[(at, 1.0)]);
    [info, agent.series("tg_gpu_power_watts", &card, &[(at, 350.0)])].into_iter().chain(owners).collect()
}

/// The owners as of now, their labels but for the card's.
fn owners(site: &Site) -> Vec<String> {
    let line = |labels: &Value| {
        let labels = labels.as_object().unwrap();
        let own =
            labels.iter().filter(|(name, _)| !["__name__", "host", "gpu", "uuid"].contains(&name.as_str()));
        own.map(|(name, value)| format!("{name}={}", value.as_str().unwrap())).collect::<Vec<_>>().join(" ")
    };
    let mut found: Vec<String> =
        site.query("tg_gpu_owner_info").iter().map(|(labels, _)| line(labels)).collect();
    found.sort();
    found
}

const POD: &[(&str, &str)] =
    &[("namespace", "ml"), ("pod", "train-0"), ("container", "main"), ("confidence", "likely")];

#[test]
fn a_run_is_named_from_its_process_and_its_power_is_joined() {
    let site = Site::new();
    let at = lately();
    let mut rank = Rank::of("r", "train-0", "", 9);
    rank.says(&site, at - SECOND, 1, &[CARD]);
    Agent::of("n1").push(&site, look(at, &[POD]), &[]);
    let run = rank.id();
    assert_eq!(
        owners(&site),
        [format!("confidence=certain container=main namespace=ml pod=train-0 run_id={run}")]
    );
    let joined = site.query(
        "tg_gpu_power_watts * on (host, gpu, uuid) group_left (run_id, pod) tg_gpu_owner_info{shared=\"\"}",
    );
    assert_eq!(joined.len(), 1);
    assert_eq!((joined[0].0["run_id"].as_str(), joined[0].1), (Some(&*run), 350.0));
    // Under which name the pod samples the card is told until the run ends.
    let named = site.query("tg_gpu_sampler_info");
    let labels =
        ["host", "gpu", "uuid", "node", "run_id"].map(|name| named[0].0[name].as_str().unwrap().to_owned());
    assert_eq!((named.len(), labels), (1, ["train-0", "0", CARD, "n1", &run].map(str::to_owned)));
    rank.says(&site, at, 3, &[CARD]);
    Agent::of("n1").push(&site, look(at + SECOND, &[POD]), &[]);
    assert_eq!(site.query("tg_gpu_sampler_info"), []);
}

#[test]
fn a_card_that_only_a_run_knows_gets_an_owner_and_loses_it_with_the_run() {
    let mut site = Site::new();
    let (agent, at) = (Agent::of("n1"), lately());
    agent.push(&site, look(at, &[]), &[]);
    assert_eq!(owners(&site), Vec::<String>::new());
    let mut rank = Rank::of("r", "n1", "", 9);
    rank.says(&site, at, 1, &[CARD, "GPU-elsewhere"]);
    agent.push(&site, look(at + SECOND, &[]), &[]);
    let own = format!("confidence=likely run_id={}", rank.id());
    assert_eq!(owners(&site), std::slice::from_ref(&own));
    // What was written before a start of the server ends too.
    site.restart();
    agent.push(&site, look(at + 2 * SECOND, &[]), &[]);
    assert_eq!(owners(&site), [own]);
    site.restart();
    rank.says(&site, at + 2 * SECOND, 3, &[CARD]);
    agent.push(&site, look(at + 4 * SECOND, &[]), &[]);
    assert_eq!(owners(&site), Vec::<String>::new());
    // A look from the time when the run lived is told as it would have been then.
    agent.push(&site, look(at + SECOND / 2, &[]), &[]);
    let then = site.query(&format!("count_over_time(tg_gpu_owner_info{{run_id=\"{}\"}}[10m])", rank.id()));
    assert_eq!(then[0].1, 3.0);
}

#[test]
fn an_owner_that_changes_ends_under_the_labels_that_it_had() {
    let site = Site::new();
    let (agent, at) = (Agent::of("n1"), lately());
    let mut rank = Rank::of("r", "train-0", "", 9);
    rank.says(&site, at - SECOND, 1, &[CARD]);
    agent.push(&site, look(at, &[POD]), &[]);
    // The agent ends what it knows, without the run's id.
    let next = &[("job_id", "77"), ("confidence", "likely")][..];
    let labels: Vec<(&str, &str)> = [("gpu", "3"), ("uuid", CARD)].iter().chain(POD).copied().collect();
    let end = agent.series("tg_gpu_owner_info", &labels, &[(at + SECOND, stale_marker())]);
    rank.says(&site, at, 3, &[]);
    agent.push(&site, [look(at + SECOND, &[next]), vec![end]].concat(), &[]);
    assert_eq!(owners(&site), ["confidence=likely job_id=77"]);
}

#[test]
fn of_several_owners_a_run_is_named_only_where_it_is_clear_whose_it_is() {
    let site = Site::new();
    let (agent, at) = (Agent::of("n1"), lately());
    let mut first = Rank::of("a", "pod-a", "", 1);
    let mut second = Rank::of("b", "pod-b", "", 2);
    let mut third = Rank::of("c", "n1", "88", 3);
    first.says(&site, at, 1, &[CARD]);
    second.says(&site, at, 1, &[CARD]);
    third.says(&site, at, 1, &[CARD]);
    let pod = |name| [("namespace", "ml"), ("pod", name), ("shared", "3"), ("confidence", "likely")];
    let job = [("job_id", "77"), ("shared", "3"), ("confidence", "likely")];
    agent.push(&site, look(at + SECOND, &[&pod("pod-a"), &pod("pod-x"), &job]), &[]);
    assert_eq!(
        owners(&site),
        [
            format!("confidence=certain namespace=ml pod=pod-a run_id={} shared=3", first.id()),
            "confidence=likely job_id=77 shared=3".to_owned(),
            "confidence=likely namespace=ml pod=pod-x shared=3".to_owned(),
        ]
    );
    // A job's row is the run's whose token is its number, of one row alone as well.
    let job = [("job_id", "88"), ("confidence", "likely")];
    agent.push(&site, look(at + 2 * SECOND, &[&job]), &[]);
    assert_eq!(owners(&site), [format!("confidence=certain job_id=88 run_id={}", third.id())]);
    let job = [("job_id", "99"), ("confidence", "conflict")];
    agent.push(&site, look(at + 3 * SECOND, &[&job]), &[]);
    assert_eq!(owners(&site), ["confidence=conflict job_id=99"], "two runs may be it");
}

#[test]
fn what_an_agent_knows_itself_stays() {
    let site = Site::new();
    let at = lately();
    let mut rank = Rank::of("r", "n1", "", 9);
    rank.says(&site, at, 1, &[CARD]);
    let row = &[("run_id", "00000000000000aa"), ("confidence", "likely")][..];
    Agent::of("n1").push(&site, look(at + SECOND, &[row]), &[]);
    assert_eq!(owners(&site), ["confidence=likely run_id=00000000000000aa"]);
}
