//! The fields of a protobuf message, borrowed from it.

use prost::encoding::decode_varint;

use super::OtlpError;

/// A field's value. Which of protobuf's types it is depends on the field's number.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Field<'a> {
    Varint(u64),
    Fixed64(u64),
    /// 32 bits, of which no field that is read makes use.
    Fixed32,
    Bytes(&'a [u8]),
}

/// Field by field through a message.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

const CUT: OtlpError = OtlpError::Malformed("a field ends behind its message");
const SHAPE: OtlpError = OtlpError::Malformed("a field has another type than its number");
const NUMBER: OtlpError = OtlpError::Malformed("a number is cut short");

impl<'a> Fields<'a> {
    /// The number and the value of the next field.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<(u64, Field<'a>)>, OtlpError> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let key = varint(&mut self.0)?;
        let field = match key & 7 {
            0 => Field::Varint(varint(&mut self.0)?),
            1 => {
                let (bytes, rest) = self.0.split_first_chunk::<8>().ok_or(CUT)?;
                self.0 = rest;
                Field::Fixed64(u64::from_le_bytes(*bytes))
            }
            2 => {
                let length = usize::try_from(varint(&mut self.0)?).unwrap_or(usize::MAX);
                let (bytes, rest) = self.0.split_at_checked(length).ok_or(CUT)?;
                self.0 = rest;
                Field::Bytes(bytes)
            }
            5 => {
                self.0 = self.0.get(4..).ok_or(CUT)?;
                Field::Fixed32
            }
            _ => return Err(OtlpError::Malformed("a wire type that is not in use")),
        };
        Ok(Some((key >> 3, field)))
    }
}

#[inline]
pub(crate) fn varint(rest: &mut &[u8]) -> Result<u64, OtlpError> {
    match **rest {
        [byte, ref after @ ..] if byte < 0x80 => {
            *rest = after;
            Ok(u64::from(byte))
        }
        [low, high, ref after @ ..] if high < 0x80 => {
            *rest = after;
            Ok(u64::from(high) << 7 | u64::from(low & 0x7f))
        }
        _ => decode_varint(rest).map_err(|_cut| NUMBER),
    }
}

impl<'a> Field<'a> {
    #[inline]
    pub(crate) fn bytes(self) -> Result<&'a [u8], OtlpError> {
        if let Self::Bytes(bytes) = self { Ok(bytes) } else { Err(SHAPE) }
    }

    pub(crate) fn text(self) -> Result<&'a str, OtlpError> {
        std::str::from_utf8(self.bytes()?).map_err(|_not_text| OtlpError::Malformed("a text is not UTF-8"))
    }

    #[inline]
    pub(crate) fn int(self) -> Result<u64, OtlpError> {
        if let Self::Varint(number) = self { Ok(number) } else { Err(SHAPE) }
    }

    #[inline]
    pub(crate) fn fixed(self) -> Result<u64, OtlpError> {
        if let Self::Fixed64(bits) = self { Ok(bits) } else { Err(SHAPE) }
    }

    #[inline]
    pub(crate) fn double(self) -> Result<f64, OtlpError> {
        self.fixed().map(f64::from_bits)
    }

    /// A signed number in zigzag.
    pub(crate) fn zigzag(self) -> Result<i32, OtlpError> {
        let number = self.int()? as u32;
        Ok((number >> 1).cast_signed() ^ -((number & 1).cast_signed()))
    }

    /// Adds each number of a repeated field of 64 bits, packed or not.
    pub(crate) fn push_fixed<T>(self, out: &mut Vec<T>, of: impl Fn(u64) -> T) -> Result<(), OtlpError> {
        match self {
            Self::Fixed64(bits) => out.push(of(bits)),
            Self::Bytes(bytes) => {
                let (chunks, rest) = bytes.as_chunks::<8>();
                if !rest.is_empty() {
                    return Err(CUT);
                }
                out.extend(chunks.iter().map(|chunk| of(u64::from_le_bytes(*chunk))));
            }
            _ => return Err(SHAPE),
        }
        Ok(())
    }

    /// Hands over each number of a repeated varint, packed or not.
    pub(crate) fn each_varint(self, mut take: impl FnMut(u64)) -> Result<(), OtlpError> {
        match self {
            Self::Varint(number) => take(number),
            Self::Bytes(mut bytes) => {
                while !bytes.is_empty() {
                    take(varint(&mut bytes)?);
                }
            }
            _ => return Err(SHAPE),
        }
        Ok(())
    }
}
