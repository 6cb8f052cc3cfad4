//! Locks between real processes.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use client::claims::{Claim, Claims, Me};
use model::{Arbitration, CaptureOwner, RunPath};

const PLACES: &str = "TG_TEST_CLAIMS_PLACES";
const RUN: &str = "TG_TEST_CLAIMS_RUN";
const RANK: &str = "TG_TEST_CLAIMS_RANK";

fn run_path(run: &str) -> RunPath {
    RunPath { project: "claims".into(), run: run.into(), ..RunPath::default() }
}

fn me(rank: Option<u32>) -> Me {
    Me { host: "node-1".into(), rank, local_rank: rank, job_token: "77".into() }
}

/// The first folder stands for `/dev/shm`, the second for that of temporary files.
fn places(bases: &[&Path]) -> Vec<(Arbitration, PathBuf)> {
    let places = [Arbitration::Shm, Arbitration::Tmp];
    places.into_iter().zip(bases.iter().map(|base| base.to_path_buf())).collect()
}

fn claims(bases: &[&Path], run: &str, rank: Option<u32>) -> Claims {
    Claims::open_in(&places(bases), &run_path(run), &me(rank))
}

/// A process that does what it is told on its standard input, and says how that went. As a test of its
/// own it does nothing.
#[test]
fn helper() {
    let Ok(bases) = std::env::var(PLACES) else { return };
    let bases: Vec<&Path> = bases.split(':').map(Path::new).collect();
    let rank = std::env::var(RANK).ok().and_then(|rank| rank.parse().ok());
    let mut claims = Some(claims(&bases, &std::env::var(RUN).unwrap(), rank));
    for line in std::io::stdin().lines().map(Result::unwrap) {
        let (verb, what) = line.split_once(' ').unwrap_or((&line, ""));
        let own = claims.as_mut().unwrap();
        let answer = match verb {
            "device" => said(&own.try_device(what)),
            "node" => said(&own.try_node()),
            "note" => {
                own.note(what.parse().unwrap(), 1_800_000_000_000_000_000);
                "noted".into()
            }
            "drop" => {
                own.release_device(what);
                "dropped".into()
            }
            "release" => {
                claims.take().unwrap().release();
                "released".into()
            }
            "mode" => format!("{} {}", own.mode().as_str(), own.domain()),
            other => panic!("{other}"),
        };
        println!("answer: {answer}");
    }
}

fn said(claim: &Claim) -> String {
    match claim {
        Claim::Held { last_step: None } => "held".into(),
        Claim::Held { last_step: Some(step) } => format!("held after {step}"),
        Claim::Taken(owner) => format!("taken by rank {:?} on {}", owner.rank, owner.host),
        Claim::Failed(cause) => format!("failed: {cause}"),
    }
}

struct Helper {
    child: Child,
    answers: BufReader<ChildStdout>,
}

impl Helper {
    fn start(bases: &[&Path], run: &str, rank: u32) -> Self {
        let bases: Vec<&str> = bases.iter().map(|base| base.to_str().unwrap()).collect();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "claims::helper", "--nocapture"])
            .env(PLACES, bases.join(":"))
            .env(RUN, run)
            .env(RANK, rank.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Self { child, answers }
    }

    fn tell(&mut self, what: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{what}").unwrap();
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(self.answers.read_line(&mut line).unwrap(), 0, "the helper is gone");
            // The test harness writes its own words in front of the first answer.
            if let Some((_, answer)) = line.split_once("answer: ") {
                return answer.trim_end().to_owned();
            }
        }
    }

    fn ask(&mut self, what: &str) -> String {
        self.tell(what);
        self.hear()
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[test]
fn second_process_learns_who_has_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut first = Helper::start(&[dir.path()], "a", 3);
    assert_eq!(first.ask("device GPU-1"), "held");
    assert_eq!(first.ask("node"), "held");
    let mut second = claims(&[dir.path()], "a", Some(0));
    let owner = CaptureOwner { host: "node-1".into(), pid: first.child.id(), rank: Some(3) };
    assert_eq!(second.try_device("GPU-1"), Claim::Taken(owner.clone()));
    assert_eq!(second.try_node(), Claim::Taken(owner.clone()));
    assert_eq!(second.try_device("GPU-2"), Claim::Held { last_step: None });
    assert_eq!((second.holder("GPU-1"), second.node_holder()), (Some(owner.clone()), Some(owner)));
    assert_eq!((second.holder("GPU-2"), second.holder("GPU-3")), (None, None));
    assert_eq!(first.ask("device GPU-2"), "taken by rank Some(0) on node-1");
    let (mode, domain) = (second.mode(), second.domain().to_owned());
    assert_eq!((mode, first.ask("mode")), (Arbitration::Shm, format!("shm {domain}")));
}

