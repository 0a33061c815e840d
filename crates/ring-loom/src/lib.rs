//! The library's ring, compiled with loom's primitives for the model checker
//! (`tests/ring_loom.rs`). This is a separate crate, because a feature of the library would require
//! compiling the library a second time.

#[path = "../../../src/ring.rs"]
pub mod ring;

/// Replaces the library's error module. The ring only passes errors on, so a text is enough here.
pub mod error {
    /// A message.
    pub type Error = String;
    /// Result of the functions that the ring calls on a slot.
    pub type Result<T> = std::result::Result<T, Error>;
}
