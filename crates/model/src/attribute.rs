//! Facts about a run.

/// A typed fact under a path-like key such as `config/lr` or `system/platform`.
#[derive(Debug, Clone, PartialEq)]
pub enum AttributeValue {
    /// Known to be nothing, as Python's `None`.
    Null,
    /// True or false.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number.
    Float(f64),
    /// Text.
    Text(String),
}
