//! Sizes of timm's `ResizeKeepRatio` (`timm/data/transforms.py`).

use crate::geometry::Size;
use crate::random::SampleRng;

/// A range, and how often a number of it is drawn.
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

    /// Ends of the range, with 1 where nothing may be drawn.
    fn ends(&self) -> [f64; 2] {
        match self.probability {
            0.0 => [1.0; 2],
            1.0 => [self.low, self.high],
            _ => [self.low.min(1.0), self.high.max(1.0)],
        }
    }
}

/// Settings of the resize.
#[derive(Clone, Copy, Debug)]
pub struct KeepRatio {
    /// Size to cover or to fit into.
    pub target: Size,
    /// Weight of the side that is larger in proportion.
    pub longest: f64,
    /// Random scale.
    pub scale: Range,
    /// Whether the scale is that of a crop's area.
    pub scale_is_area: bool,
    /// Random change of the aspect ratio.
    pub aspect: Range,
}

impl KeepRatio {
    /// Whether anything is drawn.
    pub fn is_random(&self) -> bool {
        self.scale.probability > 0.0 || self.aspect.probability > 0.0
    }

    /// Draws the factors of height and width.
    pub fn draw(&self, rng: &mut SampleRng) -> [f64; 2] {
        let scale = self.scale.drawn(rng, |low, high, rng| rng.between(low, high));
        let aspect = self
            .aspect
            .drawn(rng, |low, high, rng| libm::exp(rng.between(libm::log(low), libm::log(high))));
        self.factors(scale, aspect)
    }

    /// Factors of height and width for a drawn scale and a drawn change of the aspect ratio. A value
    /// that was not drawn is 1.
    pub fn factors(&self, scale: f64, aspect: f64) -> [f64; 2] {
        let scale = if self.scale_is_area && scale != 1.0 { 1.0 / scale.sqrt() } else { scale };
        let aspect = aspect.sqrt();
        [scale / aspect, scale * aspect]
    }

    /// Largest factors of height and width.
    pub fn largest(&self) -> [f64; 2] {
        self.extremes(f64::max)
    }

    /// Smallest factor of a side.
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

    /// Size by factors of height and width: Python's `round(side * factor / ratio)`, at least one pixel.
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
