//! OTLP in JSON, turned into the same message in protobuf as it is read.
//!
//! One table says what the fields are called, which number and which type they have; the readers of
//! protobuf do the rest, so that both forms mean the same. Derived readers (`opentelemetry-proto` with
//! its feature for serde) lose what they can't read without a word: NaN becomes no value.

mod schema;

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use prost::encoding::{WireType, encode_key, encode_varint};
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::answer::Signal;
use super::{BODY_BYTES_MAX, OtlpError};
use schema::{Field, Message, Shape};

/// Turns a request of `signal` into protobuf.
///
/// Keys are lowerCamelCase; unknown ones are passed over. Ids are hex, other bytes base64, enums
/// numbers, 64-bit integers numbers or text, and floats may be `"NaN"`, `"Infinity"` and `"-Infinity"`.
/// Errors name line and column.
pub fn to_protobuf(signal: Signal, body: &[u8]) -> Result<Vec<u8>, OtlpError> {
    if body.len() > BODY_BYTES_MAX {
        return Err(OtlpError::TooMuch { what: "bytes unpacked", limit: BODY_BYTES_MAX });
    }
    let message = match signal {
        Signal::Metrics => &schema::METRICS,
        Signal::Traces => &schema::TRACES,
        Signal::Logs => &schema::LOGS,
    };
    let mut out = Vec::new();
    let mut reader = serde_json::Deserializer::from_slice(body);
    let read = Object { message, out: &mut out }.deserialize(&mut reader).and_then(|()| reader.end());
    match read {
        Ok(()) => Ok(out),
        Err(_) if out.len() > BODY_BYTES_MAX => {
            Err(OtlpError::TooMuch { what: "bytes as protobuf", limit: BODY_BYTES_MAX })
        }
        Err(error) => Err(OtlpError::Json(error.to_string())),
    }
}

/// Reads an object as the fields of a message.
struct Object<'o> {
    message: &'static Message,
    out: &'o mut Vec<u8>,
}

impl<'de> DeserializeSeed<'de> for Object<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Object<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object: {}", self.message.name)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            let Some(field) = self.message.fields.iter().find(|field| field.name == key) else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            map.next_value_seed(FieldSeed { field, out: self.out, in_list: false })?;
            if self.out.len() > BODY_BYTES_MAX {
                return Err(A::Error::custom("too large"));
            }
        }
        Ok(())
    }
}

/// Reads the value of a field, or one element of it.
struct FieldSeed<'o> {
    field: &'static Field,
    out: &'o mut Vec<u8>,
    in_list: bool,
}

impl<'de> DeserializeSeed<'de> for FieldSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl FieldSeed<'_> {
    /// Whether a single value may stand here.
    fn single<E: Error>(&self) -> Result<(), E> {
        if self.field.repeated && !self.in_list {
            return Err(E::custom(format!("`{}` is a list", self.field.name)));
        }
        Ok(())
    }

    fn wrong<E: Error>(&self, found: &str) -> E {
        E::custom(format!("`{}` is {}, found {found}", self.field.name, self.field.shape.words()))
    }

    fn varint(&mut self, value: u64) {
        encode_key(self.field.number, WireType::Varint, self.out);
        encode_varint(value, self.out);
    }

    fn fixed(&mut self, bits: u64) {
        encode_key(self.field.number, WireType::SixtyFourBit, self.out);
        self.out.extend(bits.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        encode_key(self.field.number, WireType::LengthDelimited, self.out);
        encode_varint(bytes.len() as u64, self.out);
        self.out.extend_from_slice(bytes);
    }

    /// A whole number, told as one or as text.
    fn whole<E: Error>(&mut self, number: i128) -> Result<(), E> {
        self.single()?;
        let outside = |seed: &Self| seed.wrong(&number.to_string());
        match self.field.shape {
            Shape::Double => self.fixed((number as f64).to_bits()),
            Shape::Fixed64 => self.fixed(u64::try_from(number).map_err(|_big| outside(self))?),
            Shape::Signed64 => {
                self.fixed(i64::try_from(number).map_err(|_big| outside(self))?.cast_unsigned());
            }
            Shape::Int64 => self.varint(i64::try_from(number).map_err(|_big| outside(self))?.cast_unsigned()),
            Shape::Unsigned64 => self.varint(u64::try_from(number).map_err(|_big| outside(self))?),
            Shape::Unsigned32 => {
                self.varint(u64::from(u32::try_from(number).map_err(|_big| outside(self))?));
            }
            Shape::Enum => {
                let number = i32::try_from(number).map_err(|_big| outside(self))?;
                self.varint(i64::from(number).cast_unsigned());
            }
            Shape::Zigzag32 => {
                let number = i32::try_from(number).map_err(|_big| outside(self))?;
                self.varint(u64::from(((number << 1) ^ (number >> 31)).cast_unsigned()));
            }
            Shape::Fixed32 => {
                let number = u32::try_from(number).map_err(|_big| outside(self))?;
                encode_key(self.field.number, WireType::ThirtyTwoBit, self.out);
                self.out.extend(number.to_le_bytes());
            }
            _ => return Err(outside(self)),
        }
        Ok(())
    }

    /// Text where a number is wanted.
    fn number_in_text<E: Error>(&mut self, text: &str) -> Result<(), E> {
        let special = match text {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        };
        let wrong = |seed: &Self| seed.wrong(&format!("the text {:?}", super::text::cut(text, 60)));
        // Rust's own grammar has words for infinity that JSON's lacks.
        let is_number =
            text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'-' | b'+' | b'.' | b'e' | b'E'));
        match self.field.shape {
            Shape::Double => {
                // What is too large for a double is an error, as it is without quotes.
                let finite = || text.parse().ok().filter(|number: &f64| is_number && number.is_finite());
                let number = special.or_else(finite);
                let number = number.ok_or_else(|| wrong(self))?;
                self.fixed(number.to_bits());
                Ok(())
            }
            _ => match text.parse::<i128>() {
                Ok(number) => self.whole(number),
                Err(_) => match text.parse::<f64>().ok().filter(|_| is_number).and_then(integral) {
                    Some(number) => self.whole(number),
                    None => Err(wrong(self)),
                },
            },
        }
    }
}

