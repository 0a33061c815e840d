//! What a ring's slot can do.

use crate::error::Result;

/// A slot of a ring: what happens before and after it is filled, and before and after it is used.
pub trait Slot: Send {
    /// Before the producer writes.
    fn begin_fill(&mut self) -> Result<()>;
    /// After the producer has written.
    fn end_fill(&mut self) -> Result<()>;
    /// Before the consumer reads.
    fn begin_use(&mut self) -> Result<()>;
    /// After the consumer has read.
    fn end_use(&mut self) -> Result<()>;
}
