//! A machine with GPUs that a scenario describes, behind the fake driver.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    time::{Duration, Instant},
};

use collect::gpu::{GpuOptions, GpuSampler};

/// A folder with a driver library of its own.
pub(crate) struct GpuMachine {
    folder: tempfile::TempDir,
    library: PathBuf,
}

/// One tick: values by index of the device, then by name and labels, such as `x{kind=corrected}`.
pub(crate) type GpuTick = BTreeMap<u32, BTreeMap<String, f64>>;

impl GpuMachine {
    pub(crate) fn new(scenario: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let library = fake_nvml::install(folder.path(), scenario).unwrap();
        Self { folder, library }
    }

    /// The same with a library that lacks these functions.
    pub(crate) fn without(functions: &[&str], scenario: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let library = fake_nvml::install_without(folder.path(), scenario, functions).unwrap();
        Self { folder, library }
    }

    /// Changes what the driver answers from now on.
    pub(crate) fn play(&self, scenario: &str) {
        fake_nvml::play(self.folder.path(), scenario).unwrap();
    }

    /// How often the driver's function was called for a device.
    pub(crate) fn calls(&self, function: &str, gpu: u32) -> usize {
        fake_nvml::calls(self.folder.path(), function, gpu)
    }

    /// How often a function of the driver was called that concerns no device.
    pub(crate) fn system_calls(&self, function: &str) -> usize {
        fake_nvml::system_calls(self.folder.path(), function)
    }

    pub(crate) fn options(&self) -> GpuOptions {
        GpuOptions { library: Some(self.library.clone()), ..GpuOptions::default() }
    }

    pub(crate) fn open(&self) -> GpuSampler {
        GpuSampler::open(&self.options()).unwrap()
    }

    /// A sampler for which a call takes too long after this time.
    pub(crate) fn open_impatient(&self, call_deadline: Duration) -> GpuSampler {
        GpuSampler::open(&GpuOptions { call_deadline, ..self.options() }).unwrap()
    }
}

/// Samples these devices once.
pub(crate) fn gpu_tick(sampler: &mut GpuSampler, gpus: &[u32]) -> GpuTick {
    let mut tick = GpuTick::new();
    sampler.sample(gpus, &mut |gpu, value| {
        let labels: Vec<String> =
            value.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let name = if labels.is_empty() {
            value.metric.name.to_owned()
        } else {
            format!("{}{{{}}}", value.metric.name, labels.join(","))
        };
        let declared = &value.metric.labels[2..];
        assert!(value.labels.iter().map(|(name, _)| *name).eq(declared.iter().copied()), "{name}");
        let twice = tick.entry(gpu).or_default().insert(name.clone(), value.value);
        assert_eq!(twice, None, "{name} of GPU {gpu} came twice in one tick");
    });
    tick
}

/// Samples these devices until a tick has what a test waits for; a minute is too long.
pub(crate) fn gpu_tick_with(
    sampler: &mut GpuSampler,
    gpus: &[u32],
    condition: impl Fn(&GpuTick) -> bool,
) -> GpuTick {
    let deadline = Instant::now() + Duration::from_mins(1);
    loop {
        let tick = gpu_tick(sampler, gpus);
        if condition(&tick) {
            return tick;
        }
        assert!(Instant::now() < deadline, "nothing of the kind came: {tick:?}");
        std::thread::yield_now();
    }
}

/// Whether a condition comes true; a test that waits a minute for it has failed.
pub(crate) fn until(mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_mins(1);
    while Instant::now() < deadline {
        if condition() {
            return true;
        }
        std::thread::yield_now();
    }
    false
}

/// A scenario of whole devices: an entry for each, as the lines below its `[[gpu]]`.
pub(crate) fn gpus(devices: &[&str]) -> String {
    let entries = devices.iter().enumerate().map(|(index, lines)| {
        let bus = 0x1b + index;
        format!(
            "[[gpu]]\nuuid = \"GPU-{index:08}\"\nname = \"Fake H100\"\nbus_id = \"00000000:{bus:02X}:00.0\"\n{lines}\n"
        )
    });
    std::iter::once("driver_version = \"580.95.05\"\n".to_owned()).chain(entries).collect()
}

/// A device on which everything works: an H100 with 18 NVLinks, of which the last is down.
pub(crate) const WHOLE: &str = "mig = false
compute_capability = [9, 0]
links = 18
processes = [{ pid = 4711, memory = 21474836480 }, { pid = 4712 }, { pid = 99, memory = 1, draws = true }]
[gpu.values]
architecture = 9
sm_max_mhz = 1980
utilization = 87
utilization_memory = 40
memory_total = 85899345920
memory_used = 21474836480
memory_reserved = 629145600
temperature = 61
margin = 26
power_mw = 350500
limit_mw = 701000
energy_mj = 123456789
graphics_mhz = 1980
sm_mhz = 1965
memory_mhz = 2619
throttle_mask = 0x4
field_74 = 1500000000
field_75 = 0
field_82 = 73
field_138 = 1000
field_139 = 2000
field_230 = 2
field_269 = 250000000
field_270 = 0
field_271 = 3000000000
ecc_corrected_volatile = 3
ecc_uncorrected_volatile = 0
ecc_corrected_aggregate = 17
ecc_uncorrected_aggregate = 1
rows_corrected = 2
rows_uncorrected = 1
rows_pending = 1
nvlink_state_17 = 0
nvlink_errors_3_0 = 5
nvlink_errors_16_3 = 1
gpm_2 = 81250
gpm_3 = 40000
gpm_5 = 100400
gpm_10 = 0
gpm_11 = 1000
gpm_1 = 87500
gpm_12 = 2000
gpm_13 = 3000
pcie_generation = 5
pcie_width = 16
pcie_generation_max = 5
pcie_width_max = 16
pcie_replays = 4
pcie_transmit_kb = 1000
pcie_receive_kb = 2500
";
