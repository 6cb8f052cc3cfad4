//! Python values as numbers: scalars, and anything array-like as one `f64` per item.
//!
//! No array library is imported and no memory of one is read here: a buffer is copied out by
//! `memoryview`, a tensor by its own `tolist`, a bare DLPack or `__array_interface__` object by
//! `truegauge._arrays`.

use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::{
    PyByteArray, PyBytes, PyComplex, PyDict, PyFloat, PyFrozenSet, PyInt, PyList, PySet, PyString, PyTuple,
};

/// Why a value was not taken.
#[derive(Debug)]
pub(crate) struct Refusal {
    /// Bounded reason it is counted under.
    pub(crate) reason: &'static str,
    /// How many points it cost.
    pub(crate) count: u64,
    /// What was found and what was wanted, for the one warning.
    pub(crate) found: String,
}

/// Why a value could not be read.
#[derive(Debug)]
pub(crate) enum Problem {
    /// Not a number: counted, never raised unless the caller is strict.
    Refused(Refusal),
    /// Ctrl-C or the like while the value's own code ran; goes on to the caller.
    Interrupted(PyErr),
}

impl Problem {
    /// A refusal of one point.
    pub(crate) fn refused(reason: &'static str, found: impl Into<String>) -> Self {
        Self::Refused(Refusal { reason, count: 1, found: found.into() })
    }

    /// An exception of the value's own code: an interrupt stays one, anything else is a refusal.
    pub(crate) fn raised(py: Python<'_>, error: PyErr, reason: &'static str) -> Self {
        if error.is_instance_of::<PyException>(py) {
            Self::refused(reason, format!("reading it raised {}", short(&error.to_string())))
        } else {
            Self::Interrupted(error)
        }
    }
}

/// What a value came to.
#[derive(Debug)]
pub(crate) enum Numbers {
    /// A scalar.
    One(f64),
    /// The items of something one-dimensional.
    Many(Many),
}

/// Items of an array-like, those that are numbers.
#[derive(Debug, Default)]
pub(crate) struct Many {
    /// The numbers.
    pub(crate) values: Vec<f64>,
    /// Where each stood, when some items were not numbers.
    pub(crate) places: Option<Vec<usize>>,
    /// Items given, refused ones included.
    pub(crate) len: usize,
    /// Those that were not numbers.
    pub(crate) refused: Option<Refusal>,
}

/// Most items of one array: what is longer is a mistake, or never ends.
pub(crate) const ITEMS_MAX: usize = 1 << 24;

const WANTED: &str = "wanted a number or a one-dimensional array of numbers";

/// Reads a scalar or array-like.
pub(crate) fn read(value: &Bound<'_, PyAny>) -> Result<Numbers, Problem> {
    if let Some(number) = plain(value) {
        return number.map(Numbers::One);
    }
    if let Some(kind) = never_a_number(value) {
        return Err(Problem::refused("value_type", format!("found {kind}, {WANTED}")));
    }
    if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        return items(value).map(Numbers::Many);
    }
    if is_foreign_kind(value)? {
        return Err(Problem::refused("value_type", format!("found {} of such items, {WANTED}", kind(value))));
    }
    match dimensions(value)? {
        Some(0) => scalar(value).inspect(|_number| array_scalars::meet(value)),
        Some(1) => array(value).map(Numbers::Many),
        Some(count) => Err(shape(count)),
        None if has(value, "__dlpack__")? || has(value, "__array_interface__")? => bare_array(value),
        None if has(value, "__len__")? => array(value).map(Numbers::Many),
        None => scalar(value),
    }
}

/// A float, int, bool or known array scalar without asking anything of it; `None` for all else.
#[inline]
pub(crate) fn plain(value: &Bound<'_, PyAny>) -> Option<Result<f64, Problem>> {
    if let Ok(float) = value.cast::<PyFloat>() {
        return Some(Ok(float.value()));
    }
    if value.is_instance_of::<PyInt>() || array_scalars::knows(value) {
        let number = value.extract::<f64>();
        return Some(number.map_err(|error| Problem::raised(value.py(), error, "value_type")));
    }
    None
}

/// The value of a float or an `int` that fits, found without running Python code.
#[inline]
pub(crate) fn native(value: &Bound<'_, PyAny>) -> Option<f64> {
    if let Ok(float) = value.cast::<PyFloat>() {
        return Some(float.value());
    }
    value.cast_exact::<PyInt>().ok().and_then(|int| int.extract::<f64>().ok())
}

