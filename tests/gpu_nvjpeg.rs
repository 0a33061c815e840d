//! nvJPEG's two phases against a simulated machine: order, memory, failures and what follows them.

#![allow(unsafe_code)] // the decoder that a test hands to the simulated library

mod simulated;

use std::sync::Arc;

use feedwater::Error;
use feedwater::error::{Reason, Result};
use feedwater::footprint::{Footprint, Memory};
use feedwater::geometry::{Roi, Size};
use feedwater::gpu::nvjpeg::{self, DecodeFault, Jpeg, PageDecoder};
use feedwater::gpu::{Device, DeviceBuffer, DevicePool, PinnedPool, Stream, read_back};
use simulated::{LAUNCH_FAILED, Schedule, Simulated, exclusive};

const PICTURE: Size = Size::new(40, 30);

/// Bytes of the coefficients that the simulated nvJPEG keeps for a picture.
const COEFFICIENT_BYTES: u64 = 6 * 40 * 30;

/// As much of a JPEG file as the simulated nvJPEG looks at: the frame header, then `tag`.
fn file(size: Size, tag: u8) -> Vec<u8> {
    let (width, height) = ((size.width as u16).to_be_bytes(), (size.height as u16).to_be_bytes());
    let mut bytes = vec![0xff, 0xd8, 0xff, 0xc0, 0, 17, 8];
    bytes.extend(height);
    bytes.extend(width);
    bytes.extend([3, 1, 0x22, 0, 2, 0x11, 1, 3, 0x11, 1, tag]);
    bytes
}

/// What the simulated nvJPEG decodes without a decoder set: a pattern of the file's bytes and the position.
fn pattern(bytes: &[u8], window: Roi) -> Vec<u8> {
    let sum =
        bytes.iter().fold(0u32, |sum, byte| sum.wrapping_mul(31).wrapping_add((*byte).into()));
    let mut rgb = Vec::new();
    for y in window.y..window.bottom() {
        for x in window.x..window.right() {
            rgb.extend((0..3).map(|c| sum.wrapping_add(7 * x + 13 * y + 101 * c) as u8));
        }
    }
    rgb
}

struct Setup {
    decoders: Vec<PageDecoder>,
    destinations: Vec<DeviceBuffer>,
    stream: Stream,
    jpeg: Arc<Jpeg>,
    memory: DevicePool,
    pinned: PinnedPool,
}

fn setup(pages: usize, row_bytes: u64) -> Result<Setup> {
    let device = Device::open(0)?;
    let mut footprint = Footprint::default();
    footprint.add(Memory::Device, "pages", 4096, pages as u64, "");
    footprint.add(Memory::Device, "nvjpeg", row_bytes, 1, "");
    footprint.add(Memory::Pinned, "nvjpeg", row_bytes, 1, "");
    let memory = DevicePool::take(&device, &footprint)?;
    let pinned = PinnedPool::take(&device, &footprint)?;
    let stream = Stream::new(&device)?;
    let source =
        nvjpeg::Memory { device: memory.clone(), pinned: pinned.clone(), row: "nvjpeg".into() };
    let jpeg = Jpeg::open(&device, &source)?;
    let decoders = (0..pages).map(|_| PageDecoder::new(&jpeg, 0, 0)).collect::<Result<_>>()?;
    let destinations = (0..pages).map(|_| memory.buffer("pages", 4096)).collect::<Result<_>>()?;
    Ok(Setup { decoders, destinations, stream, jpeg, memory, pinned })
}

impl Setup {
    /// Both phases, into the page's destination.
    fn decode(&mut self, page: usize, bytes: &[u8], wanted: Roi) -> Result<(), DecodeFault> {
        let window = self.decoders[page].host(bytes, wanted)?;
        self.decoders[page].device(&self.stream, &self.destinations[page], 0, window.pitch_bytes())
    }

    fn pixels(&self, page: usize, window: Roi) -> Result<Vec<u8>> {
        let mut bytes = vec![0; 3 * window.size().pixels() as usize];
        read_back(&self.stream, &self.destinations[page], 0, &mut bytes)?;
        Ok(bytes)
    }
}

fn assert_clean(machine: &Simulated, what: &str) {
    let counts = machine.counts();
    assert_eq!(counts.live(), 0, "{what}: something is left: {counts:?}");
    assert_eq!(counts.faults(), 0, "{what}: {counts:?}");
}

