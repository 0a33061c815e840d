//! Launches of the kernel.

use super::*;

/// Four blocks of 57 KiB need all of a multiprocessor's shared memory, of which the driver gives a part by default.
#[test]
fn a_multiprocessor_holds_four_blocks_of_a_tiled_kernel() {
    let machine = machine();
    same(|| builder(jpegs(8), training()), "carveout");
    assert_eq!(machine.resident_blocks(), 4);
}
