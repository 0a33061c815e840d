//! Tests of the GPU checks of the self-test, on a simulated machine. Its nvJPEG decodes exactly
//! like libjpeg-turbo, slightly differently, or wrongly. The checks must pass in the first two
//! cases, and fail in the third.

use crate::common::{some_of, tests_all_cases};
use crate::simulated;
use crate::simulated::images::libjpeg;
use crate::simulated::{Decode, Schedule, Simulated, Window};
use crate::words::has_words;
use feedwater::internals::gpu::nvjpeg::Backend;
use feedwater::internals::header::Header;
use feedwater::plan::Route;
use feedwater_cli::selftest::gpu::Gpu;
use feedwater_cli::selftest::{Check, Outcome, decode, files, hazard, on_gpu};

const BAD_JPEG: i32 = 3;
const NOT_SUPPORTED: i32 = 4;

/// Changes a byte by `levels`: increases it if it is below 128, and decreases it otherwise.
fn stray(byte: &mut u8, levels: u8) {
    *byte = if *byte < 128 { *byte + levels } else { *byte - levels };
}

fn four_levels_here_and_there(file: &[u8], window: Window, rgb: &mut [u8]) -> i32 {
    let status = libjpeg(file, window, rgb);
    rgb.iter_mut().step_by(9).for_each(|it| stray(it, 4));
    status
}

fn five_levels_once(file: &[u8], window: Window, rgb: &mut [u8]) -> i32 {
    let status = libjpeg(file, window, rgb);
    stray(&mut rgb[0], 5);
    status
}

fn a_level_everywhere(file: &[u8], window: Window, rgb: &mut [u8]) -> i32 {
    let status = libjpeg(file, window, rgb);
    rgb.iter_mut().for_each(|it| stray(it, 1));
    status
}

fn a_column_off(file: &[u8], window: Window, rgb: &mut [u8]) -> i32 {
    libjpeg(file, Window { x: window.x.saturating_sub(1), ..window }, rgb)
}

fn rolled_by_a_pixel(file: &[u8], window: Window, rgb: &mut [u8]) -> i32 {
    let status = libjpeg(file, window, rgb);
    rgb.rotate_right(3);
    status
}

/// Decodes as libjpeg-turbo does, but downscales by averaging pixels.
fn means(file: &[u8], window: Window, rgb: &mut [u8]) -> i32 {
    if window.reduction == 1 {
        return libjpeg(file, window, rgb);
    }
    let Ok(Header { size, .. }) = Header::parse(file) else { return BAD_JPEG };
    let whole = Window { reduction: 1, x: 0, y: 0, width: size.width, height: size.height };
    let [columns, rows] = [size.width as usize, size.height as usize];
    let mut pixels = vec![0; 3 * columns * rows];
    let status = libjpeg(file, whole, &mut pixels);
    let by = window.reduction as usize;
    let [left, top, width] = [window.x, window.y, window.width].map(|it| it as usize);
    for (place, byte) in rgb.iter_mut().enumerate() {
        let (pixel, channel) = (place / 3, place % 3);
        let (x, y) = (left + pixel % width, top + pixel / width);
        let all = (y * by..rows.min((y + 1) * by))
            .flat_map(|y| (x * by..columns.min((x + 1) * by)).map(move |x| (x, y)))
            .map(|(x, y)| usize::from(pixels[3 * (y * columns + x) + channel]));
        let (sum, count) = all.fold((0, 0), |(sum, count), value| (sum + value, count + 1));
        *byte = ((sum + count / 2) / count) as u8;
    }
    status
}

fn unable(_: &[u8], _: Window, _: &mut [u8]) -> i32 {
    NOT_SUPPORTED
}

fn machine(schedule: Schedule) -> Option<Simulated> {
    let machine = simulated::exclusive()?;
    machine.schedule(schedule);
    machine.set_decoder(Some(libjpeg));
    Some(machine)
}

fn found() -> Gpu {
    Gpu::find(&simulated::runtime()).map_err(|(name, why)| format!("{name}: {why}")).unwrap()
}

fn decoding(gpu: &Gpu) -> Vec<Check> {
    decode::checks(gpu).flatten().collect()
}

fn is_of(check: &Check, route: &str) -> bool {
    check.name.contains(&format!("/route={route}/"))
}

/// Whether the images of a check are decoded by the CPU because the route does not support them.
/// Their pixels are then exact.
fn is_left_to_cpu(name: &str) -> bool {
    let of_cpu = |route| name.ends_with(&format!("/route={route}/progressive"));
    name.contains("=cpu/") || ["nvjpeg-hardware", "nvjpeg-gpu"].iter().any(of_cpu)
}

/// Returns the integers in a text.
fn numbers(text: &str) -> Vec<u64> {
    text.split(|it: char| !it.is_ascii_digit()).filter_map(|it| it.parse().ok()).collect()
}

fn detail<'a>(checks: &'a [Check], name: &str) -> &'a str {
    let check = checks.iter().find(|check| check.name == name);
    &check.unwrap_or_else(|| panic!("{name} is missing")).detail
}

