//! CUDA code on a simulated machine: order of events, accounting of memory, failures. These tests
//! need no GPU.

mod architectures;
mod contexts;
mod kernels;
mod memory;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::simulated::images::assert_clean;
use crate::simulated::{LAUNCH_FAILED, Schedule, directory, exclusive, runtime};
use feedwater::Error;
use feedwater::error::Result;
use feedwater::footprint::{Footprint, Memory};
use feedwater::gpu::{Device, Event, LibraryName, Stream};
use feedwater::internals::gpu::{
    DeviceBuffer, DevicePool, Download, Kernel, PinnedPool, Staged, TensorSlot, fill, probe,
    read_back,
};
use feedwater::internals::ring::Slot;

/// A minimal version of the fused kernel, with one thread per column: writes `in + add` to `out`.
const KERNEL: &str = r#"
struct Sample { unsigned char* out; const unsigned char* in; int add, unused; };
#ifdef __CUDACC__
#define PIXEL unsigned column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y, \
                       layer = blockIdx.z;
#else
#define __global__
#define PIXEL
static unsigned column, row, layer;
#endif
extern "C" __global__ void fused(const Sample* samples, int count, int width, int height) {
    PIXEL
    if ((int)column >= width || (int)row >= height || (int)layer >= count) return;
    const Sample& sample = samples[layer];
    sample.out[row * width + column] = sample.in[row * width + column] + sample.add;
}
#ifndef __CUDACC__
extern "C" void fused__host(void** p, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned) {
    for (layer = 0; layer < gz; layer++)
        for (row = 0; row < gy * by; row++)
            for (column = 0; column < gx * bx; column++)
                fused(*(const Sample**)p[0], *(int*)p[1], *(int*)p[2], *(int*)p[3]);
}
#endif
"#;
const SAMPLE_BYTES: usize = 24;

const SCHEDULES: [Schedule; 6] = [
    Schedule::Lazy,
    Schedule::Eager,
    Schedule::Random(1),
    Schedule::Random(2),
    Schedule::Random(3),
    Schedule::Random(4),
];

fn pools(device: &Arc<Device>) -> Result<(DevicePool, PinnedPool)> {
    let mut footprint = Footprint::default();
    footprint.add(Memory::Device, "slots", 4096, 4, "");
    footprint.add(Memory::Device, "samples", 256, 4, "");
    footprint.add(Memory::Device, "nvjpeg", 1 << 20, 1, "");
    footprint.add(Memory::Pinned, "samples", 256, 4, "");
    footprint.add(Memory::Pinned, "pages", 4096, 4, "");
    footprint.add(Memory::Pinned, "nvjpeg", 1 << 20, 1, "");
    Ok((DevicePool::take(device, &footprint)?, PinnedPool::take(device, &footprint)?))
}

#[test]
fn a_device_opens_and_describes_itself() {
    let Some(machine) = exclusive() else { return };
    let device = Device::open_with(0, &runtime()).unwrap();
    assert_eq!((device.name(), device.capability()), ("Simulated device", (9, 0)));
    assert_eq!((device.ordinal(), device.driver_version()), (0, 13000));
    let (free, total) = device.memory_bytes().unwrap();
    assert!(free > 0 && free <= total);
    drop(device);
    assert_clean(&machine, "device");

    let probe = probe(&runtime());
    assert_eq!(probe.driver.unwrap().version, "13.0");
    assert_eq!(probe.devices.len(), 1);
    assert_eq!(probe.devices[0].as_ref().unwrap().name, "Simulated device");
    assert_eq!(probe.nvrtc.unwrap().version, "13.0");
    assert_eq!(probe.nvjpeg.unwrap().version, "13.3.2");
    assert_clean(&machine, "probe");
}

#[test]
fn a_missing_device_is_unavailable_with_advice() {
    let Some(machine) = exclusive() else { return };
    let reason = |ordinal| match Device::open_with(ordinal, &runtime()) {
        Err(Error::Unavailable { reason, .. }) => reason,
        other => panic!("{other:?}"),
    };
    // The message contains the requested number and the number of devices.
    let text = reason(3);
    assert!(text.contains('3') && text.contains('1'), "{text}");
    machine.devices(0);
    let text = reason(0);
    for value in ["nvidia-smi", "CUDA_VISIBLE_DEVICES"] {
        assert!(text.contains(value), "{text}");
    }
    assert!(probe(&runtime()).devices.is_empty());
}

