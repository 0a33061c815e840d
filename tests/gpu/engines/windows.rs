//! Tests the check that decides whether the engines decode windows or whole images.

use std::ffi::OsString;

use super::*;

/// The engines decode whole images, unless a separate process has checked that they decode windows
/// correctly.
#[test]
fn windows_are_given_to_the_engines_only_after_a_check() {
    let Some(machine) = exclusive() else { return };
    let wanted = Roi::new(9, 5, 20, 15);
    let script = |text: &str| ["sh", "-c", text].map(OsString::from).to_vec();
    let begun = "echo windows: begun; ";
    let equal = "echo windows: equal";
    let checks = [
        (script(&format!("{begun}{equal}")), Some(true)),
        (script(&format!("{begun}echo windows: different")), Some(false)),
        // The check prints "begun" before the engines receive a window. Only a crash after this
        // line shows that they do not decode windows.
        (script(&format!("{begun}kill -SEGV $$")), Some(false)),
        (script(&format!("{begun}kill -ABRT $$")), Some(false)),
        (script("kill -SEGV $$"), None),
        // These checks prove nothing about windows: they are interrupted, are killed, fail, or
        // print no result.
        (script(&format!("{begun}kill -INT $$")), None),
        (script(&format!("{begun}kill -KILL $$")), None),
        (script(&format!("{begun}{equal}; exit 1")), None),
        (script(begun), None),
        (script("exit 2"), None),
        // The result is valid even if a child process keeps standard output open, or if the check
        // prints a lot.
        (script(&format!("sleep 600 & {begun}{equal}")), Some(true)),
        (script(&format!("{begun}{equal}; head -c 1000000 /dev/zero")), Some(true)),
        (vec!["/there/is/no/such/program".into()], None),
        (Vec::new(), None),
    ];
    for (program, expected) in checks {
        machine.restart();
        nvjpeg::set_checking_program(program.clone());
        // The cache directory is empty, because a cached result would replace the check.
        let folder = tempfile::tempdir().unwrap();
        let runtime = simulated::runtime().with_cache_directory(folder.path());
        let device = Device::open_with(0, &runtime).unwrap();
        assert_eq!(nvjpeg::window_verdict(&device, false).unwrap(), expected, "{program:?}");
        let mut setup = setup_on(&device, CAPACITY, 1 << 20).unwrap();
        assert_eq!(setup.jpeg.decodes_windows(), expected == Some(true), "{program:?}");
        let files: Vec<_> = (0..4).map(|tag| file(IMAGE, tag)).collect();
        setup.decode(&files, wanted).unwrap();
        let decoded = setup.jpeg.window(IMAGE, wanted).decoded;
        assert_eq!(decoded, if expected == Some(true) { wanted } else { IMAGE.window() });
        for (page, bytes) in files.iter().enumerate() {
            let pixels = cut(&setup.pixels(page, decoded).unwrap(), decoded, wanted);
            assert_eq!(pixels, pattern(bytes, wanted), "{program:?}");
        }
        let roi = machine.calls("nvjpegDecodeParamsSetROI");
        assert_eq!(machine.windows(), if expected == Some(true) { 4 } else { 0 }, "{roi} calls");
        drop((setup, device));
        assert_clean(&machine, "windows");
    }
    nvjpeg::set_checking_program(simulated::checking_program());
}

/// The result of the check is cached for each combination of driver, library and GPU. With the same
/// combination, the check does not run again.
#[test]
fn the_verdict_on_windows_is_kept() {
    let Some(machine) = exclusive() else { return };
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let text = format!(
        "echo windows: begun; echo $FEEDWATER_CHECKING_WINDOWS $FEEDWATER_LIBNVJPEG >> {}; echo windows: equal",
        log.display()
    );
    nvjpeg::set_checking_program(["sh", "-c", &text].map(OsString::from));
    let runtime = simulated::runtime().with_cache_directory(folder.path().join("cache"));
    let runs = || std::fs::read_to_string(&log).unwrap_or_default().lines().count();
    let verdict = |again| {
        let device = Device::open_with(0, &runtime).unwrap();
        nvjpeg::window_verdict(&device, again).unwrap()
    };
    assert_eq!((verdict(false), runs()), (Some(true), 1));
    assert_eq!((verdict(false), runs()), (Some(true), 1), "cached in the process");
    machine.restart();
    assert_eq!((verdict(false), runs()), (Some(true), 1), "cached on the machine");
    assert_eq!((verdict(true), runs()), (Some(true), 2));
    machine.nvjpeg_version(13, 2, 0);
    assert_eq!((verdict(false), runs()), (Some(true), 3), "another library");
    // Environment variables tell the program that it runs as a check, and which library it checks.
    let text = std::fs::read_to_string(&log).unwrap();
    let known = |line: &str| line.starts_with("1 /") && line.ends_with("libnvjpeg.so");
    assert!(text.lines().all(known), "{text}");
    nvjpeg::set_checking_program(simulated::checking_program());
}

/// Runs the real check, first with engines that decode windows correctly, then with engines whose
/// windows are shifted.
#[test]
fn the_check_of_windows_compares_pixels() {
    let Some(machine) = exclusive() else { return };
    for version in [(13, 0, 1), (13, 3, 2)] {
        for shift in [false, true] {
            machine.restart();
            machine.nvjpeg_version(version.0, version.1, version.2);
            machine.set_decoder(Some(if shift { shifted } else { simulated::images::libjpeg }));
            let device = Device::open(0).unwrap();
            let mut said = Vec::new();
            nvjpeg::check_windows(&device, |line| said.push(line.to_string())).unwrap();
            let end = if shift { "windows: different" } else { "windows: equal" };
            assert_eq!(said, ["windows: begun", end]);
            drop(device);
            assert_clean(&machine, "check");
        }
    }
}

/// A decoder whose windows are one row too low.
fn shifted(file: &[u8], window: simulated::Window, rgb: &mut [u8]) -> i32 {
    let is_part = window.y > 0 && window.height < 100;
    let y = if is_part { window.y - 1 } else { window.y };
    simulated::images::libjpeg(file, simulated::Window { y, ..window }, rgb)
}
