//! Attributes: keys with values of any type.

use std::borrow::Cow;
use std::fmt::Write;

use model::AttributeValue;

use super::proto::Fields;
use super::text::cut;
use super::{ATTRIBUTES_MAX, OtlpError};

/// Lists in lists are read this deep; below stands `...`.
const DEPTH_MAX: usize = 8;
/// Lists and maps are spelled out up to this many bytes; then stands `...`.
const SPELLED_BYTES_MAX: usize = 64 << 10;

/// There is room for so many attributes at once.
const USUAL: usize = 12;

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
            Self::Text(text) => quote(out, cut(text, SPELLED_BYTES_MAX)),
            Self::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Self::Int(value) => put(out, format_args!("{value}")),
            Self::Double(value) => put(out, format_args!("{}", Double(*value))),
            Self::Bytes(bytes) => {
                let bytes = &bytes[..bytes.len().min(SPELLED_BYTES_MAX / 2)];
                for byte in bytes {
                    put(out, format_args!("{byte:02x}"));
                }
            }
            Self::List(_) | Self::Map(_) if depth == 0 => out.push_str("..."),
            Self::List(message) => {
                out.push('[');
                spell_each(message, out, |element, out| Value::read(element)?.spell(out, depth - 1))?;
                out.push(']');
            }
            Self::Map(message) => {
                out.push('{');
                spell_each(message, out, |pair, out| {
                    let (key, value) = read_pair(pair)?;
                    quote(out, cut(key, SPELLED_BYTES_MAX));
                    out.push(':');
                    value.spell(out, depth - 1)
                })?;
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

/// Spells the elements of a list or map, separated, until there is enough.
fn spell_each(
    message: &[u8],
    out: &mut String,
    mut spell: impl FnMut(&[u8], &mut String) -> Result<(), OtlpError>,
) -> Result<(), OtlpError> {
    let (mut fields, mut is_first) = (Fields(message), true);
    while let Some((number, field)) = fields.next()? {
        if number != 1 {
            continue;
        }
        if !is_first {
            out.push(',');
        }
        if out.len() > SPELLED_BYTES_MAX {
            out.push_str("...");
            break;
        }
        spell(field.bytes()?, out)?;
        is_first = false;
    }
    Ok(())
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
        if self.list.is_empty() {
            self.list.reserve(USUAL);
        }
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

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, KeyValue, KeyValueList, any_value};
    use prost::Message;

    use super::*;

    fn spelled(value: any_value::Value) -> String {
        let bytes = AnyValue { value: Some(value) }.encode_to_vec();
        Value::read(&bytes).unwrap().text().unwrap().into_owned()
    }

    fn list(values: Vec<any_value::Value>) -> any_value::Value {
        let values = values.into_iter().map(|value| AnyValue { value: Some(value) }).collect();
        any_value::Value::ArrayValue(ArrayValue { values })
    }

    #[test]
    fn values_are_spelled_as_json_spells_them() {
        use any_value::Value::{BoolValue, BytesValue, DoubleValue, IntValue, KvlistValue, StringValue};
        let check = |value: any_value::Value, want: &str| assert_eq!(spelled(value), want);
        check(StringValue("a\"b".into()), "a\"b");
        check(BoolValue(true), "true");
        check(IntValue(-3), "-3");
        check(DoubleValue(0.5), "0.5");
        check(DoubleValue(3.0), "3");
        check(DoubleValue(1e300), "1e300");
        check(DoubleValue(f64::NAN), "NaN");
        check(DoubleValue(f64::NEG_INFINITY), "-Infinity");
        check(BytesValue(vec![1, 0xab]), "01ab");
        check(list(vec![IntValue(1), StringValue("a\"b".into())]), r#"[1,"a\"b"]"#);
        let pair = KeyValue {
            key: "k".into(),
            value: Some(AnyValue { value: Some(list(vec![])) }),
            ..KeyValue::default()
        };
        check(KvlistValue(KeyValueList { values: vec![pair] }), r#"{"k":[]}"#);
    }

    #[test]
    fn deep_and_long_values_end_in_dots() {
        let deep = (0..100).fold(any_value::Value::IntValue(1), |inner, _| list(vec![inner]));
        assert_eq!(spelled(deep), "[[[[[[[[...]]]]]]]]");
        let many = (0..1_000_000).map(any_value::Value::IntValue).collect();
        let long = spelled(list(many));
        assert!(long.len() < SPELLED_BYTES_MAX + 20, "{}", long.len());
        assert!(long.ends_with("...]"), "{}", &long[long.len() - 20..]);
        let wide = spelled(list(vec![any_value::Value::StringValue("\u{1}".repeat(1 << 20))]));
        assert!(wide.len() < 7 * SPELLED_BYTES_MAX, "{}", wide.len());
    }
}
