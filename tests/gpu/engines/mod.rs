//! nvJPEG's batched decoder on a simulated machine. The simulated JPEG engines behave like those of
//! Hopper GPUs: they write the destinations during the call and not in stream order.

#![allow(unsafe_code)] // copies on the simulated device

mod failures;
mod order;
mod windows;

use std::sync::Arc;

use crate::simulated::images::{
    assert_clean, cut, dense, file, file_with, pattern, reduced_pattern,
};
use crate::simulated::{self, LAUNCH_FAILED, Schedule, Simulated, exclusive};
use cudarc::driver::result::memcpy_dtod_async;
use feedwater::Error;
use feedwater::error::{Reason, Result};
use feedwater::footprint::{Footprint, Memory};
use feedwater::gpu::{Device, Event, Stream};
use feedwater::internals::geometry::{Roi, Size};
use feedwater::internals::gpu::nvjpeg::{
    self, Backend, BatchDecoder, BatchJob, DecodeError, Engines, HostIdle, Jpeg, Support,
};
use feedwater::internals::gpu::{
    DeviceBuffer, DevicePool, PinnedBuffer, PinnedPool, fill, read_back,
};

const IMAGE: Size = Size::new(40, 30);
const PAGE_BYTES: usize = 8192;

/// Size of a whole image in device memory, in bytes: 30 rows of 40 pixels, each padded to 48 pixels
/// of three bytes.
const ROWS_BYTES: usize = 4320;
const CAPACITY: usize = 4;

/// Size of the largest image for which the decoder is created.
const LARGEST: Size = Size::new(64, 64);

/// Bytes that the simulated engines allocate for a batch of [`CAPACITY`] images.
const STATE_BYTES: u64 = 4 * 3 * 64 * 64;

struct Setup {
    decoder: BatchDecoder,
    pages: Vec<Page>,
    stream: Stream,
    jpeg: Arc<Jpeg>,
    memory: DevicePool,
    pinned: PinnedPool,
}

/// Encoded bytes and destination of an image.
struct Page {
    encoded: PinnedBuffer,
    bytes: usize,
    pixels: DeviceBuffer,
    /// Event recorded after the last work that reads `pixels`.
    used: Event,
}

fn setup(pages: usize, row_bytes: u64) -> Result<Setup> {
    setup_on(&Device::open(0)?, pages, row_bytes)
}

fn setup_on(device: &Arc<Device>, pages: usize, row_bytes: u64) -> Result<Setup> {
    let mut footprint = Footprint::default();
    footprint.add(Memory::Device, "pages", PAGE_BYTES as u64, pages as u64, "");
    footprint.add(Memory::Device, "copies", PAGE_BYTES as u64, pages as u64, "");
    footprint.add(Memory::Device, "nvjpeg", row_bytes, 1, "");
    footprint.add(Memory::Pinned, "nvjpeg", 16 << 10, 1, "");
    footprint.add(Memory::Pinned, "encoded", 256, pages as u64, "");
    let memory = DevicePool::take(device, &footprint)?;
    let pinned = PinnedPool::take(device, &footprint)?;
    let stream = Stream::new(device)?;
    let source =
        nvjpeg::Memory { device: memory.clone(), pinned: pinned.clone(), row: "nvjpeg".into() };
    let jpeg = Jpeg::open(device, Backend::Hardware, &source)?;
    let decoder = BatchDecoder::new(&jpeg, CAPACITY, LARGEST)?;
    let pages = (0..pages)
        .map(|_| {
            Ok(Page {
                encoded: pinned.buffer("encoded", 256)?,
                bytes: 0,
                pixels: memory.buffer("pages", PAGE_BYTES)?,
                used: Event::new(device)?,
            })
        })
        .collect::<Result<_>>()?;
    Ok(Setup { decoder, pages, stream, jpeg, memory, pinned })
}

impl Page {
    fn read(&mut self, bytes: &[u8]) {
        self.encoded[..bytes.len()].copy_from_slice(bytes);
        self.bytes = bytes.len();
    }

    /// Returns a job that decodes the page's file. First waits on the host until all users of the
    /// pixels have finished.
    fn job(&self, wanted: Roi) -> Result<BatchJob<'_>> {
        Ok(BatchJob {
            bytes: &self.encoded[..self.bytes],
            image: IMAGE,
            wanted,
            reduction: 1,
            destination: HostIdle::wait(&self.pixels, &self.used)?,
        })
    }
}

