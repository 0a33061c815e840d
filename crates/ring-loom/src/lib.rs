//! The library's ring on loom's primitives, for the model checker (`tests/ring_loom.rs`). It is a crate of its own because as a feature
//! of the library it would have the library compiled twice.

#[path = "../../../src/ring.rs"]
pub mod ring;

/// Errors as the ring knows them: it hands them on, and does not look inside.
pub mod error {
    /// A message.
    pub type Error = String;
    /// The result of a hook of a slot.
    pub type Result<T> = std::result::Result<T, Error>;
}