/// Types of numpy's real scalars, such as `float32`, as they are met: an instance of one is a number
/// without a look at its attributes.
mod array_scalars {
    use std::sync::Mutex;

    use pyo3::prelude::*;
    use pyo3::types::{PyTuple, PyType};

    /// numpy has a dozen.
    const TYPES_MAX: usize = 16;

    static TYPES: Mutex<Vec<Py<PyType>>> = Mutex::new(Vec::new());

    /// Whether the value's type was met before.
    #[inline]
    pub(super) fn knows(value: &Bound<'_, PyAny>) -> bool {
        let address = value.get_type_ptr().cast();
        TYPES.lock().is_ok_and(|types| types.iter().any(|known| known.as_ptr() == address))
    }

    /// Remembers the type of a value that was read as a real scalar, if it is one of numpy's: its
    /// instances never have dimensions, and its name says what they hold.
    pub(super) fn meet(value: &Bound<'_, PyAny>) {
        let class = value.get_type();
        let is_numpys = |class: &Bound<'_, PyAny>| -> PyResult<bool> {
            let name: String = class.getattr("__name__")?.extract()?;
            let module: String = class.getattr("__module__")?.extract()?;
            Ok(module == "numpy" && name == "generic")
        };
        let mro: Bound<'_, PyTuple> = class.mro();
        let found = mro.iter().any(|class| is_numpys(&class).unwrap_or(false));
        let Ok(mut types) = TYPES.lock() else { return };
        if found && types.len() < TYPES_MAX {
            types.push(class.unbind());
        }
    }
}

fn never_a_number(value: &Bound<'_, PyAny>) -> Option<String> {
    let never = value.is_none()
        || value.is_instance_of::<PyString>()
        || value.is_instance_of::<PyBytes>()
        || value.is_instance_of::<PyByteArray>()
        || value.is_instance_of::<PyComplex>()
        || value.is_instance_of::<PyDict>()
        || value.is_instance_of::<PySet>()
        || value.is_instance_of::<PyFrozenSet>();
    never.then(|| kind(value))
}

/// The type's name, as a refusal says it.
pub(crate) fn kind(value: &Bound<'_, PyAny>) -> String {
    value.get_type().name().map_or_else(|_| "something".to_owned(), |name| format!("`{name}`"))
}

/// An attribute, if it is there and reading it does not raise.
fn attribute<'py>(value: &Bound<'py, PyAny>, name: &str) -> Result<Option<Bound<'py, PyAny>>, Problem> {
    match value.getattr_opt(name) {
        Ok(found) => Ok(found),
        Err(error) if error.is_instance_of::<PyException>(value.py()) => Ok(None),
        Err(error) => Err(Problem::Interrupted(error)),
    }
}

fn has(value: &Bound<'_, PyAny>, name: &str) -> Result<bool, Problem> {
    attribute(value, name).map(|found| found.is_some())
}

fn dimensions(value: &Bound<'_, PyAny>) -> Result<Option<usize>, Problem> {
    Ok(attribute(value, "ndim")?.and_then(|found| found.extract().ok()))
}

/// Whether an array library calls the items complex, text or time.
fn is_foreign_kind(value: &Bound<'_, PyAny>) -> Result<bool, Problem> {
    let Some(dtype) = attribute(value, "dtype")? else { return Ok(false) };
    let Some(kind) = attribute(&dtype, "kind")? else { return Ok(false) };
    Ok(kind.extract::<String>().is_ok_and(|kind| matches!(&*kind, "c" | "S" | "U" | "M" | "m")))
}

/// A length that is taken, checked before anything is read.
pub(crate) fn bounded(len: usize, reason: &'static str) -> Result<usize, Problem> {
    if len <= ITEMS_MAX {
        return Ok(len);
    }
    Err(Problem::refused(reason, format!("found {len} items, at most {ITEMS_MAX} are taken at once")))
}

fn shape(dimensions: usize) -> Problem {
    Problem::refused("value_shape", format!("found {dimensions} dimensions, {WANTED}"))
}

/// Anything with `__float__` or `__index__`: array scalars, tensors without dimension, fractions.
fn scalar(value: &Bound<'_, PyAny>) -> Result<Numbers, Problem> {
    match value.extract::<f64>() {
        Ok(number) => Ok(Numbers::One(number)),
        Err(error) if error.is_instance_of::<PyException>(value.py()) => {
            Err(Problem::refused("value_type", format!("found {}, {WANTED}", kind(value))))
        }
        Err(error) => Err(Problem::Interrupted(error)),
    }
}

