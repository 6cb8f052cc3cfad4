//! The few byte shapes that everything on disk is made of.
//!
//! Integers are LEB128 varints, signed ones zigzag first; floats are their eight bytes, little
//! endian; text and bytes carry their length in front. Reading never panics and never allocates
//! more than the input holds: what doesn't fit is `None`.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Appends `value` as a varint.
pub(crate) fn put_u64(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends `value` as a zigzag varint.
pub(crate) fn put_i64(out: &mut Vec<u8>, value: i64) {
    put_u64(out, zigzag(value));
}

/// A signed number as one that is small where it is near zero.
pub(crate) fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// Appends the eight bytes of `value`.
pub(crate) fn put_f64(out: &mut Vec<u8>, value: f64) {
    out.extend_from_slice(&value.to_bits().to_le_bytes());
}

/// Appends length and bytes.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_u64(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends 0, or 1 and the number.
pub(crate) fn put_optional(out: &mut Vec<u8>, value: Option<i64>) {
    match value {
        None => out.push(0),
        Some(value) => {
            out.push(1);
            put_i64(out, value);
        }
    }
}

/// Reads what the functions above wrote.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// What is left.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return None;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    pub(crate) fn i64(&mut self) -> Option<i64> {
        self.u64().map(|raw| (raw >> 1) as i64 ^ -((raw & 1) as i64))
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.u64()?.try_into().ok()
    }

    pub(crate) fn f64(&mut self) -> Option<f64> {
        self.array().map(u64::from_le_bytes).map(f64::from_bits)
    }

    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.u64()?.try_into().ok()?;
        self.take(len)
    }

    pub(crate) fn text(&mut self) -> Option<String> {
        self.bytes().and_then(|bytes| std::str::from_utf8(bytes).ok()).map(str::to_owned)
    }

    #[expect(clippy::option_option, reason = "the outer one says whether it could be read")]
    pub(crate) fn optional(&mut self) -> Option<Option<i64>> {
        match self.byte()? {
            0 => Some(None),
            1 => self.i64().map(Some),
            _ => None,
        }
    }

    /// A count of things that take at least `least_bytes` each, refused when the rest can't hold them.
    pub(crate) fn count(&mut self, least_bytes: usize) -> Option<usize> {
        let count: usize = self.u64()?.try_into().ok()?;
        (count <= self.0.len() / least_bytes.max(1)).then_some(count)
    }
}

/// Where the next `mark` of a file stands, from one place to another; how what lies behind damage is found.
pub(crate) fn next_mark(file: &File, (from, to): (u64, u64), mark: [u8; 4]) -> io::Result<Option<u64>> {
    let mut window = vec![0; 64 << 10];
    let mut at = from;
    while at + 4 <= to {
        let len = window.len().min((to - at) as usize);
        file.read_exact_at(&mut window[..len], at)?;
        if let Some(found) = window[..len].windows(4).position(|w| w == mark) {
            return Ok(Some(at + found as u64));
        }
        at += len as u64 - 3;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        for value in [0, 1, -1, 63, -64, 64, i64::MAX, i64::MIN] {
            let mut out = Vec::new();
            put_i64(&mut out, value);
            put_u64(&mut out, value as u64);
            put_optional(&mut out, Some(value));
            put_optional(&mut out, None);
            put_f64(&mut out, f64::from_bits(value as u64));
            let mut reader = Reader::new(&out);
            assert_eq!(reader.i64(), Some(value));
            assert_eq!(reader.u64(), Some(value as u64));
            assert_eq!(reader.optional(), Some(Some(value)));
            assert_eq!(reader.optional(), Some(None));
            assert_eq!(reader.f64().map(f64::to_bits), Some(value as u64));
            assert!(reader.is_empty());
        }
    }

    #[test]
    fn what_does_not_fit_is_nothing() {
        assert_eq!(Reader::new(&[0x80]).u64(), None);
        assert_eq!(Reader::new(&[0xff; 10]).u64(), None);
        assert_eq!(Reader::new(&[5, b'a']).bytes(), None);
        assert_eq!(Reader::new(&[200, 1, 0]).count(1), None);
        assert_eq!(Reader::new(&[2, 0xff, 0xfe]).text(), None);
    }
}
