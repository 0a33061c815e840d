//! Failing files, failing calls and lost devices, with nvJPEG's decoders for single images.

use super::*;

#[test]
fn errors_of_a_file_are_errors_of_its_sample() {
    let Some(machine) = exclusive() else { return };
    let whole = IMAGE.window();
    let good = file(IMAGE, 1);
    let lossless = file_with(IMAGE, 0xc3, &[0x11], 1);
    let progressive = file_with(IMAGE, 0xc2, &[0x22, 0x11, 0x11], 1);
    for backend in BACKENDS {
        let mut setup = setup(backend, 1, 1 << 20).unwrap();
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
                Err(DecodeError::Sample(fault)) => assert_eq!(fault.reason, reason, "{fault}"),
                other => panic!("{reason:?}: {other:?}"),
            }
            // The next image is correct.
            setup.decode(0, &good, whole).unwrap();
            assert_eq!(setup.pixels(0, whole).unwrap(), pattern(&good, whole));
        }
        let decoded = setup.decode(0, &progressive, whole).map(|_| ());
        match (backend, decoded) {
            (Backend::Hybrid, Ok(())) => {}
            (Backend::GpuHybrid, Err(DecodeError::Sample(fault))) => {
                assert_eq!(fault.reason, Reason::Unsupported);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_clean(&machine, "faults");
}

#[test]
fn after_any_failure_the_next_image_has_no_pixels_of_the_one_before() {
    let Some(machine) = exclusive() else { return };
    let whole = IMAGE.window();
    let phases = [
        "nvjpegJpegStreamParse",
        "nvjpegJpegStreamGetFrameDimensions",
        "nvjpegDecodeParamsSetROI",
        "nvjpegDecodeJpegHost",
        "nvjpegDecodeJpegTransferToDevice",
        "nvjpegDecodeJpegDevice",
        "cuEventRecord",
    ];
    for backend in BACKENDS {
        let mut setup = setup(backend, 1, 1 << 20).unwrap();
        for (index, phase) in phases.into_iter().enumerate() {
            let tag = 10 * index as u8;
            setup.decode(0, &file(IMAGE, tag), whole).unwrap();
            machine.fail(phase, 1, LAUNCH_FAILED);
            match setup.decode(0, &file(IMAGE, tag + 1), whole) {
                // A call that decodes may fail because of the file, with any status of nvJPEG.
                // Failures of other calls end the run.
                Err(DecodeError::Failed(why, Error::Device { call, problem }))
                    if of_the_file(phase) =>
                {
                    assert_eq!(call, phase);
                    // 6 is NVJPEG_STATUS_EXECUTION_FAILED.
                    assert!(why.contains("nvJPEG") && problem.contains('6'), "{why}: {problem}");
                }
                Err(DecodeError::Fatal(Error::Device { call, .. })) if !of_the_file(phase) => {
                    assert_eq!(call, phase);
                }
                other => panic!("{phase}: {other:?}"),
            }
            setup.decode(0, &file(IMAGE, tag + 2), whole).unwrap();
            let expected = pattern(&file(IMAGE, tag + 2), whole);
            assert_eq!(setup.pixels(0, whole).unwrap(), expected, "{backend:?} {phase}");
        }
        drop(setup);
        assert_clean(&machine, "recovery");
    }
}

/// Probing a backend may fail for lack of memory, and succeed when the next loader is built. So a
/// failed probe is repeated. A missing engine is remembered.
#[test]
fn a_failed_probe_is_repeated_and_a_missing_engine_is_remembered() {
    let Some(machine) = exclusive() else { return };
    let device = Device::open_with(0, &runtime()).unwrap();
    let probes = || machine.calls("nvjpegCreateEx");
    let found = || nvjpeg::known_backends(&device).unwrap().into_iter().map(|it| it.1.is_ok());
    machine.fail("nvjpegCreateEx", 2, LAUNCH_FAILED);
    assert!(found().eq([true, false, true]));
    assert!(found().eq([true; 3]));
    let before = probes();
    assert!(found().eq([true; 3]));
    assert_eq!(probes(), before);
    machine.hardware_engines(0);
    assert!(found().eq([false, true, true]));
    let before = probes();
    assert!(found().eq([false, true, true]));
    assert_eq!(probes(), before);
    drop(device);
    assert_clean(&machine, "probes");
}

/// Whether a call of nvJPEG may fail because of a bad file.
fn of_the_file(call: &str) -> bool {
    call.starts_with("nvjpegDecodeJpeg") || call.starts_with("nvjpegJpegStream")
}

/// nvJPEG returns the same status if it fails and if the device is lost. The driver's status tells
/// which one happened.
#[test]
fn a_device_lost_while_an_image_fails_is_the_error() {
    let Some(machine) = exclusive() else { return };
    for backend in BACKENDS {
        let mut setup = setup(backend, 1, 1 << 20).unwrap();
        machine.fail("nvjpegDecodeJpegDevice", 1, LAUNCH_FAILED);
        machine.lose_device(LAUNCH_FAILED);
        match setup.decode(0, &file(IMAGE, 1), IMAGE.window()) {
            Err(DecodeError::Fatal(Error::Device { .. })) => {}
            other => panic!("{backend:?}: {other:?}"),
        }
        machine.restart();
    }
}

/// Creating a decode state is slow. A file that cannot be parsed does not change the state, so the
/// state is reused.
#[test]
fn only_a_failed_state_is_recreated() {
    let Some(machine) = exclusive() else { return };
    let mut setup = setup(Backend::Hybrid, 1, 1 << 20).unwrap();
    let states = || machine.calls("nvjpegDecoderStateCreate");
    let whole = IMAGE.window();
    assert_eq!(states(), 1);
    setup.decode(0, b"GIF89a......", whole).unwrap_err();
    setup.decode(0, &file(IMAGE, 1), whole).unwrap();
    assert_eq!(states(), 1);
    machine.fail("nvjpegDecodeJpegHost", 1, LAUNCH_FAILED);
    setup.decode(0, &file(IMAGE, 1), whole).unwrap_err();
    setup.decode(0, &file(IMAGE, 1), whole).unwrap();
    assert_eq!(states(), 2);
}

#[test]
fn every_call_may_fail_and_nothing_leaks() {
    let Some(machine) = exclusive() else { return };
    let window = Roi::new(1, 2, 30, 20);
    for backend in BACKENDS {
        machine.restart();
        let path = || -> Result<Vec<u8>, DecodeError> {
            let mut setup = setup(backend, 2, 1 << 20)?;
            setup.decode(0, &file(IMAGE, 1), window)?;
            setup.decode(1, &file(IMAGE, 2), window)?;
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
                Err(DecodeError::Fatal(Error::Device { .. } | Error::Unavailable { .. })) => {}
                Err(DecodeError::Failed(_, Error::Device { call, .. })) => {
                    assert!(of_the_file(call), "{call}");
                }
                Err(other) => panic!("call {nth}: {other:?}"),
            }
            assert_clean(&machine, "after a failure");
        }
    }
}