#[test]
fn owner_that_is_killed_is_followed_at_the_next_try_with_its_step() {
    let dir = tempfile::tempdir().unwrap();
    let mut first = Helper::start(&[dir.path()], "a", 0);
    assert_eq!(first.ask("node"), "held");
    assert_eq!(first.ask("device GPU-1"), "held");
    assert_eq!(first.ask("note 41"), "noted");
    assert_eq!(first.ask("node"), "held", "asked again it stays");
    let mut second = claims(&[dir.path()], "a", Some(1));
    assert!(matches!(second.try_node(), Claim::Taken(_)));
    first.kill();
    assert_eq!(second.node_holder(), None);
    assert_eq!(second.try_node(), Claim::Held { last_step: Some(41) });
    assert_eq!(second.try_node(), Claim::Held { last_step: None }, "said once");
    // It dies before its own first note: the third one still knows.
    assert_eq!(second.try_device("GPU-1"), Claim::Held { last_step: Some(41) });
    second.release();
    let mut third = claims(&[dir.path()], "a", Some(2));
    assert_eq!(third.try_device("GPU-1"), Claim::Held { last_step: Some(41) });
}

#[test]
fn what_is_let_go_of_is_free_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut first = Helper::start(&[dir.path()], "a", 0);
    for ask in ["node", "device GPU-1", "device GPU-2"] {
        assert_eq!(first.ask(ask), "held");
    }
    let mut second = claims(&[dir.path()], "a", Some(1));
    assert_eq!(first.ask("drop GPU-1"), "dropped");
    assert_eq!(second.try_device("GPU-1"), Claim::Held { last_step: None });
    assert!(matches!(second.try_device("GPU-2"), Claim::Taken(_)));
    assert_eq!(first.ask("release"), "released");
    assert_eq!(second.try_device("GPU-2"), Claim::Held { last_step: None });
    assert_eq!(second.try_node(), Claim::Held { last_step: None });
}

#[test]
fn what_is_let_go_of_is_told_from_what_its_owner_left_behind() {
    let dir = tempfile::tempdir().unwrap();
    let other = claims(&[dir.path()], "a", Some(1));
    let mut first = Helper::start(&[dir.path()], "a", 0);
    let left_behind = || ["GPU-1", "GPU-2", "GPU-3"].map(|uuid| other.left_behind_ns(uuid));
    for ask in ["device GPU-1", "device GPU-2"] {
        assert_eq!(first.ask(ask), "held");
    }
    assert_eq!(first.ask("note 7"), "noted");
    assert_eq!(left_behind(), [None; 3], "held, held, and nobody's yet");
    assert_eq!(first.ask("drop GPU-1"), "dropped");
    first.kill();
    assert_eq!(left_behind(), [None, Some(1_800_000_000_000_000_000), None]);
    let mut next = claims(&[dir.path()], "a", Some(2));
    assert_eq!(next.try_device("GPU-1"), Claim::Held { last_step: Some(7) }, "the step is left in any case");
    next.release();
    let mut last = Helper::start(&[dir.path()], "a", 3);
    assert_eq!(last.ask("device GPU-2"), "held after 7");
    assert_eq!(left_behind(), [None; 3]);
    assert_eq!(last.ask("release"), "released");
    assert_eq!(left_behind(), [None; 3]);
}

