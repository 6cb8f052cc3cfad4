//! Who owns the cards of a node: a real service on the kubelet's socket, folders that stand for `/proc`, `/sys`
//! and the kubelet's logs, and real locks.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use agent::{Card, Owners, OwnersOptions, SharedCards, Snapshot, Source, Tick};
use collect::gpu::{GpuDevice, GpuMemoryAccount, GpuProcess, MigInstance};
use model::{Event, Severity};
use prost::Message;

use crate::kubelet::{Allocatable, Answers, Claimed, Dynamic, Kubelet, Pod, devices, pod, pods};

const BOOT: &str = "0a1b2c3d-0000-4000-8000-000000000000";
const UID: &str = "0d8e4f4c-7c1b-4d6e-9a55-3f1f7d6f2b10";
const OTHER_UID: &str = "11111111-7c1b-4d6e-9a55-3f1f7d6f2b10";
const RUN: &str = "0123456789abcdef";

/// A card's UUID.
fn card(index: u32) -> String {
    format!("GPU-{index:08x}-0f11-4d6a-8e22-77aa10ff3b21")
}

/// A node in a folder.
struct Node {
    folder: tempfile::TempDir,
    cards: SharedCards,
    owners: Option<Owners>,
    looks: i64,
}

impl Node {
    fn new(cards: u32) -> Self {
        let node = Self {
            folder: tempfile::tempdir().unwrap(),
            cards: SharedCards::default(),
            owners: None,
            looks: 0,
        };
        for index in 0..cards {
            let device = GpuDevice {
                index,
                uuid: card(index),
                name: "Fake H100".into(),
                pci_bus_id: format!("0000:{:02x}:00.0", 0x1b + index),
                compute_capability: None,
                architecture: "Hopper",
                sm_clock_max_mhz: None,
                memory: GpuMemoryAccount::Allocated,
                mig: false,
                instances: Vec::new(),
            };
            node.cards.lock().all.push(Card { device, processes: Ok(Vec::new()), answers: true });
        }
        node
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn socket(&self) -> PathBuf {
        self.path("kubelet.sock")
    }

    /// A process that the driver lists on a card.
    fn process(&self, gpu: usize, pid: u32, cgroup: &str, environ: &str) {
        self.process_in(gpu, None, pid);
        self.proc(pid, 1, cgroup, environ);
    }

    fn process_in(&self, gpu: usize, gpu_instance: Option<u32>, pid: u32) {
        let process = GpuProcess { pid, memory_bytes: None, computes: true, gpu_instance };
        self.cards.lock().all[gpu].processes.as_mut().unwrap().push(process);
    }

    fn proc(&self, pid: u32, parent: u32, cgroup: &str, environ: &str) {
        let zeros = "0 ".repeat(17);
        self.write(&format!("proc/{pid}/stat"), format!("{pid} (py (x) 3) S {parent} {zeros}{} 0", pid * 10));
        self.write(&format!("proc/{pid}/cgroup"), cgroup);
        self.write(&format!("proc/{pid}/environ"), environ.replace(' ', "\0"));
    }

    /// The kubelet keeps logs of a pod.
    fn logs(&self, namespace: &str, pod: &str, uid: &str) {
        std::fs::create_dir_all(self.path(&format!("pods/{namespace}_{pod}_{uid}"))).unwrap();
    }

    fn options(&self) -> OwnersOptions {
        OwnersOptions {
            kubelet: self.socket(),
            kubelet_every: Duration::ZERO,
            proc: self.path("proc"),
            sys: self.path("sys"),
            pod_logs: self.path("pods"),
            claims: vec![self.path("shm")],
            boot_id: BOOT.into(),
        }
    }

    fn look(&mut self) -> Snapshot {
        let mut owners = match self.owners.take() {
            Some(owners) => owners,
            None => Owners::start(self.options(), self.cards.clone()).unwrap(),
        };
        self.looks += 1;
        let mut snapshot = Snapshot::default();
        owners.read(&Tick { time_ns: self.looks, elapsed: Duration::ZERO, host: "n1" }, &mut snapshot);
        self.owners = Some(owners);
        snapshot
    }

    /// Looks until something is so.
    fn until<T>(&mut self, what: &str, mut found: impl FnMut(&Snapshot) -> Option<T>) -> T {
        let end = Instant::now() + Duration::from_mins(1);
        loop {
            let snapshot = self.look();
            if let Some(found) = found(&snapshot) {
                return found;
            }
            assert!(Instant::now() < end, "{what}: {:?} {:?}", lines(&snapshot), snapshot.events);
            std::thread::yield_now();
        }
    }

    /// Looks until exactly these series are there.
    fn until_lines(&mut self, wanted: &[&str]) {
        self.until(&format!("{wanted:?}"), |snapshot| (lines(snapshot) == wanted).then_some(()));
    }

    fn until_event(&mut self, text: &str) -> Event {
        self.until(text, |snapshot| snapshot.events.iter().find(|event| event.text.contains(text)).cloned())
    }
}

/// The series of a look, without the card's UUID.
fn lines(snapshot: &Snapshot) -> Vec<String> {
    let line = |reading: &agent::Reading| {
        let labels = reading.labels.iter().filter(|(name, _)| *name != "uuid");
        let labels: Vec<String> = labels.map(|(name, value)| format!("{name}={value}")).collect();
        match reading.desc.name {
            "tg_gpu_owner_info" => labels.join(" "),
            name => format!("{name} {} {}", labels.join(" "), reading.value),
        }
    };
    snapshot.readings.iter().map(line).collect()
}

fn in_pod(uid: &str) -> String {
    format!("0::/kubepods/burstable/pod{uid}/{}", "ab".repeat(32))
}

const ALLOCATED: &str = "tg_node_gpus source=allocated";

#[test]
fn allocation_and_process_of_a_pod_agree() {
    let mut node = Node::new(2);
    node.logs("ml", "train-0", UID);
    node.process(0, 4242, &in_pod(UID), "");
    let _kubelet = Kubelet::at(
        &node.socket(),
        pods(&[
            pod("ml", "train-0", "nvidia.com/gpu", &[&card(0)]),
            pod("ml", "idle", "nvidia.com/gpu", &[&card(1)]),
        ]),
    );
    node.until_lines(&[
        &format!("{ALLOCATED} 2"),
        "gpu=0 namespace=ml pod=train-0 container=main confidence=certain",
        "gpu=1 namespace=ml pod=idle container=main confidence=likely",
    ]);
}

#[test]
fn ids_of_every_plugin_lead_to_their_cards() {
    let mut node = Node::new(4);
    // The driver numbers its files otherwise than its cards.
    node.write("proc/driver/nvidia/gpus/0000:1d:00.0/information", "Model: \t\t Fake\nDevice Minor: \t 7\n");
    let claimed = Claimed {
        driver: "gpu.nvidia.com".into(),
        pool: "n1".into(),
        device: format!("gpu-{}", &card(3)[4..]),
    };
    let mut by_claim = pod("ml", "dra", "cpu", &[]);
    by_claim.containers[0].dynamic = vec![Dynamic { claim: "c".into(), resources: vec![claimed] }];
    let _kubelet = Kubelet::at(
        &node.socket(),
        pods(&[
            pod("ml", "a", "nvidia.com/gpu", &[&format!("{}::0", card(0))]),
            pod(
                "ml",
                "b",
                "nvidia.com/gpu.shared",
                &[&format!("{}::1", card(0)), &format!("{}::2", card(0))],
            ),
            pod("ml", "c", "nvidia.com/gpu", &["nvidia1"]),
            pod("ml", "d", "nvidia.com/gpu", &["nvidia7/vgpu2"]),
            pod("ml", "net", "example.com/nic", &["nvidia0"]),
            by_claim,
        ]),
    );
    node.until_lines(&[
        &format!("{ALLOCATED} 4"),
        "gpu=0 namespace=ml pod=a container=main shared=2 confidence=likely",
        "gpu=0 namespace=ml pod=b container=main shared=2 confidence=likely",
        "gpu=1 namespace=ml pod=c container=main confidence=likely",
        "gpu=2 namespace=ml pod=d container=main confidence=likely",
        "gpu=3 namespace=ml pod=dra container=main confidence=likely",
    ]);
}

#[test]
fn slices_have_owners_of_their_own() {
    let mut node = Node::new(1);
    let slice = |gi: u32| format!("MIG-0000000{gi}-0f11-4d6a-8e22-77aa10ff3b21");
    {
        let mut cards = node.cards.lock();
        let device = &mut cards.all[0].device;
        device.mig = true;
        let instance = |gi| MigInstance { uuid: slice(gi), gpu_instance: Some(gi) };
        device.instances = [3, 5, 6].map(instance).to_vec();
    }
    node.logs("ml", "big", UID);
    node.process_in(0, Some(5), 77);
    node.proc(77, 1, &in_pod(UID), "");
    let _kubelet = Kubelet::at(
        &node.socket(),
        pods(&[
            pod("ml", "big", "nvidia.com/mig-3g.40gb", &[&slice(5)]),
            pod("ml", "old", "nvidia.com/mig-1g.10gb", &[&format!("MIG-{}/3/0", card(0))]),
            pod("ml", "gke", "nvidia.com/gpu", &["nvidia0/gi6"]),
        ]),
    );
    node.until_lines(&[
        &format!("{ALLOCATED} 1"),
        "gpu=0 gi=3 namespace=ml pod=old container=main shared=3 confidence=likely",
        "gpu=0 gi=5 namespace=ml pod=big container=main shared=3 confidence=certain",
        "gpu=0 gi=6 namespace=ml pod=gke container=main shared=3 confidence=likely",
    ]);
}

#[test]
fn a_process_on_somebody_elses_card_is_told_once_and_so_is_its_end() {
    let mut node = Node::new(1);
    node.logs("ml", "train-0", UID);
    node.logs("dev", "notebook", OTHER_UID);
    node.process(0, 66, &in_pod(OTHER_UID), "");
    let _kubelet = Kubelet::at(&node.socket(), pods(&[pod("ml", "train-0", "nvidia.com/gpu", &[&card(0)])]));
    node.until_lines(&[
        &format!("{ALLOCATED} 1"),
        "gpu=0 namespace=dev pod=notebook shared=2 confidence=conflict",
        "gpu=0 namespace=ml pod=train-0 container=main shared=2 confidence=conflict",
    ]);
    let wanted = "process 66 (`py (x) 3`) of pod `dev/notebook` computes on GPU 0, which the kubelet gave to pod `ml/train-0`";
    let event = node.until_event(wanted);
    assert_eq!((&*event.kind, event.severity), ("owner", Severity::Warning));
    assert_eq!(event.label("uuid"), Some(&*card(0)));
    assert_eq!(event.label("pci_bus_id"), Some("0000:1b:00.0"));
    let body: serde_json::Value = serde_json::from_str(&event.body).unwrap();
    assert_eq!((&body["pid"], &body["given_to"][0]), (&66.into(), &"ml/train-0".into()));
    // It stays until it is known to be kept, under one key.
    assert!(node.look().events.iter().any(|again| again.key == event.key));
    node.owners.as_mut().unwrap().kept();
    assert_eq!(node.look().events, []);
    std::fs::remove_dir_all(node.path("proc/66")).unwrap();
    let over = node.until_event("over: process 66");
    assert_eq!((&*over.kind, over.severity), ("owner", Severity::Info));
    assert_ne!(over.key, event.key);
    node.until_lines(&[
        &format!("{ALLOCATED} 1"),
        "gpu=0 namespace=ml pod=train-0 container=main confidence=likely",
    ]);
}

#[test]
fn jobs_of_slurm_own_cards_without_a_kubelet() {
    let mut node = Node::new(3);
    node.process(
        0,
        10,
        "0::/system.slice/slurmstepd.scope/job_77/step_0/user/task_0",
        "SLURM_JOB_ID=77 SLURM_JOB_GPUS=0,1",
    );
    node.process(1, 11, "9:memory:/slurm/uid_1000/job_77/step_batch\n8:cpu:/slurm/uid_1000/job_77", "");
    // No control group of Slurm's (`proctrack/pgid`): the environment is what there is.
    node.process(2, 12, "0::/user.slice/user-1000.slice/session-1.scope", "SLURM_JOB_ID=78 SLURM_STEP_ID=3");
    // Gone between the driver's list and ours.
    node.process_in(2, None, 13);
    node.until_lines(&[
        &format!("{ALLOCATED} 3"),
        "gpu=0 job_id=77 confidence=certain",
        "gpu=1 job_id=77 confidence=likely",
        "gpu=2 job_id=78 confidence=likely",
    ]);
    assert_eq!(node.look().events, [], "a process that has gone is nobody's fault");
}

#[test]
fn runs_are_known_by_their_locks_and_by_what_they_start() {
    runs_are_known(false);
}

#[test]
fn runs_are_known_where_the_kernel_lists_the_locks() {
    runs_are_known(true);
}

fn runs_are_known(does_kernel_list: bool) {
    let mut node = Node::new(3);
    if does_kernel_list {
        std::fs::create_dir_all(node.path("proc")).unwrap();
        std::os::unix::fs::symlink("/proc/locks", node.path("proc/locks")).unwrap();
    }
    let uid = rustix::process::geteuid().as_raw();
    let lock = format!("shm/truegauge-claims-{uid}/my-run-{RUN}-0a1b2c3d/device-{}.lock", card(0));
    node.write(&lock, "");
    node.write(&format!("shm/truegauge-claims-{uid}/my-run-{RUN}-ffffffff/device-{}.lock", card(2)), "");
    let mut holder = Holder::of(&node.path(&lock));
    // A worker of the process that holds the lock, in a job.
    node.process(0, 21, "0::/system.slice/slurmstepd.scope/job_5/step_0", "");
    node.proc(holder.pid(), 1, "0::/", "");
    node.proc(21, holder.pid(), "0::/system.slice/slurmstepd.scope/job_5/step_0", "");
    node.process(1, 22, "0::/", "OTEL_RESOURCE_ATTRIBUTES=service.name=x,truegauge.run_id=fedcba9876543210");
    node.until_lines(&[
        &format!("{ALLOCATED} 1"),
        &format!("gpu=0 run_id={RUN} job_id=5 confidence=likely"),
        "gpu=1 run_id=fedcba9876543210 confidence=likely",
    ]);
    holder.end();
    let without = [
        &format!("{ALLOCATED} 1"),
        "gpu=0 job_id=5 confidence=likely",
        "gpu=1 run_id=fedcba9876543210 confidence=likely",
    ];
    node.until_lines(&without);
    // Another process takes the same file, which changes nothing of its folder.
    let again = Holder::of(&node.path(&lock));
    node.proc(again.pid(), 1, "0::/", "");
    node.proc(21, again.pid(), "0::/system.slice/slurmstepd.scope/job_5/step_0", "");
    node.until(&format!("run {RUN} again"), |found| {
        lines(found).contains(&format!("gpu=0 run_id={RUN} job_id=5 confidence=likely")).then_some(())
    });
}

/// A process that holds a lock as our clients do.
struct Holder(std::process::Child);

impl Holder {
    fn of(path: &Path) -> Self {
        let code = "import fcntl, sys
file = open(sys.argv[1], 'r+b')
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
print('locked', flush=True)
sys.stdin.read()";
        let mut child = std::process::Command::new("python3")
            .args(["-c", code])
            .arg(path)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut said)
            .unwrap();
        assert_eq!(said, "locked\n");
        Self(child)
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    fn end(&mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn cards_of_amd_and_their_partitions_are_covered_by_the_same_means() {
    let mut node = Node::new(0);
    let kfd = "sys/class/kfd/kfd";
    let topology = |number: u32, gpu_id: u32, location: u32, render: u32| {
        node.write(&format!("{kfd}/topology/nodes/{number}/gpu_id"), format!("{gpu_id}\n"));
        let text =
            format!("cpu_cores_count 0\nlocation_id {location}\ndomain 0\ndrm_render_minor {render}\n");
        node.write(&format!("{kfd}/topology/nodes/{number}/properties"), text);
    };
    topology(0, 0, 0, 0);
    topology(1, 1001, 0x8300, 128);
    topology(2, 2001, 0xc300, 129);
    topology(3, 2002, 0xc301, 130);
    node.write("sys/bus/pci/devices/0000:83:00.0/serial_number", "692401000111\n");
    node.write("sys/bus/pci/devices/0000:c3:00.0/serial_number", "692401000112\n");
    node.write("sys/devices/platform/amdgpu_xcp_0/drm/renderD130", "");
    node.write(&format!("{kfd}/proc/31/vram_1001"), "4096\n");
    node.write(&format!("{kfd}/proc/31/vram_2001"), "0\n");
    node.proc(31, 1, "0::/system.slice/slurmstepd.scope/job_9/step_0", "");
    node.until_lines(&[&format!("{ALLOCATED} 1"), "gpu=0 job_id=9 confidence=likely"]);
    let _kubelet = Kubelet::at(
        &node.socket(),
        pods(&[
            pod("ml", "first", "amd.com/gpu", &["0000:c3:00.0"]),
            pod("ml", "second", "amd.com/gpu", &["amdgpu_xcp_0"]),
        ]),
    );
    node.until_lines(&[
        &format!("{ALLOCATED} 2"),
        "gpu=0 job_id=9 confidence=likely",
        "gpu=1 gi=0 namespace=ml pod=first container=main shared=2 confidence=likely",
        "gpu=1 gi=1 namespace=ml pod=second container=main shared=2 confidence=likely",
    ]);
    let uuids = |snapshot: &Snapshot| {
        let labels = snapshot.readings.iter().flat_map(|reading| &reading.labels);
        labels.filter(|(name, _)| *name == "uuid").map(|(_, value)| value.clone()).collect::<Vec<_>>()
    };
    assert_eq!(uuids(&node.look()), ["692401000111", "692401000112", "692401000112"]);
}

#[test]
fn a_kubelet_that_is_not_there_costs_nothing_and_is_heard_when_it_comes() {
    let mut node = Node::new(1);
    for _ in 0..3 {
        let snapshot = node.look();
        assert_eq!((lines(&snapshot), snapshot.events), (vec![], vec![]));
    }
    let kubelet = Kubelet::at(&node.socket(), pods(&[pod("ml", "a", "nvidia.com/gpu", &[&card(0)])]));
    let wanted = [&*format!("{ALLOCATED} 1"), "gpu=0 namespace=ml pod=a container=main confidence=likely"];
    node.until_lines(&wanted);
    // It is started anew: what it said holds meanwhile, and that is told once.
    drop(kubelet);
    std::fs::remove_file(node.socket()).unwrap();
    let gone = node.until_event("the kubelet doesn't tell in full who has which card");
    assert_eq!((&*gone.kind, gone.severity), ("node", Severity::Warning));
    assert_eq!(lines(&node.look()), wanted);
    let _kubelet = Kubelet::at(&node.socket(), pods(&[]));
    node.until_lines(&[&format!("{ALLOCATED} 0")]);
    node.until_event("the kubelet tells again");
}

#[test]
fn a_kubelet_that_refuses_breaks_off_or_babbles_is_told_with_its_cause() {
    let huge = vec![0x0a; 17 << 20];
    for (answers, cause) in [
        (Answers::Refused(tonic::Code::ResourceExhausted), "code 8: not%20now"),
        (Answers::Refused(tonic::Code::Unimplemented), "it has no `v1.PodResourcesLister`"),
        (Answers::With(vec![0x0a, 0xff, 0xff, 0xff, 0x7f, 1], None), "its answer can't be read"),
        (Answers::With(huge, None), "its answer is over 16 MiB"),
    ] {
        let mut node = Node::new(1);
        let kubelet = Kubelet::at(&node.socket(), answers);
        node.until_event(cause);
        assert_eq!(lines(&node.look()), Vec::<String>::new());
        kubelet.answer(pods(&[pod("ml", "a", "nvidia.com/gpu", &[&card(0)])]));
        node.until_lines(&[
            &format!("{ALLOCATED} 1"),
            "gpu=0 namespace=ml pod=a container=main confidence=likely",
        ]);
    }
}

#[test]
fn what_speaks_another_protocol_is_no_kubelet() {
    let mut node = Node::new(1);
    let listener = std::os::unix::net::UnixListener::bind(node.socket()).unwrap();
    let speaker = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        std::io::Write::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
    });
    node.until_event("doesn't tell in full who has which card");
    speaker.join().unwrap();
}

#[test]
fn a_kubelet_that_hangs_holds_up_nobody() {
    let mut node = Node::new(1);
    let kubelet = Kubelet::at(&node.socket(), Answers::Never);
    // The looks go on while it is waited for.
    node.until("a call", |_| (kubelet.calls() > 0).then_some(()));
    for _ in 0..100 {
        assert_eq!(lines(&node.look()), Vec::<String>::new());
    }
    assert_eq!(kubelet.calls(), 1);
    node.until_event("no answer in 5 s");
}

#[test]
fn a_kubelet_that_lies_is_bounded_and_its_lies_are_told() {
    let mut node = Node::new(1);
    let many = (0..10_000).map(|at| pod("ml", &format!("p{at}"), "nvidia.com/gpu", &["GPU-deadbeef-0000"]));
    let odd = [
        pod("ml\u{1b}[31m", "a", "nvidia.com/gpu", &[&card(0)]),
        pod("ml", &"x".repeat(300), "nvidia.com/gpu", &[&card(0)]),
        pod("ml", "real", "nvidia.com/gpu", &[&card(0), &"y".repeat(5_000)]),
    ];
    let all: Vec<Pod> = odd.into_iter().chain(many).collect();
    let _kubelet = Kubelet::at(&node.socket(), pods(&all));
    node.until_event("2 entries of its answer name no pod");
    let event = node.until_event("the kubelet gave `GPU-deadbeef-0000` to pod `ml/p");
    assert_eq!((&*event.kind, event.label("uuid")), ("owner", None));
    let snapshot = node.look();
    let wanted = "gpu=0 namespace=ml pod=real container=main confidence=likely";
    assert_eq!(lines(&snapshot)[1..], [wanted]);
    assert!(snapshot.events.len() < 300, "{}", snapshot.events.len());
}

#[test]
fn a_card_that_the_kubelet_leaves_out_is_told() {
    let mut node = Node::new(2);
    let offered = Allocatable { devices: vec![devices("nvidia.com/gpu", &[&card(0)])] };
    let answers = Answers::With(Vec::new(), Some(offered.encode_to_vec()));
    let _kubelet = Kubelet::at(&node.socket(), answers);
    let event = node.until_event("gives out other cards and not GPU 1");
    assert_eq!((&*event.kind, event.label("uuid")), ("inventory", Some(&*card(1))));
}
