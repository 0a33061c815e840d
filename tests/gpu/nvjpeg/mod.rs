//! nvJPEG's decoders for single images on a simulated machine: order of work, memory, failures and
//! recovery.

mod failures;
mod memory;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::simulated::images::{assert_clean, cut, dense, file, file_with, pattern};
use crate::simulated::{self, LAUNCH_FAILED, Schedule, exclusive, runtime};
use feedwater::Error;
use feedwater::error::{Reason, Result};
use feedwater::footprint::{Footprint, Memory};
use feedwater::gpu::{Device, Stream};
use feedwater::internals::geometry::{Roi, Size};
use feedwater::internals::gpu::nvjpeg::{self, Backend, DecodeError, Jpeg, PageDecoder, Window};
use feedwater::internals::gpu::{DeviceBuffer, DevicePool, PinnedPool, read_back};
use feedwater::loader::{DeviceChoice, Loader, Outcome};
use feedwater::op::{Chain, Placement, Resize};
use feedwater::plan::Route;
use feedwater::source::Memory as MemorySource;
use feedwater_tools::synth;

const IMAGE: Size = Size::new(40, 30);

/// Backends of nvJPEG that decode single images.
const BACKENDS: [Backend; 2] = [Backend::GpuHybrid, Backend::Hybrid];

/// Size in bytes of the coefficients that the simulated nvJPEG stores with [`Backend::Hybrid`].
const COEFFICIENT_BYTES: u64 = 6 * 40 * 30;

/// Size of a page in bytes. It holds the rows of a whole image.
const PAGE_BYTES: u64 = 8192;

struct Setup {
    decoders: Vec<PageDecoder>,
    destinations: Vec<DeviceBuffer>,
    stream: Stream,
    jpeg: Arc<Jpeg>,
    memory: DevicePool,
    pinned: PinnedPool,
}

fn setup(backend: Backend, pages: usize, row_bytes: u64) -> Result<Setup> {
    setup_with(backend, pages, row_bytes, row_bytes)
}

/// Like [`setup`], with separate sizes in bytes for nvJPEG's device memory and pinned memory.
fn setup_with(
    backend: Backend,
    pages: usize,
    device_bytes: u64,
    pinned_bytes: u64,
) -> Result<Setup> {
    let device = Device::open_with(0, &runtime())?;
    let mut footprint = Footprint::default();
    footprint.add(Memory::Device, "pages", PAGE_BYTES, pages as u64, "");
    footprint.add(Memory::Device, "nvjpeg", device_bytes, 1, "");
    footprint.add(Memory::Pinned, "nvjpeg", pinned_bytes, 1, "");
    footprint.add(Memory::Pinned, "encoded", 4096, 1, "");
    let memory = DevicePool::take(&device, &footprint)?;
    let pinned = PinnedPool::take(&device, &footprint)?;
    let stream = Stream::new(&device)?;
    let source =
        nvjpeg::Memory { device: memory.clone(), pinned: pinned.clone(), row: "nvjpeg".into() };
    let jpeg = Jpeg::open(&device, backend, &source)?;
    let decoders = (0..pages).map(|_| PageDecoder::new(&jpeg, 0, 0)).collect::<Result<_>>()?;
    let destinations =
        (0..pages).map(|_| memory.buffer("pages", PAGE_BYTES as usize)).collect::<Result<_>>()?;
    Ok(Setup { decoders, destinations, stream, jpeg, memory, pinned })
}

impl Setup {
    /// Decodes `bytes` into the destination of a page.
    fn decode(&mut self, page: usize, bytes: &[u8], wanted: Roi) -> Result<Window, DecodeError> {
        self.decoders[page].decode(&self.stream, bytes, wanted, &self.destinations[page])
    }

    fn pixels(&self, page: usize, window: Roi) -> Result<Vec<u8>> {
        let mut bytes = vec![0; window.pitched_bytes()];
        read_back(&self.stream, &self.destinations[page], 0, &mut bytes)?;
        Ok(dense(&bytes, window))
    }
}

