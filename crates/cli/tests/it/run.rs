//! `truegauge run`: a command behaves as it would without it, and its run tells what it did.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process};
use serde_json::Value;

use crate::process::{Server, eventually, truegauge};
use crate::terminal::Terminal;

/// `truegauge run --run NAME -- COMMAND`, without a controlling terminal.
fn wrapped(home: &Path, url: &str, name: &str, command: &[&str]) -> Command {
    let program = truegauge(home);
    let mut wrapped = Command::new("setsid");
    for (variable, value) in program.get_envs() {
        match value {
            Some(value) => wrapped.env(variable, value),
            None => wrapped.env_remove(variable),
        };
    }
    wrapped.arg(program.get_program()).args(["run", "--project", "p", "--run", name, "--"]).args(command);
    wrapped.env("TRUEGAUGE_URL", url).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    wrapped
}

fn output(server: &Server, name: &str, command: &[&str]) -> Output {
    wrapped(&server.home, &server.url, name, command).output().unwrap()
}

/// The run `name`, from the server.
fn shown(server: &Server, name: &str) -> Value {
    server.get(&format!("/api/tg/v1/runs/{}", crate::process::id(name)))
}

fn attribute<'a>(run: &'a Value, key: &str) -> &'a Value {
    &run["attributes"][key]
}

/// A wrapper that runs; a test that fails takes it along, and so the command.
struct Running(Child);

impl Running {
    fn pid(&self) -> Pid {
        Pid::from_child(&self.0)
    }

    fn end(&mut self) -> ExitStatus {
        self.0.wait().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts it and reads its first line, which says that it is ready.
fn started(mut command: Command) -> (Running, BufReader<ChildStdout>, String) {
    let mut running = Running(command.stderr(Stdio::null()).spawn().unwrap());
    let mut out = BufReader::new(running.0.stdout.take().unwrap());
    let ready = line(&mut out);
    (running, out, ready)
}

fn line(out: &mut impl BufRead) -> String {
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    line.trim().to_owned()
}

fn pid(text: &str) -> Pid {
    Pid::from_raw(text.parse().unwrap()).unwrap()
}

/// Whether a process runs; one that only waits to be buried does not.
fn is_alive(process: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())).unwrap_or_default();
    test_kill_process(process).is_ok() && !stat.contains(") Z ")
}

#[test]
fn exit_status_is_the_commands_and_the_run_ends_with_it() {
    let server = Server::start(&[]);
    let check = |name: &str, script: &str, code: i32, state: &str, reason: &str| {
        let output = output(&server, name, &["sh", "-c", script]);
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        let run = shown(&server, name);
        assert_eq!(
            (run["state"].as_str(), attribute(&run, "command/exit_status")),
            (Some(state), &code.into())
        );
        assert!(run.to_string().contains(reason), "{run}");
        assert!(attribute(&run, "command/wall_seconds").as_f64().is_some_and(|seconds| seconds > 0.0));
        assert!(attribute(&run, "command/cpu_seconds").as_f64().is_some_and(|seconds| seconds >= 0.0));
        // The kernel's own count is that of the wrapper, which is larger than a shell.
        assert_ne!(
            attribute(&run, "command/peak_memory_of"),
            "the largest process, as the kernel counted it"
        );
    };
    check("well", "exit 0", 0, "finished", "");
    check("badly", "exit 3", 3, "failed", "the command ended with exit status 3");
    check("killed", "kill -9 $$", 137, "failed", "the command was ended by SIGKILL");
    let run = shown(&server, "killed");
    assert_eq!(attribute(&run, "command/argv"), "sh -c 'kill -9 $$'");
    assert_eq!(attribute(&run, "command/signal"), "SIGKILL");
}

#[test]
fn what_cannot_be_run_is_told_as_a_shell_tells_it_and_makes_no_run() {
    let server = Server::start(&[]);
    let check = |command: &str, code: i32, words: &str| {
        let output = output(&server, "none", &[command]);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{told}");
        assert!(told.contains(words) && told.contains("hint: "), "{told}");
    };
    check(
        "no-such-program",
        127,
        "error: cannot run `no-such-program`: no program of this name is in `PATH`",
    );
    check("./no-such-file", 127, "there is no such file");
    check("/etc/passwd", 126, "hint: `chmod +x /etc/passwd`");
    check("/etc", 126, "no file that may be executed");
    assert_eq!(server.get("/api/tg/v1/runs")["runs"].as_array().map(Vec::len), Some(0));
}

