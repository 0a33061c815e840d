//! Launches of the kernel.

use super::*;

/// Four blocks of 57 KiB need all of a multiprocessor's shared memory, of which the driver gives a part by default.
#[test]
fn a_multiprocessor_holds_four_blocks_of_a_tiled_kernel() {
    let machine = machine();
    same(|| builder(jpegs(8), training()), "carveout");
    assert_eq!(machine.resident_blocks(), 4);
}

/// An image or a slot that a launch waits for does not delay the tables of launches after it.
#[test]
fn tables_are_not_uploaded_behind_the_images_of_a_launch() {
    let machine = machine();
    for route in [Route::NvjpegHardware, Route::NvjpegGpu, Route::NvjpegHybrid] {
        same(|| builder(jpegs(24), training()).routes([route]), route.name());
        assert_eq!(machine.late_uploads(), 0, "{}", route.name());
    }
}

/// The driver loads a kernel's code at its first launch, which belongs to the start.
#[test]
fn no_device_memory_is_taken_after_the_start() {
    let machine = machine();
    let device = Device::open_with(0, &runtime()).unwrap();
    let builder = builder(jpegs(8), training());
    let mut loader = builder.device(DeviceChoice::Gpu(0)).runtime(&runtime()).build().unwrap();
    let (free, _) = device.memory_bytes().unwrap();
    for batch in &mut loader {
        batch.unwrap();
    }
    assert_eq!(device.memory_bytes().unwrap().0, free);
    assert!(loader.stats().memory.device_bytes_of_driver > 0);
    drop((loader, machine));
}
