//! Where a device is on the PCI bus.

use std::fmt;

/// A PCI address; written `dddd:bb:dd.f`, in lower case, whatever the source's way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Bdf {
    /// Domain.
    pub domain: u32,
    /// Bus.
    pub bus: u8,
    /// Device.
    pub device: u8,
    /// Function.
    pub function: u8,
}

impl Bdf {
    /// Reads `dddd:bb:dd`, `dddd:bb:dd.f` or `bb:dd.f`, with any number of digits in the domain.
    pub fn read(text: &str) -> Option<Self> {
        let text = text.trim();
        let text = text.strip_prefix("PCI:").unwrap_or(text);
        let (address, function) = match text.rsplit_once('.') {
            Some((address, function)) => (address, u8::from_str_radix(function, 16).ok()?),
            None => (text, 0),
        };
        let mut parts = address.rsplit(':');
        let device = hex(parts.next()?, 2)?;
        let bus = hex(parts.next()?, 2)?;
        let domain = parts.next().map_or(Some(0), |text| hex(text, 8))?;
        let is_all = parts.next().is_none();
        is_all.then_some(Self {
            domain,
            bus: u8::try_from(bus).ok()?,
            device: u8::try_from(device).ok()?,
            function,
        })
    }
}

fn hex(text: &str, digits_max: usize) -> Option<u32> {
    let is_hex = !text.is_empty() && text.len() <= digits_max && text.bytes().all(|b| b.is_ascii_hexdigit());
    is_hex.then(|| u32::from_str_radix(text, 16).ok())?
}

impl fmt::Display for Bdf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.{:x}", self.domain, self.bus, self.device, self.function)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_is_one_address() {
        for text in ["0000:1b:00", "PCI:0000:1B:00", "00000000:1B:00.0", "1b:00.0", "0000:1b:00.0"] {
            assert_eq!(Bdf::read(text).map(|bdf| bdf.to_string()), Some("0000:1b:00.0".to_owned()), "{text}");
        }
        assert_eq!(Bdf::read("0009:01:00").unwrap().to_string(), "0009:01:00.0");
        assert_eq!(Bdf::read("10000:c3:1f.7").unwrap().to_string(), "10000:c3:1f.7");
        for text in ["", "1b", "0000:1b:00:00:0", "zz:00.0", "0000:1b:000", "0000:+b:00", "0000:1b:00.x"] {
            assert_eq!(Bdf::read(text), None, "{text}");
        }
    }
}