#[test]
fn a_script_whose_interpreter_is_missing_fails_as_it_would_by_itself() {
    let server = Server::start(&[]);
    let script = server.home.join("script");
    fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    rustix::fs::chmod(&script, rustix::fs::Mode::RWXU).unwrap();
    let output = output(&server, "script", &[script.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(127), "{output:?}");
    assert_eq!(shown(&server, "script")["state"], "failed");
}

#[test]
fn every_byte_goes_through_both_streams_unchanged_and_their_ends_are_kept() {
    let server = Server::start(&[]);
    let noise: Vec<u8> = (0..3_000_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    fs::write(server.home.join("noise"), &noise).unwrap();
    let file = server.home.join("noise");
    let script = format!("cat {0}; cat {0} >&2; echo end", file.display());
    let output = output(&server, "noise", &["sh", "-c", &script]);
    assert!(output.stdout.strip_suffix(b"end\n").is_some_and(|bytes| bytes == noise));
    assert!(output.stderr == noise);
    let run = shown(&server, "noise");
    let tail = |key: &str| attribute(&run, key).as_str().unwrap().to_owned();
    assert!(tail("command/stdout_tail").ends_with("end\n") && tail("command/stdout_tail").len() <= 64 << 10);
    assert!(tail("command/stderr_tail").len() <= 64 << 10 && tail("command/stderr_tail").len() > 32 << 10);
    assert_eq!(attribute(&run, "command/output"), "kept");
}

#[test]
fn two_streams_into_one_file_keep_their_order() {
    let server = Server::start(&[]);
    let log = File::create(server.home.join("out")).unwrap();
    let script = "i=0; while [ $i -lt 300 ]; do echo o$i; echo e$i >&2; i=$((i+1)); done";
    let mut command = wrapped(&server.home, &server.url, "order", &["sh", "-c", script]);
    assert!(command.stdout(log.try_clone().unwrap()).stderr(log).status().unwrap().success());
    let want = (0..300).flat_map(|n| [format!("o{n}\n"), format!("e{n}\n")]).collect::<String>();
    let found = fs::read_to_string(server.home.join("out")).unwrap();
    assert_eq!(found, want);
    let run = shown(&server, "order");
    assert_eq!(attribute(&run, "command/stdout_tail").as_str(), Some(want.as_str()));
    assert!(attribute(&run, "command/stderr_tail").is_null());
}

#[test]
fn secrets_of_the_command_line_are_not_kept() {
    let server = Server::start(&[]);
    output(
        &server,
        "secret",
        &["true", "--hub-token", "geheim", "--password=geheim", "API_KEY=geheim", "--lr=1"],
    );
    let run = shown(&server, "secret");
    assert_eq!(attribute(&run, "command/argv"), "true --hub-token *** --password=*** API_KEY=*** --lr=1");
    assert!(!run.to_string().contains("geheim"));
}

#[test]
fn the_command_is_told_which_run_it_is_in() {
    let server = Server::start(&[]);
    let script = "echo $TRUEGAUGE_PROJECT $TRUEGAUGE_RUN $TRUEGAUGE_URL; echo ${TRUEGAUGE_WRAPPER#*:}";
    let output = output(&server, "told", &["sh", "-c", script]);
    let want = format!("p told {}\n{}\n", server.url, crate::process::id("told"));
    assert_eq!(String::from_utf8_lossy(&output.stdout), want);
}

/// Says when it is ready, when a signal comes, and ends at the second kind.
const LISTENS: &str =
    "trap 'echo int' INT; trap 'echo term; exit 7' TERM; echo ready; while :; do sleep 0.05; done";

#[test]
fn a_signal_reaches_the_command_once() {
    let server = Server::start(&[]);
    let (mut child, mut out, ready) =
        started(wrapped(&server.home, &server.url, "signal", &["sh", "-c", LISTENS]));
    assert_eq!(ready, "ready");
    let wrapper = child.pid();
    kill_process(wrapper, Signal::INT).unwrap();
    assert_eq!(line(&mut out), "int");
    // The whole group of the wrapper: what `timeout` and process managers do.
    kill_process_group(wrapper, Signal::INT).unwrap();
    assert_eq!(line(&mut out), "int");
    kill_process(wrapper, Signal::TERM).unwrap();
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "term\n");
    assert_eq!(child.end().code(), Some(7));
    assert_eq!(shown(&server, "signal")["state"], "failed");
}

#[test]
fn a_command_that_dies_of_a_signal_that_was_passed_on_ends_the_run() {
    let server = Server::start(&[]);
    let (mut child, _out, _) =
        started(wrapped(&server.home, &server.url, "term", &["sh", "-c", "echo ready; exec sleep 60"]));
    kill_process(child.pid(), Signal::TERM).unwrap();
    assert_eq!(child.end().code(), Some(128 + 15));
    assert_eq!(attribute(&shown(&server, "term"), "command/signal"), "SIGTERM");
}

#[test]
fn whoever_kills_the_wrapper_kills_the_command() {
    let server = Server::start(&[]);
    let script = "echo $$; exec sleep 60";
    let (mut child, _out, command) =
        started(wrapped(&server.home, &server.url, "orphan", &["sh", "-c", script]));
    child.0.kill().unwrap();
    assert_eq!(child.end().signal(), Some(9));
    eventually("the command is gone", || (!is_alive(pid(&command))).then_some(()));
}

#[test]
fn a_process_that_outlives_the_command_is_not_waited_for() {
    let server = Server::start(&[]);
    let output = output(&server, "daemon", &["sh", "-c", "sleep 60 & echo $!; exit 5"]);
    let survivor = pid(String::from_utf8_lossy(&output.stdout).trim());
    assert!(is_alive(survivor), "it was waited for");
    kill_process(survivor, Signal::KILL).unwrap();
    assert_eq!(output.status.code(), Some(5));
    assert_eq!(attribute(&shown(&server, "daemon"), "command/exit_status"), 5);
}

#[test]
fn a_process_that_outlives_the_command_and_writes_without_end_is_not_waited_for() {
    let server = Server::start(&[]);
    let mut command = wrapped(&server.home, &server.url, "noisy", &["sh", "-c", "yes & exit 0"]);
    let status = command.stdout(File::create("/dev/null").unwrap()).status().unwrap();
    assert_eq!(status.code(), Some(0));
}

#[test]
fn when_nobody_reads_any_more_the_command_is_told() {
    let server = Server::start(&[]);
    let (mut child, out, first) = started(wrapped(&server.home, &server.url, "head", &["yes"]));
    assert_eq!(first, "y");
    drop(out);
    assert_eq!(child.end().code(), Some(128 + 13));
}

#[test]
fn an_output_that_takes_nothing_does_not_end_the_command() {
    let server = Server::start(&[]);
    let script = "echo one; echo two; exit 4";
    let mut command = wrapped(&server.home, &server.url, "full", &["sh", "-c", script]);
    let output = command.stdout(File::options().write(true).open("/dev/full").unwrap()).output().unwrap();
    assert_eq!(output.status.code(), Some(4));
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(told.matches("can't be written").count(), 1, "{told}");
    assert_eq!(attribute(&shown(&server, "full"), "command/stdout_tail"), "one\ntwo\n");
}

#[test]
fn without_a_server_the_run_waits_in_the_spool() {
    let home = tempfile::tempdir().unwrap();
    let output = wrapped(home.path(), "http://127.0.0.1:1", "away", &["sh", "-c", "echo hello; exit 9"])
        .output()
        .unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(9), &b"hello\n"[..]));
    let server = Server::start(&[]);
    let spools = home.path().join("spool");
    let (code, _, told) = server.cli(&["sync", spools.to_str().unwrap()]);
    assert_eq!(code, 0, "{told}");
    let run = shown(&server, "away");
    assert_eq!(
        (run["state"].as_str(), attribute(&run, "command/stdout_tail")),
        (Some("failed"), &"hello\n".into())
    );
}

