//! `random_erasing`: overwrites rectangles with a colour or with noise.

use bytemuck::{Pod, Zeroable};
use serde::{Deserialize, Serialize};

use crate::geometry::Size;
use crate::op::kind::{Channel, PositionFormula, RowPosition};
use crate::op::settings::{check_count, check_number, check_pair, equal_values, one_or_each};
use crate::op::shared::noise::{equal_if_gray, key, normals, words};
use crate::op::wide::truncated;
use crate::op::{BuiltIn, Cuda, Draw, FieldError, Kind, Kinds, Operator};
use crate::random::SampleRng;

/// Overwrites random rectangles with a colour or with noise, like torchvision's and timm's
/// `RandomErasing`.
///
/// The defaults are those of torchvision, which erases one rectangle. timm erases after
/// `normalize`. timm's command line uses `scale = [0.02, 0.3333]`, `ratio = [0.3, 3.3333]` and
/// `mode = "pixel"`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RandomErasing {
    /// Probability that a sample is changed, 0 to 1. Default 0.5.
    pub probability: f64,
    /// Minimum and maximum area of all rectangles together, 0 to 1 as a fraction of the image's
    /// area. Default `[0.02, 0.33]`.
    pub scale: [f64; 2],
    /// Minimum and maximum of a rectangle's height divided by its width, 0.001 to 1000. Default
    /// `[0.3, 3.3]`.
    pub ratio: [f64; 2],
    /// New value of erased pixels, or mean of the noise. One number, or one per channel, in the
    /// unit of the input pixels: levels of a byte, or normalized values after `normalize`. Default
    /// 0.
    #[serde(deserialize_with = "one_or_each")]
    pub value: [f64; 3],
    /// Content of the rectangles: one colour (`const`, the default), one random colour per
    /// rectangle (`rand`), or noise for each pixel (`pixel`).
    pub mode: ErasingMode,
    /// Standard deviation of the noise in the modes `rand` and `pixel`, 0 to 1000. One number, or
    /// one per channel, in the same unit as `value`. Default 1.
    #[serde(deserialize_with = "one_or_each")]
    pub std: [f64; 3],
    /// Minimum number of rectangles, 1 to 32. The number of rectangles is drawn uniformly, and
    /// `scale` is divided by it. Default 1.
    pub min_count: u32,
    /// Maximum number of rectangles, `min_count` to 32. Default 1.
    pub max_count: u32,
}

/// Content of erased rectangles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ErasingMode {
    /// One colour.
    #[default]
    Const,
    /// One colour per rectangle: `value` plus normally distributed noise.
    Rand,
    /// `value` plus normally distributed noise, which is drawn for each pixel and channel.
    Pixel,
}

impl Default for RandomErasing {
    fn default() -> Self {
        let Boxes { scale, ratio } = Boxes::default();
        Self {
            probability: 0.5,
            scale,
            ratio,
            value: [0.0; 3],
            mode: ErasingMode::Const,
            std: [1.0; 3],
            min_count: 1,
            max_count: 1,
        }
    }
}

impl RandomErasing {
    /// Maximum number of rectangles.
    const MOST_COUNT: u32 = 32;

    /// Draws the number of rectangles uniformly.
    fn count(&self, rng: &mut SampleRng) -> u32 {
        match self.max_count - self.min_count {
            0 => self.min_count,
            range => self.min_count + rng.below(u64::from(range) + 1) as u32,
        }
    }

    /// Mean and standard deviation of the new values in one rectangle.
    fn noise(&self, rng: &mut SampleRng, is_gray: u32) -> ([f32; 3], [f32; 3]) {
        // Adding 0 turns -0 into 0, so that the kernel and the CPU write the same bits. For a
        // rectangle of one colour, the kernel writes the mean itself, but the CPU adds 0 times
        // noise, which may turn -0 into 0.
        let (value, std) = (self.value.map(|it| it as f32 + 0.0), self.std.map(|it| it as f32));
        match self.mode {
            ErasingMode::Const => (value, [0.0; 3]),
            ErasingMode::Pixel => (value, std),
            ErasingMode::Rand => {
                let normals = equal_if_gray(normals(std::array::from_fn(|_| rng.bits())), is_gray);
                (std::array::from_fn(|at| value[at] + std[at] * normals[at]), [0.0; 3])
            }
        }
    }
}

