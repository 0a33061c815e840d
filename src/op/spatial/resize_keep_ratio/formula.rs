//! Output sizes of timm's `ResizeKeepRatio` (`timm/data/transforms.py`).

use crate::geometry::Size;
use crate::random::SampleRng;

/// Range of a random factor, and the probability with which a factor is drawn. A factor that is not
/// drawn is 1.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "parts of a range")]
pub struct Range {
    pub probability: f64,
    pub low: f64,
    pub high: f64,
}

impl Range {
    fn drawn(&self, rng: &mut SampleRng, number: impl Fn(f64, f64, &mut SampleRng) -> f64) -> f64 {
        let is_drawn = self.probability > 0.0 && rng.chance(self.probability);
        if is_drawn { number(self.low, self.high, rng) } else { 1.0 }
    }

    /// Smallest and largest possible factor. A factor of 1 is possible unless the probability is 1.
    fn ends(&self) -> [f64; 2] {
        match self.probability {
            0.0 => [1.0; 2],
            1.0 => [self.low, self.high],
            _ => [self.low.min(1.0), self.high.max(1.0)],
        }
    }
}

/// Settings of timm's `ResizeKeepRatio`.
#[derive(Clone, Copy, Debug)]
pub struct KeepRatio {
    /// Size that the image covers or fits into.
    pub target: Size,
    /// Weight between covering the target (0) and fitting into it (1).
    pub longest: f64,
    /// Range of the random scale.
    pub scale: Range,
    /// Whether the scale is the relative area of a crop. A smaller scale then enlarges the image.
    pub scale_is_area: bool,
    /// Range of the random change of the aspect ratio.
    pub aspect: Range,
}

impl KeepRatio {
    /// Whether the size depends on random numbers.
    pub fn is_random(&self) -> bool {
        self.scale.probability > 0.0 || self.aspect.probability > 0.0
    }

    /// Draws the factors by which height and width are scaled.
    pub fn draw(&self, rng: &mut SampleRng) -> [f64; 2] {
        let scale = self.scale.drawn(rng, |low, high, rng| rng.between(low, high));
        let aspect = self
            .aspect
            .drawn(rng, |low, high, rng| libm::exp(rng.between(libm::log(low), libm::log(high))));
        self.factors(scale, aspect)
    }

    /// Factors of height and width for a scale and a change of the aspect ratio. A value that was
    /// not drawn is 1.
    pub fn factors(&self, scale: f64, aspect: f64) -> [f64; 2] {
        let scale = if self.scale_is_area && scale != 1.0 { 1.0 / scale.sqrt() } else { scale };
        let aspect = aspect.sqrt();
        [scale / aspect, scale * aspect]
    }

    /// Largest possible factors of height and width.
    pub fn largest(&self) -> [f64; 2] {
        self.extremes(f64::max)
    }

    /// Smallest possible factor of height and width, at most 1.
    pub fn smallest(&self) -> f64 {
        self.extremes(f64::min).into_iter().fold(1.0, f64::min)
    }

    fn extremes(&self, of: fn(f64, f64) -> f64) -> [f64; 2] {
        let mut found = self.factors(self.scale.ends()[0], self.aspect.ends()[0]);
        for scale in self.scale.ends() {
            for aspect in self.aspect.ends() {
                let factors = self.factors(scale, aspect);
                found = [of(found[0], factors[0]), of(found[1], factors[1])];
            }
        }
        found
    }

    /// Output size for the given factors of height and width: Python's `round(side * factor /
    /// ratio)`, at least one pixel per side.
    pub fn output(&self, input: Size, [height, width]: [f64; 2]) -> Size {
        let by_height = f64::from(input.height) / f64::from(self.target.height);
        let by_width = f64::from(input.width) / f64::from(self.target.width);
        let (most, least) = (by_height.max(by_width), by_height.min(by_width));
        let ratio = most * self.longest + least * (1.0 - self.longest);
        let side = |len: u32, factor: f64| {
            let len = (f64::from(len) * factor / ratio).round_ties_even();
            len.clamp(1.0, f64::from(i32::MAX)) as u32
        };
        Size::new(side(input.width, width), side(input.height, height))
    }
}