#[test]
fn every_check_passes_on_a_machine_that_decodes_as_the_cpu_does() {
    let Some(machine) = machine(Schedule::Lazy) else { return };
    let mut checks = Vec::new();
    let told = on_gpu::checks(
        &Ok(found()),
        true,
        |_| true,
        true,
        // The tests of `selftest_gpu` compare the kernels of all operators.
        &["resize".into()],
        |some| {
            checks.extend(some);
            Ok(())
        },
    );
    assert!(told.is_ok());
    for Check { name, result, detail } in &checks {
        println!("{result:?} {name}: {detail}");
    }
    for Check { name, result, detail } in &checks {
        assert_eq!(*result, Outcome::Pass, "{name}: {detail}");
    }
    for route in ["nvjpeg-hardware", "nvjpeg-gpu", "nvjpeg-hybrid", "cpu"] {
        let sorts = ["4:4:4", "4:2:2", "4:2:0", "4:4:0", "gray"];
        let sorts = sorts.map(|sort| format!("sampling={sort}")).into_iter();
        for sort in sorts.chain(["progressive".into(), "restart-markers".into()]) {
            let name = format!("gpu/decode/route={route}/{sort}");
            let words = detail(&checks, &name);
            // The message contains the largest and the mean difference.
            assert!(has_words(words, &["0", "0.000"]), "{route} {sort}: {words}");
            // The message contains a tolerance only if nvJPEG has decoded the images.
            let tolerance = [decode::BOUND.most.to_string(), decode::BOUND.mean.to_string()];
            let is_tolerant = has_words(words, &tolerance.each_ref().map(String::as_str));
            assert_eq!(is_tolerant, !is_left_to_cpu(&name), "{route} {sort}: {words}");
        }
        for sort in ["odd", "damaged"] {
            detail(&checks, &format!("gpu/files/route={route}/{sort}"));
        }
    }
    for route in ["nvjpeg-hardware", "cpu"] {
        let words = detail(&checks, &format!("gpu/decode/route={route}/prescale"));
        assert!(has_words(words, &["0", "0.000"]), "{words}");
    }
    for policy in ["skip", "substitute", "stop"] {
        detail(&checks, &format!("gpu/policy/{policy}"));
    }
    for name in ["ring", "held-batch", "leaked-batch", "two-at-once", "footprint", "200-epochs"] {
        detail(&checks, &format!("gpu/{name}"));
    }
    let words = detail(&checks, "gpu/operator/resize");
    // The message contains the number of all cases, and the number of cases whose kernel uses
    // tiles.
    let cases = numbers(words);
    assert!(cases.len() >= 2 && cases.iter().all(|it| *it > 0), "{words}");
    // The message contains "20 of 20": in each of the 20 rounds, the engines wrote their pixels
    // before the earlier work in their stream had ended.
    let words = detail(&checks, "gpu/hazard/by-hand");
    assert_eq!(numbers(words)[..2], [20, 20], "{words}");
    // The message contains the number of compared batches.
    let words = detail(&checks, "gpu/hazard/loader");
    assert!(has_words(words, &["24"]), "{words}");
    drop(machine);
}

/// If the engines write in the order of their stream, the self-test reports this. A machine without
/// engines is no failure.
#[test]
fn the_engines_behaviour_is_reported_and_their_absence_is_no_failure() {
    let Some(machine) = machine(Schedule::Random(3)) else { return };
    machine.hopper(false);
    let checks = hazard::checks(&found());
    assert!(checks.iter().all(|check| check.result == Outcome::Pass));
    let words = detail(&checks, "gpu/hazard/by-hand");
    assert_eq!(numbers(words)[..2], [0, 20], "{words}");

    machine.hardware_engines(0);
    let gpu = found();
    for check in hazard::checks(&gpu).iter().chain(&decoding(&gpu)) {
        let of_engines = ["hazard", "engines"].iter().any(|group| check.name.contains(group));
        let skipped = of_engines || is_of(check, "nvjpeg-hardware");
        let expected = if skipped { Outcome::Skip } else { Outcome::Pass };
        assert_eq!(check.result, expected, "{}: {}", check.name, check.detail);
        assert!(!skipped || has_words(&check.detail, &["libnvcuvid.so.1"]), "{}", check.detail);
    }
}

/// The decoder must detect every image that a call of the engines skips. Otherwise the check fails.
#[test]
fn skipped_images_are_counted_by_their_pages() {
    let Some(machine) = machine(Schedule::Random(4)) else { return };
    let skipped = |every: u32| {
        machine.skipping(every);
        let checks = hazard::checks(&found());
        let found = checks.into_iter().find(|check| check.name == "gpu/hazard/skipped").unwrap();
        assert_eq!(found.result, Outcome::Pass, "{every}: {}", found.detail);
        let numbers = numbers(&found.detail);
        // The tested numbers of images per call are 2, 7, 14 and 28.
        let [per_call, counts] = [2, 0].map(|at| numbers[at..].iter().step_by(3).copied());
        assert_eq!(per_call.collect::<Vec<_>>(), [2, 7, 14, 28], "{}", found.detail);
        counts.collect::<Vec<_>>()
    };
    if tests_all_cases() {
        assert_eq!(skipped(0), [0; 4]);
    }
    let found = skipped(3);
    // The simulated engines skip every third image. For each number of images per call there are 12
    // calls, so 8, 28, 56 or 112 images are skipped, plus or minus one.
    let expected = [8, 28, 56, 112];
    assert!(found.iter().zip(expected).all(|(is, want)| is.abs_diff(want) <= 1), "{found:?}");
}