/// A float that is a whole number, such as `5.0` or `1e3`, as far as floats tell those apart.
fn integral(number: f64) -> Option<i128> {
    (number.fract() == 0.0 && number.abs() <= 9_007_199_254_740_992.0).then_some(number as i128)
}

impl<'de> Visitor<'de> for FieldSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`, {}", self.field.name, self.field.shape.words())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        // Null is the same as no field; within a list it would shift what follows.
        if self.in_list { Err(self.wrong("null")) } else { Ok(()) }
    }

    fn visit_bool<E: Error>(mut self, value: bool) -> Result<(), E> {
        self.single()?;
        if !matches!(self.field.shape, Shape::Bool) {
            return Err(self.wrong(if value { "true" } else { "false" }));
        }
        self.varint(u64::from(value));
        Ok(())
    }

    fn visit_u64<E: Error>(mut self, value: u64) -> Result<(), E> {
        self.whole(i128::from(value))
    }

    fn visit_i64<E: Error>(mut self, value: i64) -> Result<(), E> {
        self.whole(i128::from(value))
    }

    fn visit_f64<E: Error>(mut self, value: f64) -> Result<(), E> {
        self.single()?;
        if matches!(self.field.shape, Shape::Double) {
            self.fixed(value.to_bits());
            return Ok(());
        }
        match integral(value) {
            Some(number) => self.whole(number),
            None => Err(self.wrong(&value.to_string())),
        }
    }

    fn visit_str<E: Error>(mut self, text: &str) -> Result<(), E> {
        self.single()?;
        match self.field.shape {
            Shape::Text => self.bytes(text.as_bytes()),
            Shape::Hex => {
                let bytes = hex(text).ok_or_else(|| self.wrong("other text"))?;
                self.bytes(&bytes);
            }
            Shape::Base64 => {
                let bytes = STANDARD.decode(text).map_err(|_bad| self.wrong("other text"))?;
                self.bytes(&bytes);
            }
            Shape::Bool | Shape::Enum | Shape::Of(_) => {
                return Err(self.wrong(&format!("the text {:?}", super::text::cut(text, 60))));
            }
            _ => return self.number_in_text(text),
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        if !self.field.repeated || self.in_list {
            return Err(self.wrong("a list"));
        }
        while let Some(()) =
            list.next_element_seed(FieldSeed { field: self.field, out: self.out, in_list: true })?
        {
            if self.out.len() > BODY_BYTES_MAX {
                return Err(A::Error::custom("too large"));
            }
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        self.single()?;
        let Shape::Of(message) = self.field.shape else { return Err(self.wrong("an object")) };
        encode_key(self.field.number, WireType::LengthDelimited, self.out);
        let start = self.out.len();
        Object { message, out: self.out }.visit_map(map)?;
        let mut length = Vec::with_capacity(5);
        encode_varint((self.out.len() - start) as u64, &mut length);
        self.out.splice(start..start, length);
        Ok(())
    }
}

/// Hex in any case.
fn hex(text: &str) -> Option<Vec<u8>> {
    let digit = |c: u8| (c as char).to_digit(16).map(|d| d as u8);
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}