impl Setup {
    /// Decodes a batch of files into the first pages. All images have the same window.
    fn decode(&mut self, files: &[Vec<u8>], wanted: Roi) -> Result<(), DecodeError> {
        self.decoder.done().synchronize()?;
        self.pages.iter_mut().zip(files).for_each(|(page, bytes)| page.read(bytes));
        let jobs = self.pages[..files.len()]
            .iter()
            .map(|page| page.job(wanted))
            .collect::<Result<Vec<_>>>()?;
        self.decoder.decode(&self.stream, &jobs)
    }

    fn pixels(&self, page: usize, window: Roi) -> Result<Vec<u8>> {
        let mut bytes = vec![0; window.pitched_bytes()];
        read_back(&self.stream, &self.pages[page].pixels, 0, &mut bytes)?;
        Ok(dense(&bytes, window))
    }

    /// Decodes another batch and checks its pixels, to show that the decoder still works.
    fn assert_usable(&mut self, what: &str) {
        let files: Vec<_> = (0..3).map(|tag| file(IMAGE, 200 + tag)).collect();
        self.decode(&files, IMAGE.window()).unwrap();
        for (page, bytes) in files.iter().enumerate() {
            let pixels = self.pixels(page, IMAGE.window()).unwrap();
            assert_eq!(pixels, pattern(bytes, IMAGE.window()), "{what}");
        }
    }
}

/// Queues a copy of `bytes` bytes in the stream.
fn copy(stream: &Stream, target: &DeviceBuffer, source: &DeviceBuffer, bytes: usize) {
    stream.device().bind().unwrap();
    // SAFETY: both buffers have at least `bytes` bytes, and the test waits for the stream before it
    // frees them.
    unsafe {
        memcpy_dtod_async(target.address(), source.address(), bytes, stream.raw().cast()).unwrap();
    }
}

#[test]
fn batches_of_changing_size_decode_their_windows_in_any_execution_order() {
    let Some(machine) = exclusive() else { return };
    for hopper in [true, false] {
        machine.hopper(hopper);
        for schedule in [Schedule::Lazy, Schedule::Eager, Schedule::Random(5), Schedule::Random(6)]
        {
            machine.schedule(schedule);
            let mut setup = setup(CAPACITY, 1 << 20).unwrap();
            for (round, count) in [4, 4, 1, 3, 4, 2].into_iter().enumerate() {
                let window = Roi::new(round as u32, 3, 20, 15);
                let files: Vec<_> =
                    (0..count).map(|page| file(IMAGE, (10 * round + page) as u8)).collect();
                setup.decode(&files, window).unwrap();
                for (page, bytes) in files.iter().enumerate() {
                    let pixels = setup.pixels(page, window).unwrap();
                    assert_eq!(pixels, pattern(bytes, window), "{hopper} {schedule:?} {round}");
                }
            }
            drop(setup);
            assert_clean(&machine, "batches");
        }
    }
    assert_eq!(machine.decoded(Backend::Hardware), 8 * 18);
    assert_eq!(machine.decoded(Backend::Hybrid) + machine.decoded(Backend::GpuHybrid), 0);
}

/// The loader initializes the decode state before each call, with the number of images of this
/// call. nvImageCodec and torchvision do the same. The state is created again only after a failure.
#[test]
fn a_state_is_initialized_before_each_call_for_its_images() {
    let Some(machine) = exclusive() else { return };
    let mut setup = setup(CAPACITY, 1 << 20).unwrap();
    let files: Vec<_> = (0..4).map(|tag| file(IMAGE, tag)).collect();
    let (made, initialised) = ("nvjpegJpegStateCreate", "nvjpegDecodeBatchedInitialize");
    assert_eq!((machine.calls(made), machine.calls(initialised)), (1, 0));
    for (number, count) in [4, 4, 2, 1].into_iter().enumerate() {
        let before = machine.decoded(Backend::Hardware);
        setup.decode(&files[..count], IMAGE.window()).unwrap();
        assert_eq!((machine.calls(made), machine.calls(initialised)), (1, number as u64 + 1));
        assert_eq!(machine.decoded(Backend::Hardware) - before, count as u64);
    }
    setup.decode(&[], IMAGE.window()).unwrap();
    assert_eq!(machine.calls("nvjpegDecodeBatchedEx"), 4, "without images there is no call");
    machine.fail("nvjpegDecodeBatchedEx", 1, LAUNCH_FAILED);
    setup.decode(&files[..2], IMAGE.window()).unwrap_err();
    setup.decode(&files[..2], IMAGE.window()).unwrap();
    assert_eq!((machine.calls(made), machine.calls(initialised)), (2, 6));
}

