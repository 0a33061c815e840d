//! Compiles the library's ring of slots (`src/ring.rs`) with loom's `Arc`, `Mutex` and `Condvar`.
//! The model checker loom needs these to check the ring (`tests/ring_loom.rs`). This is a separate
//! crate, because a feature of the library would require compiling the whole library twice.

#[path = "../../../src/ring.rs"]
pub mod ring;

/// Replaces the library's error types, which `src/ring.rs` imports. The ring only passes errors on.
pub mod error {
    /// Error of the tests: a message.
    pub type Error = String;
    /// Result of a slot's hook, such as `Slot::begin_fill`.
    pub type Result<T> = std::result::Result<T, Error>;
}