/// The metrics of a run that carry a process ID: display name, that ID, last value.
fn of_processes(server: &Server, name: &str) -> Vec<(String, String, f64)> {
    // The run may not have arrived yet.
    let answer =
        server.ask("GET", &format!("/api/tg/v1/runs/{}/metrics", crate::process::id(name)), &[], b"");
    if answer.status != 200 {
        return Vec::new();
    }
    let list = answer.json();
    let metrics = list["metrics"].as_array().unwrap().iter();
    metrics
        .filter_map(|metric| {
            let pid = metric["labels"]["pid"].as_str()?.to_owned();
            Some((metric["display"].as_str()?.to_owned(), pid, metric["last"].as_f64().unwrap_or_default()))
        })
        .collect()
}

#[test]
fn the_series_are_those_of_the_command_and_its_descendants() {
    let server = Server::start(&[]);
    // 60 MB in a grandchild, and a process that works.
    let script = "echo $$; head -c 60000000 /dev/zero | tail -c 60000000 | sleep 60 & while :; do :; done";
    let mut command = wrapped(&server.home, &server.url, "tree", &["sh", "-c", script]);
    command.env("TRUEGAUGE_SYSTEM_METRICS_INTERVAL_SECS", "1");
    let (mut child, _out, inner) = started(command);
    let last = |metric: &str| {
        let found = of_processes(&server, "tree").into_iter().find(|(name, ..)| name == metric);
        found.map_or(0.0, |(_, _, value)| value)
    };
    let ready = || {
        (last("system/process_tree/rss_bytes") > 6e7 && last("system/process_tree/cpu_utilization") > 5.0)
            .then_some(())
    };
    eventually("the tree's memory and work are seen", ready);
    assert!(last("system/process/rss_bytes") < 3e7, "the shell itself is small");
    // What the sampler itself costs is the wrapper's.
    let mut reported = of_processes(&server, "tree");
    reported.retain(|(name, ..)| name != "system/self/cpu_seconds_total");
    assert_eq!(reported.len(), 4, "{reported:?}");
    assert!(reported.iter().all(|(_, pid, _)| *pid == inner), "{inner}: {reported:?}");
    for process in children_of(pid(&inner)) {
        kill_process(process, Signal::KILL).unwrap();
    }
    kill_process(child.pid(), Signal::TERM).unwrap();
    child.end();
    let run = shown(&server, "tree");
    assert!(attribute(&run, "command/peak_memory_bytes").as_f64().unwrap() > 6e7);
    assert!(attribute(&run, "command/cpu_seconds").as_f64().unwrap() > 0.0);
    assert_eq!(attribute(&run, "command/pid").to_string(), inner);
}

