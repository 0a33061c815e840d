//! The self-test's comparison of nvJPEG with the CPU, against the simulated nvJPEG with decoders that are right,
//! a little different, and wrong: the first two pass, and the others are found.

#![allow(unsafe_code, reason = "the mocked decoder is called by C")]

#[allow(dead_code, reason = "the command line, of which one check is used")]
#[path = "../src/cli/mod.rs"]
mod cli;
mod simulated;

use cli::selftest::{Outcome, nvjpeg};
use feedwater::decode::HostDecoder;
use feedwater::geometry::Roi;
use feedwater::header::Header;
use simulated::{Decode, Schedule};

const SUCCESS: i32 = 0;
const NOT_SUPPORTED: i32 = 4;

/// Decodes a window as libjpeg-turbo does, `shift` columns to the left of where it should be; returns the pixels.
unsafe fn decode<'a>(
    bytes: *const u8,
    count: usize,
    reduction: i32,
    [x, y, width, height]: [i32; 4],
    shift: i32,
    rgb: *mut u8,
) -> &'a mut [u8] {
    // SAFETY: nvjpeg.cpp passes that many bytes, and room for that many pixels.
    let (bytes, rgb) = unsafe {
        let rgb = std::slice::from_raw_parts_mut(rgb, (3 * width * height) as usize);
        (std::slice::from_raw_parts(bytes, count), rgb)
    };
    let header = Header::parse(bytes).unwrap();
    let [x, y, width, height] =
        [(x - shift).max(0), y, width, height].map(|value| u32::try_from(value).unwrap());
    let mut rows = rgb.chunks_exact_mut(3 * width as usize);
    let window = Roi::new(x, y, width, height);
    HostDecoder::new()
        .decode(bytes, &header, window, reduction as u32, &mut |_, row| {
            rows.next().unwrap().copy_from_slice(row);
        })
        .unwrap();
    rgb
}

/// A decoder of this name that changes the pixels by `change`, after a shift.
macro_rules! decoder {
    ($name:ident, $shift:expr, $change:expr) => {
        unsafe extern "C" fn $name(
            bytes: *const u8,
            count: usize,
            reduction: i32,
            x: i32,
            y: i32,
            width: i32,
            height: i32,
            rgb: *mut u8,
        ) -> i32 {
            let change: fn(&mut [u8]) = $change;
            // SAFETY: the arguments are those of nvjpeg.cpp.
            change(unsafe { decode(bytes, count, reduction, [x, y, width, height], $shift, rgb) });
            SUCCESS
        }
    };
}

/// Moves a byte by so many levels, to the side where there is room.
fn stray(byte: &mut u8, levels: u8) {
    *byte = if *byte < 128 { *byte + levels } else { *byte - levels };
}

decoder!(exact, 0, |_| ());
decoder!(four_levels_here_and_there, 0, |rgb| rgb
    .iter_mut()
    .step_by(9)
    .for_each(|it| stray(it, 4)));
decoder!(five_levels_once, 0, |rgb| stray(&mut rgb[0], 5));
decoder!(a_level_everywhere, 0, |rgb| rgb.iter_mut().for_each(|it| stray(it, 1)));
decoder!(a_column_off, 1, |_| ());

unsafe extern "C" fn unable(
    _: *const u8,
    _: usize,
    _: i32,
    _: i32,
    _: i32,
    _: i32,
    _: i32,
    _: *mut u8,
) -> i32 {
    NOT_SUPPORTED
}

#[test]
fn what_is_within_the_tolerance_passes_and_what_is_not_is_found() {
    let machine = simulated::exclusive();
    machine.schedule(Schedule::Random(3));
    let decoders: [(Decode, Outcome, &str); 6] = [
        (exact, Outcome::Pass, "within 0 levels of the CPU (4 allowed), 0.000 on average"),
        (four_levels_here_and_there, Outcome::Pass, "within 4 levels of the CPU (4 allowed), 0.4"),
        (
            five_levels_once,
            Outcome::Fail,
            "window 203x149+0+0: differs by up to 5 levels, 4 are allowed",
        ),
        (a_level_everywhere, Outcome::Fail, "differs by 1.000 levels on average, 0.5 are allowed"),
        (a_column_off, Outcome::Fail, ": differs by up to "),
        (unable, Outcome::Fail, "nvJPEG did not decode picture 0"),
    ];
    for (decoder, outcome, words) in decoders {
        machine.set_decoder(Some(decoder));
        let checks = nvjpeg::checks();
        let names: Vec<_> = checks.iter().map(|check| check.name.as_str()).collect();
        let sorts = ["4:2:0", "4:4:4", "gray", "progressive"];
        assert_eq!(names, sorts.map(|sort| format!("gpu/decode/{sort}")));
        for check in checks {
            assert_eq!(check.result, outcome, "{}: {}", check.name, check.detail);
            assert!(check.detail.contains(words), "{}: {}", check.name, check.detail);
        }
    }
}