#[test]
fn an_old_nvjpeg_is_warned_about() {
    let Some(machine) = exclusive() else { return };
    machine.nvjpeg_version(13, 0, 1);
    let report = probe(&runtime()).nvjpeg.unwrap();
    for version in ["13.0.1", "13.2.3"] {
        assert!(report.warnings[0].contains(version), "{:?}", report.warnings);
    }
    machine.nvjpeg_version(13, 2, 3);
    assert!(probe(&runtime()).nvjpeg.unwrap().warnings.is_empty());
}

/// Two runtimes load their own libraries and do not affect each other.
#[test]
fn two_runtimes_use_their_own_libraries_at_the_same_time() {
    let Some(machine) = exclusive() else { return };
    let copies = tempfile::tempdir().unwrap();
    let copy = |file: &str| {
        let path = copies.path().join(file);
        fs::copy(directory().join(file), &path).unwrap();
        path
    };
    let (nvjpeg, nvrtc) = (copy("libnvjpeg.so"), copy("libnvrtc.so"));
    let other = runtime()
        .with_library(LibraryName::NvJpeg, &nvjpeg)
        .with_library(LibraryName::Nvrtc, &nvrtc)
        .with_cache_directory(copies.path().join("kernels"));
    machine.nvjpeg_version(13, 0, 1);
    let versions = [&runtime(), &other].map(|it| probe(it).nvjpeg.unwrap());
    assert_ne!(versions[0].version, versions[1].version);
    assert_eq!((&*versions[0].version, &*versions[1].path), ("13.0.1", nvjpeg.to_str().unwrap()));

    // The other runtime loads its own copy of the compiler, which has its own counter of
    // compilations. So the first compiler's counter stays the same.
    let before = machine.compilations();
    let device = Device::open_with(0, &other).unwrap();
    Kernel::load(&device, KERNEL, "fused", SAMPLE_BYTES).unwrap();
    assert_eq!(machine.compilations(), before);

    let nowhere = runtime().with_library(LibraryName::NvJpeg, "/nowhere/libnvjpeg.so");
    let found = probe(&nowhere);
    assert!(found.nvjpeg.unwrap_err().contains("/nowhere/libnvjpeg.so"));
    assert!(found.nvrtc.is_ok() && probe(&runtime()).nvjpeg.is_ok());
    drop(device);
    assert_clean(&machine, "two runtimes");
}

#[test]
fn a_second_driver_in_one_process_is_an_error_that_names_both_files() {
    let Some(machine) = exclusive() else { return };
    drop(Device::open_with(0, &runtime()).unwrap());
    let folder = tempfile::tempdir().unwrap();
    let (file, link) = (directory().join("libcuda.so"), folder.path().join("link.so"));
    std::os::unix::fs::symlink(&file, &link).unwrap();
    drop(Device::open_with(0, &runtime().with_library(LibraryName::Driver, &link)).unwrap());
    let copy = folder.path().join("copy.so");
    fs::copy(&file, &copy).unwrap();
    let error = Device::open_with(0, &runtime().with_library(LibraryName::Driver, &copy));
    let Err(Error::Unavailable { what, reason, .. }) = error else { panic!("{error:?}") };
    assert!(what.contains("libcuda"), "{what}");
    for path in [file, copy] {
        assert!(reason.contains(path.to_str().unwrap()), "{reason}");
    }
    assert_clean(&machine, "drivers");
}

/// A producer's stream fills a buffer four times, and a kernel in the consumer's stream copies the
/// buffer's bytes. Returns the copies. If `hooks` is false, the streams do not wait for each other.
fn fill_and_use(device: &Arc<Device>, hooks: bool) -> Vec<u8> {
    let (memory, _) = pools(device).unwrap();
    let producer = Arc::new(Stream::new(device).unwrap());
    let consumer = Arc::new(Stream::new(device).unwrap());
    let kept = memory.buffer("slots", 1024).unwrap();
    let buffer = memory.buffer("slots", 1024).unwrap();
    // If `hooks` is false, the consumer may read the buffer before the producer writes to it. So
    // the buffer is zeroed first, because the consumer must not read uninitialized bytes.
    fill(&producer, &buffer, 0..1024, 0).unwrap();
    producer.synchronize().unwrap();
    let mut slot = TensorSlot::new(buffer, producer.clone(), consumer.clone()).unwrap();
    let (_, pinned) = pools(device).unwrap();
    let (kernel, mut samples) = copy_kernel(device, &memory, &pinned);
    for round in 0..4u8 {
        if hooks {
            slot.begin_fill().unwrap();
        }
        fill(&producer, slot.buffer(), 0..1024, 10 + round).unwrap();
        if hooks {
            slot.end_fill().unwrap();
            slot.begin_use().unwrap();
        }
        describe(&mut samples, round as usize, &kept, round as usize * 256, slot.buffer(), 0)
            .unwrap();
        let range = round as usize * SAMPLE_BYTES..(round as usize + 1) * SAMPLE_BYTES;
        samples.upload(&consumer, range.clone()).unwrap();
        kernel.launch(&consumer, samples.device(), range.start, 1, 256, 1).unwrap();
        if hooks {
            slot.end_use().unwrap();
        }
    }
    let mut bytes = vec![0; 1024];
    read_back(&consumer, &kept, 0, &mut bytes).unwrap();
    producer.synchronize().unwrap();
    bytes
}