#[test]
fn eight_processes_share_out_eight_devices_and_a_node_once_each() {
    let dir = tempfile::tempdir().unwrap();
    let mut ranks: Vec<Helper> = (0..8).map(|rank| Helper::start(&[dir.path()], "race", rank)).collect();
    let asks: Vec<String> =
        (0..8).map(|gpu| format!("device GPU-{gpu}")).chain(["node".to_owned()]).collect();
    let held = |ranks: &mut [Helper]| {
        for rank in &mut *ranks {
            for ask in &asks {
                rank.tell(ask);
            }
        }
        let mut held = vec![0; asks.len()];
        for rank in ranks {
            for count in &mut held {
                *count += u32::from(rank.hear().starts_with("held"));
            }
        }
        held
    };
    assert_eq!(held(&mut ranks), vec![1; asks.len()]);
    for _ in 0..3 {
        ranks.remove(0).kill();
        ranks.swap_remove(1).kill();
        assert_eq!(held(&mut ranks), vec![1; asks.len()], "{} left", ranks.len());
    }
}

#[test]
fn runs_do_not_meet_whatever_their_job() {
    let dir = tempfile::tempdir().unwrap();
    let mut first = claims(&[dir.path()], "one", None);
    let mut second = claims(&[dir.path()], "two", None);
    assert_eq!(
        (first.try_node(), second.try_node()),
        (Claim::Held { last_step: None }, Claim::Held { last_step: None })
    );
    assert_ne!(first.domain(), second.domain());
}

#[test]
fn two_handles_of_one_process_are_two_and_the_later_one_costs_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut first = claims(&[dir.path()], "a", Some(0));
    assert_eq!(first.try_node(), Claim::Held { last_step: None });
    let mut second = claims(&[dir.path()], "a", Some(0));
    let this = CaptureOwner { host: "node-1".into(), pid: std::process::id(), rank: Some(0) };
    assert_eq!(second.try_node(), Claim::Taken(this));
    assert_eq!(second.node_holder(), None);
    drop(second);
    let mut other = Helper::start(&[dir.path()], "a", 1);
    assert_eq!(other.ask("node"), "taken by rank Some(0) on node-1");
    drop(first);
    assert_eq!(other.ask("node"), "held");
}

#[test]
fn folder_of_somebody_else_or_open_to_others_is_passed_over() {
    let check = |prepare: &dyn Fn(&Path), want: &str| {
        let (shm, tmp) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        // Where it would be: made by a first handle, then replaced.
        claims(&[shm.path()], "a", None).release();
        let user = fs::read_dir(shm.path()).unwrap().next().unwrap().unwrap().path();
        prepare(&user);
        let mut got = claims(&[shm.path(), tmp.path()], "a", None);
        assert_eq!(got.mode(), Arbitration::Tmp);
        let said = got.passed_over().join("; ");
        assert!(said.contains(want), "{said}");
        assert_eq!(got.try_node(), Claim::Held { last_step: None });
    };
    let elsewhere = tempfile::tempdir().unwrap();
    let target = elsewhere.path().to_owned();
    check(
        &|user| {
            fs::remove_dir_all(user).unwrap();
            symlink(&target, user).unwrap();
        },
        "it is no directory",
    );
    assert_eq!(fs::read_dir(&target).unwrap().count(), 0, "the link was not followed");
    check(
        &|user| {
            fs::remove_dir_all(user).unwrap();
            fs::write(user, "a file").unwrap();
        },
        "it is no directory",
    );
    check(
        &|user| fs::set_permissions(user, fs::Permissions::from_mode(0o777)).unwrap(),
        "others may use it (mode 777)",
    );
    check(
        &|user| {
            let key = fs::read_dir(user).unwrap().next().unwrap().unwrap().path();
            fs::remove_dir_all(&key).unwrap();
            symlink(&target, key).unwrap();
        },
        "it is no directory",
    );
    assert_eq!(fs::read_dir(&target).unwrap().count(), 0);
    check(
        &|user| {
            let key = fs::read_dir(user).unwrap().next().unwrap().unwrap().path();
            fs::remove_file(key.join("probe")).unwrap();
            symlink(target.join("victim"), key.join("probe")).unwrap();
        },
        "cannot open",
    );
    assert_eq!(fs::read_dir(&target).unwrap().count(), 0);
}