impl Operator for RandomErasing {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Kinds {
        Kinds::up_to(self.max_count as usize, [Kind::position::<Self>()])
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        if !draw.rng().chance(self.probability) {
            return;
        }
        let (size, is_gray) = (draw.size(), u32::from(draw.channels() == 1));
        let count = self.count(draw.rng());
        let scale = self.scale.map(|share| share / f64::from(count));
        for _ in 0..count {
            let boxes = Boxes { scale, ratio: self.ratio };
            let Some([x, y, width, height]) = boxes.draw(size, draw.rng()) else { continue };
            let (mean, std) = self.noise(draw.rng(), is_gray);
            let key = key(draw.rng());
            let (right, bottom) = (x + width, y + height);
            draw.position::<Self>(&Params {
                x,
                y,
                right,
                bottom,
                mean,
                std,
                key,
                is_gray,
                padding: 0,
            });
        }
    }

    fn check(&self) -> Result<(), FieldError> {
        check_number("probability", self.probability, 0.0, 1.0)?;
        check_pair("scale", self.scale, 0.0, 1.0)?;
        check_pair("ratio", self.ratio, 0.001, 1000.0)?;
        check_count("min_count", self.min_count, 1, Self::MOST_COUNT)?;
        check_count("max_count", self.max_count, self.min_count, Self::MOST_COUNT)?;
        for channel in 0..3 {
            check_number(&format!("value[{channel}]"), self.value[channel], -1000.0, 1000.0)?;
            check_number(&format!("std[{channel}]"), self.std[channel], 0.0, 1000.0)?;
        }
        Ok(())
    }

    fn fills_channels(&self) -> bool {
        self.mode == ErasingMode::Const
    }

    fn for_alpha(&self) -> &'static str {
        "set mode = \"const\", "
    }

    fn channels(&self, input: usize) -> Result<usize, String> {
        equal_values(Self::NAME, "value", self.value, input)?;
        equal_values(Self::NAME, "std", self.std, input)
    }

    fn is_random(&self) -> bool {
        self.probability > 0.0
    }
}

impl BuiltIn for RandomErasing {
    const NAME: &'static str = "random_erasing";

    fn examples() -> Vec<Self> {
        vec![
            Self { probability: 1.0, ..Self::default() },
            Self {
                probability: 1.0,
                value: [10.0, 100.0, 250.0],
                scale: [0.3, 0.6],
                ..Self::default()
            },
            Self { value: [128.0; 3], std: [64.0; 3], mode: ErasingMode::Pixel, ..Self::default() },
            Self {
                probability: 1.0,
                scale: [0.1, 0.5],
                value: [100.0; 3],
                std: [64.0; 3],
                mode: ErasingMode::Rand,
                min_count: 2,
                max_count: 5,
                ..Self::default()
            },
            Self { probability: 0.0, ..Self::default() },
        ]
    }
}

impl PositionFormula for RandomErasing {
    type Params = Params;
    const CUDA: Option<Cuda> =
        Some(Cuda::new("RandomErasing", include_str!("../../../kernels/random_erasing.cu")));
    const FLOATS: bool = true;

    /// New value of a pixel of bytes. The value is computed as in `floats`, then
    /// clamped to 0..=255 and truncated. torchvision does the same if its value is a number.
    #[inline(always)]
    fn bytes(params: &Params, x: i32, y: i32, pixel: [u8; 3]) -> [u8; 3] {
        let byte = |value: f32| truncated(value) as u8;
        if is_inside(params, x, y) { values(params, x, y).map(byte) } else { pixel }
    }

    /// New value of a pixel of floats: `mean + std * n` in the rectangle, with normally distributed
    /// `n` from [`normals`]. Mean 0 and standard deviation 1 give timm's mode `pixel` on normalized
    /// images (`timm/data/random_erasing.py`).
    #[inline(always)]
    fn floats(params: &Params, x: i32, y: i32, pixel: [f32; 3]) -> [f32; 3] {
        if is_inside(params, x, y) { values(params, x, y) } else { pixel }
    }

    /// Changes only pixels in the rectangle. If the rectangle has one colour, fills it without
    /// computing noise.
    #[inline(always)]
    fn row<T: Channel>(params: &Params, at: RowPosition, row: &mut [[T; 3]]) {
        if !(params.y..params.bottom).contains(&at.y) {
            return;
        }
        let places = at.places(params.x..params.right, row.len());
        let (at, row) = (at.from(places.start), &mut row[places]);
        if params.std == [0.0; 3] {
            row.fill(T::pixel::<Self>(params, params.x, params.y, [T::default(); 3]));
        } else {
            at.map::<Self, T>(params, row);
        }
    }
}

