//! Tests that call no C code, so that Miri can run them (`.ci/miri`). They compare feedwater's
//! decoder with the reference decoder, and decode corrupt files.

use super::*;

fn forms() -> impl Iterator<Item = Form> {
    let samplings = [SamplingFactor::F_1_1, SamplingFactor::F_2_1, SamplingFactor::F_2_2];
    // Miri is several thousand times slower than native code. Under Miri, only one form of each
    // sampling and of gray is tested.
    let [step, across, down] = if cfg!(miri) { [13, 20, 18] } else { [1, 31, 35] };
    (0..40u32).step_by(step as usize).map(move |at| Form {
        size: Size::new(5 + at * 7 % across, 1 + at * 11 % down),
        is_gray: at % 4 == 0,
        sampling: samplings[at as usize % 3],
        quality: [30, 75, 95][at as usize / 3 % 3],
        restart_interval: [0, 1, 2][at as usize / 2 % 3],
        own_tables: at % 2 == 0,
        is_noise: at % 5 < 2,
    })
}

#[test]
fn windows_are_equal_to_those_of_the_reference() {
    for form in forms() {
        let bytes = file(&form);
        let whole = reference::decode(&bytes).expect("it is accepted");
        let Size { width, height } = form.size;
        let (x, y) = (width / 3, height / 2);
        let windows = [Roi::new(x, y, width.div_ceil(2), height - y), form.size.window()];
        for window in windows.into_iter().take(if cfg!(miri) { 1 } else { 2 }) {
            for (name, kernels) in Kernels::all() {
                let found = by_us(kernels, &bytes, window).expect("it is accepted");
                for y in window.y..window.bottom() {
                    let [from, to] = [window.x, window.right()].map(|x| 3 * x as usize);
                    assert_eq!(found.row(y), &whole.row(y)[from..to], "{form:?} {name} {window}");
                }
            }
        }
    }
}

/// Corrupt files are refused, or decoded to arbitrary pixels.
#[test]
fn damage_is_survived() {
    for (name, kernels) in Kernels::all() {
        let mut decoder = Feedwater { kernels, ..Feedwater::default() };
        let mut buffers = Buffers::default();
        for form in forms().skip(if cfg!(miri) { 2 } else { 0 }) {
            let intact = file(&form);
            let coded = intact.len() - 20;
            let (first, step) = if cfg!(miri) { (coded, 20) } else { (2, 5) };
            for at in (first..intact.len()).step_by(step) {
                for change in [None, Some(0xff), Some(intact[at] ^ 0x11)] {
                    let mut bytes = intact.clone();
                    match change {
                        Some(byte) => bytes[at] = byte,
                        None => bytes.truncate(at),
                    }
                    let rows = rows(&mut decoder, &mut buffers, &bytes);
                    let is_whole = rows.is_none_or(|[rows, height]| rows == height);
                    assert!(is_whole, "{name} {form:?} {at} {change:?}");
                }
            }
        }
    }
}

/// Returns the number of decoded rows and the height. Returns `None` for a refused file, and for a
/// file whose damaged header has too large a size.
fn rows(decoder: &mut Feedwater, buffers: &mut Buffers, bytes: &[u8]) -> Option<[u32; 2]> {
    let header = Header::parse_as(bytes, false).ok()?;
    (header.size.pixels() <= 1 << 12).then_some(())?;
    let file = EncodedImage {
        bytes,
        header: &header,
        window: header.size.window(),
        reduction: 1,
        strict: false,
        layout: RowLayout::Rgb,
        may_fall_back: true,
    };
    let mut rows = 0;
    let refusal = decoder.decode_own(&file, buffers, &mut |it: Rows<'_>| rows += it.count);
    refusal.expect("there is memory").is_none().then_some([rows, header.size.height])
}
