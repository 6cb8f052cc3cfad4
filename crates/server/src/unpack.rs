//! Unpacks bodies within bounds.

use std::io::{Error, ErrorKind, Read};

use tokio::sync::OwnedSemaphorePermit;

/// Bytes that are unpacked without measuring first.
const FIRST_BYTES: u64 = 4 << 20;
/// Largest zstd window, as a power of two: 32 MiB.
const WINDOW_LOG_MAX: u32 = 25;

/// How a body is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packing {
    /// Not at all.
    Plain,
    /// As gzip has it.
    Gzip,
    /// With the head of zlib, or without it as some clients send it.
    Deflate,
    /// As zstd has it.
    Zstd,
}

impl Packing {
    /// The packing of a `Content-Encoding`; none where it is not known.
    pub(crate) fn of(name: &str) -> Option<Self> {
        match name {
            "" | "identity" => Some(Self::Plain),
            "gzip" | "x-gzip" => Some(Self::Gzip),
            "deflate" => Some(Self::Deflate),
            "zstd" => Some(Self::Zstd),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Plain => "identity",
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
            Self::Zstd => "zstd",
        }
    }
}

/// A body as it came, with its part of the bound on all bodies.
#[derive(Debug)]
pub(crate) struct Packed {
    /// How its bytes are packed.
    pub(crate) packing: Packing,
    /// They.
    pub(crate) bytes: bytes::Bytes,
    /// Given back when the bytes are let go.
    pub(crate) room: Vec<OwnedSemaphorePermit>,
}

/// Why a body can't be unpacked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UnpackError {
    /// It is not what it says.
    #[error("the body is not whole {packing} data: {source}")]
    Broken {
        /// What it says that it is.
        packing: &'static str,
        /// What is wrong with it.
        source: Error,
    },
    /// It has more than it may.
    #[error("the body is over {limit} bytes unpacked")]
    TooLarge {
        /// How many it may have.
        limit: usize,
    },
}

/// The bytes of a body, at most `bytes_max`.
pub(crate) fn unpack(packing: Packing, body: &[u8], bytes_max: usize) -> Result<Vec<u8>, UnpackError> {
    let broken = |source| UnpackError::Broken { packing: packing.name(), source };
    match packing {
        Packing::Plain if body.len() > bytes_max => Err(UnpackError::TooLarge { limit: bytes_max }),
        Packing::Plain => Ok(body.to_vec()),
        Packing::Gzip => within(|| flate2::read::MultiGzDecoder::new(body), bytes_max, &broken),
        Packing::Deflate => within(|| Inflate::new(body), bytes_max, &broken),
        Packing::Zstd => {
            let zstd = || {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(body)?;
                decoder.window_log_max(WINDOW_LOG_MAX)?;
                Ok::<_, Error>(decoder)
            };
            within(|| Opened(zstd()), bytes_max, &broken)
        }
    }
}

/// Whether the first two bytes are those of RFC 1950: method 8, and a multiple of 31. Deflate without
/// it begins like this only where its first block is stored and padded with something else than zeros.
fn has_zlib_head(body: &[u8]) -> bool {
    body.first_chunk().is_some_and(|head| head[0] & 0x0f == 8 && u16::from_be_bytes(*head).is_multiple_of(31))
}

/// Reads deflate. The readers of `flate2` take one that is cut off for one that is whole.
struct Inflate<'b> {
    state: flate2::Decompress,
    body: &'b [u8],
    is_done: bool,
}

impl<'b> Inflate<'b> {
    fn new(body: &'b [u8]) -> Self {
        Self { state: flate2::Decompress::new(has_zlib_head(body)), body, is_done: false }
    }
}