#[test]
fn lock_file_that_is_a_link_or_has_a_second_name_is_not_written_to() {
    let dir = tempfile::tempdir().unwrap();
    let mut claims = claims(&[dir.path()], "a", None);
    let folder = key_folder(dir.path());
    let precious = dir.path().join("precious");
    fs::write(&precious, "mine").unwrap();
    fs::set_permissions(&precious, fs::Permissions::from_mode(0o600)).unwrap();
    symlink(&precious, folder.join("device-GPU-1.lock")).unwrap();
    fs::hard_link(&precious, folder.join("device-GPU-2.lock")).unwrap();
    fs::create_dir(folder.join("device-GPU-3.lock")).unwrap();
    for (uuid, want) in
        [("GPU-1", "cannot open"), ("GPU-2", "it has a second name"), ("GPU-3", "cannot open")]
    {
        let Claim::Failed(cause) = claims.try_device(uuid) else { panic!("{uuid}") };
        assert!(cause.contains(want), "{cause}");
    }
    assert_eq!(fs::read_to_string(&precious).unwrap(), "mine");
    assert_eq!(
        claims.try_device("GPU-4"),
        Claim::Held { last_step: None },
        "the others are not touched by it"
    );
}

/// The only run's folder in a place.
fn key_folder(base: &Path) -> PathBuf {
    let only = |path: &Path| {
        let mut entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
        entries.find(|path| path.is_dir()).unwrap()
    };
    only(&only(base))
}

#[test]
fn without_a_usable_place_the_local_rank_decides() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing");
    // Nobody may make anything there, not even root.
    let unwritable = Path::new("/proc");
    let of = |rank| claims(&[&missing, unwritable], "a", rank);
    let mut lone = of(None);
    assert_eq!((lone.mode(), lone.domain()), (Arbitration::Unavailable, ""));
    assert_eq!(lone.passed_over().len(), 2, "{:?}", lone.passed_over());
    let want = format!("cannot open `{}`: ", missing.display());
    assert!(lone.passed_over()[0].starts_with(&want), "{:?}", lone.passed_over());
    assert_eq!(lone.try_device("GPU-1"), Claim::Held { last_step: None });
    assert_eq!(lone.try_node(), Claim::Held { last_step: None });
    assert_eq!(of(Some(0)).try_node(), Claim::Held { last_step: None });
    assert!(matches!(of(Some(1)).try_node(), Claim::Taken(CaptureOwner { pid: 0, .. })));
    lone.note(1, 1);
    assert_eq!(lone.holder("GPU-1"), None);
}

#[test]
fn later_place_that_was_used_first_is_where_all_meet() {
    let (shm, tmp) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let missing = shm.path().join("not-mounted-yet");
    let mut first = claims(&[&missing, tmp.path()], "a", Some(0));
    assert_eq!((first.mode(), first.try_node()), (Arbitration::Tmp, Claim::Held { last_step: None }));
    let mut second = Helper::start(&[shm.path(), tmp.path()], "a", 1);
    assert_eq!(second.ask("node"), "taken by rank Some(0) on node-1");
}

