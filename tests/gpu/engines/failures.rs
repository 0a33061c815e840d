//! Failing files and failing calls of nvJPEG's batched decoder.

use super::*;

#[test]
fn an_image_refused_by_the_engines_fails_the_batch_and_is_an_error_of_one_sample() {
    let Some(machine) = exclusive() else { return };
    let mut setup = setup(CAPACITY, 1 << 20).unwrap();
    let large = Size::new(16001, 1);
    let cases: [(&str, Vec<u8>, Size, Reason); 8] = [
        ("no JPEG", b"GIF89a......".to_vec(), IMAGE, Reason::Corrupt),
        ("cut off", file(IMAGE, 1)[..9].to_vec(), IMAGE, Reason::Truncated),
        ("progressive", file_with(IMAGE, 0xc2, &[0x22, 0x11, 0x11], 1), IMAGE, Reason::Unsupported),
        ("4:1:1", file_with(IMAGE, 0xc0, &[0x41, 0x11, 0x11], 1), IMAGE, Reason::Unsupported),
        ("4:1:0", file_with(IMAGE, 0xc0, &[0x42, 0x11, 0x11], 1), IMAGE, Reason::Unsupported),
        ("CMYK", file_with(IMAGE, 0xc0, &[0x11; 4], 1), IMAGE, Reason::Unsupported),
        ("lossless", file_with(IMAGE, 0xc3, &[0x11], 1), IMAGE, Reason::Unsupported),
        ("too wide", file(large, 1), large, Reason::Unsupported),
    ];
    for (what, bytes, image, reason) in cases {
        setup.pages[0].read(&file(IMAGE, 1));
        setup.pages[1].read(&bytes);
        let one = Roi::new(0, 0, 1, 1);
        let jobs = [0, 1].map(|it| setup.pages[it].job(one).unwrap());
        let [good, bad] = jobs;
        let jobs = [good, BatchJob { image, ..bad }];
        match setup.decoder.decode(&setup.stream, &jobs) {
            Err(DecodeError::Sample(fault)) => assert_eq!(fault.reason, reason, "{what}: {fault}"),
            other => panic!("{what}: {other:?}"),
        }
        setup.assert_usable(what);
    }
    for sampling in [&[0x11][..], &[0x11; 3], &[0x21, 0x11, 0x11], &[0x12, 0x11, 0x11]] {
        let bytes = file_with(IMAGE, 0xc1, sampling, 1);
        setup.decode(std::slice::from_ref(&bytes), IMAGE.window()).unwrap();
        let pixels = setup.pixels(0, IMAGE.window()).unwrap();
        assert_eq!(pixels, pattern(&bytes, IMAGE.window()), "{sampling:x?}");
    }
    drop(setup);
    assert_clean(&machine, "refused");
}

#[test]
fn after_any_failure_the_next_batch_has_no_pixels_of_the_one_before() {
    let Some(machine) = exclusive() else { return };
    let files = |tag: u8| (0..3).map(|it| file(IMAGE, tag + it)).collect::<Vec<_>>();
    for hopper in [true, false] {
        machine.hopper(hopper);
        let mut setup = setup(CAPACITY, 1 << 20).unwrap();
        for phase in [
            "nvjpegDecodeBatchedInitialize",
            "nvjpegDecodeParamsSetROI",
            "nvjpegDecodeParamsSetScaleFactor",
            "nvjpegDecodeBatchedEx",
            "cuEventRecord",
        ] {
            setup.decode(&files(1)[..2], IMAGE.window()).unwrap();
            machine.fail(phase, 1, LAUNCH_FAILED);
            match setup.decode(&files(10), IMAGE.window()) {
                // If a call fails, nvJPEG may report one of the call's files as the cause.
                Err(DecodeError::Failed(_, Error::Device { call, .. })) => {
                    assert!(phase.starts_with("nvjpegDecodeBatched") && call == phase, "{call}");
                }
                Err(DecodeError::Fatal(Error::Device { call, .. })) => assert_eq!(call, phase),
                other => panic!("{phase}: {other:?}"),
            }
            setup.assert_usable(phase);
        }
        drop(setup);
        assert_clean(&machine, "recovery");
    }
}