#[test]
fn pages_decode_their_own_images_in_any_execution_order() {
    let Some(machine) = exclusive() else { return };
    for backend in BACKENDS {
        let before = machine.decoded(backend);
        for schedule in [Schedule::Lazy, Schedule::Eager, Schedule::Random(5), Schedule::Random(6)]
        {
            machine.schedule(schedule);
            let mut setup = setup(backend, 3, 1 << 20).unwrap();
            for round in 0..5u8 {
                let window = Roi::new(u32::from(round), 3, 20, 15);
                // Three pages are in use at the same time. The second image of a page must not
                // disturb the page's first image.
                for page in 0..3 {
                    setup.decode(page, &file(IMAGE, round * 3 + page as u8), window).unwrap();
                }
                for page in 0..3 {
                    let expected = pattern(&file(IMAGE, round * 3 + page as u8), window);
                    let pixels = setup.pixels(page, window).unwrap();
                    assert_eq!(pixels, expected, "{backend:?} {schedule:?} {round}");
                }
            }
        }
        assert_eq!(machine.decoded(backend) - before, 4 * 5 * 3);
        assert_clean(&machine, "pages");
    }
}

#[test]
fn windows_at_corners_and_edges_are_right_with_every_version() {
    let Some(machine) = exclusive() else { return };
    let Size { width, height } = IMAGE;
    for version in [(13, 1, 0), (13, 2, 0)] {
        machine.nvjpeg_version(version.0, version.1, version.2);
        for backend in BACKENDS {
            let mut setup = setup(backend, 1, 1 << 20).unwrap();
            assert_eq!(setup.jpeg.margin(), if version < (13, 2, 0) { 2 } else { 0 });
            for wanted in [
                IMAGE.window(),
                Roi::new(0, 0, 1, 1),
                Roi::new(width - 1, 0, 1, 1),
                Roi::new(0, height - 1, 1, 1),
                Roi::new(width - 1, height - 1, 1, 1),
                Roi::new(0, 7, width, 2),
                Roi::new(9, 0, 3, height),
                Roi::new(10, 1, 12, 9),
            ] {
                let bytes = file(IMAGE, 1);
                let window = setup.decode(0, &bytes, wanted).unwrap();
                assert_eq!(window, setup.jpeg.window(IMAGE, wanted));
                let pixels = setup.pixels(0, window.decoded).unwrap();
                let cut = cut(&pixels, window.decoded, wanted);
                assert_eq!(cut, pattern(&bytes, wanted), "{backend:?} {version:?} {wanted}");
            }
        }
    }
    assert_clean(&machine, "windows");
}

#[test]
fn old_versions_decode_a_margin_because_they_get_outermost_pixels_wrong() {
    let Some(machine) = exclusive() else { return };
    machine.nvjpeg_version(13, 1, 0);
    let mut setup = setup(Backend::Hybrid, 1, 1 << 20).unwrap();
    let wanted = Roi::new(10, 1, 12, 9);
    let bytes = file(IMAGE, 1);
    let window = setup.decode(0, &bytes, wanted).unwrap();
    assert_eq!((window.wanted, window.decoded), (wanted, Roi::new(8, 0, 16, 12)));
    assert_ne!(
        setup.pixels(0, window.decoded).unwrap(),
        pattern(&bytes, window.decoded),
        "the simulated library gets the outermost pixels wrong"
    );
}

#[test]
fn a_decoder_waits_for_its_previous_image() {
    let Some(machine) = exclusive() else { return };
    for backend in BACKENDS {
        machine.schedule(Schedule::Lazy);
        let mut setup = setup(backend, 1, 1 << 20).unwrap();
        let window = IMAGE.window();
        let first = setup.memory.buffer("nvjpeg", PAGE_BYTES as usize).unwrap();
        assert!(setup.decoders[0].is_idle().unwrap());
        setup.decoders[0].decode(&setup.stream, &file(IMAGE, 1), window, &first).unwrap();
        // No queued work has run yet. Unless the decoder waits, the second image overwrites the
        // buffers of the first one.
        setup.decode(0, &file(IMAGE, 2), window).unwrap();
        let mut bytes = vec![0; window.pitched_bytes()];
        read_back(&setup.stream, &first, 0, &mut bytes).unwrap();
        assert_eq!(dense(&bytes, window), pattern(&file(IMAGE, 1), window), "{backend:?}");
        assert_eq!(setup.pixels(0, window).unwrap(), pattern(&file(IMAGE, 2), window));
        assert!(setup.decoders[0].is_idle().unwrap());
        setup.decode(0, &file(IMAGE, 3), window).unwrap();
        assert!(!setup.decoders[0].is_idle().unwrap());
        setup.decoders[0].done().synchronize().unwrap();
        assert!(setup.decoders[0].is_idle().unwrap());
        drop((first, setup));
        assert_clean(&machine, "reuse");
    }
}

