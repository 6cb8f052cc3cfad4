//! The reasons as sentences, with what to do about each.

use super::GRACE_SECONDS;
use super::cause::{Cause, Unread};
use super::places::{Places, clause, owner, shown};

/// What a row says.
#[derive(Debug)]
pub(super) struct Words {
    pub(super) reason: &'static str,
    pub(super) text: String,
    pub(super) hint: Option<String>,
    pub(super) command: Option<&'static str>,
    pub(super) is_alarm: bool,
}

impl Words {
    /// What is as it should be.
    fn calm(reason: &'static str, text: String) -> Self {
        Self { reason, text, hint: None, command: None, is_alarm: false }
    }

    /// A fault.
    fn alarm(reason: &'static str, text: String) -> Self {
        Self { is_alarm: true, ..Self::calm(reason, text) }
    }

    fn alarm_if(self, is_alarm: bool) -> Self {
        Self { is_alarm, ..self }
    }

    fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    fn command(self, command: &'static str) -> Self {
        Self { command: Some(command), ..self }
    }
}

/// Asks on the machine what this page tells of a run.
const DOCTOR: &str = "truegauge doctor";

/// The sentence for a reason, the metrics and the places that it concerns.
pub(super) fn words(cause: &Cause, metrics: &[&str], at: Places<'_, '_>) -> Words {
    let words = worded(cause, metrics, at);
    Words { text: capital(&words.text), ..words }
}

/// The text with a capital letter, where it begins with a letter.
fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_uppercase().to_string()).unwrap_or_default();
    first + letters.as_str()
}

fn worded(cause: &Cause, metrics: &[&str], at: Places<'_, '_>) -> Words {
    match cause {
        Cause::Driver { .. }
        | Cause::NoDevices { .. }
        | Cause::DriverSilent { .. }
        | Cause::Unsupported { .. }
        | Cause::Mig
        | Cause::NotAllocated { .. }
        | Cause::UnreadableDevice { .. } => hardware(cause, metrics, at),
        Cause::Owned { .. }
        | Cause::Elsewhere { .. }
        | Cause::Grace
        | Cause::Unclaimed
        | Cause::NodeUnclaimed { .. }
        | Cause::NoLocks
        | Cause::HostNameShared { .. } => shares(cause, at),
        Cause::Unreadable { .. }
        | Cause::Refused { .. }
        | Cause::SamplerEnded { .. }
        | Cause::NotStarted { .. } => failures(cause, metrics, at),
        Cause::Off { .. }
        | Cause::NotLinux
        | Cause::Interval { .. }
        | Cause::Starting
        | Cause::TooShort
        | Cause::ProcessEnded
        | Cause::NoReport { .. }
        | Cause::NoSession { .. }
        | Cause::Unexplained => processes(cause, metrics, at),
    }
}

/// What was not sent: `no X`, or `none of 14 metrics`.
fn none_of(metrics: &[&str]) -> String {
    if metrics.len() > 2 {
        format!("none of {} metrics", metrics.len())
    } else {
        format!("no {}", named(metrics))
    }
}

/// One or two metrics by name, more by number.
fn named(metrics: &[&str]) -> String {
    match metrics {
        [one] => format!("`{}`", shown(one)),
        [one, two] => format!("`{}` and `{}`", shown(one), shown(two)),
        many => format!("{} metrics", many.len()),
    }
}

fn is_are(metrics: &[&str]) -> &'static str {
    if metrics.len() == 1 { "is" } else { "are" }
}