/// The children of a process.
fn children_of(parent: Pid) -> Vec<Pid> {
    let parent = format!(" {} ", parent.as_raw_nonzero());
    let stat = |entry: fs::DirEntry| fs::read_to_string(entry.path().join("stat")).ok();
    let all = fs::read_dir("/proc").unwrap().filter_map(Result::ok).filter_map(stat);
    all.filter_map(|stat| {
        let (head, rest) = stat.rsplit_once(')')?;
        rest.get(2..)?.starts_with(&parent).then(|| pid(head.split(' ').next().unwrap_or_default()))
    })
    .collect()
}

#[test]
fn ranks_of_a_job_keep_their_commands_apart() {
    let server = Server::start(&[]);
    for rank in ["0", "1"] {
        let script = format!("exit {rank}");
        let mut command = wrapped(&server.home, &server.url, "job", &["sh", "-c", &script]);
        let launch = [("RANK", rank), ("WORLD_SIZE", "2"), ("LOCAL_RANK", rank)];
        command.envs(launch).status().unwrap();
    }
    let run = shown(&server, "job");
    assert_eq!(attribute(&run, "command/rank-0/exit_status"), 0);
    assert_eq!(attribute(&run, "command/rank-1/exit_status"), 1);
    assert!(attribute(&run, "command/exit_status").is_null());
}

#[test]
fn on_a_terminal_the_command_has_it_and_its_keys_reach_it_once() {
    let server = Server::start(&[]);
    let script = "test -t 0 && test -t 1 && test -t 2 && echo all three; trap 'echo got int' INT; trap 'exit 6' TERM; echo ready; while :; do sleep 0.05; done";
    let mut command = truegauge(&server.home);
    command
        .args(["run", "--project", "p", "--run", "tty", "--", "sh", "-c", script])
        .env("TRUEGAUGE_URL", &server.url);
    let mut terminal = Terminal::start(&command, 80, 24);
    let before = terminal.settings_before().local_modes;
    terminal.wait_for("recording `tty`: ");
    terminal.wait_for("all three");
    terminal.wait_for("ready");
    terminal.write(b"\x03");
    terminal.wait_for("got int");
    kill_process(terminal.pid(), Signal::TERM).unwrap();
    assert_eq!(terminal.end(), 6);
    assert_eq!(terminal.settings().local_modes, before);
    assert_eq!(terminal.text().matches("got int").count(), 1, "{}", terminal.text());
    let run = shown(&server, "tty");
    assert_eq!(attribute(&run, "command/output"), "not kept: it is a terminal");
    assert!(attribute(&run, "command/stdout_tail").is_null());
}

#[test]
fn as_the_first_process_of_a_container_it_buries_orphans() {
    let server = Server::start(&[]);
    // The orphan ends while the command runs; a zombie would still be shown as `Z`.
    let script = "(sleep 0.1 & echo $! > \"$0\"); o=$(cat \"$0\"); while [ -e /proc/$o ]; do sleep 0.05; done; echo buried";
    let file = server.home.join("orphan");
    let program = truegauge(&server.home);
    let mut command = Command::new("unshare");
    for (variable, value) in program.get_envs() {
        match value {
            Some(value) => command.env(variable, value),
            None => command.env_remove(variable),
        };
    }
    command.args(["--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]).arg(program.get_program());
    command.args(["run", "--project", "p", "--run", "first", "--", "sh", "-c", script]).arg(file);
    let output = command.env("TRUEGAUGE_URL", &server.url).stdin(Stdio::null()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "buried\n", "{output:?}");
    assert_eq!(shown(&server, "first")["state"], "finished");
}

#[test]
fn input_reaches_the_command() {
    let server = Server::start(&[]);
    let mut command = wrapped(&server.home, &server.url, "input", &["cat"]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"a\0b").unwrap();
    assert_eq!(child.wait_with_output().unwrap().stdout, b"a\0b");
}