fn copy_kernel(device: &Arc<Device>, memory: &DevicePool, pinned: &PinnedPool) -> (Kernel, Staged) {
    let kernel = Kernel::load(device, KERNEL, "fused", SAMPLE_BYTES).unwrap();
    let host = pinned.buffer("samples", 256).unwrap();
    (kernel, Staged::new(host, memory.buffer("samples", 256).unwrap()).unwrap())
}

/// Writes the kernel's parameters for a sample: the kernel sets `out` to `input` plus `add`.
fn describe(
    samples: &mut Staged,
    index: usize,
    out: &DeviceBuffer,
    offset: usize,
    input: &DeviceBuffer,
    add: i32,
) -> Result<()> {
    let bytes = &mut samples.bytes()?[index * SAMPLE_BYTES..][..SAMPLE_BYTES];
    bytes[..8].copy_from_slice(&(out.address() + offset as u64).to_le_bytes());
    bytes[8..16].copy_from_slice(&input.address().to_le_bytes());
    bytes[16..20].copy_from_slice(&add.to_le_bytes());
    Ok(())
}

#[test]
fn slots_order_producer_and_consumer_and_the_simulator_shows_missing_order() {
    let Some(machine) = exclusive() else { return };
    let expected: Vec<u8> = (0..4).flat_map(|round| [10 + round; 256]).collect();
    let mut wrong = Vec::new();
    for schedule in SCHEDULES {
        machine.schedule(schedule);
        let device = Device::open_with(0, &runtime()).unwrap();
        assert_eq!(fill_and_use(&device, true), expected, "{schedule:?}");
        if fill_and_use(&device, false) != expected {
            wrong.push(schedule);
        }
        drop(device);
        assert_clean(&machine, "slots");
    }
    // Without hooks, the two streams do not wait for each other. The bytes are then always wrong
    // with a lazy schedule, usually with a random one, and never with an eager one.
    assert_eq!(wrong[0], Schedule::Lazy);
    assert!(wrong.iter().any(|schedule| matches!(schedule, Schedule::Random(_))), "{wrong:?}");
}

#[test]
fn an_event_is_reached_when_its_stream_gets_there() {
    let Some(machine) = exclusive() else { return };
    let device = Device::open_with(0, &runtime()).unwrap();
    let (memory, _) = pools(&device).unwrap();
    let stream = Stream::new(&device).unwrap();
    let event = Event::new(&device).unwrap();
    assert!(event.query().unwrap(), "an event that was never recorded must count as reached");
    let buffer = memory.buffer("slots", 16).unwrap();
    fill(&stream, &buffer, 0..16, 1).unwrap();
    event.record(&stream).unwrap();
    assert!(!event.query().unwrap());
    event.synchronize().unwrap();
    assert!(event.query().unwrap());
    drop((buffer, memory, event, stream, device));
    assert_clean(&machine, "event");
}

/// A slot that several streams use records one event in each of them.
#[test]
fn a_wait_is_for_the_latest_record_before_it() {
    let Some(machine) = exclusive() else { return };
    machine.schedule(Schedule::Lazy);
    let device = Device::open_with(0, &runtime()).unwrap();
    let (memory, _) = pools(&device).unwrap();
    let buffer = memory.buffer("slots", 256).unwrap();
    let [first, second, third] = [(); 3].map(|()| Stream::new(&device).unwrap());
    let event = Event::new(&device).unwrap();
    fill(&first, &buffer, 0..256, 7).unwrap();
    event.record(&first).unwrap();
    third.wait(&event).unwrap();
    // This record is reached before the one for which the stream waits.
    event.record(&second).unwrap();
    second.synchronize().unwrap();
    let mut bytes = vec![0; 256];
    read_back(&third, &buffer, 0, &mut bytes).unwrap();
    assert_eq!(bytes, [7; 256]);
    drop((buffer, memory, event, first, second, third, device));
    assert_clean(&machine, "event");
}