#[test]
fn wrong_arguments_are_errors_before_nvjpeg_is_called() {
    let Some(machine) = exclusive() else { return };
    let mut setup = setup(CAPACITY + 1, 1 << 20).unwrap();
    setup.pages.iter_mut().for_each(|page| page.read(&file(IMAGE, 1)));
    let small = setup.memory.buffer("copies", ROWS_BYTES - 1).unwrap();
    let ordinary = file(IMAGE, 1);
    let unused = Event::new(setup.stream.device()).unwrap();
    let whole = IMAGE.window();
    let job = || setup.pages[0].job(whole).unwrap();
    let too_many: Vec<_> = setup.pages.iter().map(|page| page.job(whole).unwrap()).collect();
    let cases: [(Vec<BatchJob<'_>>, &[&str]); 9] = [
        (too_many, &["5", "4"]),
        (vec![BatchJob { bytes: &ordinary, ..job() }], &["22", "page-locked"]),
        (vec![BatchJob { bytes: &[], ..job() }], &["0", "page-locked"]),
        (vec![BatchJob { wanted: Roi::new(1, 0, 40, 1), ..job() }], &["40x1+1+0", "40x30"]),
        (vec![BatchJob { wanted: Roi::new(1, 1, 0, 1), ..job() }], &["0x1+1+1", "40x30"]),
        (vec![BatchJob { reduction: 2, ..job() }], &["40x30+0+0", "20x15"]),
        (vec![BatchJob { reduction: 3, ..job() }], &["3", "1, 2, 4 and 8"]),
        (vec![BatchJob { reduction: 0, ..job() }], &["0", "1, 2, 4 and 8"]),
        (
            vec![
                job(),
                BatchJob { destination: HostIdle::wait(&small, &unused).unwrap(), ..job() },
            ],
            &["4320", "4319"],
        ),
    ];
    for (jobs, values) in cases {
        match setup.decoder.decode(&setup.stream, &jobs) {
            Err(DecodeError::Fatal(Error::Internal { problem })) => {
                assert!(values.iter().all(|value| problem.contains(value)), "{problem}");
            }
            other => panic!("{values:?}: {other:?}"),
        }
    }
    assert_eq!(machine.calls("nvjpegDecodeBatchedEx"), 0);
    let refused = |jpeg, capacity, largest| match BatchDecoder::new(jpeg, capacity, largest) {
        Err(Error::Internal { problem }) => problem,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("{capacity} images of {largest} were accepted"),
    };
    for (capacity, largest, value) in
        [(0, IMAGE, "0"), (1, Size::new(0, 1), "0x1"), (1, Size::new(1, 65536), "1x65536")]
    {
        let problem = refused(&setup.jpeg, capacity, largest);
        assert!(problem.contains(value), "{problem}");
    }
    let source = nvjpeg::Memory {
        device: setup.memory.clone(),
        pinned: setup.pinned.clone(),
        row: "nvjpeg".into(),
    };
    let host = Jpeg::open(setup.stream.device(), Backend::Hybrid, &source).unwrap();
    let problem = refused(&host, 1, IMAGE);
    assert!(problem.contains("nvjpeg-hybrid"), "{problem}");
    drop((source, host, small, unused, setup));
    assert_clean(&machine, "callers");
}

/// The JPEG engines decode the entropy-coded data on the device, and may report success for a
/// broken file. Then the decode succeeds, with whatever pixels the engines wrote.
#[test]
fn engines_may_not_report_a_broken_file() {
    let Some(machine) = exclusive() else { return };
    let mut setup = setup(1, 1 << 20).unwrap();
    machine.set_decoder(Some(|_, _, _| 3));
    let refused = setup.decode(&[file(IMAGE, 1)], IMAGE.window());
    assert!(matches!(refused, Err(DecodeError::Sample(fault)) if fault.reason == Reason::Corrupt));
    machine.lenient(true);
    setup.decode(&[file(IMAGE, 1)], IMAGE.window()).unwrap();
    assert_eq!(setup.pixels(0, Roi::new(0, 0, 2, 1)).unwrap(), [0xee; 6]);
}

#[test]
fn every_call_may_fail_and_nothing_leaks() {
    let Some(machine) = exclusive() else { return };
    let window = Roi::new(1, 2, 30, 20);
    for hopper in [true, false] {
        machine.restart();
        machine.hopper(hopper);
        let path = || -> Result<Vec<u8>, DecodeError> {
            let mut setup = setup(CAPACITY, 1 << 20)?;
            setup.decode(&[file(IMAGE, 1), file(IMAGE, 2)], window)?;
            setup.decode(&[file(IMAGE, 3), file(IMAGE, 4), file(IMAGE, 5)], window)?;
            Ok(setup.pixels(2, window)?)
        };
        let expected = pattern(&file(IMAGE, 5), window);
        assert_eq!(path().unwrap(), expected);
        assert_clean(&machine, "without a failure");
        let (calls, mut failed) = (machine.counts().calls, 0);
        for nth in 1..=calls {
            machine.schedule(if nth % 2 == 0 { Schedule::Lazy } else { Schedule::Random(nth) });
            machine.fail("", nth, LAUNCH_FAILED);
            match path() {
                Ok(bytes) => assert_eq!(bytes, expected, "call {nth}"),
                Err(DecodeError::Failed(_, Error::Device { call, .. })) => {
                    assert!(call.starts_with("nvjpegDecodeBatched"), "{call}");
                    failed += 1;
                }
                Err(DecodeError::Fatal(Error::Device { .. } | Error::Unavailable { .. })) => {
                    failed += 1;
                }
                Err(other) => panic!("call {nth}: {other:?}"),
            }
            assert_clean(&machine, "after a failure");
        }
        assert!(failed > 20, "{failed} of {calls} calls");
    }
}

/// nvJPEG may skip an image and report success. The destination then keeps its previous pixels, so
/// the decoder must find out by itself which images were written.
#[test]
fn skipped_images_are_noticed() {
    let Some(machine) = exclusive() else { return };
    let files: Vec<_> = (1..4).map(|tag| file(IMAGE, tag)).collect();
    for (hopper, schedule) in
        [(true, Schedule::Lazy), (false, Schedule::Lazy), (false, Schedule::Eager)]
    {
        machine.restart();
        machine.hopper(hopper);
        machine.schedule(schedule);
        machine.skipping(2);
        let mut setup = setup(CAPACITY, 1 << 20).unwrap();
        let mut expected = [true, false, true];
        // These windows are so narrow that a row has fewer bytes than a stamp, the mark that the
        // decoder puts into a destination to detect skipped images.
        for window in [IMAGE.window(), Roi::new(7, 5, 1, 1), Roi::new(3, 0, 2, 30)] {
            setup.decode(&files, window).unwrap();
            assert_eq!(setup.decoder.written().unwrap(), expected, "{window}");
            for (page, bytes) in files.iter().enumerate().filter(|it| expected[it.0]) {
                assert_eq!(setup.pixels(page, window).unwrap(), pattern(bytes, window), "{window}");
            }
            expected = expected.map(|it| !it);
        }
        machine.skipping(0);
        setup.decode(&files, IMAGE.window()).unwrap();
        assert_eq!(setup.decoder.written().unwrap(), [true; 3]);
        drop(setup);
        assert_clean(&machine, "skipped");
    }
}