#[test]
fn pages_decode_their_own_pictures_whatever_runs_first() {
    let machine = exclusive();
    for schedule in [Schedule::Lazy, Schedule::Eager, Schedule::Random(5), Schedule::Random(6)] {
        machine.schedule(schedule);
        let mut setup = setup(3, 1 << 20).unwrap();
        for round in 0..5u8 {
            let window = Roi::new(u32::from(round), 3, 20, 15);
            // Three pages in flight at a time; each page's second picture must not disturb its first.
            for page in 0..3 {
                setup.decode(page, &file(PICTURE, round * 3 + page as u8), window).unwrap();
            }
            for page in 0..3 {
                let expected = pattern(&file(PICTURE, round * 3 + page as u8), window);
                assert_eq!(setup.pixels(page, window).unwrap(), expected, "{schedule:?} {round}");
            }
        }
        drop(setup);
        assert_clean(&machine, "pages");
    }
}

#[test]
fn a_page_is_decoded_again_only_after_its_device_phase() {
    let machine = exclusive();
    let mut setup = setup(1, 1 << 20).unwrap();
    let window = PICTURE.window();
    let first = setup.decoders[0].host(&file(PICTURE, 1), window).unwrap();
    let copies = setup.memory.buffer("nvjpeg", 4096).unwrap();
    setup.decoders[0].device(&setup.stream, &copies, 0, first.pitch_bytes()).unwrap();
    // Nothing has run yet; the second host phase would overwrite the first one's page-locked buffer.
    setup.decode(0, &file(PICTURE, 2), window).unwrap();
    let mut bytes = vec![0; first.bytes()];
    read_back(&setup.stream, &copies, 0, &mut bytes).unwrap();
    assert_eq!(bytes, pattern(&file(PICTURE, 1), window));
    assert_eq!(setup.pixels(0, window).unwrap(), pattern(&file(PICTURE, 2), window));
    drop((copies, setup));
    assert_clean(&machine, "reuse");
}

#[test]
fn a_page_that_is_dropped_lets_its_device_phase_finish() {
    let machine = exclusive();
    let mut setup = setup(1, 1 << 20).unwrap();
    setup.decode(0, &file(PICTURE, 1), PICTURE.window()).unwrap();
    setup.decoders.clear();
    setup.pinned.buffer("nvjpeg", 7200).unwrap().fill(0);
    assert_eq!(
        setup.pixels(0, PICTURE.window()).unwrap(),
        pattern(&file(PICTURE, 1), PICTURE.window())
    );
    drop(setup);
    assert_clean(&machine, "dropped");
}

#[test]
fn memory_that_nvjpeg_gives_back_in_stream_order_is_not_reused_too_early() {
    let machine = exclusive();
    machine.nvjpeg_scratch(true);
    let window = PICTURE.window();
    for seed in 0..8 {
        machine.schedule(Schedule::Random(seed));
        let mut setup = setup(2, 1 << 20).unwrap();
        let mut other = Stream::new(setup.stream.device()).unwrap();
        for round in 0..4u8 {
            // Two pages in two streams.
            for page in 0..2 {
                setup.decode(page, &file(PICTURE, 2 * round + page as u8), window).unwrap();
                std::mem::swap(&mut setup.stream, &mut other);
            }
            for page in 0..2 {
                let expected = pattern(&file(PICTURE, 2 * round + page as u8), window);
                assert_eq!(setup.pixels(page, window).unwrap(), expected, "{seed} {round}");
                std::mem::swap(&mut setup.stream, &mut other);
            }
        }
    }
    assert_clean(&machine, "scratch");
}

#[test]
fn rows_may_be_further_apart_than_they_are_long() {
    let machine = exclusive();
    let mut setup = setup(1, 1 << 20).unwrap();
    let window = Roi::new(4, 5, 10, 3);
    setup.decoders[0].host(&file(PICTURE, 1), window).unwrap();
    setup.decoders[0].device(&setup.stream, &setup.destinations[0], 100, 64).unwrap();
    let mut bytes = vec![0; 4096];
    read_back(&setup.stream, &setup.destinations[0], 0, &mut bytes).unwrap();
    let expected = pattern(&file(PICTURE, 1), window);
    for (y, row) in expected.chunks(30).enumerate() {
        assert_eq!(&bytes[100 + 64 * y..][..30], row);
    }
    drop(setup);
    assert_clean(&machine, "pitch");
}

