//! Arrays of NumPy: the format `.npy`, and the types of elements.

pub use array::{Array, MAGIC, head, words};
#[cfg(feature = "npy")]
pub use array::{ArrayError, Start};
#[cfg(feature = "npy")]
pub use item::CHARACTER_BYTES;
pub use item::Item;

mod array;
mod item;