#[test]
fn line_that_is_no_line_is_read_as_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut mine = claims(&[dir.path()], "a", None);
    let folder = key_folder(dir.path());
    let contents: [&[u8]; 7] = [
        b"",
        b"\xff\xfe\x00garbage",
        b"{\"pid\": 7, \"last_st",
        b"{\"pid\": \"x\", \"last_step\": \"y\"}",
        b"{\"pid\": 7, \"last_step\": -3}",
        b"{\"pid\": 7, \"last_step\": 9223372036854775807}",
        b"[1, 2]",
    ];
    for (n, content) in contents.iter().enumerate() {
        let path = folder.join(format!("device-GPU-{n}.lock"));
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(mine.try_device(&format!("GPU-{n}")), Claim::Held { last_step: None }, "{n}");
    }
    let huge = folder.join("device-GPU-huge.lock");
    File::create(&huge).unwrap().set_len(1 << 40).unwrap();
    fs::set_permissions(&huge, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(mine.try_device("GPU-huge"), Claim::Held { last_step: None });
    // A holder whose line was torn is still a holder.
    let mut other = Helper::start(&[dir.path()], "a", 1);
    assert_eq!(other.ask("node"), "held");
    File::options().write(true).open(folder.join("node.lock")).unwrap().set_len(20).unwrap();
    assert_eq!(
        mine.try_node(),
        Claim::Taken(CaptureOwner { host: "node-1".into(), ..CaptureOwner::default() })
    );
    assert_eq!(other.ask("node"), "held");
}

#[test]
fn odd_uuids_have_locks_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let mut claims = claims(&[dir.path()], "../a/b \u{7}\u{1f600}", None);
    let long = "x".repeat(300);
    for uuid in ["GPU-1", "GPU/1", "GPU_1", "../../etc/passwd", "", "\n", &long, &format!("{long}y")] {
        assert_eq!(claims.try_device(uuid), Claim::Held { last_step: None }, "{uuid:?}");
    }
    let files = fs::read_dir(key_folder(dir.path())).unwrap().count();
    assert_eq!(files, 8 + 1, "a lock each, and the probe");
}

#[test]
fn folder_that_is_removed_is_made_anew_and_all_meet_there() {
    let dir = tempfile::tempdir().unwrap();
    let mut mine = claims(&[dir.path()], "a", Some(0));
    assert_eq!(mine.try_device("GPU-1"), Claim::Held { last_step: None });
    let mut other = Helper::start(&[dir.path()], "a", 1);
    assert_eq!(other.ask("device GPU-1"), "taken by rank Some(0) on node-1");
    let user = fs::read_dir(dir.path()).unwrap().next().unwrap().unwrap().path();
    fs::remove_dir_all(&user).unwrap();
    assert_eq!(other.ask("device GPU-1"), "held", "nothing says any more that it is taken");
    assert!(matches!(mine.try_device("GPU-1"), Claim::Taken(CaptureOwner { rank: Some(1), .. })));
    assert_eq!(other.ask("device GPU-1"), "held");
    assert_eq!(other.ask("mode"), format!("shm {}", mine.domain()));
    // A single file goes too, and its holder finds out by itself.
    fs::remove_file(key_folder(dir.path()).join("device-GPU-1.lock")).unwrap();
    assert_eq!(other.ask("device GPU-1"), "held");
    assert!(matches!(mine.try_device("GPU-1"), Claim::Taken(_)));
}

#[test]
fn folders_of_runs_long_over_go_unless_they_are_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let mut held = Helper::start(&[dir.path()], "held", 1);
    assert_eq!(held.ask("node"), "held");
    let mut own = claims(&[dir.path()], "own", None);
    assert_eq!(own.try_node(), Claim::Held { last_step: None });
    let mut over = claims(&[dir.path()], "over", None);
    assert_eq!(over.try_node(), Claim::Held { last_step: None });
    over.release();
    claims(&[dir.path()], "written-lately", None).release();
    let user = fs::read_dir(dir.path()).unwrap().next().unwrap().unwrap().path();
    // By another process: one that opens its own lock and closes it again lets go of it.
    let age = |find: &[&str], when: &str| {
        let touch = ["-exec", "touch", "-d", when, "{}", "+"];
        let status = Command::new("find").arg(&user).args(find).args(touch).status();
        assert!(status.unwrap().success());
    };
    age(&["-mindepth", "1"], "8 days ago");
    age(&["-path", "*written-lately*/probe"], "now");
    claims(&[dir.path()], "new", None).release();
    let mut left: Vec<String> =
        fs::read_dir(&user).unwrap().map(|entry| name(&entry.unwrap().path())).collect();
    left.sort();
    assert_eq!(left, ["held", "new", "own", "written-lately"]);
    assert_eq!(held.ask("node"), "held");
    let mut rival = Helper::start(&[dir.path()], "own", 1);
    assert_eq!(rival.ask("node"), "taken by rank None on node-1", "looking at it did not let go of it");
}

