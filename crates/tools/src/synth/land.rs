//! Distant layers: sky, ridges and the ground.

use feedwater::internals::random::SampleRng;

use super::noise::{Colour, Noise, add_plane, between, mix, smooth};
use super::row::Row;

/// Sky with a gradient, clouds, and the glow of a sun or lamp.
pub struct Sky {
    pub top: Colour,
    pub low: Colour,
    /// Row at which the gradient ends: the horizon.
    pub horizon: f32,
    pub sun: [f32; 2],
    /// Radius of the disc of the sun or lamp, in pixels.
    pub radius: f32,
    pub glow: Colour,
    pub clouds: Vec<Noise>,
    pub cloud: Colour,
    /// Cloud cover, -1 (none) to 1 (full).
    pub cover: f32,
}

impl Sky {
    pub fn draw(&self, y: usize, row: &mut Row) {
        let share = (y as f32 / self.horizon.max(1.0)).min(1.0);
        let base = mix(self.top, self.low, share * share);
        row.noise.fill(0.0);
        for clouds in &self.clouds {
            clouds.add(y, &mut row.noise);
        }
        let dy = y as f32 + 0.5 - self.sun[1];
        let (disc, halo) = (self.radius * self.radius, 30.0 * self.radius * self.radius);
        let surface = row.colour.iter_mut().zip(&mut row.texture).zip(&row.noise);
        for (x, ((colour, texture), noise)) in surface.enumerate() {
            let dx = x as f32 + 0.5 - self.sun[0];
            let square = dx * dx + dy * dy;
            let glow = halo / (halo + square) * 0.75 + disc / (disc + square);
            let cover = smooth((1.4 * (noise + self.cover)).clamp(0.0, 1.0));
            // Thick clouds are darker.
            let thick = 1.0 - 0.22 * (noise + self.cover - 0.4).clamp(0.0, 1.0);
            *colour = mix(base, self.cloud.map(|value| value * thick), 0.85 * cover);
            for (value, light) in colour.iter_mut().zip(self.glow) {
                *value += light * glow;
            }
            *texture = 0.1 + 0.12 * cover;
        }
    }
}

/// A mountain range, hills, dunes, or a line of trees.
pub struct Ridge {
    /// For each column, the row of the upper edge.
    pub edge: Vec<f32>,
    /// Noise that shapes the slopes. Its amplitude is in pixels.
    pub relief: Vec<Noise>,
    pub colour: Colour,
    /// Colour of the lower parts, which lie in haze.
    pub foot: Colour,
    /// Number of rows from the upper edge to the foot.
    pub height: f32,
    /// Direction of the light, -1 (left) to 1 (right).
    pub light: f32,
    /// Contrast of the slopes, 0 to 1.
    pub contrast: f32,
    /// Row above which snow lies, and the colour of the snow. `None` without snow.
    pub snow: Option<(f32, Colour)>,
    pub texture: f32,
}

impl Ridge {
    /// Creates an upper edge around row `base` with peaks that are `peaks` rows high. `rough` is
    /// the ratio of the amplitudes of two successive octaves of noise.
    pub fn edge(
        rng: &mut SampleRng,
        width: f32,
        base: f32,
        peaks: f32,
        cell: f32,
        rough: f32,
    ) -> Vec<f32> {
        let mut edge = vec![base; width as usize];
        for noise in Noise::fractal(rng, [cell, 64.0], peaks, 7, rough) {
            noise.add(0, &mut edge);
        }
        edge
    }

    pub fn draw(&self, y: usize, row: &mut Row) {
        row.noise.fill(0.0);
        for relief in &self.relief {
            relief.add(y, &mut row.noise);
        }
        let (line, last) = (y as f32 + 0.5, row.noise.len() - 1);
        let step = (0.012 * self.height) as usize + 1;
        let per_step = self.light / step as f32;
        for x in 0..=last {
            let below = line - self.edge[x];
            if below <= -0.5 {
                continue;
            }
            let cover = (below + 0.5).min(1.0);
            let bump = row.noise[x];
            // The slope at a pixel follows the slope of the upper edge. The relief and the light
            // shift the column at which the edge is read.
            let above = (x as f32 + 2.0 * bump + 0.5 * self.light * below).max(0.0) as usize;
            let (before, after) =
                (above.saturating_sub(2 * step).min(last), (above + 2 * step).min(last));
            let face = 0.25 * (self.edge[after] - self.edge[before]);
            let slope =
                (row.noise[(x + step).min(last)] - row.noise[x.saturating_sub(step)]) - face;
            let lit = 1.0 + (self.contrast * slope * per_step).clamp(-0.62, 0.62);
            let mut colour = self.colour;
            if let Some((limit, snow)) = self.snow {
                let share = ((limit - line + 3.0 * bump) * (12.0 / self.height)).clamp(0.0, 1.0);
                colour = mix(colour, snow, share);
            }
            let haze = (below / self.height).clamp(0.0, 1.0);
            let colour = mix(colour.map(|value| value * lit), self.foot, 0.8 * haze);
            row.colour[x] = mix(row.colour[x], colour, cover);
            row.texture[x] += cover * (self.texture - row.texture[x]);
        }
    }
}