/// Before an image joins a call, nvJPEG is asked whether the engines support its file. If not, the
/// file is refused. If nvJPEG reports support but the call then refuses the file, later files of
/// the same class (for example, with the same chroma subsampling) are refused without a call.
#[test]
fn nvjpeg_is_asked_whether_the_engines_decode_a_file() {
    let Some(machine) = exclusive() else { return };
    let setup = setup(1, 1 << 20).unwrap();
    let mut support = Support::new(&setup.jpeg).unwrap();
    machine.refusing(0x12, false);
    for (sampling, decodes) in [(0x22, true), (0x12, false), (0x11, true), (0x41, false)] {
        let bytes = file_with(IMAGE, 0xc0, &[sampling, 0x11, 0x11], 1);
        for window in [None, Some(Roi::new(3, 3, 10, 10))] {
            assert_eq!(support.decodes(&bytes, 1, window).unwrap(), Some(decodes), "{sampling:x}");
        }
        assert_eq!(support.decodes(&bytes, 4, None).unwrap(), Some(decodes), "{sampling:x}");
    }
    // A query with bytes that are no JPEG must not affect the answer for the next file.
    assert_eq!(support.decodes(b"no JPEG", 1, None).unwrap(), None);
    assert_eq!(support.decodes(&file(IMAGE, 1), 1, None).unwrap(), Some(true));
    drop((support, setup));
    assert_clean(&machine, "support");
}

#[test]
fn windows_at_corners_and_edges_are_right_with_every_version() {
    let Some(machine) = exclusive() else { return };
    let Size { width, height } = IMAGE;
    let windows = [
        IMAGE.window(),
        Roi::new(0, 0, 1, 1),
        Roi::new(width - 1, height - 1, 1, 1),
        Roi::new(width - 1, 0, 1, 1),
        Roi::new(0, height - 1, 1, 1),
        Roi::new(0, 7, width, 2),
        Roi::new(9, 0, 3, height),
        Roi::new(10, 1, 12, 9),
    ];
    for version in [(13, 0, 1), (13, 2, 0)] {
        machine.nvjpeg_version(version.0, version.1, version.2);
        let mut setup = setup(CAPACITY, 1 << 20).unwrap();
        assert_eq!(setup.jpeg.margin(), if version < (13, 2, 0) { 2 } else { 0 });
        // Each image of a batch has its own window.
        for windows in windows.chunks(CAPACITY) {
            for (number, page) in setup.pages.iter_mut().enumerate() {
                page.read(&file(IMAGE, number as u8));
            }
            let jobs: Vec<_> =
                setup.pages.iter().zip(windows).map(|(page, it)| page.job(*it).unwrap()).collect();
            let decoded: Vec<_> = jobs.iter().map(|job| job.window(&setup.jpeg)).collect();
            setup.decoder.decode(&setup.stream, &jobs).unwrap();
            for (page, window) in decoded.iter().enumerate() {
                let pixels = setup.pixels(page, window.decoded).unwrap();
                let pixels = cut(&pixels, window.decoded, window.wanted);
                let expected = pattern(&file(IMAGE, page as u8), window.wanted);
                assert_eq!(pixels, expected, "{version:?} {}", window.wanted);
            }
        }
    }
    assert_clean(&machine, "windows");
}

