//! Runs one command of a plan: a program without a shell, or JSON to a hook.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use insight::remediation::{Hook, Outcome, Plan, Step};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::{Value, json};

use crate::files;

/// Bytes that are kept of what a program says.
const OUTPUT_BYTES_MAX: usize = 4 << 10;
/// Characters of it that the audit shows.
const SHOWN_MAX: usize = 300;
/// Bytes that are read of an answer.
const ANSWER_BYTES_MAX: u64 = 4 << 10;
/// How long the pipes of a program that has ended are read on: something it started may hold them.
const DRAIN: Duration = Duration::from_secs(1);
/// Largest file with a process' number, bytes.
const PID_BYTES_MAX: u64 = 64;

/// Runs a step, for no longer than its limit.
pub(super) fn run(plan: &Plan, step: &Step) -> Outcome {
    let began = Instant::now();
    let limit = Duration::from_nanos(u64::try_from(step.limit_ns).unwrap_or(1));
    let result = match &step.hook {
        None => program(&step.argv, limit),
        Some(Hook::Url(url)) => post(url, &body(plan, step), limit),
        Some(Hook::File(path)) => {
            let text = format!("{:#}\n", body(plan, step));
            put(Path::new(path), text.as_bytes())
                .map(|()| format!("wrote {path}"))
                .map_err(|error| format!("cannot write `{path}`: {error}"))
        }
        Some(Hook::Signal { name, pid_file }) => signal(name, Path::new(pid_file)),
    };
    let took_ns = i64::try_from(began.elapsed().as_nanos()).unwrap_or(i64::MAX);
    let (is_good, text) = match result {
        Ok(text) => (true, text),
        Err(text) => (false, text),
    };
    Outcome { is_good, text: shown(&text), took_ns }
}

/// Puts a file in its place, whole: who waits for it never reads a part.
fn put(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut next = path.as_os_str().to_owned();
    next.push(".next");
    let next = Path::new(&next);
    std::fs::write(next, bytes)?;
    std::fs::rename(next, path)
}

/// What a hook is told.
fn body(plan: &Plan, step: &Step) -> Value {
    let run = plan.jobs.iter().find(|job| step.run_id.as_ref().is_none_or(|id| *id == job.id));
    let checkpoint = run.and_then(|run| run.checkpoint.as_ref());
    let checkpoint = checkpoint.map(|checkpoint| {
        json!({
            "step": checkpoint.step, "hash": checkpoint.hash, "steps_lost": checkpoint.steps_lost,
            "time": checkpoint.time_ns.map(crate::clock::to_ms),
        })
    });
    json!({
        "id": plan.name(), "key": plan.key, "text": step.text, "host": plan.host, "gpu": plan.gpu,
        "uuid": plan.uuid, "pool": plan.pool, "incident": plan.incident, "verdict": plan.trigger.name(),
        "title": plan.title, "exclude": plan.host, "spare": plan.spare,
        "run_id": step.run_id, "run": run.map(|run| &run.name), "attempt": run.and_then(|run| run.attempt),
        "checkpoint": checkpoint,
    })
}

fn post(url: &str, body: &Value, limit: Duration) -> Result<String, String> {
    let config = ureq::Agent::config_builder()
        .timeout_global(Some(limit))
        .http_status_as_error(false)
        .max_redirects(0)
        .user_agent(concat!("truegauge/", env!("CARGO_PKG_VERSION")));
    let is_here = ["//127.", "//localhost", "//[::1]"].iter().any(|here| url.contains(here));
    let config = if is_here { config.proxy(None) } else { config };
    let agent: ureq::Agent = config.build().into();
    let sent = agent.post(url).header("content-type", "application/json").send(body.to_string());
    let mut response = sent.map_err(|error| error.to_string())?;
    let status = response.status();
    let text = response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_string();
    let text = format!("{} {}", status.as_u16(), text.unwrap_or_default());
    if status.is_success() { Ok(text) } else { Err(format!("it answered {text}")) }
}

