//! Default values of columns.

use serde::{Deserialize, Serialize};

/// Value of a column for samples without the field.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum DefaultValue {
    /// The number 0 or 1.
    Bool(bool),
    /// An integer.
    Integer(i64),
    /// A float.
    Float(f64),
    /// A text.
    Text(String),
    /// A list, or an array of a fixed shape.
    List(Vec<DefaultValue>),
}
