//! What a scenario file may say.

use std::collections::BTreeMap;

use serde::Deserialize;

/// A machine with GPUs, as `scenario.toml` describes it.
///
/// ```toml
/// driver_version = "570.86.15"
///
/// [[gpu]]
/// uuid = "GPU-00000000-0000-0000-0000-000000000000"
/// values = { power_mw = 250000, temperature = [41, "unknown", 42], energy_mj = { start = 5, per_second = 3e5 } }
/// errors = { nvmlDeviceGetClockInfo = "gpu_is_lost" }
/// ```
///
/// Names of values: what the call gives with its unit (`power_mw`, `sm_max_mhz`, `pcie_transmit_kb`);
/// `field_74` for a field and `field_202_3` for that of link 3; `gpm_5` for a profiling number in
/// thousandths, where a running one is the rate between two samples; `nvlink_state_3` and
/// `nvlink_errors_3_1` for link 3 and counter 1.
///
/// A value that is left out answers NOT_SUPPORTED. A list gives the answer of each call in turn, its
/// last one for ever; a word is an error by its name; -1 is the all-ones sentinel.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Set for measurements: calls are not logged, and a change of this file is seen within 100 ms.
    #[serde(default)]
    pub steady: bool,
    /// Which start of the driver this is: when another one begins, a library that was started before
    /// finds no device until it is started anew.
    #[serde(default)]
    pub load: u64,
    /// Version of the driver; its call fails without one.
    pub driver_version: Option<String>,
    /// Errors of calls that concern no device, by the name of the function.
    #[serde(default)]
    pub errors: BTreeMap<String, Answer>,
    /// Functions that do not answer as long as they stand here.
    #[serde(default)]
    pub blocked: Vec<String>,
    /// The devices, by driver index.
    #[serde(default)]
    pub gpu: Vec<Gpu>,
    /// What the driver tells to those who wait for it: what is added behind the others is told once, to every
    /// set of events that was made before.
    #[serde(default)]
    pub event: Vec<Event>,
}

/// Something that the driver tells of a device.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// Index of the device.
    pub gpu: usize,
    /// NVML's bit: 8 is an Xid, 32768 another recovery action.
    pub kind: u64,
    /// What belongs to it, such as the Xid.
    #[serde(default)]
    pub data: u64,
    /// GPU and compute instance, of a device with MIG.
    pub instances: Option<[u32; 2]>,
}

/// One device.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gpu {
    /// Its UUID.
    #[serde(default)]
    pub uuid: String,
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// Its place on the bus, as the driver writes it.
    #[serde(default)]
    pub bus_id: String,
    /// CUDA compute capability, major and minor; its call fails without one.
    pub compute_capability: Option<[i32; 2]>,
    /// Whether it fell off the bus: every call fails.
    #[serde(default)]
    pub gone: bool,
    /// Whether MIG is on; `None`: a device that has no MIG.
    pub mig: Option<bool>,
    /// Its MIG instances.
    #[serde(default)]
    pub instances: Vec<Instance>,
    /// How many NVLinks it has; each is up and without errors where no value says otherwise.
    #[serde(default)]
    pub links: u32,
    /// The processes that use it.
    #[serde(default)]
    pub processes: Vec<Process>,
    /// Bytes in the place of a text, by the name of the function: the text has no end when they fill its
    /// buffer.
    #[serde(default)]
    pub texts: BTreeMap<String, Vec<u8>>,
    /// Answers by name, as above.
    #[serde(default)]
    pub values: BTreeMap<String, Answer>,
    /// Errors by the name of the function; the number 0 in a list is a call that succeeds.
    #[serde(default)]
    pub errors: BTreeMap<String, Answer>,
    /// Functions that do not answer for this device as long as they stand here.
    #[serde(default)]
    pub blocked: Vec<String>,
}

/// A process that uses a device.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// Bytes of memory that it has; unknown without.
    pub memory: Option<u64>,
    /// Whether it draws instead of computing.
    #[serde(default)]
    pub draws: bool,
    /// The GPU instance that it runs in, on a device with MIG.
    pub gpu_instance: Option<u32>,
}

/// One MIG instance.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Instance {
    /// Its UUID.
    pub uuid: String,
    /// Its GPU instance id.
    pub gpu_instance: u32,
    /// Answers by name: memory and profiling are of an instance, all else is the device's.
    #[serde(default)]
    pub values: BTreeMap<String, Answer>,
}

/// What a call answers.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Answer {
    /// This number.
    Number(i64),
    /// This error.
    Error(String),
    /// One after the other, call by call; the last one stays.
    InTurn(Vec<Answer>),
    /// A counter that runs from the moment in which the library was initialised.
    Running {
        /// Where it starts.
        start: i64,
        /// What it gains in a second.
        per_second: f64,
    },
}

impl Answer {
    /// The answer of the call number `turn` (from 0), `seconds` after the start; an error as its code.
    pub fn at(&self, turn: usize, seconds: f64) -> Result<i64, i32> {
        match self {
            Self::Number(number) => Ok(*number),
            Self::Error(name) => Err(code(name)),
            Self::InTurn(answers) => {
                answers.get(turn).or(answers.last()).map_or(Err(code("no_data")), |a| a.at(turn, seconds))
            }
            Self::Running { start, per_second } => Ok(start.saturating_add((per_second * seconds) as i64)),
        }
    }
}

/// NVML's number for the error of this name; a name that it has not is its "unknown", 999.
pub(crate) fn code(name: &str) -> i32 {
    const CODES: [(&str, i32); 14] = [
        ("uninitialized", 1),
        ("invalid_argument", 2),
        ("not_supported", 3),
        ("no_permission", 4),
        ("not_found", 6),
        ("insufficient_size", 7),
        ("driver_not_loaded", 9),
        ("timeout", 10),
        ("function_not_found", 13),
        ("gpu_is_lost", 15),
        ("reset_required", 16),
        ("version_mismatch", 18),
        ("no_data", 21),
        ("argument_version_mismatch", 25),
    ];
    CODES.iter().find(|(known, _)| *known == name).map_or(999, |(_, code)| *code)
}
