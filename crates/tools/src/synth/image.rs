//! Draws one synthetic image as RGB pixels.

use feedwater::internals::random::{SampleKey, SampleRng};

use super::noise::{Noise, between, gaussian, hash};
use super::row::Row;
use super::scene;

/// Draws image `index` of the set with seed `seed`. Returns `3 * width * height` bytes of RGB in
/// row order.
///
/// The image shows scene `index % 10`: mountains, dunes, sea, forest, fruit, pebbles, foliage,
/// city, snow or flowers.
pub fn image(seed: u64, index: u64, width: u32, height: u32) -> Vec<u8> {
    detailed(seed, index, [width, height], Detail::UNIFORM)
}

/// Strengths of the fine structure and the noise of an image, relative to the images that [`image`]
/// draws.
#[derive(Clone, Copy, Debug)]
pub struct Detail {
    /// Strength of the fine structure of surfaces.
    pub grain: f32,
    /// Strength of the sensor noise.
    pub noise: f32,
    /// Strength of the changes between red and blue in the fine structure, as a share of its
    /// changes of lightness. 0 for [`image`].
    pub colour: f32,
}

impl Detail {
    /// The detail of images that [`image`] draws.
    pub const UNIFORM: Self = Self { grain: 1.0, noise: 1.0, colour: 0.0 };
}

/// Draws the same scene as [`image`], with the given detail.
pub fn detailed(seed: u64, index: u64, [width, height]: [u32; 2], detail: Detail) -> Vec<u8> {
    let mut rng = SampleRng::new(SampleKey { seed, epoch: 0, index }, 0);
    let (columns, rows) = (width as usize, height as usize);
    let layers = scene::layers(&mut rng, index, width as f32, height as f32);
    let film = Film::new(&mut rng, width.min(height) as f32, detail);
    let mut row = Row::new(columns);
    let mut rgb = Vec::with_capacity(3 * columns * rows);
    for y in 0..rows {
        row.colour.fill([0.0; 3]);
        for layer in &layers {
            layer.draw(y, &mut row);
        }
        film.expose(y, &mut row, &mut rgb);
    }
    rgb
}

/// Fine structure, tint and sensor noise, which are added to the painted scene.
struct Film {
    /// Fine structure of surfaces. It is multiplied by the texture of each pixel.
    grain: Vec<Noise>,
    /// Slow changes between red and blue across the image.
    tint: Noise,
    /// Standard deviation of the sensor noise, in levels of 0 to 255.
    sensor: f32,
    /// Strength of the changes between red and blue, as a share of the grain.
    colour: f32,
    salt: u32,
}

impl Film {
    fn new(rng: &mut SampleRng, side: f32, detail: Detail) -> Self {
        let sharp = sharpness(side);
        let busy = detail.grain * between(rng, 0.8, 1.5);
        let grain = [(13.0, 10.0), (5.0, 18.0), (2.0, 34.0 * sharp), (1.0, 30.0 * sharp)]
            .map(|(cell, amplitude)| Noise::new(rng, [cell, cell], busy * amplitude))
            .into();
        let tint = Noise::new(rng, [0.25 * side, 0.25 * side], 5.0);
        let sensor = detail.noise * sharp * between(rng, 6.0, 8.2);
        Self { grain, tint, sensor, colour: detail.colour, salt: rng.bits() }
    }

    /// Adds tint, grain and sensor noise to a row, and appends its bytes to `rgb`.
    fn expose(&self, y: usize, row: &mut Row, rgb: &mut Vec<u8>) {
        row.noise.fill(0.0);
        for noise in &self.grain {
            noise.add(y, &mut row.noise);
        }
        for (grain, texture) in row.noise.iter_mut().zip(&mut row.texture) {
            *grain *= *texture;
            *texture = 0.0;
        }
        // The texture of this row is not needed any more, so its buffer can hold the tint. The
        // layers of the next row fill the buffer again.
        self.tint.add(y, &mut row.texture);
        let surface = row.colour.iter().zip(&row.texture).zip(&row.noise);
        for (x, ((&[red, green, blue], tint), grain)) in surface.enumerate() {
            let bits = hash(x as u32, y as u32, self.salt);
            // Dark surfaces get less grain than bright ones.
            let luma = grain * (0.25 + green.max(red) * (1.0 / 170.0)).min(1.0)
                + self.sensor * gaussian(bits);
            let noise = 0.5 * self.sensor * gaussian(bits.wrapping_mul(0x9e37_79b1));
            let chroma = noise + self.colour * grain;
            rgb.extend_from_slice(&[
                level(red + luma + tint + chroma),
                level(green + luma),
                level(blue + luma - tint - chroma),
            ]);
        }
    }
}

/// Returns the share of the finest structure that an image keeps, 0 to 1. `side` is the length of
/// the shorter side in pixels. A lens resolves a fixed amount of detail, so large photographs have
/// fewer bytes per pixel.
fn sharpness(side: f32) -> f32 {
    const RESOLVED: f32 = 375.0;
    let root = (RESOLVED / side).min(1.0).sqrt();
    root * root.sqrt().sqrt()
}

/// Rounds a level to the nearest byte. Compresses bright values as film does, so that glows do not
/// end abruptly at white.
fn level(value: f32) -> u8 {
    const SHOULDER: f32 = 215.0;
    let over = value - SHOULDER;
    let value = if over > 0.0 { SHOULDER + 40.0 * over / (over + 40.0) } else { value };
    // The conversion with `as` truncates to an integer and clamps to 0..=255, so adding 0.5 rounds.
    (value + 0.5) as u8
}
