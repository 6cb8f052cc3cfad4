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

/// A field as it lies in a message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece<'a> {
    /// Its number, cut to 32 bits.
    pub(crate) number: u32,
    /// What is behind its length; none where it has no length of its own.
    pub(crate) inner: Option<&'a [u8]>,
    /// All of it, with its key.
    pub(crate) whole: &'a [u8],
}

/// Takes the first field of `rest`, which is not empty, off it.
pub(crate) fn take<'a>(rest: &mut &'a [u8]) -> Result<Piece<'a>, FieldError> {
    let all = *rest;
    let key = prost::encoding::decode_varint(rest)?;
    let length = match key & 7 {
        0 => {
            prost::encoding::decode_varint(rest)?;
            0
        }
        1 => 8,
        2 => usize::try_from(prost::encoding::decode_varint(rest)?).unwrap_or(usize::MAX),
        5 => 4,
        other => return Err(FieldError::WireType(other)),
    };
    let (inner, behind) = rest.split_at_checked(length).ok_or(FieldError::Cut)?;
    *rest = behind;
    let inner = (key & 7 == 2).then_some(inner);
    Ok(Piece { number: (key >> 3) as u32, inner, whole: &all[..all.len() - behind.len()] })
}

/// Hands every length-delimited field's number and its bytes to `visit`.
pub(crate) fn walk<E: From<FieldError>>(mut rest: &[u8], visit: Visit<'_, E>) -> Result<(), E> {
    while !rest.is_empty() {
        let piece = take(&mut rest)?;
        if let Some(inner) = piece.inner {
            visit(piece.number, inner)?;
        }
    }
    Ok(())
}
