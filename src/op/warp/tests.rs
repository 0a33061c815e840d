//! Compares the fast rows with the reference, for all instruction sets.

use crate::geometry::{Roi, Size};
use crate::image::Image;
use crate::op::wide::Instructions;
use crate::random::{SampleKey, SampleRng};

use super::rows::row_with;
use super::{Interpolation, Warp, demand, pixel};

const INTERPOLATIONS: [Interpolation; 3] =
    [Interpolation::Nearest, Interpolation::Bilinear, Interpolation::Bicubic];
const FILL: [u8; 3] = [9, 130, 255];

/// Sizes of inputs and outputs: some are smaller than the neighbourhood of a pixel or than a block
/// of pixels, others larger.
const SIZES: [[u32; 2]; 7] = [[1, 1], [1, 9], [9, 1], [2, 2], [33, 5], [64, 40], [150, 70]];

/// Image with random pixels beside areas where one channel or all channels are constant.
fn image(size: Size, rng: &mut SampleRng) -> Image<u8> {
    let mut image = Image::new(size.window());
    let mut pixel = [0; 3];
    for place in image.data_mut().as_chunks_mut().0 {
        let bits = rng.bits();
        let [r, g, b, more] = bits.to_le_bytes();
        match more % 8 {
            0..=3 => pixel = [r, g, b],
            4 => pixel = [pixel[0], 255, b],
            5 => pixel = [r & 1, 255 - (g & 1), pixel[2]],
            _ => {}
        }
        *place = pixel;
    }
    image
}

/// Checks that rows of the window `wanted` of the output equal the reference, and that they read
/// only the input window that `demand` returned.
#[track_caller]
fn check(warp: &Warp, table: &[i32], src: &Image<u8>, wanted: Roi) {
    let input = demand(warp, table, src.window().size(), wanted);
    let mut cut = Image::new(input);
    for y in input.y..input.bottom() {
        let row = &src.row(y)[3 * input.x as usize..][..3 * input.width as usize];
        cut.row_mut(y).copy_from_slice(row);
    }
    let read = |x: i32, y: i32| src.pixel(x as u32, y as u32);
    for y in wanted.y..wanted.bottom() {
        let at = (wanted.x as i32, y as i32);
        let columns = wanted.x as i32..wanted.right() as i32;
        let expected: Vec<_> = columns.map(|x| pixel(warp, table, &read, x, at.1)).collect();
        for set in Instructions::all() {
            let mut row = vec![[77; 3]; wanted.width as usize];
            row_with(set, warp, table, &cut, at, &mut row);
            assert_eq!(row, expected, "row {y} of {wanted}, {set:?}, {:?}: {warp:?}", src.window());
        }
    }
}

/// Checks the whole output, and a window that does not begin at 0.
#[track_caller]
fn check_windows(warp: &Warp, src: &Image<u8>, output: Size) {
    let Size { width, height } = output;
    check(warp, &[], src, output.window());
    let part = Roi::new(width / 3, height / 4, width.div_ceil(2), height.div_ceil(2));
    check(warp, &[], src, part);
}

fn sizes(rng: &mut SampleRng) -> [Size; 2] {
    [(); 2].map(|()| {
        let [width, height] = SIZES[rng.below(SIZES.len() as u64) as usize];
        Size::new(width, height)
    })
}

#[test]
fn rows_of_random_maps_are_those_of_the_reference() {
    let mut rng = SampleRng::new(SampleKey::default(), 1);
    for round in 0..240 {
        let [input, output] = sizes(&mut rng);
        let src = image(input, &mut rng);
        // The maps range from nearly the identity to maps in which one output pixel covers the
        // whole input.
        let most = [0.02, 0.5, 3.0, 1e3][round % 4];
        let mut number = |middle: f64| middle + rng.between(-most, most);
        let [a, b, d, e] = [number(1.0), number(0.0), number(0.0), number(1.0)];
        // `middle` returns the offset that moves the centre of the output near the centre of the
        // input.
        let middle = |a: f64, b: f64, side: u32, offset: f64| {
            let [x, y] = [output.width, output.height].map(|side| f64::from(side) / 2.0);
            f64::from(side) * offset - a * x - b * y
        };
        let (c, f) = (middle(a, b, input.width, rng.between(0.2, 0.8)), rng.between(0.2, 0.8));
        let f = middle(d, e, input.height, f);
        let slope = 0.5 / f64::from(output.width + output.height);
        let [g, h] = [rng.between(-slope, slope), rng.between(-slope, slope)];
        for interpolation in INTERPOLATIONS {
            let scaled = [a, 0.0, middle(a, 0.0, input.width, 0.4), 0.0, e, f];
            for matrix in [[a, b, c, d, e, f], scaled] {
                let warp = Warp::affine(input, output, matrix, interpolation, FILL);
                check_windows(&warp, &src, output);
            }
            let map = [a, b, c, d, e, f, g, h];
            check_windows(&Warp::perspective(input, map, interpolation, FILL), &src, output);
        }
    }
}

