//! Lines of the driver of `NVSwitch`.

use super::{Bdf, leading_hex, leading_number};

/// An SXid.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SxidLine {
    /// The switch's number.
    pub switch: u32,
    /// Where it is.
    pub place: Option<Bdf>,
    /// The number.
    pub code: u32,
    /// Whether the driver calls it fatal, where it says.
    pub is_fatal: Option<bool>,
    /// The link.
    pub link: Option<u32>,
    /// What the driver says behind these.
    pub message: String,
}

/// The lines that follow an SXid with the same number: no events of their own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SxidDetail {
    /// The switch's number.
    pub switch: u32,
    /// Where it is.
    pub place: Option<Bdf>,
    /// The number.
    pub code: u32,
    /// Words of data.
    pub data: Vec<u32>,
    /// What the line says.
    pub message: String,
}

/// Reads what follows `nvidia-nvswitch`.
pub(super) fn read(text: &str) -> Option<Result<SxidLine, SxidDetail>> {
    let (switch, rest) = leading_number(text)?;
    let switch = u32::try_from(switch).ok()?;
    let (place, rest) = rest.strip_prefix(": SXid (")?.split_once("):")?;
    let place = Some(Bdf::read(place)?);
    let (code, rest) = leading_number(rest.trim_start())?;
    let code = u32::try_from(code).ok()?;
    let message = rest.strip_prefix(',').unwrap_or(rest).trim_start();
    if message.starts_with("Severity") || message.starts_with("Data") {
        let data = message.strip_prefix("Data").map(data).unwrap_or_default();
        return Some(Err(SxidDetail { switch, place, code, data, message: message.to_owned() }));
    }
    let fatal =
        ["Fatal", "Non-fatal", "Nonfatal"].into_iter().find(|word| message.starts_with(&format!("{word},")));
    let link = message.split_once("Link ").and_then(|(_, rest)| leading_number(rest));
    Some(Ok(SxidLine {
        switch,
        place,
        code,
        is_fatal: fatal.map(|word| word == "Fatal"),
        link: link.and_then(|(link, _)| u32::try_from(link).ok()),
        message: message.to_owned(),
    }))
}

fn data(text: &str) -> Vec<u32> {
    let words = text.trim_matches([' ', '{', '}']).split([',', ' ']).filter(|word| !word.is_empty());
    words.map_while(|word| u32::try_from(leading_hex(word)?.0).ok()).take(16).collect()
}
