//! Images for comparisons.

use crate::geometry::Size;
use crate::image::Image;
use crate::random::{SampleKey, SampleRng};

/// Image of random bytes.
pub fn random_image(size: Size, seed: u64) -> Image<u8> {
    let mut rng = SampleRng::new(SampleKey { seed, epoch: 7, index: size.pixels() }, 1);
    let data = (0..3 * size.pixels()).map(|_| rng.bits() as u8).collect();
    Image::from_data(size.window(), data)
}

/// Images with extreme values: black; white; a chessboard of pixels; one white value in the middle.
pub fn extreme_images(size: Size) -> Vec<Image<u8>> {
    let image = |value: fn(u64, Size) -> bool| {
        let data = (0..3 * size.pixels()).map(|at| if value(at, size) { 255 } else { 0 }).collect();
        Image::from_data(size.window(), data)
    };
    vec![
        image(|_, _| false),
        image(|_, _| true),
        image(|at, size| {
            (at / 3 % u64::from(size.width) + at / 3 / u64::from(size.width)) % 2 == 0
        }),
        image(|at, size| at / 3 == size.pixels() / 2),
    ]
}