impl Read for Inflate<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        while !self.is_done && !into.is_empty() {
            let (taken, given) = (self.state.total_in(), self.state.total_out());
            let status = self.state.decompress(self.body, into, flate2::FlushDecompress::None)?;
            let taken = (self.state.total_in() - taken) as usize;
            let given = (self.state.total_out() - given) as usize;
            self.body = &self.body[taken..];
            self.is_done = status == flate2::Status::StreamEnd;
            if given > 0 {
                return Ok(given);
            }
            if !self.is_done && taken == 0 {
                return Err(Error::new(ErrorKind::UnexpectedEof, "it ends too early"));
            }
        }
        Ok(0)
    }
}

/// A decoder that may have failed to open; reading says so.
struct Opened<R>(std::io::Result<R>);

impl<R: Read> Read for Opened<R> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        match &mut self.0 {
            Ok(reader) => reader.read(into),
            Err(error) => Err(Error::new(error.kind(), error.to_string())),
        }
    }
}

/// Reads a packed body. One that grows beyond [`FIRST_BYTES`] is measured to its end before more is
/// kept, so that a decompression bomb costs time within bounds, and no memory.
fn within<R: Read>(
    open: impl Fn() -> R,
    bytes_max: usize,
    broken: &dyn Fn(Error) -> UnpackError,
) -> Result<Vec<u8>, UnpackError> {
    let mut plain = Vec::new();
    open().take(FIRST_BYTES).read_to_end(&mut plain).map_err(broken)?;
    if plain.len() > bytes_max {
        return Err(UnpackError::TooLarge { limit: bytes_max });
    }
    if (plain.len() as u64) < FIRST_BYTES {
        return Ok(plain);
    }
    drop(plain);
    let limit = bytes_max as u64;
    let bytes = std::io::copy(&mut open().take(limit + 1), &mut std::io::sink()).map_err(broken)?;
    if bytes > limit {
        return Err(UnpackError::TooLarge { limit: bytes_max });
    }
    let mut plain = Vec::with_capacity(bytes as usize);
    open().take(limit).read_to_end(&mut plain).map_err(broken)?;
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

    use super::*;

    fn packed(plain: &[u8]) -> Vec<(Packing, Vec<u8>)> {
        let level = Compression::default();
        let (mut gzip, mut zlib, mut raw) = (
            GzEncoder::new(Vec::new(), level),
            ZlibEncoder::new(Vec::new(), level),
            DeflateEncoder::new(Vec::new(), level),
        );
        for encoder in [&mut gzip as &mut dyn Write, &mut zlib, &mut raw] {
            encoder.write_all(plain).unwrap();
        }
        vec![
            (Packing::Gzip, gzip.finish().unwrap()),
            (Packing::Deflate, zlib.finish().unwrap()),
            (Packing::Deflate, raw.finish().unwrap()),
            (Packing::Zstd, zstd::encode_all(plain, 3).unwrap()),
        ]
    }

    #[test]
    fn what_was_packed_comes_out_whole_or_not_at_all() {
        for size in [0, 1, 1_000, 5 << 20] {
            let plain: Vec<u8> = (0..size).map(|n: usize| (n / 7) as u8).collect();
            for (packing, body) in packed(&plain) {
                assert!(unpack(packing, &body, size).unwrap() == plain, "{packing:?} of {size}");
                assert!(matches!(
                    unpack(packing, &body[..body.len() - 1], size),
                    Err(UnpackError::Broken { .. })
                ));
                if size > 0 {
                    let over = unpack(packing, &body, size - 1);
                    assert!(matches!(over, Err(UnpackError::TooLarge { limit }) if limit == size - 1));
                }
            }
        }
    }

    #[test]
    fn garbage_is_none_of_them() {
        for packing in [Packing::Gzip, Packing::Deflate, Packing::Zstd] {
            for body in [&b"\xff\xfe\xfd garbage"[..], &[0x78, 0x9c, 0xff, 0xff], &[0x1f, 0x8b, 8]] {
                assert!(unpack(packing, body, 1 << 20).is_err(), "{packing:?} {body:?}");
            }
        }
    }
}
