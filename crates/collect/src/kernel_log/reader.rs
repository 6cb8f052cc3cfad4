//! `/dev/kmsg`, or what reads like it.

use std::io::{self, Read};

use super::Record;

/// The kernel gives a record whole or not at all, and none is longer.
const READ_BYTES: usize = 8 * 1024 + 512;
/// What a read says when records were overwritten before they were read; the next one goes on behind them.
const OVERWRITTEN: i32 = 32;

/// Reads records, one with each read.
#[derive(Debug)]
pub struct Reader<R> {
    source: R,
    buffer: Vec<u8>,
    overruns: u64,
}

impl<R: Read> Reader<R> {
    /// Reads from an open file. Opened non-blocking, it gives nothing where it would wait.
    pub fn new(source: R) -> Self {
        Self { source, buffer: vec![0; READ_BYTES], overruns: 0 }
    }

    /// How often the kernel has overwritten records that were not read yet.
    pub fn overruns(&self) -> u64 {
        self.overruns
    }

    /// What is read from.
    pub fn source(&self) -> &R {
        &self.source
    }

    /// The next record; nothing when there is none now. What has no header is passed over.
    pub fn next_record(&mut self) -> io::Result<Option<Record>> {
        loop {
            match self.source.read(&mut self.buffer) {
                Ok(0) => return Ok(None),
                Ok(length) => {
                    if let Some(record) = Record::of_kmsg(&self.buffer[..length]) {
                        return Ok(Some(record));
                    }
                }
                Err(error) if error.raw_os_error() == Some(OVERWRITTEN) => self.overruns += 1,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    struct Reads(VecDeque<io::Result<&'static [u8]>>);

    impl Read for Reads {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let bytes = self.0.pop_front().unwrap_or(Ok(b""))?;
            buffer[..bytes.len()].copy_from_slice(bytes);
            Ok(bytes.len())
        }
    }

    #[test]
    fn a_read_is_a_record_and_an_overrun_is_counted() {
        let mut reader = Reader::new(Reads(VecDeque::from([
            Ok(&b"4,1,2,-;a\n"[..]),
            Err(io::Error::from_raw_os_error(OVERWRITTEN)),
            Err(io::Error::from(io::ErrorKind::Interrupted)),
            Ok(b"no header\n"),
            Ok(b"4,9,2,-;b\n"),
            Err(io::Error::from(io::ErrorKind::WouldBlock)),
            Err(io::Error::from(io::ErrorKind::PermissionDenied)),
        ])));
        assert_eq!(reader.next_record().unwrap().unwrap().text, "a");
        assert_eq!(reader.next_record().unwrap().unwrap().text, "b");
        assert_eq!(reader.overruns(), 1);
        assert_eq!(reader.next_record().unwrap(), None);
        assert!(reader.next_record().is_err());
    }
}
