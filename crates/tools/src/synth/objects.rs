//! Foreground objects: balls, leaves, trunks, shadows, and lights out of focus.

use super::noise::{Colour, hash, mix, smooth};
use super::row::Row;

/// Ellipsoid, which represents a stone, a fruit, a bush or the centre of a flower.
pub struct Ball {
    pub centre: [f32; 2],
    /// Half width and half height, in pixels.
    pub radii: [f32; 2],
    /// Cosine and sine of the rotation.
    pub turn: [f32; 2],
    pub colour: Colour,
    /// Direction towards the light: right, down, and towards the camera.
    pub light: [f32; 3],
    /// Strength of the highlight, 0 (dull) to 1.
    pub gloss: f32,
    pub texture: f32,
    /// Width of the fading edge in pixels. Objects out of focus have wide edges.
    pub softness: f32,
}

impl Ball {
    pub fn draw(&self, y: usize, row: &mut Row) {
        let reach = self.radii[0].max(self.radii[1]) + self.softness;
        let dy = y as f32 + 0.5 - self.centre[1];
        let [cos, sin] = self.turn;
        let [long, short] = self.radii;
        let per = [1.0 / long, 1.0 / short, 1.0 / self.softness];
        let inner = long.min(short);
        for x in columns(self.centre[0], dy, reach, row) {
            let dx = x as f32 + 0.5 - self.centre[0];
            let (u, v) = ((dx * cos + dy * sin) * per[0], (dy * cos - dx * sin) * per[1]);
            let square = u * u + v * v;
            let cover = ((1.0 - square.sqrt()) * inner * per[2] + 0.5).clamp(0.0, 1.0);
            if cover <= 0.0 {
                continue;
            }
            let depth = (1.0 - square).max(0.0).sqrt();
            let normal = [u * cos - v * sin, u * sin + v * cos, depth];
            let facing =
                normal[0] * self.light[0] + normal[1] * self.light[1] + depth * self.light[2];
            let diffuse = 0.32 + 0.85 * facing.max(0.0) + 0.12 * normal[1].max(0.0);
            let shine =
                power(((2.0 * facing * depth) - self.light[2]).max(0.0)) * self.gloss * 150.0;
            let colour = self.colour.map(|value| value * diffuse + shine);
            row.colour[x] = mix(row.colour[x], colour, cover);
            row.texture[x] += cover * (self.texture - row.texture[x]);
        }
    }
}

/// Returns `x` to the power of 16.
fn power(x: f32) -> f32 {
    let square = x * x;
    let fourth = square * square;
    let eighth = fourth * fourth;
    eighth * eighth
}

/// Ellipse that is darker or brighter than its surroundings.
pub struct Shade {
    pub centre: [f32; 2],
    pub radii: [f32; 2],
    /// Factor by which the colour in the middle of the ellipse is multiplied.
    pub factor: Colour,
    /// Light added in the middle of the ellipse.
    pub light: Colour,
    /// Whether the ellipse is a uniform disc with a sharp edge, like a light out of focus.
    pub disc: bool,
}

impl Shade {
    pub fn draw(&self, y: usize, row: &mut Row) {
        let dy = y as f32 + 0.5 - self.centre[1];
        let v = dy / self.radii[1];
        if v.abs() >= 1.0 {
            return;
        }
        for x in columns(self.centre[0], 0.0, self.radii[0], row) {
            let u = (x as f32 + 0.5 - self.centre[0]) / self.radii[0];
            let inside = 1.0 - u * u - v * v;
            if inside <= 0.0 {
                continue;
            }
            let share = if self.disc { (6.0 * inside).min(1.0) } else { smooth(inside) };
            for (channel, value) in row.colour[x].iter_mut().enumerate() {
                let factor = 1.0 + share * (self.factor[channel] - 1.0);
                *value = *value * factor + share * self.light[channel];
            }
        }
    }
}