/// nvJPEG's documentation does not define a window together with a scale factor. The whole
/// downscaled image is decoded instead.
#[test]
fn downscaling_decodes_the_whole_image() {
    let Some(machine) = exclusive() else { return };
    machine.nvjpeg_version(13, 0, 1);
    let mut setup = setup(2, 1 << 20).unwrap();
    let bytes = file(IMAGE, 1);
    for page in &mut setup.pages {
        page.read(&bytes);
    }
    for reduction in [2, 4, 8] {
        let reduced = Size::new(40u32.div_ceil(reduction), 30u32.div_ceil(reduction));
        let wanted = Roi::new(1, 1, 3, 2);
        // In one batch, one image is downscaled and the other has a window, in both orders.
        for places in [[0, 1], [1, 0]] {
            let jobs = places.map(|place| {
                let job = setup.pages[place].job(wanted).unwrap();
                BatchJob { reduction: if place == 0 { reduction } else { 1 }, ..job }
            });
            let windows = [0, 1].map(|it| jobs[it].window(&setup.jpeg));
            setup.decoder.decode(&setup.stream, &jobs).unwrap();
            for (place, window) in places.into_iter().zip(windows) {
                let pixels = setup.pixels(place, window.decoded).unwrap();
                if place == 0 {
                    assert_eq!((window.decoded, window.wanted), (reduced.window(), wanted));
                    let expected = reduced_pattern(&bytes, reduction, reduced.window());
                    assert_eq!(pixels, expected, "1/{reduction}");
                } else {
                    let pixels = cut(&pixels, window.decoded, wanted);
                    assert_eq!(pixels, pattern(&bytes, wanted), "beside 1/{reduction}");
                }
            }
        }
    }
    drop(setup);
    assert_clean(&machine, "reduction");
}

#[test]
fn engines_are_reported_and_a_gpu_without_them_is_an_error_with_advice() {
    let Some(machine) = exclusive() else { return };
    let setup = setup(1, 1 << 20).unwrap();
    assert_eq!(setup.jpeg.engines(), Some(Engines { engines: 7, cores_per_engine: 1 }));
    assert_eq!(setup.jpeg.backend(), Backend::Hardware);
    let source = nvjpeg::Memory {
        device: setup.memory.clone(),
        pinned: setup.pinned.clone(),
        row: "nvjpeg".into(),
    };
    let device = setup.stream.device().clone();
    assert_eq!(Jpeg::open(&device, Backend::GpuHybrid, &source).unwrap().engines(), None);
    machine.hardware_engines(0);
    let error = Jpeg::open(&device, Backend::Hardware, &source).unwrap_err();
    let Error::Unavailable { reason, .. } = error else { panic!("{error}") };
    for value in ["libnvcuvid", "cpu"] {
        assert!(reason.contains(value), "{reason}");
    }
    drop((setup, source, device));
    assert_clean(&machine, "engines");
}

#[test]
fn buffers_are_allocated_at_start_and_grow_only_within_the_row() {
    let Some(machine) = exclusive() else { return };
    let taken = STATE_BYTES;
    let row = taken + 8 * 1024;
    let mut setup = setup(CAPACITY, row).unwrap();
    let used = |setup: &Setup| setup.memory.row_bytes("nvjpeg").unwrap().0;
    assert_eq!(used(&setup), taken);
    let files: Vec<_> = (0..4).map(|tag| file(IMAGE, tag)).collect();
    for count in [4, 1, 4] {
        setup.decode(&files[..count], IMAGE.window()).unwrap();
    }
    assert_eq!(used(&setup), taken, "buffers must not have grown");

    // If an image needs more memory than is available, its batch fails. The next batch is decoded.
    let large = Size::new(200, 100);
    setup.pages[0].read(&file(large, 1));
    let job = setup.pages[0].job(Roi::new(0, 0, 20, 20)).unwrap();
    let jobs = [BatchJob { image: large, ..job }];
    match setup.decoder.decode(&setup.stream, &jobs) {
        Err(DecodeError::Fatal(Error::Budget { row, needed, .. })) => {
            assert_eq!((row.as_str(), needed), ("nvjpeg", 3 * 200 * 100));
        }
        other => panic!("{other:?}"),
    }
    setup.assert_usable("after an image that is too large");

    // If there is not enough memory for images of the requested size, the decoder allocates buffers
    // for smaller images, and these are decoded.
    let before = setup.memory.used_bytes();
    let large = BatchDecoder::new(&setup.jpeg, 4, Size::new(400, 300)).unwrap();
    let smaller = (4 * 3 * 25 * 19u64).next_multiple_of(256);
    assert_eq!(setup.memory.used_bytes() - before, smaller);
    drop(large);
    let left = setup.memory.row_bytes("nvjpeg").unwrap().1 - taken;
    let _rest = setup.memory.buffer("nvjpeg", left as usize).unwrap();
    let error = BatchDecoder::new(&setup.jpeg, 4, Size::new(400, 300)).unwrap_err();
    assert!(matches!(error, Error::Budget { needed: 12, .. }), "{error}");
    drop(_rest);
    drop(setup);
    assert_clean(&machine, "memory");
}

