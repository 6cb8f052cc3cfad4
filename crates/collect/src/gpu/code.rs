//! What the driver library answers when it does not answer with a value.

use std::fmt;

/// A return code of NVML other than success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) i32);

impl Code {
    pub(crate) const INVALID_ARGUMENT: Self = Self(2);
    pub(crate) const NOT_SUPPORTED: Self = Self(3);
    pub(crate) const NO_PERMISSION: Self = Self(4);
    pub(crate) const INSUFFICIENT_SIZE: Self = Self(7);
    pub(crate) const DRIVER_NOT_LOADED: Self = Self(9);
    pub(crate) const TIMEOUT: Self = Self(10);
    pub(crate) const FUNCTION_NOT_FOUND: Self = Self(13);
    pub(crate) const VERSION_MISMATCH: Self = Self(18);

    /// Success as nothing, everything else as an error.
    pub(crate) fn of(returned: i32) -> Result<(), Self> {
        if returned == 0 { Ok(()) } else { Err(Self(returned)) }
    }

    /// Whether asking again is of no use: this device, or this driver, never has the value.
    pub(crate) fn is_unsupported(self) -> bool {
        matches!(self.0, 3 | 13 | 25)
    }

    /// Whether it says that the device, or the driver as it was loaded, is not there any more.
    pub(crate) fn is_lost(self) -> bool {
        matches!(self.0, 1 | 9 | 15)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.0 {
            1 => "not initialised",
            2 => "invalid argument",
            3 => "not supported",
            4 => "no permission",
            6 => "not found",
            7 => "buffer too small",
            9 => "driver not loaded",
            10 => "timeout",
            11 => "interrupt problem",
            12 => "library not found",
            13 => "function not found",
            14 => "corrupted InfoROM",
            15 => "GPU is lost",
            16 => "GPU needs a reset",
            17 => "operating system refused",
            18 => "library and kernel module differ in version",
            19 => "in use",
            20 => "out of memory",
            21 => "no data",
            25 => "structure version not known",
            _ => "unknown error",
        };
        write!(f, "{word} (NVML {})", self.0)
    }
}