/// Leaf or petal, pointed at both ends, with a vein.
pub struct Leaf {
    pub centre: [f32; 2],
    pub turn: [f32; 2],
    /// Half length and half width, in pixels.
    pub radii: [f32; 2],
    pub colour: Colour,
    /// Brightness of one half of the leaf relative to the other half.
    pub fold: f32,
    pub texture: f32,
    pub softness: f32,
}

impl Leaf {
    pub fn draw(&self, y: usize, row: &mut Row) {
        let dy = y as f32 + 0.5 - self.centre[1];
        let [cos, sin] = self.turn;
        let [long, short] = self.radii;
        let per = [1.0 / long, 1.0 / short, 1.0 / self.softness];
        for x in columns(self.centre[0], dy, long + self.softness, row) {
            let dx = x as f32 + 0.5 - self.centre[0];
            let (u, v) = ((dx * cos + dy * sin) * per[0], (dy * cos - dx * sin) * per[1]);
            let outline = 1.0 - u * u;
            let inside = outline * (1.0 + 0.25 * u) - v.abs();
            let cover = (inside * short * per[2] + 0.5).clamp(0.0, 1.0);
            if cover <= 0.0 {
                continue;
            }
            let vein = 0.18 * (1.0 - v.abs() * short * 0.7).max(0.0);
            let half = if v > 0.0 { self.fold } else { -self.fold };
            let bulge = 0.25 * (1.0 - v.abs()) - 0.12;
            let light = 1.0 + half + bulge + vein + 0.15 * u;
            row.colour[x] = mix(row.colour[x], self.colour.map(|value| value * light), cover);
            row.texture[x] += cover * (self.texture - row.texture[x]);
        }
    }
}

/// Trunk or pole: a cylinder in the light, with bark.
pub struct Trunk {
    /// Column of the middle of the trunk at its foot.
    pub foot: f32,
    pub top: f32,
    pub bottom: f32,
    /// Half width of the trunk at its foot, in pixels.
    pub radius: f32,
    /// Lean to the right, in columns per row towards the top.
    pub lean: f32,
    pub colour: Colour,
    pub light: f32,
    /// Contrast of the bark's texture.
    pub bark: f32,
    pub softness: f32,
    pub salt: u32,
}

impl Trunk {
    pub fn draw(&self, y: usize, row: &mut Row) {
        let up = self.bottom - y as f32 - 0.5;
        if up <= 0.0 || (y as f32) < self.top {
            return;
        }
        let share = up / (self.bottom - self.top).max(1.0);
        // Roots widen the foot.
        let flare = (1.0 - 12.0 * share).max(0.0);
        let radius = self.radius * (1.0 - 0.35 * share + 0.4 * flare * flare);
        let centre = self.foot + self.lean * up;
        for x in columns(centre, 0.0, radius + self.softness, row) {
            let dx = x as f32 + 0.5 - centre;
            let cover = ((radius - dx.abs()) / self.softness + 0.5).clamp(0.0, 1.0);
            if cover <= 0.0 {
                continue;
            }
            let u = (dx / radius).clamp(-1.0, 1.0);
            let lit = 0.45 + 0.55 * (1.0 - u * u).sqrt() + 0.4 * u * self.light;
            let furrow =
                hash((8.0 + 7.0 * u) as u32, (up / (1.0 + 0.9 * self.radius)) as u32, self.salt);
            let bark = 1.0 + self.bark * ((furrow & 255) as f32 / 128.0 - 1.0);
            let colour = self.colour.map(|value| value * lit * bark);
            row.colour[x] = mix(row.colour[x], colour, cover);
            row.texture[x] += cover * (1.8 * self.bark - row.texture[x]);
        }
    }
}

/// Columns of a row that are within the distance `reach` of a point. The point is in column
/// `centre` and `dy` rows away.
fn columns(centre: f32, dy: f32, reach: f32, row: &Row) -> std::ops::Range<usize> {
    let square = reach * reach - dy * dy;
    if square <= 0.0 {
        return 0..0;
    }
    let half = square.sqrt();
    let first = (centre - half).max(0.0) as usize;
    first..((centre + half).max(0.0) as usize + 1).min(row.colour.len())
}