/// If one route decodes wrongly, only the checks of this route must fail.
#[test]
fn only_the_wrong_route_fails() {
    let Some(machine) = machine(Schedule::Random(5)) else { return };
    for backend in some_of(Backend::ALL, 0) {
        machine.stray(backend, 9);
        let gpu = found();
        let alone = files::on_gpu(&gpu).flatten().filter(|it| it.name.contains("/route="));
        for check in decoding(&gpu).into_iter().chain(alone) {
            // Images that the CPU decodes because the route does not support them are correct.
            let strays = is_of(&check, backend.name()) && !is_left_to_cpu(&check.name);
            let expected = if strays { Outcome::Fail } else { Outcome::Pass };
            assert_eq!(check.result, expected, "{}: {}", check.name, check.detail);
        }
        machine.stray(backend, 0);
    }
}

/// This simulated nvJPEG accepts damaged files without an error. So the loader must detect every
/// damaged file before it calls nvJPEG.
#[test]
fn damaged_files_are_errors_even_if_nvjpeg_accepts_everything() {
    let Some(machine) = machine(Schedule::Random(6)) else { return };
    machine.lenient(true);
    let checks: Vec<_> = files::on_gpu(&found()).flatten().collect();
    assert_eq!(checks.len(), 2 * Route::ALL.len() + 3);
    for Check { name, result, detail } in checks {
        assert_eq!(result, Outcome::Pass, "{name}: {detail}");
    }
}

#[test]
fn differences_within_the_tolerance_pass_and_larger_ones_fail() {
    let Some(machine) = machine(Schedule::Random(3)) else { return };
    // For each decoder: the expected outcome, values in the message (largest and mean difference
    // with their bounds, or the window), and a range for the mean difference.
    let decoders: [(Decode, Outcome, &[&str], _); 6] = [
        (libjpeg, Outcome::Pass, &["0", "4", "0.000", "0.5"], None),
        (four_levels_here_and_there, Outcome::Pass, &["4", "0.5"], Some(0.4..0.5)),
        (five_levels_once, Outcome::Fail, &["203x149+0+0", "5", "4"], None),
        (a_level_everywhere, Outcome::Fail, &["1.000", "0.5"], None),
        // This decoder's output is shifted by one column. The named window is the first one that
        // does not begin in column 0, so only there the shift is visible.
        (a_column_off, Outcome::Fail, &["101x55+33+17", "4"], None),
        (unable, Outcome::Fail, &["203x149+0+0", "cpu", "nvJPEG"], None),
    ];
    // Begins with the second decoder, so that one passes and one fails.
    for (decoder, outcome, words, mean) in some_of(decoders, 1) {
        machine.set_decoder(Some(decoder));
        for check in decoding(&found()) {
            let of_own = is_of(&check, "feedwater");
            let Check { name, result, detail } = check;
            if of_own {
                // This route does not use nvJPEG.
                assert_eq!(result, Outcome::Pass, "{name}: {detail}");
                continue;
            }
            let of_process = name == "gpu/engines/windows";
            if is_left_to_cpu(&name) || name.ends_with("prescale") || of_process {
                continue;
            }
            assert_eq!(result, outcome, "{name}: {detail}");
            assert!(has_words(&detail, words), "{name}: {detail}");
            if let Some(mean) = &mean {
                let mut numbers = detail.split([' ', '(', ')']).filter_map(|it| it.parse().ok());
                assert!(numbers.any(|it: f64| mean.contains(&it)), "{name}: {detail}");
            }
        }
    }
}

/// How the engines downscale is not documented. Averages of pixels are within the bound, but an
/// image that is shifted by one column is not.
#[test]
fn downscaling_may_use_another_method_but_not_other_pixels() {
    let Some(machine) = machine(Schedule::Random(4)) else { return };
    for (decoder, outcome) in [
        (means as Decode, Outcome::Pass),
        (rolled_by_a_pixel, Outcome::Fail),
        (unable, Outcome::Fail),
    ] {
        machine.set_decoder(Some(decoder));
        let gpu = found();
        let mut checks = decode::checks(&gpu).flatten();
        let reduced = checks.find(|it| it.name == "gpu/decode/route=nvjpeg-hardware/prescale");
        let reduced = reduced.expect("the engines are checked");
        assert_eq!(reduced.result, outcome, "{}", reduced.detail);
    }
}