/// The ground from the camera to the horizon: a meadow, sand, snow, water, a road or a table.
pub struct Ground {
    pub horizon: f32,
    /// Number of rows from the horizon to the lower edge of the image.
    pub height: f32,
    pub centre: f32,
    pub near: Colour,
    pub far: Colour,
    /// Contrast of the ground's texture.
    pub contrast: f32,
    /// Ratio of the width to the depth of the texture's cells.
    pub stretch: f32,
    /// Column of a light, and the colour in which waves or wet ground reflect it.
    pub glitter: Option<(f32, Colour)>,
    pub texture: f32,
    pub salt: u32,
}

impl Ground {
    pub fn draw(&self, y: usize, row: &mut Row) {
        let below = y as f32 + 0.5 - self.horizon;
        if below <= -0.5 {
            return;
        }
        let cover = (below + 0.5).min(1.0);
        let share = (below / self.height).clamp(0.0, 1.0);
        // Distance of the row from the camera: 1 at the lower edge of the image, and larger towards
        // the horizon.
        let depth = self.height / below.max(0.5);
        row.noise.fill(0.0);
        for (octave, (cells, amplitude)) in
            [(2.0_f32, 0.30_f32), (5.0, 0.28), (13.0, 0.26), (33.0, 0.22), (80.0, 0.2)]
                .into_iter()
                .enumerate()
        {
            let step = depth * cells / (self.height * self.stretch);
            let rows = depth * depth * cells / self.height;
            // Fade out octaves whose cells are smaller than a pixel.
            let seen = (0.7 / step.max(0.02)).min(1.0) * (1.2 / rows.max(0.02)).min(1.0);
            let amplitude = amplitude * seen;
            if amplitude > 0.01 {
                let start = -self.centre * step;
                let salt = self.salt.wrapping_add((octave as u32).wrapping_mul(0x9e37_79b9));
                add_plane(&mut row.noise, start, step, depth * cells, amplitude, salt);
            }
        }
        let base = mix(self.far, self.near, share.sqrt());
        let texture = self.texture * (0.2 + 0.8 * share);
        for (x, colour) in row.colour.iter_mut().enumerate() {
            let noise = row.noise[x];
            let mut here = base.map(|value| value * (1.0 + self.contrast * noise));
            if let Some((column, light)) = self.glitter {
                let width = 0.06 * self.height + 0.35 * below;
                let off = (x as f32 - column) / width;
                let strength = (0.35 + 1.8 * noise).clamp(0.0, 1.6) / (1.0 + off * off * off * off);
                for (value, light) in here.iter_mut().zip(light) {
                    *value += light * strength;
                }
            }
            *colour = mix(*colour, here, cover);
            row.texture[x] += cover * (texture - row.texture[x]);
        }
    }
}

/// House at night. Some of its windows are lit.
pub struct House {
    pub left: f32,
    pub right: f32,
    pub top: f32,
    pub colour: Colour,
    /// Distance between the windows in pixels.
    pub pitch: f32,
    pub lamp: Colour,
    pub salt: u32,
}

impl House {
    pub fn draw(&self, y: usize, row: &mut Row) {
        let below = y as f32 + 0.5 - self.top;
        if below <= 0.0 {
            return;
        }
        let end = (self.right.max(0.0) as usize).min(row.colour.len());
        let first = (self.left.max(0.0) as usize).min(end);
        let floor = (below / (1.5 * self.pitch)) as u32;
        let v = below / (1.5 * self.pitch) - floor as f32;
        let across = 1.0 / (self.right - self.left).max(1.0);
        for x in first..end {
            let inside = x as f32 + 0.5 - self.left;
            let column = (inside / self.pitch) as u32;
            let u = inside / self.pitch - column as f32;
            let bits = super::noise::hash(column, floor, self.salt);
            let pane = (0.25..0.75).contains(&u) && (0.25..0.8).contains(&v);
            row.colour[x] = match (pane, bits & 7) {
                (true, 0..=2) => self.lamp.map(|value| value * (0.5 + (bits >> 24) as f32 / 400.0)),
                (true, _) => self.colour.map(|value| 0.5 * value),
                _ => self.colour.map(|value| value * (0.75 + 0.5 * inside * across)),
            };
            row.texture[x] = 0.35;
        }
    }
}

/// Returns a random light direction, always clearly from the left or the right.
pub fn side_light(rng: &mut SampleRng) -> f32 {
    let strength = between(rng, 0.6, 1.0);
    if rng.chance(0.5) { strength } else { -strength }
}
