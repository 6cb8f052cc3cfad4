//! Why this machine has no GPU series at all.

use std::{fmt, path::PathBuf, time::Duration};

use super::code::Code;

/// Why the driver library could not be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GpuAbsence {
    /// There is no such library in any of these places: no NVIDIA driver, or one that the container
    /// does not show.
    NoLibrary {
        /// Names and paths that were tried, in order.
        tried: Vec<PathBuf>,
    },
    /// A library is there and the loader refuses it.
    NotLoadable {
        /// The library.
        library: PathBuf,
        /// The loader's words.
        cause: String,
    },
    /// It is loaded and is not the driver's, or is older than anything we know.
    LacksFunctions {
        /// The library.
        library: PathBuf,
        /// Functions that nothing works without.
        missing: Vec<&'static str>,
    },
    /// The library is there, the kernel module is not.
    DriverNotLoaded,
    /// Library and kernel module are of different versions: the driver was updated without a restart.
    VersionMismatch,
    /// The process may not open the device files.
    NotPermitted,
    /// The driver refused to start, or to count its devices.
    Refused {
        /// The function that failed.
        call: &'static str,
        /// The driver's answer.
        cause: String,
    },
    /// The driver gave no answer in time.
    NoAnswer {
        /// How long it was waited for.
        waited: Duration,
    },
    /// No thread could be started to ask it.
    NoThread {
        /// The system's words.
        cause: String,
    },
}

impl GpuAbsence {
    pub(super) fn refused(call: &'static str, code: Code) -> Self {
        match code {
            Code::DRIVER_NOT_LOADED => Self::DriverNotLoaded,
            Code::VERSION_MISMATCH => Self::VersionMismatch,
            Code::NO_PERMISSION => Self::NotPermitted,
            _ => Self::Refused { call, cause: code.to_string() },
        }
    }

    /// The reason in one word of a fixed set, for reports that a program reads.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NoLibrary { .. } => "no_library",
            Self::NotLoadable { .. } => "not_loadable",
            Self::LacksFunctions { .. } => "lacks_functions",
            Self::DriverNotLoaded => "driver_not_loaded",
            Self::VersionMismatch => "version_mismatch",
            Self::NotPermitted => "not_permitted",
            Self::Refused { .. } => "refused",
            Self::NoAnswer { .. } => "no_answer",
            Self::NoThread { .. } => "no_thread",
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NoLibrary { .. } => {
                "on a machine with NVIDIA GPUs, start the container with `--gpus all` and \
                 `NVIDIA_DRIVER_CAPABILITIES=compute,utility`, or install the driver"
            }
            Self::NotLoadable { .. } | Self::LacksFunctions { .. } => {
                "see whether `LD_LIBRARY_PATH` leads to another library of this name"
            }
            Self::DriverNotLoaded => "load the kernel module: `modprobe nvidia`, then look at `nvidia-smi`",
            Self::VersionMismatch => "restart the machine, or reload the kernel module",
            Self::NotPermitted => "let this user open `/dev/nvidiactl` and `/dev/nvidia*`",
            Self::Refused { .. } | Self::NoAnswer { .. } => {
                "see what `nvidia-smi` says, and the kernel's log for `NVRM`"
            }
            Self::NoThread { .. } => "raise the limit on threads (`ulimit -u`, `pids.max`)",
        }
    }
}

impl fmt::Display for GpuAbsence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLibrary { tried } => {
                let tried: Vec<_> = tried.iter().map(|path| format!("`{}`", path.display())).collect();
                write!(f, "cannot find NVIDIA's driver library: looked for {}", tried.join(", "))
            }
            Self::NotLoadable { library, cause } => {
                write!(f, "cannot load NVIDIA's driver library `{}`: {cause}", library.display())
            }
            Self::LacksFunctions { library, missing } => {
                write!(f, "cannot use `{}` as NVIDIA's driver library: it lacks ", library.display())?;
                let missing: Vec<_> = missing.iter().map(|name| format!("`{name}`")).collect();
                f.write_str(&missing.join(", "))
            }
            Self::DriverNotLoaded => {
                f.write_str("cannot start NVIDIA's driver library: the kernel module is not loaded")
            }
            Self::VersionMismatch => f.write_str(
                "cannot start NVIDIA's driver library: the kernel module is of another version than the library",
            ),
            Self::NotPermitted => {
                f.write_str("cannot start NVIDIA's driver library: this user may not open the device files")
            }
            Self::Refused { call, cause } => {
                write!(f, "cannot ask NVIDIA's driver library: `{call}` answered {cause}")
            }
            Self::NoAnswer { waited } => write!(
                f,
                "cannot start NVIDIA's driver library: no answer in {} s",
                waited.as_secs_f64()
            ),
            Self::NoThread { cause } => {
                write!(f, "cannot start a thread to ask NVIDIA's driver library: {cause}")
            }
        }
    }
}

impl std::error::Error for GpuAbsence {}
