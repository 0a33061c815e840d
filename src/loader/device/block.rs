//! Parameters of kernel launches.

use crate::error::Result;
use crate::gpu::{Event, Staged};

/// Parameters of a launch. The host writes a block while the device reads another one.
pub(super) struct Block {
    pub staged: Staged,
    /// Reached when the kernel has read the block.
    pub read: Event,
}

impl Block {
    /// Creates a block in each of these memories.
    pub fn all(memories: Vec<Staged>) -> Result<Vec<Self>> {
        let block = |staged: Staged| {
            let read = Event::new(staged.device().device())?;
            Ok(Self { staged, read })
        };
        memories.into_iter().map(block).collect()
    }
}