/// The readable part of a run's folder.
fn name(path: &Path) -> String {
    let name = path.file_name().unwrap().to_str().unwrap();
    name.rsplitn(3, '-').last().unwrap().to_owned()
}

/// Starts a helper beside file systems that `mounts` puts into a folder; `None` where the system allows
/// no such thing.
fn beside_mounts(dir: &Path, mounts: &str, bases: &str) -> Option<Helper> {
    let script = format!("cd \"$D\" && {mounts} || exit 77; {PLACES}=\"{bases}\" exec \"$@\"");
    let mut child = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", &script, "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "claims::helper", "--nocapture"])
        .env("D", dir)
        .env(RUN, "a")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut answers = BufReader::new(child.stdout.take().unwrap());
    if answers.fill_buf().unwrap().is_empty() {
        let code = child.wait().unwrap().code();
        assert!(matches!(code, Some(1 | 77)), "{code:?}");
        return None;
    }
    Some(Helper { child, answers })
}

/// Without mounts of its own the half with plain folders is tested all the same, above.
#[test]
fn place_without_room_for_a_file_is_passed_over_and_one_without_room_for_a_line_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let no_inodes = "mkdir full tmp && mount -t tmpfs -o nr_inodes=1 full full";
    if let Some(mut helper) = beside_mounts(dir.path(), no_inodes, "$D/full:$D/tmp") {
        assert_eq!(helper.ask("node"), "held");
        let mode = helper.ask("mode");
        assert!(mode.starts_with("tmp "), "{mode}");
    }
    let dir = tempfile::tempdir().unwrap();
    let no_blocks =
        "mkdir full tmp && mount -t tmpfs -o size=4k full full && head -c 4096 /dev/zero > full/ballast";
    if let Some(mut helper) = beside_mounts(dir.path(), no_blocks, "$D/full:$D/tmp") {
        assert_eq!(helper.ask("node"), "held");
        assert_eq!(helper.ask("note 3"), "noted");
        let mode = helper.ask("mode");
        assert!(mode.starts_with("shm "), "{mode}");
    }
    let dir = tempfile::tempdir().unwrap();
    let read_only = "mkdir full tmp && mount -t tmpfs -o ro full full";
    if let Some(mut helper) = beside_mounts(dir.path(), read_only, "$D/full:$D/tmp") {
        let mode = helper.ask("mode");
        assert!(mode.starts_with("tmp "), "{mode}");
    }
}

#[test]
fn who_is_present_is_told_by_folders_of_their_own_users_only() {
    let dir = tempfile::tempdir().unwrap();
    let present = || -> Vec<String> {
        client::claims::present_in(&[dir.path()]).into_iter().map(|present| present.run).collect()
    };
    let mut owner = Helper::start(&[dir.path()], "shown", 0);
    assert_eq!(owner.ask("device GPU-0"), "held");
    assert_eq!(present(), ["shown"]);
    // A link to a run's folder is not followed, however many there are of them.
    let run = key_folder(dir.path());
    let key = name(&run);
    for at in 0..100 {
        symlink(&run, run.with_file_name(format!("linked{at}{key}"))).unwrap();
    }
    assert_eq!(present(), ["shown"]);
    let user = run.parent().unwrap();
    for other in ["truegauge-claims-4242424", "truegauge-claims-x"] {
        fs::rename(user, dir.path().join(other)).unwrap();
        assert_eq!(present(), Vec::<String>::new(), "{other}");
        fs::rename(dir.path().join(other), user).unwrap();
    }
    assert_eq!(present(), ["shown"]);
}