fn hardware(cause: &Cause, metrics: &[&str], at: Places<'_, '_>) -> Words {
    let places = at.named();
    match cause {
        Cause::Driver { reason, text, hint, is_alarm } => driver((reason, text, hint), *is_alarm, &places),
        Cause::NoDevices { version } => {
            let version = if version.is_empty() { String::new() } else { format!(" {}", shown(version)) };
            Words::alarm("no_devices", format!("NVIDIA's driver{version} on {places} answers and has no GPU: the container was given none, or they fell off the bus."))
                .hint("Start the container with `--gpus all`, ask the scheduler for GPUs, or look into the kernel's log for `NVRM`.")
                .command("nvidia-smi -L")
        }
        Cause::DriverSilent { is_late: false } => {
            Words::calm("driver_starting", format!("NVIDIA's driver on {places} has not answered yet; without persistence mode it takes seconds to start."))
        }
        Cause::DriverSilent { is_late: true } => {
            Words::alarm("no_answer", format!("NVIDIA's driver on {places} has not answered since the run began; the other series go on without it."))
                .hint("A driver that hangs shows in the kernel's log as `NVRM` or `Xid`.")
                .command("timeout 30 nvidia-smi")
        }
        Cause::Unsupported { model, is_extra } => {
            let model = if model.is_empty() { String::new() } else { format!(" ({})", shown(model)) };
            let what = if *is_extra && metrics.len() > 2 { format!("{} further metrics", metrics.len()) } else { named(metrics) };
            Words::calm("unsupported", format!(
                "{places}{model} {} not have {what}: the driver answered “not supported”, so it was asked once and is not asked again.",
                at.verb("does", "do")))
        }
        Cause::Mig => Words::calm("mig", format!(
            "{places} {} partitioned with MIG and left out: a slice has no utilization of its own, and the whole card's power and temperature may be another tenant's.",
            at.verb("is", "are")))
            .hint("The other GPUs of the host are captured all the same; what runs on which slice, the list tells.")
            .command("nvidia-smi -L"),
        Cause::NotAllocated { given, total, found_by } => {
            let found_by = if found_by.is_empty() { String::new() } else { format!(" ({})", clause(found_by)) };
            let verb = at.verb("is", "are");
            let given = match given {
                0 => format!("None of the {total} GPUs of its node was given to the run"),
                1 => format!("1 of the {total} GPUs of a node was given to the run"),
                given => format!("{given} of the {total} GPUs of a node were given to the run"),
            };
            Words::calm("not_allocated", format!("{given}{found_by}; {places} {verb} not among them."))
                .hint("If it should have more: ask the scheduler for them, or look at the variables that hide them.")
                .command("env | grep -E 'CUDA_VISIBLE_DEVICES|NVIDIA_VISIBLE_DEVICES'")
        }
        _ => {
            let Cause::UnreadableDevice { cause } = cause else { return unexplained(metrics, &places) };
            Words::alarm("unreadable_device", format!("The driver counts {places} and can't say which card that is: {}.", clause(cause)))
                .hint("Such a card has often fallen off the bus or waits for a reset: look into the kernel's log for `Xid`. It is asked again now and then.")
                .command("dmesg -T | grep -iE 'xid|nvrm'")
        }
    }
}

