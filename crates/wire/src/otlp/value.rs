//! Attributes: keys with values of any type.

use std::borrow::Cow;
use std::fmt::Write;

use model::AttributeValue;

use super::proto::Fields;
use super::{ATTRIBUTES_MAX, OtlpError};

/// Lists in lists are read this deep; below stands `...`.
const DEPTH_MAX: usize = 8;

/// The value of an attribute, borrowed from the body.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    /// Nothing was set.
    Empty,
    /// Text.
    Text(&'a str),
    /// True or false.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number.
    Double(f64),
    /// Bytes.
    Bytes(&'a [u8]),
    /// A list, as its message; [`Value::text`] spells it out.
    List(&'a [u8]),
    /// Keys and values, as their message.
    Map(&'a [u8]),
}

/// A key and its value.
pub type Attribute<'a> = (&'a str, Value<'a>);

impl<'a> Value<'a> {
    /// Reads the message `AnyValue`.
    pub(crate) fn read(message: &'a [u8]) -> Result<Self, OtlpError> {
        let (mut value, mut fields) = (Self::Empty, Fields(message));
        while let Some((number, field)) = fields.next()? {
            value = match number {
                1 => Self::Text(field.text()?),
                2 => Self::Bool(field.int()? != 0),
                3 => Self::Int(field.int()?.cast_signed()),
                4 => Self::Double(field.double()?),
                5 => Self::List(field.bytes()?),
                6 => Self::Map(field.bytes()?),
                7 => Self::Bytes(field.bytes()?),
                _ => value,
            };
        }
        Ok(value)
    }

    /// As a label shows it: text as it is, all else as JSON spells it; nothing is the empty text.
    pub fn text(&self) -> Result<Cow<'a, str>, OtlpError> {
        Ok(match self {
            Self::Empty => Cow::Borrowed(""),
            Self::Text(text) => Cow::Borrowed(text),
            other => {
                let mut out = String::new();
                other.spell(&mut out, DEPTH_MAX)?;
                Cow::Owned(out)
            }
        })
    }

    /// As an attribute of a run; lists, maps and bytes as text.
    pub fn attribute(&self) -> Result<AttributeValue, OtlpError> {
        Ok(match self {
            Self::Empty => AttributeValue::Null,
            Self::Bool(value) => AttributeValue::Bool(*value),
            Self::Int(value) => AttributeValue::Int(*value),
            Self::Double(value) => AttributeValue::Float(*value),
            other => AttributeValue::Text(other.text()?.into_owned()),
        })
    }

    /// A whole number, also one that came as text: environment variables make text of all.
    pub fn number(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            Self::Text(text) => text.trim().parse().ok(),
            Self::Double(number) if number.fract() == 0.0 && number.abs() < 1e15 => Some(*number as i64),
            _ => None,
        }
    }

    fn spell(&self, out: &mut String, depth: usize) -> Result<(), OtlpError> {
        match self {
            Self::Empty => out.push_str("null"),
            Self::Text(text) => quote(out, text),
            Self::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Self::Int(value) => put(out, format_args!("{value}")),
            Self::Double(value) => put(out, format_args!("{}", Double(*value))),
            Self::Bytes(bytes) => bytes.iter().for_each(|byte| put(out, format_args!("{byte:02x}"))),
            Self::List(_) | Self::Map(_) if depth == 0 => out.push_str("..."),
            Self::List(message) => {
                out.push('[');
                let mut fields = Fields(message);
                while let Some((number, field)) = fields.next()? {
                    if number == 1 {
                        separate(out, '[');
                        Value::read(field.bytes()?)?.spell(out, depth - 1)?;
                    }
                }
                out.push(']');
            }
            Self::Map(message) => {
                out.push('{');
                let mut fields = Fields(message);
                while let Some((number, field)) = fields.next()? {
                    if number == 1 {
                        separate(out, '{');
                        let (key, value) = read_pair(field.bytes()?)?;
                        quote(out, key);
                        out.push(':');
                        value.spell(out, depth - 1)?;
                    }
                }
                out.push('}');
            }
        }
        Ok(())
    }
}

/// A float as JSON spells it, and the words of OTLP for what JSON can't spell.
struct Double(f64);

impl std::fmt::Display for Double {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let value = self.0;
        if value.is_nan() {
            f.write_str("NaN")
        } else if value.is_infinite() {
            f.write_str(if value > 0.0 { "Infinity" } else { "-Infinity" })
        } else if value != 0.0 && !(1e-6..1e21).contains(&value.abs()) {
            write!(f, "{value:e}")
        } else {
            write!(f, "{value}")
        }
    }
}

fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a String can't fail.
    let _infallible = out.write_fmt(text);
}

fn quote(out: &mut String, text: &str) {
    put(out, format_args!("{}", serde_json::Value::from(text)));
}

fn separate(out: &mut String, opened: char) {
    if !out.ends_with(opened) {
        out.push(',');
    }
}

/// Reads the message `KeyValue`.
pub(crate) fn read_pair(message: &[u8]) -> Result<Attribute<'_>, OtlpError> {
    let (mut pair, mut fields) = (("", Value::Empty), Fields(message));
    while let Some((number, field)) = fields.next()? {
        match number {
            1 => pair.0 = field.text()?,
            2 => pair.1 = Value::read(field.bytes()?)?,
            _ => {}
        }
    }
    Ok(pair)
}

/// Attributes of one element, at most [`ATTRIBUTES_MAX`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Attributes<'a> {
    /// In the sender's order.
    pub list: Vec<Attribute<'a>>,
    /// How many were beyond the bound, or left out by the sender.
    pub left_out: u64,
}

impl<'a> Attributes<'a> {
    /// Adds the message `KeyValue`.
    pub(crate) fn push(&mut self, message: &'a [u8]) -> Result<(), OtlpError> {
        let pair = read_pair(message)?;
        if self.list.len() < ATTRIBUTES_MAX {
            self.list.push(pair);
        } else {
            self.left_out += 1;
        }
        Ok(())
    }

    /// The value of `key`; of two equal keys the later one.
    pub fn get(&self, key: &str) -> Option<Value<'a>> {
        self.list.iter().rev().find(|(name, _)| *name == key).map(|(_, value)| *value)
    }
}