/// One-dimensional things, cheapest way first: a buffer, `tolist`, `truegauge._arrays`, iteration.
fn array(value: &Bound<'_, PyAny>) -> Result<Many, Problem> {
    if let Ok(len) = value.len() {
        bounded(len, "value_shape")?;
    }
    if let Some(values) = buffer(value)? {
        return Ok(Many { len: values.len(), values, ..Many::default() });
    }
    if let Some(tolist) = attribute(value, "tolist")? {
        let list = tolist.call0().map_err(|error| Problem::raised(value.py(), error, "value_type"))?;
        return items(&list);
    }
    if has(value, "__dlpack__")? || has(value, "__array_interface__")? {
        return match bare_array(value)? {
            Numbers::Many(many) => Ok(many),
            Numbers::One(one) => Ok(Many { values: vec![one], len: 1, ..Many::default() }),
        };
    }
    items(value)
}

/// A buffer's numbers, or `None` when it has none or holds other items.
fn buffer(value: &Bound<'_, PyAny>) -> Result<Option<Vec<f64>>, Problem> {
    let py = value.py();
    let read = || -> PyResult<Option<Vec<f64>>> {
        let view = py.import("builtins")?.getattr("memoryview")?.call1((value,))?;
        if view.getattr("ndim")?.extract::<usize>()? != 1 {
            return Ok(None);
        }
        let format: String = view.getattr("format")?.extract()?;
        let bytes = view.call_method0("tobytes")?;
        Ok(decode(&format, bytes.cast::<PyBytes>()?.as_bytes()))
    };
    match read() {
        Ok(found) => Ok(found),
        Err(error) if error.is_instance_of::<PyException>(py) => Ok(None),
        Err(error) => Err(Problem::Interrupted(error)),
    }
}

/// What only speaks DLPack or `__array_interface__`.
fn bare_array(value: &Bound<'_, PyAny>) -> Result<Numbers, Problem> {
    let py = value.py();
    let read = || -> PyResult<(usize, String, Bound<'_, PyAny>)> {
        py.import("truegauge._arrays")?.getattr("read")?.call1((value,))?.extract()
    };
    let (dimensions, format, bytes) = read().map_err(|error| Problem::raised(py, error, "value_type"))?;
    let numbers = bytes.cast::<PyBytes>().ok().and_then(|bytes| decode(&format, bytes.as_bytes()));
    match (dimensions, numbers) {
        (_, None) => {
            Err(Problem::refused("value_type", format!("found {} of other items, {WANTED}", kind(value))))
        }
        (0, Some(values)) if values.len() == 1 => Ok(Numbers::One(values[0])),
        (1, Some(values)) => Ok(Numbers::Many(Many { len: values.len(), values, ..Many::default() })),
        (count, Some(_)) => Err(shape(count)),
    }
}

/// Item by item; what is not a number is counted and leaves its place empty.
fn items(value: &Bound<'_, PyAny>) -> Result<Many, Problem> {
    let py = value.py();
    let len = value.len().map_err(|error| Problem::raised(py, error, "value_type"))?;
    let len = bounded(len, "value_shape")?;
    let mut many = Many { values: Vec::with_capacity(len.min(1 << 20)), len, ..Many::default() };
    let iterator = value.try_iter().map_err(|error| Problem::raised(py, error, "value_type"))?;
    for (place, item) in iterator.take(len).enumerate() {
        let item = item.map_err(|error| Problem::raised(py, error, "value_type"))?;
        let refusal = match one(&item) {
            Ok(number) => {
                many.values.push(number);
                if let Some(places) = &mut many.places {
                    places.push(place);
                }
                continue;
            }
            Err(Problem::Refused(refusal)) => refusal,
            Err(interrupted) => return Err(interrupted),
        };
        many.places.get_or_insert_with(|| (0..place).collect());
        match &mut many.refused {
            Some(earlier) => earlier.count += 1,
            none => {
                *none = Some(Refusal { found: format!("item {place}: {}", refusal.found), ..refusal });
            }
        }
    }
    Ok(many)
}