#[test]
fn old_versions_decode_a_margin_and_the_wanted_pixels_are_right() {
    let machine = exclusive();
    machine.nvjpeg_version(13, 1, 0);
    let mut setup = setup(1, 1 << 20).unwrap();
    assert_eq!(setup.jpeg.margin(), 2);
    let wanted = Roi::new(10, 1, 12, 9);
    let bytes = file(PICTURE, 1);
    let window = setup.decoders[0].host(&bytes, wanted).unwrap();
    assert_eq!((window.wanted, window.decoded), (wanted, Roi::new(8, 0, 16, 12)));
    setup.decoders[0]
        .device(&setup.stream, &setup.destinations[0], 0, window.pitch_bytes())
        .unwrap();
    let pixels = setup.pixels(0, window.decoded).unwrap();
    assert_ne!(
        pixels,
        pattern(&bytes, window.decoded),
        "the simulated library gets the outermost pixels wrong"
    );
    let (x, y) = ((wanted.x - window.decoded.x) as usize, (wanted.y - window.decoded.y) as usize);
    for (row, expected) in pattern(&bytes, wanted).chunks(3 * 12).enumerate() {
        assert_eq!(
            &pixels[(y + row) * window.pitch_bytes() + 3 * x..][..3 * 12],
            expected,
            "row {row}"
        );
    }
    drop(setup);
    machine.nvjpeg_version(13, 2, 0);
    let setup = self::setup(1, 1 << 20).unwrap();
    assert_eq!((setup.jpeg.margin(), setup.jpeg.window(PICTURE, wanted).decoded), (0, wanted));
    drop(setup);
    assert_clean(&machine, "margin");
}

#[test]
fn the_files_faults_are_the_samples() {
    let machine = exclusive();
    let mut setup = setup(1, 1 << 20).unwrap();
    let whole = PICTURE.window();
    let good = file(PICTURE, 1);
    let lossless = {
        let mut it = good.clone();
        it[3] = 0xc3;
        it
    };
    let cases: [(&[u8], Roi, Reason); 6] = [
        (b"", whole, Reason::Corrupt),
        (b"GIF89a......", whole, Reason::Corrupt),
        (&good[..9], whole, Reason::Truncated),
        (&lossless, whole, Reason::Unsupported),
        (&good, Roi::new(30, 0, 11, 5), Reason::Corrupt),
        (&good, Roi::new(5, 5, 0, 5), Reason::Corrupt),
    ];
    for (bytes, wanted, reason) in cases {
        match setup.decode(0, bytes, wanted) {
            Err(DecodeFault::Sample(fault)) => assert_eq!(fault.reason, reason, "{fault}"),
            other => panic!("{reason:?}: {other:?}"),
        }
        // And the next picture is right.
        setup.decode(0, &good, whole).unwrap();
        assert_eq!(setup.pixels(0, whole).unwrap(), pattern(&good, whole));
    }
    drop(setup);
    assert_clean(&machine, "faults");
}

#[test]
fn after_any_failure_the_next_picture_has_no_pixels_of_the_one_before() {
    let machine = exclusive();
    let whole = PICTURE.window();
    let phases = [
        "nvjpegJpegStreamParse",
        "nvjpegDecodeParamsSetROI",
        "nvjpegDecodeJpegHost",
        "nvjpegDecodeJpegTransferToDevice",
        "nvjpegDecodeJpegDevice",
        "cuEventRecord",
    ];
    let mut setup = setup(1, 1 << 20).unwrap();
    for (index, phase) in phases.into_iter().enumerate() {
        let tag = 10 * index as u8;
        setup.decode(0, &file(PICTURE, tag), whole).unwrap();
        machine.fail(phase, 1, LAUNCH_FAILED);
        match setup.decode(0, &file(PICTURE, tag + 1), whole) {
            Err(DecodeFault::Fatal(Error::Device { call, .. })) => assert_eq!(call, phase),
            other => panic!("{phase}: {other:?}"),
        }
        setup.decode(0, &file(PICTURE, tag + 2), whole).unwrap();
        assert_eq!(
            setup.pixels(0, whole).unwrap(),
            pattern(&file(PICTURE, tag + 2), whole),
            "{phase}"
        );
    }
    drop(setup);
    assert_clean(&machine, "recovery");
}

