//! `random_erasing`: overwrites a rectangle with a colour or with noise.

use bytemuck::{Pod, Zeroable};

use crate::geometry::Size;
use crate::random::SampleRng;

use super::noise::{normal, words};

/// Parameters of one sample.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct Params {
    /// First column of the rectangle.
    pub x: i32,
    /// First row.
    pub y: i32,
    /// Column after the last; the rectangle may be empty.
    pub right: i32,
    /// Row after the last.
    pub bottom: i32,
    /// Mean of the new values, per channel.
    pub mean: [f32; 3],
    /// Deviation of the new values, per channel; 0 for a colour.
    pub std: [f32; 3],
    /// Key of the sample's noise.
    pub key: [u32; 2],
}

/// Distribution of the rectangle. Defaults are torchvision's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Boxes {
    /// Smallest and largest share of the image's area.
    pub scale: [f64; 2],
    /// Smallest and largest height divided by width.
    pub ratio: [f64; 2],
}

impl Default for Boxes {
    fn default() -> Self {
        Self { scale: [0.02, 0.33], ratio: [0.3, 3.3] }
    }
}

impl Boxes {
    /// Draws a rectangle (x, y, width, height) like torchvision's `RandomErasing`: ten times an area, uniform, and a
    /// ratio, uniform in its logarithm, until the rectangle is smaller than the image in both directions; then its
    /// row and column, uniform. `None` if none of ten was.
    pub fn draw(&self, image: Size, rng: &mut SampleRng) -> Option<[i32; 4]> {
        let area = image.pixels() as f64;
        let [low, high] = self.ratio.map(libm::log);
        for _ in 0..10 {
            let area = area * rng.between(self.scale[0], self.scale[1]);
            let ratio = libm::exp(rng.between(low, high));
            let height = (area * ratio).sqrt().round_ties_even() as u32;
            let width = (area / ratio).sqrt().round_ties_even() as u32;
            if height < image.height && width < image.width {
                let y = rng.below(u64::from(image.height - height) + 1) as i32;
                let x = rng.below(u64::from(image.width - width) + 1) as i32;
                return Some([x, y, width as i32, height as i32]);
            }
        }
        None
    }
}

/// New value of a float pixel: `mean + std * n` in the rectangle, with `n` from [`normal`]. With mean 0 and deviation
/// 1 it is timm's mode `pixel`, which erases normalized images (`timm/data/random_erasing.py`).
#[inline(always)]
pub fn float_pixel(params: &Params, x: i32, y: i32, pixel: [f32; 3]) -> [f32; 3] {
    if !is_inside(params, x, y) {
        return pixel;
    }
    if params.std == [0.0; 3] {
        return params.mean;
    }
    let words = words(params.key, x, y);
    std::array::from_fn(|channel| {
        params.mean[channel] + params.std[channel] * normal(words[channel])
    })
}

/// New value of a byte pixel: as [`float_pixel`], cut to 0..=255 and truncated, as torchvision does for a value that
/// is a number.
#[inline(always)]
pub fn pixel(params: &Params, x: i32, y: i32, pixel: [u8; 3]) -> [u8; 3] {
    if !is_inside(params, x, y) {
        return pixel;
    }
    float_pixel(params, x, y, [0.0; 3]).map(|value| value as u8)
}

fn is_inside(params: &Params, x: i32, y: i32) -> bool {
    (params.x..params.right).contains(&x) && (params.y..params.bottom).contains(&y)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SampleKey;

    /// An image of one row or column has no rectangle that is smaller in both directions.
    #[test]
    fn a_rectangle_is_smaller_than_the_image_or_absent() {
        for (width, height) in [(1, 1), (1, 500), (300, 1), (2, 2), (17, 9), (65_500, 3)] {
            for index in 0..200 {
                let mut rng = SampleRng::new(SampleKey { index, ..Default::default() }, 0);
                let size = Size::new(width, height);
                match Boxes::default().draw(size, &mut rng) {
                    None => assert!(width.min(height) < 10),
                    Some([x, y, w, h]) => {
                        assert!(w < width as i32 && h < height as i32);
                        assert!(
                            x >= 0 && y >= 0 && x + w <= width as i32 && y + h <= height as i32
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn only_the_rectangle_changes() {
        let params = Params {
            x: 2,
            y: 3,
            right: 5,
            bottom: 4,
            mean: [1.0, 300.0, -4.0],
            std: [0.0; 3],
            key: [0; 2],
        };
        for (x, y) in [(1, 3), (5, 3), (2, 2), (4, 4)] {
            assert_eq!(pixel(&params, x, y, [7, 8, 9]), [7, 8, 9]);
            assert_eq!(float_pixel(&params, x, y, [7.0; 3]), [7.0; 3]);
        }
        assert_eq!(pixel(&params, 2, 3, [7, 8, 9]), [1, 255, 0]);
        assert_eq!(float_pixel(&params, 4, 3, [7.0; 3]), [1.0, 300.0, -4.0]);
        let noisy = Params { mean: [0.0; 3], std: [1.0; 3], ..params };
        assert_ne!(float_pixel(&noisy, 2, 3, [7.0; 3]), float_pixel(&noisy, 3, 3, [7.0; 3]));
    }
}