/// An item of an array-like.
fn one(item: &Bound<'_, PyAny>) -> Result<f64, Problem> {
    if let Some(number) = plain(item) {
        return number;
    }
    if let Some(kind) = never_a_number(item) {
        return Err(Problem::refused("value_type", format!("found {kind}, wanted a number")));
    }
    let nested = item.is_instance_of::<PyList>()
        || item.is_instance_of::<PyTuple>()
        || dimensions(item)?.is_some_and(|count| count > 0);
    if nested {
        return Err(Problem::refused("value_shape", format!("found {} inside, {WANTED}", kind(item))));
    }
    if is_foreign_kind(item)? {
        return Err(Problem::refused("value_type", format!("found {}, wanted a number", kind(item))));
    }
    match scalar(item)? {
        Numbers::One(number) => {
            array_scalars::meet(item);
            Ok(number)
        }
        Numbers::Many(_) => Err(shape(1)),
    }
}

/// Numbers of a buffer whose items have the `struct` format `format`; `None` for other formats.
fn decode(format: &str, bytes: &[u8]) -> Option<Vec<f64>> {
    fn each<const N: usize>(bytes: &[u8], number: impl Fn([u8; N]) -> f64) -> Vec<f64> {
        bytes.as_chunks::<N>().0.iter().map(|item| number(*item)).collect()
    }
    let native = if cfg!(target_endian = "little") { '<' } else { '>' };
    let code = format.trim_start_matches(['@', '=', native]);
    Some(match code {
        "d" => each(bytes, f64::from_ne_bytes),
        "f" => each(bytes, |b| f32::from_ne_bytes(b) as f64),
        "e" => each(bytes, |b| half(u16::from_ne_bytes(b))),
        "bf16" => each(bytes, |b| f32::from_bits(u32::from(u16::from_ne_bytes(b)) << 16) as f64),
        "q" | "n" => each(bytes, |b| i64::from_ne_bytes(b) as f64),
        "Q" | "N" => each(bytes, |b| u64::from_ne_bytes(b) as f64),
        // `l` is 8 bytes in the native layout and 4 in the standard one.
        "l" if code.len() == format.len() && cfg!(target_pointer_width = "64") => {
            each(bytes, |b| i64::from_ne_bytes(b) as f64)
        }
        "L" if code.len() == format.len() && cfg!(target_pointer_width = "64") => {
            each(bytes, |b| u64::from_ne_bytes(b) as f64)
        }
        "i" => each(bytes, |b| i32::from_ne_bytes(b) as f64),
        "I" => each(bytes, |b| u32::from_ne_bytes(b) as f64),
        "h" => each(bytes, |b| i16::from_ne_bytes(b) as f64),
        "H" => each(bytes, |b| u16::from_ne_bytes(b) as f64),
        "b" => each(bytes, |b| i8::from_ne_bytes(b) as f64),
        "B" => each(bytes, |[b]| b as f64),
        "?" => each(bytes, |[b]| f64::from(b != 0)),
        _ => return None,
    })
}

/// IEEE 754 binary16.
fn half(bits: u16) -> f64 {
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff));
    sign * match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1.0 + fraction / 1024.0) * 2f64.powi(exponent - 15),
    }
}

/// At most 120 bytes of a text, for a message.
pub(crate) fn short(text: &str) -> String {
    const BYTES_MAX: usize = 120;
    if text.len() <= BYTES_MAX {
        return text.to_owned();
    }
    let cut = (0..=BYTES_MAX).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    format!("{}…", &text[..cut])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_floats_are_exact() {
        let check = |bits: u16, want: f64| assert_eq!(half(bits), want, "{bits:#x}");
        check(0x3c00, 1.0);
        check(0xc000, -2.0);
        check(0x0001, 2f64.powi(-24));
        check(0x7bff, 65504.0);
        check(0x7c00, f64::INFINITY);
        assert!(half(0x7e00).is_nan());
    }

    #[test]
    fn foreign_byte_order_and_standard_long_are_not_guessed() {
        assert_eq!(decode(">d", &[0; 8]), None);
        assert_eq!(decode("<l", &[0; 8]), None);
        assert_eq!(decode("Zd", &[0; 16]), None);
        assert_eq!(decode("<d", &1.5f64.to_le_bytes()), Some(vec![1.5]));
        assert_eq!(decode("bf16", &[0x80, 0x3f]), Some(vec![1.0]));
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(short("ab"), "ab");
        assert!(short(&"é".repeat(100)).ends_with('…'));
    }
}