fn signal(name: &str, pid_file: &Path) -> Result<String, String> {
    let shown = pid_file.display();
    let text =
        files::text(pid_file, PID_BYTES_MAX).map_err(|error| format!("cannot read `{shown}`: {error}"))?;
    let pid = text.trim().parse::<i32>().ok().filter(|pid| *pid > 1).and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| format!("`{shown}` holds no number of a process"))?;
    let signal = match name {
        "HUP" => Signal::HUP,
        "INT" => Signal::INT,
        "TERM" => Signal::TERM,
        "USR1" => Signal::USR1,
        "USR2" => Signal::USR2,
        _ => Signal::CONT,
    };
    let pid_text = pid.as_raw_nonzero();
    kill_process(pid, signal).map_err(|error| format!("cannot signal process {pid_text}: {error}"))?;
    Ok(format!("{name} to process {pid_text}"))
}

/// Runs a program in a process group of its own, so that what it started ends with it.
fn program(argv: &[String], limit: Duration) -> Result<String, String> {
    let (name, args) = argv.split_first().ok_or("there is no program to run")?;
    let mut command = Command::new(name);
    // The server's own settings, its token among them, are nobody else's.
    for (variable, _) in std::env::vars_os() {
        if variable.as_encoded_bytes().starts_with(b"TRUEGAUGE_") {
            command.env_remove(variable);
        }
    }
    let mut child = command
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(|error| format!("cannot start `{name}`: {error}"))?;
    let group = Pid::from_child(&child);
    let (send, receive) = channel();
    let (out, err) = (child.stdout.take(), child.stderr.take());
    for (at, pipe) in [out.map(boxed), err.map(boxed)].into_iter().enumerate() {
        let (send, Some(pipe)) = (send.clone(), pipe) else { continue };
        std::thread::spawn(move || send.send(Said::Text(at, read(pipe))));
    }
    std::thread::spawn(move || send.send(Said::Ended(wait(child))));
    let until = Instant::now() + limit;
    let (mut texts, mut status, mut until_text) = ([None, None], None, until);
    while status.is_none() || texts.iter().any(Option::is_none) {
        match receive.recv_timeout(until_text.saturating_duration_since(Instant::now())) {
            Ok(Said::Text(at, text)) => texts[at] = Some(text),
            Ok(Said::Ended(ended)) => {
                status = Some(ended?);
                until_text = until_text.min(Instant::now() + DRAIN);
            }
            Err(RecvTimeoutError::Timeout) if status.is_some() => break,
            Err(_over) => {
                let _ = kill_process_group(group, Signal::KILL);
                return Err(format!("it did not end within {} s and was killed", limit.as_secs()));
            }
        }
    }
    let said: Vec<String> = texts.into_iter().flatten().filter(|text| !text.is_empty()).collect();
    let said = said.join(" ");
    match status {
        Some(status) if status.success() => Ok(said),
        Some(status) => Err(format!("{status} {said}")),
        None => Err(said),
    }
}

/// What is heard of a program.
enum Said {
    /// One of its pipes has ended.
    Text(usize, String),
    /// It has.
    Ended(Result<ExitStatus, String>),
}

fn boxed<R: Read + Send + 'static>(pipe: R) -> Box<dyn Read + Send> {
    Box::new(pipe)
}

fn wait(mut child: Child) -> Result<ExitStatus, String> {
    child.wait().map_err(|error| error.to_string())
}

/// The first of what a pipe gives; the rest is read and forgotten, so that the program does not stand still.
fn read(mut pipe: Box<dyn Read + Send>) -> String {
    let mut kept = Vec::new();
    let mut part = [0_u8; 4096];
    while let Ok(count) = pipe.read(&mut part) {
        if count == 0 {
            break;
        }
        let room = OUTPUT_BYTES_MAX.saturating_sub(kept.len()).min(count);
        kept.extend_from_slice(&part[..room]);
    }
    String::from_utf8_lossy(&kept).trim().to_owned()
}

fn shown(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(SHOWN_MAX)
        .collect::<String>()
        .trim()
        .to_owned()
}