/// Tests positions at edges and between pixels, where many values are whole numbers.
#[test]
fn rows_of_exact_fractions_are_those_of_the_reference() {
    let mut rng = SampleRng::new(SampleKey::default(), 2);
    for step in [-2.0, -1.0, -0.5, 0.0, 0.25, 0.5, 1.0, 1.5] {
        for offset in [-0.5, -0.25, 0.0, 0.5, 40.0, 64.0] {
            let [input, output] = [Size::new(64, 40), Size::new(150, 70)];
            let src = image(input, &mut rng);
            for interpolation in INTERPOLATIONS {
                for matrix in [
                    [step, 0.0, offset, 0.0, step, offset + 2.0],
                    [0.25, step, offset, step, -0.5, 20.0],
                ] {
                    let warp = Warp::affine(input, output, matrix, interpolation, FILL);
                    check_windows(&warp, &src, output);
                    let map = std::array::from_fn(|at| matrix.get(at).copied().unwrap_or(0.0));
                    let warp = Warp::perspective(input, map, interpolation, FILL);
                    check_windows(&warp, &src, output);
                }
            }
        }
    }
}

#[test]
fn rows_of_positions_that_are_no_numbers_are_those_of_the_reference() {
    let mut rng = SampleRng::new(SampleKey::default(), 3);
    let strange = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300, -1e300, 4e9, -0.0, 1e-310];
    let base = [1.0, 0.1, 0.5, -0.1, 1.0, 0.5, 0.0, 0.0];
    for place in 0..8 {
        for number in strange {
            let [input, output] = [Size::new(33, 5), Size::new(64, 9)];
            let src = image(input, &mut rng);
            let mut map = base;
            map[place] = number;
            for interpolation in INTERPOLATIONS {
                let warp = Warp::perspective(input, map, interpolation, FILL);
                check_windows(&warp, &src, output);
                if interpolation != Interpolation::Nearest && place < 6 {
                    let matrix = std::array::from_fn(|at| map[at]);
                    let warp = Warp::affine(input, output, matrix, interpolation, FILL);
                    check_windows(&warp, &src, output);
                }
            }
        }
    }
    // The divisor is 0 in the middle of the row.
    for map in [
        [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, -0.0625, 0.0],
        [1.0, 0.0, -16.0, 0.0, 0.0, 0.0, -0.0625, 0.0],
    ] {
        let [input, output] = [Size::new(64, 40), Size::new(64, 9)];
        let src = image(input, &mut rng);
        for interpolation in INTERPOLATIONS {
            check_windows(&Warp::perspective(input, map, interpolation, FILL), &src, output);
        }
    }
}

#[test]
fn displaced_rows_are_those_of_the_reference() {
    let mut rng = SampleRng::new(SampleKey::default(), 4);
    for round in 0..150 {
        let [size, _] = sizes(&mut rng);
        let src = image(size, &mut rng);
        let wanted = Roi::new(
            size.width / 4,
            size.height / 3,
            size.width.div_ceil(2),
            size.height.div_ceil(2),
        );
        // Largest displacement: less than a pixel, a few pixels, more than the width of the image,
        // and the largest that an i32 holds.
        let most = [0.7, 5.0, 200.0, 32767.9][round % 4] * 65536.0;
        let mut number = || match rng.below(5) {
            0 => (rng.between(-most, most) as i32) & !0x7fff,
            _ => rng.between(-most, most) as i32,
        };
        let table: Vec<i32> = (0..2 * wanted.width * wanted.height).map(|_| number()).collect();
        for interpolation in [Interpolation::Nearest, Interpolation::Bilinear] {
            let origin = (wanted.x as i32, wanted.y as i32);
            let warp = Warp::displaced(size, origin, wanted.width as i32, interpolation, FILL);
            check(&warp, &table, &src, wanted);
        }
    }
}
