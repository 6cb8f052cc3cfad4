//! Writes the fields of a protobuf message.

use prost::encoding::{WireType, encode_key, encode_varint};

/// A varint; zero is the same as no field.
pub(crate) fn put_varint(out: &mut Vec<u8>, number: u32, value: u64) {
    if value != 0 {
        encode_key(number, WireType::Varint, out);
        encode_varint(value, out);
    }
}

/// A varint that is there also when it is zero, as in a choice between fields.
pub(crate) fn put_varint_always(out: &mut Vec<u8>, number: u32, value: u64) {
    encode_key(number, WireType::Varint, out);
    encode_varint(value, out);
}

/// 64 bits; zero is the same as no field.
pub(crate) fn put_fixed(out: &mut Vec<u8>, number: u32, value: u64) {
    if value != 0 {
        put_fixed_always(out, number, value);
    }
}

/// 64 bits that are there also when they are zero.
pub(crate) fn put_fixed_always(out: &mut Vec<u8>, number: u32, value: u64) {
    encode_key(number, WireType::SixtyFourBit, out);
    out.extend_from_slice(&value.to_le_bytes());
}

/// A float, there also when it is zero.
pub(crate) fn put_double(out: &mut Vec<u8>, number: u32, value: f64) {
    put_fixed_always(out, number, value.to_bits());
}

/// 64 bits each, packed; none is the same as no field.
pub(crate) fn put_packed(out: &mut Vec<u8>, number: u32, values: impl ExactSizeIterator<Item = u64>) {
    if values.len() == 0 {
        return;
    }
    encode_key(number, WireType::LengthDelimited, out);
    encode_varint(values.len() as u64 * 8, out);
    for value in values {
        out.extend_from_slice(&value.to_le_bytes());
    }
}

/// Bytes, there also when they are none.
pub(crate) fn put_bytes(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    encode_key(number, WireType::LengthDelimited, out);
    encode_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// A text; an empty one is the same as no field.
pub(crate) fn put_text(out: &mut Vec<u8>, number: u32, text: &str) {
    if !text.is_empty() {
        put_bytes(out, number, text.as_bytes());
    }
}