/// With the backend `Hybrid`, which decodes entropy on the host, the caller may reuse the file's
/// bytes when the call returns. With `GpuHybrid`, the caller must wait for `done`.
#[test]
fn pinned_bytes_are_free_at_once_on_the_host_and_when_done_on_the_device() {
    let Some(machine) = exclusive() else { return };
    for (backend, disturbed) in [(Backend::Hybrid, false), (Backend::GpuHybrid, true)] {
        machine.schedule(Schedule::Lazy);
        let mut setup = setup(backend, 1, 1 << 20).unwrap();
        let window = IMAGE.window();
        let good = file(IMAGE, 1);
        let mut bytes = setup.pinned.buffer("encoded", good.len()).unwrap();
        for wait in [true, false] {
            bytes.copy_from_slice(&good);
            setup.decode(0, &bytes, window).unwrap();
            if wait {
                setup.decoders[0].done().synchronize().unwrap();
            }
            bytes.copy_from_slice(&file(IMAGE, 2));
            let seen = setup.pixels(0, window).unwrap() != pattern(&good, window);
            assert_eq!(seen, disturbed && !wait, "{backend:?}, waited: {wait}");
        }
    }
}

#[test]
fn a_dropped_page_lets_its_device_phase_finish() {
    let Some(machine) = exclusive() else { return };
    for backend in BACKENDS {
        let mut setup = setup(backend, 1, 1 << 20).unwrap();
        setup.decode(0, &file(IMAGE, 1), IMAGE.window()).unwrap();
        setup.decoders.clear();
        setup.pinned.buffer("nvjpeg", 7200).unwrap().fill(0);
        assert_eq!(
            setup.pixels(0, IMAGE.window()).unwrap(),
            pattern(&file(IMAGE, 1), IMAGE.window())
        );
        drop(setup);
        assert_clean(&machine, "dropped");
    }
}

#[test]
fn memory_freed_by_nvjpeg_in_stream_order_is_not_reused_too_early() {
    let Some(machine) = exclusive() else { return };
    machine.nvjpeg_scratch(true);
    let window = IMAGE.window();
    for seed in 0..8 {
        machine.schedule(Schedule::Random(seed));
        let mut setup = setup(Backend::Hybrid, 2, 1 << 20).unwrap();
        let mut other = Stream::new(setup.stream.device()).unwrap();
        for round in 0..4u8 {
            // The images alternate between two pages and two streams.
            for page in 0..2 {
                setup.decode(page, &file(IMAGE, 2 * round + page as u8), window).unwrap();
                std::mem::swap(&mut setup.stream, &mut other);
            }
            for page in 0..2 {
                let expected = pattern(&file(IMAGE, 2 * round + page as u8), window);
                assert_eq!(setup.pixels(page, window).unwrap(), expected, "{seed} {round}");
                std::mem::swap(&mut setup.stream, &mut other);
            }
        }
    }
    assert_clean(&machine, "scratch");
}

