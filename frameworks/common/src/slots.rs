//! Checks when the loader refills a slot, the memory of a batch.

use feedwater::loader::{Batch, Loader};

/// Checks that the loader refills a batch's slot only after a value that shares the batch is
/// dropped. `hold` makes this value from the batch, for example a tensor.
///
/// `loader` must have two slots and endless epochs, like [`small_batches`](crate::small_batches).
///
/// # Panics
/// Panics if the slot is refilled too early or never, or if the loader fails.
pub fn assert_slot_waits<T>(loader: Loader, hold: impl FnOnce(Batch) -> T) {
    let mut batches = loader.into_batches();
    let mut next = || batches.next().expect("epochs are endless").expect("the images are sound");
    let batch = next();
    let address = address(&batch);
    let held = hold(batch);
    for _ in 0..12 {
        assert_ne!(self::address(&next()), address, "the slot was filled while its owner lives");
    }
    drop(held);
    // The loader may have filled the other slot before the drop, so the next batches may still be
    // in the other slot.
    let free = (0..4).any(|_| self::address(&next()) == address);
    assert!(free, "the slot was not filled again after its owner was dropped");
}

/// Returns the address of the batch's first element in host memory.
fn address(batch: &Batch) -> usize {
    batch.host().expect("a batch on the CPU").as_ptr().addr()
}

#[cfg(test)]
mod tests {
    use feedwater::{DType, Layout};

    use super::*;

    #[test]
    #[should_panic(expected = "the slot was filled while its owner lives")]
    fn a_slot_that_is_free_is_noticed() {
        let loader = crate::small_batches(DType::F32, Layout::Nchw).unwrap();
        assert_slot_waits(loader, drop);
    }

    #[test]
    #[should_panic(expected = "the slot was not filled again")]
    fn a_slot_that_is_lost_is_noticed() {
        let loader = crate::small_batches(DType::F32, Layout::Nchw).unwrap();
        assert_slot_waits(loader, std::mem::forget);
    }
}