/// Opens the device, fills a slot, runs a kernel on it, and returns the slot's bytes.
fn whole_path() -> Result<Vec<u8>> {
    let device = Device::open_with(0, &runtime())?;
    let (memory, pinned) = pools(&device)?;
    let producer = Arc::new(Stream::new(&device)?);
    let consumer = Arc::new(Stream::new(&device)?);
    let mut slot =
        TensorSlot::new(memory.buffer("slots", 256)?, producer.clone(), consumer.clone())?;
    let kernel = Kernel::load(&device, KERNEL, "fused", SAMPLE_BYTES)?;
    let mut page = Staged::new(pinned.buffer("pages", 256)?, memory.buffer("slots", 256)?)?;
    let mut samples = Staged::new(pinned.buffer("samples", 256)?, memory.buffer("samples", 256)?)?;
    page.bytes()?.fill(40);
    page.upload(&producer, 0..256)?;
    describe(&mut samples, 0, slot.buffer(), 0, page.device(), 2)?;
    samples.upload(&producer, 0..SAMPLE_BYTES)?;
    slot.begin_fill()?;
    kernel.launch(&producer, samples.device(), 0, 1, 32, 8)?;
    slot.end_fill()?;
    slot.begin_use()?;
    let mut bytes = vec![0; 256];
    read_back(&consumer, slot.buffer(), 0, &mut bytes)?;
    slot.end_use()?;
    slot.free().synchronize()?;
    Ok(bytes)
}

/// Runs `work` on a new thread, which has no CUDA context.
fn on_a_new_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| scope.spawn(work).join().unwrap())
}

#[test]
fn every_call_may_fail_and_nothing_leaks() {
    let Some(machine) = exclusive() else { return };
    assert_eq!(on_a_new_thread(whole_path).unwrap(), [42; 256]);
    let calls = machine.counts().calls;
    assert!(calls > 60, "{calls}");
    for nth in 1..=calls {
        machine.schedule(if nth % 2 == 0 { Schedule::Lazy } else { Schedule::Random(nth) });
        machine.fail("", nth, LAUNCH_FAILED);
        let before = machine.counts().injected;
        // If a call that only queries or frees fails, the run may succeed. Its result must then be
        // correct.
        match on_a_new_thread(whole_path) {
            Ok(bytes) => assert_eq!(bytes, [42; 256], "call {nth}"),
            Err(Error::Device { call, problem }) => {
                assert!(
                    call.starts_with("cu") && problem.contains("LAUNCH_FAILED"),
                    "{call}: {problem}"
                );
            }
            Err(Error::Unavailable { reason, .. }) => {
                assert!(reason.contains("cuInit"), "{reason}");
            }
            Err(error) => panic!("call {nth}: {error}"),
        }
        assert_eq!(machine.counts().injected, before + 1, "call {nth} was not reached");
        assert_clean(&machine, "after a failure");
    }
    for name in
        ["cuMemAlloc", "cuMemHostAlloc", "cuLaunchKernel", "cuEventRecord", "cuModuleLoadData"]
    {
        machine.fail(name, 1, LAUNCH_FAILED);
        let Err(Error::Device { call, .. }) = whole_path() else {
            panic!("the failure of {name} had no effect")
        };
        assert_eq!(call, name);
        assert_clean(&machine, name);
    }
}

#[test]
fn a_lost_device_gives_errors_and_everything_is_freed() {
    let Some(machine) = exclusive() else { return };
    machine.lose_device(LAUNCH_FAILED);
    let error = whole_path().unwrap_err();
    assert!(matches!(&error, Error::Device { .. }), "{error}");
    assert_clean(&machine, "lost");
}

#[test]
fn threads_share_a_device() {
    let Some(machine) = exclusive() else { return };
    machine.schedule(Schedule::Random(9));
    let device = Device::open_with(0, &runtime()).unwrap();
    let (memory, pinned) = pools(&device).unwrap();
    std::thread::scope(|scope| {
        for number in 0..4u8 {
            let (device, memory, pinned) = (&device, &memory, &pinned);
            scope.spawn(move || {
                let stream = Stream::new(device).unwrap();
                let host = pinned.buffer("pages", 1024).unwrap();
                let mut page = Staged::new(host, memory.buffer("slots", 1024).unwrap()).unwrap();
                for round in 0..50 {
                    let value = number * 50 + round;
                    page.bytes().unwrap().fill(value);
                    page.upload(&stream, 0..1024).unwrap();
                    let mut seen = vec![0; 1024];
                    read_back(&stream, page.device(), 0, &mut seen).unwrap();
                    assert!(seen.iter().all(|byte| *byte == value));
                }
            });
        }
    });
    drop((memory, pinned, device));
    assert_clean(&machine, "threads");
}