#[test]
fn a_window_needs_a_large_enough_destination_and_a_single_image_backend() {
    let Some(machine) = exclusive() else { return };
    let mut setup = setup(Backend::Hybrid, 1, 1 << 20).unwrap();
    let small = setup.memory.buffer("nvjpeg", 4319).unwrap();
    let result = setup.decoders[0].decode(&setup.stream, &file(IMAGE, 1), IMAGE.window(), &small);
    match result {
        Err(DecodeError::Fatal(Error::Internal { problem })) => {
            assert!(problem.contains("4320") && problem.contains("4319"), "{problem}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(machine.calls("nvjpegDecodeJpegHost"), 0);
    drop((small, setup));
    let error = self::setup(Backend::Hardware, 1, 1 << 20).err().unwrap();
    let Error::Internal { problem } = error else { panic!("{error}") };
    assert!(problem.contains("BatchDecoder"), "{problem}");
    assert_clean(&machine, "room");
}

/// The consumer captures a CUDA graph while the threads of the loader fill the next batches.
#[test]
fn a_loader_continues_during_a_capture() {
    let Some(machine) = exclusive() else { return };
    let rgb = synth::image(1, 1, 96, 80);
    let jpeg = synth::encode(&rgb, 96, 80, 90, false).unwrap();
    for route in [Route::NvjpegHardware, Route::NvjpegGpu, Route::NvjpegHybrid] {
        let source = MemorySource::new(vec![(jpeg.clone(), 0); 40]).unwrap();
        let builder = Loader::builder(source, Chain::new().then(Resize::to(16, 16)));
        let builder = builder.batch_size(4).prefetch(2).num_workers(2).configure(|it| {
            it.loader.tune = false;
            it.decode.routes = vec![route];
        });
        let builder = builder
            .device(DeviceChoice::Gpu(0))
            .runtime(&runtime())
            .configure(|it| it.decode.placement = Placement::Gpu);
        let mut loader = builder.epochs(Some(1)).build().unwrap();
        let mut batches = loader.into_iter();
        drop(batches.next().unwrap().unwrap());
        machine.capturing(true);
        let before = machine.calls("cuLaunchKernel");
        // Gives the loader's threads time to fill the free slots during the capture.
        let until = Instant::now() + Duration::from_secs(2);
        while machine.calls("cuLaunchKernel") < before + 1 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(20));
        machine.capturing(false);
        assert_eq!(batches.map(|batch| batch.unwrap().len()).sum::<usize>(), 36);
        drop(loader);
        assert_clean(&machine, route.name());
    }
}

/// The stream of the last image is destroyed before nvJPEG's buffers. When nvJPEG frees the
/// buffers, it may still pass the handle of this stream.
#[test]
fn a_decoder_may_outlive_its_stream() {
    let Some(machine) = exclusive() else { return };
    for backend in BACKENDS {
        let mut setup = setup(backend, 2, 1 << 20).unwrap();
        setup.decode(0, &file(IMAGE, 1), IMAGE.window()).unwrap();
        setup.decode(1, &file(IMAGE, 1), IMAGE.window()).unwrap();
        let Setup { decoders, destinations, stream, jpeg, memory, pinned } = setup;
        drop(stream);
        drop((decoders, destinations, jpeg, memory, pinned));
        assert_clean(&machine, "outlived");
    }
}

/// Each thread has its own stream and decoder. Events order the images of a page.
#[test]
fn threads_decode_at_the_same_time() {
    let Some(machine) = exclusive() else { return };
    machine.schedule(Schedule::Random(11));
    let window = Roi::new(3, 2, 30, 20);
    for backend in BACKENDS {
        let setup = setup(backend, 4, 1 << 20).unwrap();
        let Setup { decoders, destinations, stream, .. } = setup;
        let (ready, collected) = std::sync::mpsc::channel::<(usize, u8, PageDecoder)>();
        std::thread::scope(|scope| {
            let (free, workers): (Vec<_>, Vec<_>) =
                (0..4).map(|_| std::sync::mpsc::channel::<PageDecoder>()).unzip();
            for (page, decoder) in decoders.into_iter().enumerate() {
                free[page].send(decoder).unwrap();
            }
            for (page, (pages, destination)) in workers.into_iter().zip(&destinations).enumerate() {
                let (ready, device) = (ready.clone(), stream.device().clone());
                scope.spawn(move || {
                    let stream = Stream::new(&device).unwrap();
                    for (round, mut decoder) in (0..20u8).zip(pages) {
                        let tag = 4 * round + page as u8;
                        decoder.decode(&stream, &file(IMAGE, tag), window, destination).unwrap();
                        ready.send((page, tag, decoder)).unwrap();
                    }
                });
            }
            drop(ready);
            for (page, tag, decoder) in collected {
                stream.wait(decoder.done()).unwrap();
                let mut bytes = vec![0; window.pitched_bytes()];
                read_back(&stream, &destinations[page], 0, &mut bytes).unwrap();
                assert_eq!(
                    dense(&bytes, window),
                    pattern(&file(IMAGE, tag), window),
                    "{page} {tag}"
                );
                // In the last round the threads have ended, so sending fails.
                let _ = free[page].send(decoder);
            }
        });
        drop((destinations, stream, setup.jpeg, setup.memory, setup.pinned));
        assert_clean(&machine, "threads");
    }
}

#[test]
fn available_backends_are_listed_with_reasons_for_the_others() {
    let Some(machine) = exclusive() else { return };
    let device = Device::open_with(0, &runtime()).unwrap();
    let found = nvjpeg::known_backends(&device).unwrap();
    assert_eq!(found, Backend::ALL.map(|backend| (backend, Ok(()))));
    machine.hardware_engines(0);
    let found = nvjpeg::known_backends(&device).unwrap();
    assert_eq!(found[1..], BACKENDS.map(|backend| (backend, Ok(()))));
    let problem = found[0].1.as_ref().unwrap_err();
    assert!(problem.contains("libnvcuvid"), "{problem}");
    machine.fail("nvjpegCreateEx", 3, LAUNCH_FAILED);
    let found = nvjpeg::known_backends(&device).unwrap();
    assert!(found[2].1.as_ref().unwrap_err().contains("nvjpegCreateEx"));
    machine.fail("nvjpegDecoderCreate", 1, LAUNCH_FAILED);
    let found = nvjpeg::known_backends(&device).unwrap();
    assert!(found[1].1.as_ref().unwrap_err().contains("nvjpegDecoderCreate"));
    machine.hardware_engines(1);
    machine.fail("nvjpegGetHardwareDecoderInfo", 1, LAUNCH_FAILED);
    let found = nvjpeg::known_backends(&device).unwrap();
    assert!(found[0].1.as_ref().unwrap_err().contains("nvjpegGetHardwareDecoderInfo"));
    drop(device);
    assert_clean(&machine, "backends");
}

#[test]
fn old_versions_cause_warnings() {
    let Some(machine) = exclusive() else { return };
    let warnings = |major, minor, patch| {
        machine.nvjpeg_version(major, minor, patch);
        nvjpeg::Library::open(&runtime(), None).unwrap().warnings()
    };
    // The first nvJPEG versions that check files, that parse malformed files correctly, and that
    // compute all pixels of windows correctly.
    let [checked, hardened, exact] = ["13.0.0", "13.2.3", "13.2.0"];
    let cases: [(_, &[&str]); 4] = [
        (warnings(13, 2, 3), &[]),
        (warnings(13, 2, 2), &[hardened]),
        (warnings(13, 1, 0), &[hardened, exact]),
        (warnings(12, 4, 0), &[checked, exact]),
    ];
    for (told, expected) in cases {
        assert_eq!(told.len(), expected.len(), "{told:?}");
        for (warning, better) in told.iter().zip(expected) {
            assert!(warning.contains(better), "{better}: {warning}");
            assert_eq!(warning.contains(checked), *better == checked, "{warning}");
            // The warning about windows contains the width of the margin in pixels: 2.
            assert!(*better != exact || warning.contains(" 2 "), "{warning}");
        }
    }
}

#[test]
fn the_tests_decoder_decodes() {
    /// A simulated decoder that fills the window with the coordinates of its corner. It refuses
    /// files that end in 0xee.
    fn corner(file: &[u8], window: simulated::Window, rgb: &mut [u8]) -> i32 {
        let (x, y) = (window.x as u8, window.y as u8);
        rgb.chunks_mut(3).for_each(|pixel| pixel.copy_from_slice(&[x, y, 9]));
        if file.last() == Some(&0xee) { 3 } else { 0 }
    }
    let Some(machine) = exclusive() else { return };
    machine.set_decoder(Some(corner));
    for backend in BACKENDS {
        let mut setup = setup(backend, 1, 1 << 20).unwrap();
        let window = Roi::new(5, 6, 2, 1);
        setup.decode(0, &file(IMAGE, 1), window).unwrap();
        assert_eq!(setup.pixels(0, window).unwrap(), [5, 6, 9, 5, 6, 9]);
        machine.lenient(false);
        let refused = setup.decode(0, &file(IMAGE, 0xee), window);
        assert!(
            matches!(refused, Err(DecodeError::Sample(fault)) if fault.reason == Reason::Corrupt)
        );
        machine.lenient(true);
        let silent = setup.decode(0, &file(IMAGE, 0xee), window);
        assert_eq!(silent.is_ok(), backend == Backend::GpuHybrid);
    }
}
