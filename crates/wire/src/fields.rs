//! A look over the fields of a protobuf message before it is decoded.

/// Why bytes are not a message's fields.
#[derive(Debug, thiserror::Error)]
pub enum FieldError {
    /// A field is longer than what is left.
    #[error("a field ends behind its message")]
    Cut,
    /// Groups, or what is none of protobuf's.
    #[error("wire type {0} is not in use")]
    WireType(u64),
    /// Not a number.
    #[error(transparent)]
    Number(#[from] prost::DecodeError),
}

/// Is handed a field's number and its bytes.
pub(crate) type Visit<'a, E> = &'a mut dyn FnMut(u32, &[u8]) -> Result<(), E>;

/// Hands every length-delimited field's number and its bytes to `visit`.
pub(crate) fn walk<E: From<FieldError>>(mut rest: &[u8], visit: Visit<'_, E>) -> Result<(), E> {
    let varint = |rest: &mut &[u8]| prost::encoding::decode_varint(rest).map_err(FieldError::from);
    while !rest.is_empty() {
        let key = varint(&mut rest)?;
        let length = match key & 7 {
            0 => {
                varint(&mut rest)?;
                continue;
            }
            1 => 8,
            2 => usize::try_from(varint(&mut rest)?).unwrap_or(usize::MAX),
            5 => 4,
            other => return Err(FieldError::WireType(other).into()),
        };
        let inner = rest.get(..length).ok_or(FieldError::Cut)?;
        rest = &rest[length..];
        if key & 7 == 2 {
            visit((key >> 3) as u32, inner)?;
        }
    }
    Ok(())
}