#[test]
fn the_device_phase_needs_its_host_phase_and_room() {
    let machine = exclusive();
    let mut setup = setup(1, 1 << 20).unwrap();
    let result = setup.decoders[0].device(&setup.stream, &setup.destinations[0], 0, 120);
    assert!(matches!(result, Err(DecodeFault::Fatal(Error::Internal { .. }))), "{result:?}");
    for (offset, pitch) in [(0, 119), (4096 - 3600 + 1, 120), (usize::MAX, 120), (0, usize::MAX)] {
        setup.decoders[0].host(&file(PICTURE, 1), PICTURE.window()).unwrap();
        let result = setup.decoders[0].device(&setup.stream, &setup.destinations[0], offset, pitch);
        assert!(
            matches!(result, Err(DecodeFault::Fatal(Error::Internal { .. }))),
            "{offset} {pitch}: {result:?}"
        );
    }
    assert_eq!(machine.calls("nvjpegDecodeJpegDevice"), 0);
}

#[test]
fn nvjpegs_memory_comes_from_its_row_and_from_nowhere_else() {
    let machine = exclusive();
    let mut setup = setup(2, 64 * 1024).unwrap();
    let taken = machine.counts();
    for page in 0..2 {
        setup.decode(page, &file(PICTURE, 1), PICTURE.window()).unwrap();
    }
    let rounded = COEFFICIENT_BYTES.next_multiple_of(256);
    assert_eq!(setup.pinned.row_bytes("nvjpeg"), Some((2 * rounded, 64 * 1024)));
    let small = setup.memory.row_bytes("nvjpeg").unwrap().0;
    // A larger picture makes the buffers grow; the old ones are given back first.
    setup.decode(0, &file(Size::new(80, 60), 1), Roi::new(0, 0, 35, 35)).unwrap();
    assert!(setup.memory.row_bytes("nvjpeg").unwrap().0 >= small);
    let counts = machine.counts();
    assert_eq!(counts.device.peak_bytes, taken.device.bytes, "the driver was asked for more");
    assert_eq!(counts.pinned.peak_bytes, taken.pinned.bytes, "the driver was asked for more");

    // What does not fit is a budget error, and the next picture is decoded.
    match setup.decode(1, &file(Size::new(200, 200), 1), Roi::new(0, 0, 20, 20)) {
        Err(DecodeFault::Fatal(Error::Budget { row, needed, .. })) => {
            assert_eq!((row.as_str(), needed), ("nvjpeg", 6 * 200 * 200));
        }
        other => panic!("{other:?}"),
    }
    setup.decode(1, &file(PICTURE, 7), PICTURE.window()).unwrap();
    assert_eq!(
        setup.pixels(1, PICTURE.window()).unwrap(),
        pattern(&file(PICTURE, 7), PICTURE.window())
    );
    let (memory, pinned) = (setup.memory.clone(), setup.pinned.clone());
    drop(setup);
    assert_eq!((memory.used_bytes(), pinned.used_bytes()), (0, 0));
    drop((memory, pinned));
    assert_clean(&machine, "memory");
}

#[test]
fn buffers_of_a_stated_size_are_taken_at_start_and_do_not_grow() {
    let machine = exclusive();
    let setup = setup(0, 64 * 1024).unwrap();
    let used = || (setup.memory.used_bytes(), setup.pinned.used_bytes());
    let mut decoder = PageDecoder::new(&setup.jpeg, 8192, 16 * 1024).unwrap();
    assert_eq!(used(), (8192, 16 * 1024));
    decoder.host(&file(PICTURE, 1), PICTURE.window()).unwrap();
    let destination = setup.memory.buffer("nvjpeg", 4096).unwrap();
    decoder.device(&setup.stream, &destination, 0, 120).unwrap();
    assert_eq!(used(), (8192 + 4096, 16 * 1024));
    for (device_bytes, pinned_bytes) in [(1 << 20, 0), (0, 1 << 20)] {
        let error = PageDecoder::new(&setup.jpeg, device_bytes, pinned_bytes).unwrap_err();
        assert!(matches!(error, Error::Budget { needed: 1048576, .. }), "{error}");
    }
    drop((decoder, destination, setup));
    assert_clean(&machine, "sizes");
}

