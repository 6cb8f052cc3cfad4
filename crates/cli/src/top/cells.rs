//! What a look says, in words and columns: the same on a terminal and in a pipe.

use super::snapshot::{Driver, Gpu, Process, Snapshot};
use crate::table::{Column, bytes, layout};

/// Processes that the printed table lists.
const PRINTED_MAX: usize = 20;

/// Columns of the GPUs. What says least stands last, in small letters.
pub(super) const GPU_COLUMNS: [Column<'static>; 10] = [
    ("GPU", true),
    ("SM %", true),
    ("TENSOR", true),
    ("DRAM", true),
    ("POWER W", true),
    ("CLOCK MHz", true),
    ("MEM GiB", true),
    ("°C", true),
    ("HELD BACK BY", false),
    ("busy", true),
];

/// Columns of the processes.
pub(super) const PROCESS_COLUMNS: [Column<'static>; 7] = [
    ("PID", true),
    ("CPU %", true),
    ("MEMORY", true),
    ("GPU", false),
    ("GPU MEM", true),
    ("RUN", false),
    ("COMMAND", false),
];

/// Why `busy` is not to be believed.
pub(super) const BUSY_CAVEAT: &str = "busy: any kernel at all counts, so 100 says little";

/// The table of `--once`.
pub(super) fn page(snapshot: &Snapshot) -> String {
    let mut page = node_lines(snapshot).join("\n");
    page.push_str("\n\n");
    if snapshot.gpus.is_empty() {
        page.push_str(&no_gpus(snapshot));
        page.push('\n');
    } else {
        let rows: Vec<Vec<String>> = snapshot.gpus.iter().map(|gpu| gpu_cells(gpu).to_vec()).collect();
        page.push_str(&layout(&GPU_COLUMNS, &rows));
        page.push_str(BUSY_CAVEAT);
        page.push('\n');
    }
    page.push('\n');
    let listed = snapshot.processes.iter().take(PRINTED_MAX);
    let rows: Vec<Vec<String>> = listed.map(|process| process_cells(process).to_vec()).collect();
    page.push_str(&layout(&PROCESS_COLUMNS, &rows));
    page
}

/// CPU, memory, disk and pressure, a line each.
pub(super) fn node_lines(snapshot: &Snapshot) -> [String; 3] {
    let Snapshot { cpu, memory, disk_free_bytes, disk_total_bytes, pressure, .. } = snapshot;
    let limit = if memory.is_limited { "limit at" } else { "no limit," };
    let [cpu_waits, memory_waits, io_waits] = pressure.map(percent);
    [
        format!(
            "CPU     {:>4} % of {} CPUs ({}), {}",
            percent(cpu.busy_ratio),
            cpu.capacity_cpus
                .map_or_else(|| "?".to_owned(), |cpus| format!("{}", (cpus * 100.0).round() / 100.0)),
            or_unknown(&cpu.bounded_by),
            or_unknown(&cpu.measured_at)
        ),
        format!(
            "memory  {:>4} %: {} of {}, {limit} {}",
            percent(memory.used_ratio),
            size(memory.used_bytes),
            size(memory.ceiling_bytes),
            or_unknown(&memory.measured_at)
        ),
        format!(
            "disk    {} free of {}; tasks waiting: CPU {cpu_waits} %, memory {memory_waits} %, I/O {io_waits} %",
            size(*disk_free_bytes),
            size(*disk_total_bytes)
        ),
    ]
}

/// Why there is no GPU to show.
pub(super) fn no_gpus(snapshot: &Snapshot) -> String {
    match &snapshot.driver {
        Driver::Asked => "GPUs: the driver has not answered yet".to_owned(),
        Driver::Loaded(version) => format!("GPUs: the driver {version} has none"),
        Driver::Absent { text, hint, .. } => format!("GPUs: {text}\nhint: {hint}"),
    }
}

/// A GPU's cells.
pub(super) fn gpu_cells(gpu: &Gpu) -> [String; 10] {
    let whole = |value: Option<f64>| value.map_or_else(unknown, |value| format!("{value:.0}"));
    let gib = |value: Option<f64>| {
        value.map_or_else(unknown, |value| format!("{:.1}", value / (1u64 << 30) as f64))
    };
    let mhz = |value: Option<f64>| whole(value.map(|hertz| hertz / 1e6));
    let of = |value: String, most: String| {
        if value == "-" && most == "-" { unknown() } else { format!("{value}/{most}") }
    };
    let held_back = match gpu {
        Gpu { mig: true, .. } => "partitioned (MIG), not sampled".to_owned(),
        Gpu { trouble, .. } if !trouble.is_empty() => trouble.clone(),
        _ => gpu.held_back_by.join(" "),
    };
    [
        gpu.index.to_string(),
        percent(gpu.sm_active_ratio),
        percent(gpu.tensor_active_ratio),
        percent(gpu.dram_active_ratio),
        of(whole(gpu.power_watts), whole(gpu.power_limit_watts)),
        of(mhz(gpu.sm_clock_hertz), mhz(gpu.sm_clock_max_hertz)),
        of(gib(gpu.memory_used_bytes), gib(gpu.memory_total_bytes)),
        whole(gpu.temperature_celsius),
        held_back,
        percent(gpu.busy_ratio),
    ]
}

/// A process's cells.
pub(super) fn process_cells(process: &Process) -> [String; 7] {
    let cards: Vec<String> = process.gpus.iter().map(u32::to_string).collect();
    [
        process.pid.to_string(),
        percent(process.cpu_ratio),
        bytes(process.rss_bytes),
        cards.join(","),
        process.gpu_memory_bytes.map_or_else(String::new, bytes),
        process.run.as_ref().map_or_else(String::new, |run| run.name.clone()),
        if process.command.is_empty() { process.name.clone() } else { process.command.clone() },
    ]
}

/// A ratio as whole percent.
fn percent(ratio: Option<f64>) -> String {
    ratio.map_or_else(unknown, |ratio| format!("{:.0}", ratio * 100.0))
}

fn size(value: Option<f64>) -> String {
    value.map_or_else(|| "?".to_owned(), |value| bytes(value.max(0.0) as u64))
}

/// A dash: not known, which is not 0.
fn unknown() -> String {
    "-".to_owned()
}

fn or_unknown(text: &str) -> &str {
    if text.is_empty() { "unknown" } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_a_dash_and_never_a_zero() {
        assert_eq!(gpu_cells(&Gpu::default()).join("|"), "0|-|-|-|-|-|-|-||-");
        let half = Gpu { power_watts: Some(310.4), sm_active_ratio: Some(0.0), ..Gpu::default() };
        assert_eq!(gpu_cells(&half).join("|"), "0|0|-|-|310/-|-|-|-||-");
        let lines = node_lines(&Snapshot::default());
        assert!(lines.iter().all(|line| line.contains('?') || line.contains("- %")), "{lines:?}");
    }

    #[test]
    fn a_gpu_that_is_not_sampled_says_why() {
        let mig = Gpu { mig: true, ..Gpu::default() };
        assert_eq!(gpu_cells(&mig)[8], "partitioned (MIG), not sampled");
        let sick =
            Gpu { trouble: "no answer in 300 ms".into(), held_back_by: vec!["sw_power"], ..Gpu::default() };
        assert_eq!(gpu_cells(&sick)[8], "no answer in 300 ms");
    }
}
