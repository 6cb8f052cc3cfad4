//! One record: mark, length, checksum, bytes.

/// Longest record, bytes.
pub const RECORD_BYTES_MAX: usize = 64 << 20;
/// Bytes in front of a record's own.
pub(crate) const HEAD_BYTES: usize = 12;
/// Starts every record, so that reading can go on behind damage.
pub(crate) const MARK: [u8; 4] = *b"\xf7TG1";

/// The head of a record, if `head` is one: its length and checksum.
pub(crate) fn parse_head(head: &[u8]) -> Option<(usize, u32)> {
    let (mark, rest) = head.split_first_chunk::<4>()?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let (checksum, _) = rest.split_first_chunk::<4>()?;
    let length = u32::from_le_bytes(*length) as usize;
    (*mark == MARK && length <= RECORD_BYTES_MAX).then_some((length, u32::from_le_bytes(*checksum)))
}

/// Checksum over length and bytes.
pub(crate) fn checksum(bytes: &[u8]) -> u32 {
    let mut hash = crc32fast::Hasher::new();
    hash.update(&(bytes.len() as u32).to_le_bytes());
    hash.update(bytes);
    hash.finalize()
}

/// Head and bytes in one piece, for one write.
pub(crate) fn frame(bytes: &[u8]) -> Vec<u8> {
    let mut framed = Vec::with_capacity(HEAD_BYTES + bytes.len());
    framed.extend_from_slice(&MARK);
    framed.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    framed.extend_from_slice(&checksum(bytes).to_le_bytes());
    framed.extend_from_slice(bytes);
    framed
}