/// Why the driver's library can't be used, in the report's words.
fn driver((reason, text, hint): (&'static str, &str, &str), is_alarm: bool, places: &str) -> Words {
    let command = match reason {
        "no_library" => "ldconfig -p | grep libnvidia-ml",
        "not_loadable" | "lacks_functions" => "echo $LD_LIBRARY_PATH; ldconfig -p | grep libnvidia-ml",
        "driver_not_loaded" => "sudo modprobe nvidia && nvidia-smi",
        "version_mismatch" => "cat /proc/driver/nvidia/version",
        "not_permitted" => "ls -l /dev/nvidia*",
        "no_thread" => "ulimit -u; cat /sys/fs/cgroup/pids.max",
        _ => "nvidia-smi",
    };
    let calm = if is_alarm { "" } else { " That is as it should be on a machine without NVIDIA GPUs." };
    // Where it was looked for matters to who has GPUs; to all others it is a page of paths.
    let cause = if reason == "no_library" && !is_alarm {
        "there is no library of NVIDIA's driver".to_owned()
    } else {
        clause(text)
    };
    let words = Words::alarm(reason, format!("No GPU of {places} can be read: {cause}.{calm}"));
    let words = words.alarm_if(is_alarm).command(command);
    if hint.trim().is_empty() { words } else { words.hint(sentence(hint)) }
}

/// A hint that came as a clause, as a sentence.
fn sentence(text: &str) -> String {
    capital(&clause(text)) + "."
}

fn shares(cause: &Cause, at: Places<'_, '_>) -> Words {
    let places = at.named();
    match cause {
        Cause::Owned { owner: of, is_known } => {
            let what = if at.have_gpus() { places } else { format!("The node's own series of {places}") };
            let verb = if at.have_gpus() { at.verb("is", "are") } else { "are" };
            let end = if *is_known { "which has sent no point of it yet" } else { "of which the run has heard nothing yet" };
            Words::calm("owned", format!("{what} {verb} held by {}, {end}.", owner(of)))
                .hint("Its own report tells why, as soon as it comes. If that process is gone, another takes over within two samples.")
        }
        Cause::Elsewhere { owner: of } => Words::calm("reported_elsewhere", format!(
            "{places} {} charted already by {}: the two share the card and no lock, so the later one keeps quiet.",
            at.verb("is", "are"), owner(of)))
            .hint(format!("Look at the series of host `{}`. When that process falls silent, this one takes over within about two minutes.", shown(&of.host))),
        Cause::Grace => Words::calm("grace", format!(
            "No process has claimed {places} yet: slower ranks have {GRACE_SECONDS} s to claim their own, then the node's reporter takes what is left.")),
        Cause::Unclaimed => Words::alarm("unclaimed", format!(
            "No process has claimed {places}, although the {GRACE_SECONDS} s for slower ranks are over: the node's reporter does not see {}, or is gone.",
            at.verb("it", "them")))
            .hint("The node's reporter takes the devices that its own `CUDA_VISIBLE_DEVICES` shows. Call `init()` in the rank that drives the card, or start the reporter with all of them visible.")
            .command(DOCTOR),
        Cause::NodeUnclaimed { is_late: false } => Words::calm("node_unclaimed", format!(
            "No process speaks for {places} yet: they settle it with their first samples.")),
        Cause::NodeUnclaimed { is_late: true } => Words::alarm("node_unclaimed", format!(
            "No process speaks for {places}: each leaves the node's own series to another."))
            .hint("The lock may be held by a process that hangs, or by another user's; `truegauge doctor` on the host says who holds it.")
            .command(DOCTOR),
        Cause::NoLocks => Words::alarm("no_locks", format!(
            "On {places} no folder for locks can be had (mode `unavailable`), so local rank 0 alone speaks for the node, and it is not in the run."))
            .hint("Let the processes write to `/dev/shm` or the folder for temporary files, or call `init()` in local rank 0 too.")
            .command("ls -ld /dev/shm /tmp"),
        _ => {
            let Cause::HostNameShared { machines } = cause else { return unexplained(&[], &places) };
            Words::alarm("host_name_shared", format!(
                "{machines} machines, or containers, call themselves {places}: their points run together in the same series, and every chart of that host shows both in turn."))
                .hint("Give each a name of its own, such as `docker run --hostname`, and start the run again; points that are there can't be told apart any more.")
                .command("hostname; cat /proc/sys/kernel/random/boot_id")
        }
    }
}

fn failures(cause: &Cause, metrics: &[&str], at: Places<'_, '_>) -> Words {
    let (places, what) = (at.named(), named(metrics));
    let be = is_are(metrics);
    match cause {
        Cause::Unreadable { reason: Unread::Somehow, cause, is_backing_off: false } => {
            Words::alarm("unreadable", format!("{what} of {places} can't be read: {}.", clause(cause)))
                .hint("It is tried again with the next sample; after five failures in a row only now and then.")
                .command(DOCTOR)
        }
        Cause::Unreadable { reason, cause, .. } if *reason != Unread::Somehow => {
            unread(*reason, &clause(cause), (&what, be), at)
        }
        Cause::Unreadable { cause, .. } => Words::alarm("backing_off", format!(
            "{what} of {places} could not be read five times in a row and {be} only tried now and then: {}.",
            clause(cause)))
            .hint("It comes back by itself as soon as a reading succeeds.")
            .command(DOCTOR),
        Cause::Refused { reason, cause } => refused(reason, cause, (&what, be), &places),
        Cause::SamplerEnded { failed_ticks, cause } => Words::alarm("sampler_ended", format!(
            "The sampler that reports {places} ended after {failed_ticks} failed samples in a row, the last for this cause: {}.",
            clause(cause)))
            .hint("The run itself goes on. Restarting the process starts the sampler again; `truegauge doctor` on the host says what can be read there.")
            .command(DOCTOR),
        _ => {
            let Cause::NotStarted { cause } = cause else { return unexplained(metrics, &places) };
            Words::alarm("not_started", format!("Autocapture could not start for {places}: {}.", clause(cause)))
                .hint("The run itself goes on. Restart the process once the cause is gone.")
                .command(DOCTOR)
        }
    }
}

/// Readings that failed in a way that is known.
fn unread(reason: Unread, cause: &str, (what, be): (&str, &str), at: Places<'_, '_>) -> Words {
    let places = at.named();
    match reason {
        Unread::NoPermission => Words::calm("no_permission", format!("{what} of {places} {be} kept to administrators by the driver: {cause}."))
            .hint("Profiling counters need `NVreg_RestrictProfilingToAdminUsers=0` among the options of the kernel module, or a process with `CAP_SYS_ADMIN`. Nothing else is affected.")
            .command("grep RmProfilingAdminOnly /proc/driver/nvidia/params"),
        Unread::NoAnswer => Words::alarm("no_answer", format!("{places} {} not answer, so {what} {be} left out, and nothing is asked until an answer comes: {cause}.", at.verb("does", "do")))
            .hint("A card that blocks the driver shows in the kernel's log as `Xid` or `NVRM`; the other cards go on.")
            .command("dmesg -T | grep -iE 'xid|nvrm'"),
        Unread::GpuLost | Unread::Somehow => Words::alarm("gpu_lost", format!("{places} {} gone from the driver, and {what} with it: {cause}.", at.verb("is", "are")))
            .hint("The card has fallen off the bus or is being reset; the kernel's log names the `Xid`. It is taken up again when it comes back.")
            .command("dmesg -T | grep -iE 'xid|nvrm'"),
    }
}

fn refused(reason: &str, cause: &str, (what, be): (&str, &str), places: &str) -> Words {
    let cause = clause(cause);
    match reason {
        "series_limit" | "project_series_limit" | "fleet_series_limit" => {
            Words::alarm("series_limit", format!("{what} of {places} {be} refused, a limit on the number of series is reached (`{reason}`): {cause}."))
                .hint("Restarts make new `pid` series each time: delete runs that are done with, or raise `limits_project_series`. docs/reference/limits.md names the limits.")
                .command("truegauge runs ls")
        }
        "gpu_reported_elsewhere" => Words::calm("reported_elsewhere", format!("{what} of {places} {be} left to another process of the run: {cause}.")),
        other => Words::alarm("refused", format!("{what} of {places} {be} refused (`{}`): {cause}.", shown(other)))
            .hint("docs/reference/limits.md says what is refused for which reason."),
    }
}

fn processes(cause: &Cause, metrics: &[&str], at: Places<'_, '_>) -> Words {
    let (places, what) = (at.named(), named(metrics));
    match cause {
        Cause::Off { by } => off(by, &places),
        Cause::NotLinux => Words::calm(
            "not_linux",
            format!("{places} {} not on Linux, and autocapture reads Linux only.", at.verb("is", "are")),
        )
        .hint("What the script logs is kept all the same."),
        Cause::Interval { seconds, is_over } => {
            interval(*seconds, *is_over, (&what, is_are(metrics)), &places)
        }
        Cause::Starting => Words::calm(
            "starting",
            format!("The first sample of {places} is on its way: the process began just now."),
        ),
        Cause::TooShort => {
            Words::calm("too_short", format!("The process ended before its first sample of {places}."))
        }
        Cause::ProcessEnded => ended(at),
        Cause::NoReport { client } => {
            let metrics_are_gpu = metrics.iter().all(|metric| metric.starts_with("system/gpu/"));
            let words = Words::calm(
                "no_report",
                format!(
                    "{places} sent {}, and no report that says why{}.",
                    none_of(metrics),
                    version(client)
                ),
            );
            let words = if client.contains("metrana") {
                words.hint("`metrana` clients leave no report. On a machine with GPUs, they need `pip install 'metrana[system]'`; `truegauge doctor` on the host says what can be read there.")
            } else {
                words.hint("Update the client on that host; `truegauge doctor` there says what can be read.")
            };
            words.alarm_if(!metrics_are_gpu).command(DOCTOR)
        }
        Cause::NoSession { driver } => {
            let driver = if driver.is_empty() {
                String::new()
            } else {
                format!(" It names a driver, {}, so it looked for GPUs.", shown(driver))
            };
            Words::calm("no_report", format!("The run has {}, and came by a way that tells of no process: nobody says why.{driver}", none_of(metrics)))
                .hint("Autocapture runs in `truegauge.init()` and under `truegauge run -- CMD`; OpenTelemetry and remote write bring only what they send.")
        }
        _ => unexplained(metrics, &places),
    }
}

/// Switched off, by a variable or an argument.
fn off(by: &str, places: &str) -> Words {
    let switch = if by.is_empty() { "its settings".to_owned() } else { format!("`{}`", shown(by)) };
    let words = Words::calm("off", format!("Autocapture is switched off for {places}, by {switch}."));
    match by {
        "TRUEGAUGE_CAPTURE_SYSTEM_METRICS" => {
            words.hint("Unset the variable, and it is on.").command("unset TRUEGAUGE_CAPTURE_SYSTEM_METRICS")
        }
        "METRANA_CAPTURE_SYSTEM_METRICS" => {
            words.hint("Unset the variable, and it is on.").command("unset METRANA_CAPTURE_SYSTEM_METRICS")
        }
        _ => words.hint("Leave out the argument of `init()` that says so, and it is on."),
    }
}

fn version(client: &str) -> String {
    if client.is_empty() { String::new() } else { format!(" (client {})", shown(client)) }
}

fn interval(seconds: u32, is_over: bool, (what, be): (&str, &str), places: &str) -> Words {
    let takes = format!("{what} {be} measured between two samples, {seconds} s apart");
    if is_over {
        Words::calm("interval", format!("{takes}; {places} took one and was done."))
            .hint("Runs as short as this need a shorter `system_metrics_interval_secs`; 1 is the least.")
    } else {
        Words::calm("interval", format!("{takes}; {places} took one so far."))
            .hint("It comes with the next sample.")
    }
}

fn ended(at: Places<'_, '_>) -> Words {
    let named = at.named();
    let is_process = !at.have_gpus() && at.0.iter().any(|at| at.pid.is_some());
    let text = if is_process {
        format!("{named} fell silent without ending: killed, out of memory, or cut off from the server.")
    } else {
        format!(
            "The process that reported {named} fell silent without ending, and no other has taken its place."
        )
    };
    let words =
        Words::alarm("process_ended", text).command("dmesg -T | grep -iE 'out of memory|killed process'");
    if is_process {
        words.hint("Look at the scheduler's record of the job, and into the kernel's log for the OOM killer. What it could not send waits in its spool on that host.")
    } else {
        words.hint("Another process of the run on the same host takes over within two samples; where there is none, nobody measures.")
    }
}

fn unexplained(metrics: &[&str], places: &str) -> Words {
    Words::alarm(
        "unknown",
        format!(
            "{} of {places} {} missing and nothing says why: its process lives and reported no fault.",
            named(metrics),
            is_are(metrics)
        ),
    )
    .hint("Look at the counts of refused and dropped points on the run's page, and at the server's log.")
    .command(DOCTOR)
}