#[test]
fn every_call_may_fail_and_nothing_is_left_behind() {
    let machine = exclusive();
    let window = Roi::new(1, 2, 30, 20);
    let path = || -> Result<Vec<u8>, DecodeFault> {
        let mut setup = setup(2, 1 << 20)?;
        setup.decode(0, &file(PICTURE, 1), window)?;
        setup.decode(1, &file(PICTURE, 2), window)?;
        setup.decode(0, &file(Size::new(50, 40), 3), window)?;
        Ok(setup.pixels(0, window)?)
    };
    let expected = pattern(&file(Size::new(50, 40), 3), window);
    assert_eq!(path().unwrap(), expected);
    assert_clean(&machine, "without a failure");
    for nth in 1..=machine.counts().calls {
        machine.schedule(if nth % 2 == 0 { Schedule::Lazy } else { Schedule::Random(nth) });
        machine.fail("", nth, LAUNCH_FAILED);
        match path() {
            Ok(bytes) => assert_eq!(bytes, expected, "call {nth}"),
            Err(DecodeFault::Fatal(Error::Device { .. } | Error::Unavailable { .. })) => {}
            Err(other) => panic!("call {nth}: {other:?}"),
        }
        assert_clean(&machine, "after a failure");
    }
}

#[test]
fn threads_do_the_hosts_phases_and_one_stream_the_devices() {
    let machine = exclusive();
    machine.schedule(Schedule::Random(11));
    let Setup { decoders, destinations, stream, jpeg, memory, pinned } = setup(4, 1 << 20).unwrap();
    let window = Roi::new(3, 2, 30, 20);
    let (ready, launcher) = std::sync::mpsc::channel::<(usize, u8, PageDecoder)>();
    std::thread::scope(|scope| {
        let (free, mut workers): (Vec<_>, Vec<_>) =
            (0..4).map(|_| std::sync::mpsc::channel::<PageDecoder>()).unzip();
        for (page, decoder) in decoders.into_iter().enumerate() {
            free[page].send(decoder).unwrap();
        }
        for (page, pages) in workers.drain(..).enumerate() {
            let ready = ready.clone();
            scope.spawn(move || {
                for (round, mut decoder) in (0..20u8).zip(pages) {
                    decoder.host(&file(PICTURE, 4 * round + page as u8), window).unwrap();
                    ready.send((page, 4 * round + page as u8, decoder)).unwrap();
                }
            });
        }
        drop(ready);
        for (page, tag, mut decoder) in launcher {
            let pitch = decoder.window().unwrap().pitch_bytes();
            decoder.device(&stream, &destinations[page], 0, pitch).unwrap();
            if tag % 3 == 0 {
                let mut bytes = vec![0; 3 * 600];
                read_back(&stream, &destinations[page], 0, &mut bytes).unwrap();
                assert_eq!(bytes, pattern(&file(PICTURE, tag), window), "{page} {tag}");
            }
            // The last round's decoder comes back to nobody.
            let _ = free[page].send(decoder);
        }
    });
    drop((destinations, stream, jpeg, memory, pinned));
    assert_clean(&machine, "threads");
}

#[test]
fn the_tests_decoder_decodes() {
    /// Gives the window's corner in every pixel, and refuses files that end in 0xee.
    unsafe extern "C" fn corner(
        bytes: *const u8,
        count: usize,
        x: i32,
        y: i32,
        w: i32,
        h: i32,
        rgb: *mut u8,
    ) -> i32 {
        // SAFETY: nvjpeg.cpp passes that many bytes, and room for that many pixels.
        let (bytes, rgb) = unsafe {
            (
                std::slice::from_raw_parts(bytes, count),
                std::slice::from_raw_parts_mut(rgb, (3 * w * h) as usize),
            )
        };
        rgb.chunks_mut(3).for_each(|pixel| pixel.copy_from_slice(&[x as u8, y as u8, 9]));
        if bytes.last() == Some(&0xee) { 3 } else { 0 }
    }
    let machine = exclusive();
    machine.set_decoder(Some(corner));
    let mut setup = setup(1, 1 << 20).unwrap();
    setup.decode(0, &file(PICTURE, 1), Roi::new(5, 6, 2, 1)).unwrap();
    assert_eq!(setup.pixels(0, Roi::new(5, 6, 2, 1)).unwrap(), [5, 6, 9, 5, 6, 9]);
    let refused = setup.decode(0, &file(PICTURE, 0xee), Roi::new(5, 6, 2, 1));
    assert!(matches!(refused, Err(DecodeFault::Sample(fault)) if fault.reason == Reason::Corrupt));
}