/// Parameters of one sample.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable, Serialize)]
#[repr(C)]
pub struct Params {
    /// First column of the rectangle.
    pub x: i32,
    /// First row of the rectangle.
    pub y: i32,
    /// Column after the last one of the rectangle, which may be empty.
    pub right: i32,
    /// Row after the last one of the rectangle.
    pub bottom: i32,
    /// Mean of the new values, per channel. Never -0.
    pub mean: [f32; 3],
    /// Standard deviation of the new values, per channel. 0 for one colour.
    pub std: [f32; 3],
    /// Key of the random numbers for the noise in this rectangle.
    pub key: [u32; 2],
    /// 1 if all channels have the noise of the first, else 0.
    pub is_gray: u32,
    /// Always 0.
    #[serde(skip)]
    pub padding: u32,
}

/// Distribution of the rectangles. The defaults are those of torchvision.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Boxes {
    /// Minimum and maximum area of a rectangle, as a fraction of the image's area.
    pub scale: [f64; 2],
    /// Minimum and maximum of a rectangle's height divided by its width.
    pub ratio: [f64; 2],
}

impl Default for Boxes {
    fn default() -> Self {
        Self { scale: [0.02, 0.33], ratio: [0.3, 3.3] }
    }
}

impl Boxes {
    /// Draws a rectangle (x, y, width, height) like torchvision's `RandomErasing`. An area is drawn
    /// uniformly and a ratio uniformly in its logarithm, until the rectangle is smaller than the
    /// image in both directions. Then row and column are drawn uniformly. After ten rectangles that
    /// are too large, the result is `None`.
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

#[inline(always)]
fn is_inside(params: &Params, x: i32, y: i32) -> bool {
    (params.x <= x) & (x < params.right) & (params.y <= y) & (y < params.bottom)
}

/// New values of a pixel in the rectangle. Noise is computed even if the deviation is 0, because a
/// branch would keep compilers from using vector instructions.
#[inline(always)]
fn values(params: &Params, x: i32, y: i32) -> [f32; 3] {
    let normals = equal_if_gray(normals(words(params.key, x, y)), params.is_gray);
    std::array::from_fn(|channel| params.mean[channel] + params.std[channel] * normals[channel])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SampleKey;

    /// No rectangle is drawn for an image of one row or column, because none would be smaller than
    /// the image in both directions.
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
    fn rectangles_are_counted() {
        let op = RandomErasing { min_count: 2, max_count: 4, ..RandomErasing::default() };
        let mut counts = [0; 6];
        for index in 0..900 {
            let mut rng = SampleRng::new(SampleKey { index, ..Default::default() }, 0);
            counts[op.count(&mut rng) as usize] += 1;
        }
        assert_eq!((counts[0], counts[1], counts[5]), (0, 0, 0));
        // 57 is four standard deviations of a count.
        assert!(counts[2..5].iter().all(|count| (300i32 - count).abs() < 57), "{counts:?}");
        let field = |op: RandomErasing| op.check().unwrap_err().field;
        assert_eq!(field(RandomErasing { min_count: 0, ..op }), "min_count");
        assert_eq!(field(RandomErasing { max_count: 1, ..op }), "max_count");
        assert_eq!(field(RandomErasing { max_count: 33, ..op }), "max_count");
    }

    #[test]
    fn a_colour_is_drawn_once_per_rectangle() {
        let op = RandomErasing { mode: ErasingMode::Rand, ..RandomErasing::default() };
        let mut rng = SampleRng::new(SampleKey::default(), 0);
        let (first, second) = (op.noise(&mut rng, 0), op.noise(&mut rng, 0));
        assert_ne!(first.0, second.0);
        assert_eq!(first.1, [0.0; 3]);
        let op = RandomErasing { mode: ErasingMode::Pixel, ..op };
        assert_eq!(op.noise(&mut rng, 0), ([0.0; 3], [1.0; 3]));
        let op = RandomErasing { mode: ErasingMode::Const, value: [7.0; 3], ..op };
        assert_eq!(op.noise(&mut rng, 0), ([7.0; 3], [0.0; 3]));
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
            is_gray: 0,
            padding: 0,
        };
        for (x, y) in [(1, 3), (5, 3), (2, 2), (4, 4)] {
            assert_eq!(RandomErasing::bytes(&params, x, y, [7, 8, 9]), [7, 8, 9]);
            assert_eq!(RandomErasing::floats(&params, x, y, [7.0; 3]), [7.0; 3]);
        }
        assert_eq!(RandomErasing::bytes(&params, 2, 3, [7, 8, 9]), [1, 255, 0]);
        assert_eq!(RandomErasing::floats(&params, 4, 3, [7.0; 3]), [1.0, 300.0, -4.0]);
        let noisy = Params { mean: [0.0; 3], std: [1.0; 3], ..params };
        assert_ne!(
            RandomErasing::floats(&noisy, 2, 3, [7.0; 3]),
            RandomErasing::floats(&noisy, 3, 3, [7.0; 3])
        );
    }
}
