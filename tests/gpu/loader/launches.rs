//! Launches of the loader's kernels.

use feedwater::loader::Batch;

use super::*;

/// Four blocks with 57 KiB each need all the shared memory of a multiprocessor. By default, the
/// driver reserves only a part of it for shared memory, so the loader must ask for more.
#[test]
fn a_multiprocessor_holds_four_blocks_of_a_tiled_kernel() {
    let Some(machine) = machine() else { return };
    same(|| builder(jpegs(8), training()), "carveout");
    assert_eq!(machine.resident_blocks(), 4);
}

/// A launch may wait for an image or a slot. The parameters of later launches are uploaded
/// nevertheless.
#[test]
fn tables_are_not_uploaded_behind_the_images_of_a_launch() {
    let Some(machine) = machine() else { return };
    for route in [Route::NvjpegHardware, Route::NvjpegGpu, Route::NvjpegHybrid] {
        same(
            || builder(jpegs(24), training()).configure(|it| it.decode.routes = vec![route]),
            route.name(),
        );
        assert_eq!(machine.late_uploads(), 0, "{}", route.name());
    }
}

/// The driver loads a kernel's code at the first launch, which takes device memory. So a loader
/// launches its kernels once at its start.
#[test]
fn no_device_memory_is_taken_after_the_start() {
    let Some(machine) = machine() else { return };
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

/// Returns a chain with tensors of 112 rows: the kernel computes them in seven low tiles or in one
/// high tile.
fn tall() -> Chain {
    Chain::new().then(op::Resize::to(32, 112)).then(op::Normalize::IMAGENET)
}

fn tall_epoch() -> LoaderBuilder {
    builder(jpegs(40), tall()).epochs(Some(1))
}

/// The loader has two batches and the consumer holds one of them. So no finished batch waits while
/// the other one is filled.
#[test]
fn tiles_are_low_while_the_consumer_waits() {
    let Some(machine) = machine() else { return };
    let cpu: Vec<_> = on_cpu(tall_epoch()).build().unwrap().epoch().map(bytes_of).collect();
    for schedule in [Schedule::Eager, Schedule::Lazy] {
        machine.schedule(schedule);
        let make = || tall_epoch().prefetch(1).device(DeviceChoice::Gpu(0)).runtime(&runtime());
        let mut loader = make().build().unwrap();
        let mut epoch = loader.epoch();
        let _held = epoch.next();
        drop(epoch.next());
        for cpu in &cpu[2..] {
            let batch = epoch.next().unwrap();
            assert_eq!(machine.last_grid()[..2], [1, 7]);
            assert!(bytes_of(batch) == *cpu);
        }
    }
}

/// The consumer takes the first batch only after all three slots are filled, and then takes one
/// batch at a time. So finished batches wait while the free slot is filled.
#[test]
fn tiles_are_high_while_finished_batches_wait_for_the_consumer() {
    let Some(machine) = machine() else { return };
    let cpu: Vec<_> = on_cpu(tall_epoch()).build().unwrap().epoch().map(bytes_of).collect();
    for schedule in [Schedule::Eager, Schedule::Lazy] {
        machine.schedule(schedule);
        let make = || tall_epoch().prefetch(2).device(DeviceChoice::Gpu(0)).runtime(&runtime());
        let mut loader = make().build().unwrap();
        let mut epoch = loader.epoch();
        for (number, cpu) in cpu.iter().enumerate() {
            while epoch.measured().ready < 3.min(10 - number) {
                std::thread::yield_now();
            }
            if number > 0 {
                assert_eq!(machine.last_grid()[..2], [1, 1], "batch {number}");
            }
            assert!(bytes_of(epoch.next().unwrap()) == *cpu, "batch {number}");
        }
    }
}

fn bytes_of(batch: feedwater::Result<Batch>) -> Vec<u8> {
    batch.unwrap().to_host().unwrap()
}