/// The engines may read the encoded file until the event `done`. In this test, the simulated
/// engines keep the stream's order, so they read the file late.
#[test]
fn files_must_not_change_until_done() {
    let Some(machine) = exclusive() else { return };
    machine.hopper(false);
    machine.schedule(Schedule::Lazy);
    let mut setup = setup(1, 1 << 20).unwrap();
    let window = IMAGE.window();
    for wait in [true, false] {
        setup.decode(&[file(IMAGE, 1)], window).unwrap();
        if wait {
            assert!(!setup.decoder.is_idle().unwrap());
            setup.decoder.done().synchronize().unwrap();
            assert!(setup.decoder.is_idle().unwrap());
        }
        setup.pages[0].read(&file(IMAGE, 2));
        let right = setup.pixels(0, window).unwrap() == pattern(&file(IMAGE, 1), window);
        assert_eq!(right, wait);
    }
}

#[test]
fn a_dropped_decoder_lets_its_batch_finish() {
    let Some(machine) = exclusive() else { return };
    for hopper in [true, false] {
        machine.hopper(hopper);
        machine.schedule(Schedule::Lazy);
        let mut setup = setup(1, 1 << 20).unwrap();
        setup.decode(&[file(IMAGE, 1)], IMAGE.window()).unwrap();
        let Setup { decoder, pages, stream, jpeg, memory, pinned } = setup;
        drop(decoder);
        let mut bytes = vec![0; ROWS_BYTES];
        read_back(&stream, &pages[0].pixels, 0, &mut bytes).unwrap();
        assert_eq!(dense(&bytes, IMAGE.window()), pattern(&file(IMAGE, 1), IMAGE.window()));
        drop((pages, stream, jpeg, memory, pinned));
        assert_clean(&machine, "dropped");
    }
}

/// Two threads with a decoder each keep the engines busy. A third stream, the consumer's, copies
/// the decoded pixels.
#[test]
fn threads_take_turns_with_their_decoders() {
    let Some(machine) = exclusive() else { return };
    for hopper in [true, false] {
        machine.hopper(hopper);
        machine.schedule(Schedule::Random(11));
        let setups: Vec<_> = (0..2).map(|_| setup(CAPACITY, 1 << 20).unwrap()).collect();
        std::thread::scope(|scope| {
            for (thread, mut setup) in setups.into_iter().enumerate() {
                scope.spawn(move || {
                    let consumer = Stream::new(setup.stream.device()).unwrap();
                    let copies: Vec<_> = (0..CAPACITY)
                        .map(|_| setup.memory.buffer("copies", PAGE_BYTES).unwrap())
                        .collect();
                    let mut before: Vec<Vec<u8>> = Vec::new();
                    for round in 0..10usize {
                        let count = 1 + (round + thread) % CAPACITY;
                        let files: Vec<_> = (0..count)
                            .map(|page| file(IMAGE, (50 * thread + 4 * round + page) as u8))
                            .collect();
                        // `decode` blocks this thread until the consumer's copies of the previous
                        // round have ended.
                        setup.decode(&files, IMAGE.window()).unwrap();
                        for (copy, bytes) in copies.iter().zip(&before) {
                            let mut seen = vec![0; ROWS_BYTES];
                            read_back(&consumer, copy, 0, &mut seen).unwrap();
                            let seen = dense(&seen, IMAGE.window());
                            assert_eq!(seen, pattern(bytes, IMAGE.window()), "{thread} {round}");
                        }
                        consumer.wait(setup.decoder.done()).unwrap();
                        for (page, target) in setup.pages[..count].iter().zip(&copies) {
                            copy(&consumer, target, &page.pixels, ROWS_BYTES);
                            page.used.record(&consumer).unwrap();
                        }
                        before = files;
                    }
                    consumer.synchronize().unwrap();
                });
            }
        });
        assert_clean(&machine, "threads");
    }
}
