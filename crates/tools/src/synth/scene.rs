//! Composes the ten scenes from layers, from back to front.

use feedwater::internals::random::SampleRng;

use super::land::{Ground, House, Ridge, Sky, side_light};
use super::noise::{Colour, Noise, between, direction, vary};
use super::objects::{Ball, Leaf, Shade, Trunk};
use super::row::Row;

mod near;
mod wide;

/// Object or background of a scene, which is drawn row by row.
pub enum Layer {
    Sky(Sky),
    Ridge(Ridge),
    Ground(Ground),
    House(House),
    Ball(Ball),
    Shade(Shade),
    Leaf(Leaf),
    Trunk(Trunk),
}

impl Layer {
    /// Draws the layer's part of row `y`.
    pub fn draw(&self, y: usize, row: &mut Row) {
        match self {
            Self::Sky(it) => it.draw(y, row),
            Self::Ridge(it) => it.draw(y, row),
            Self::Ground(it) => it.draw(y, row),
            Self::House(it) => it.draw(y, row),
            Self::Ball(it) => it.draw(y, row),
            Self::Shade(it) => it.draw(y, row),
            Self::Leaf(it) => it.draw(y, row),
            Self::Trunk(it) => it.draw(y, row),
        }
    }
}

/// Returns the layers of image `index`, from back to front.
pub fn layers(rng: &mut SampleRng, index: u64, width: f32, height: f32) -> Vec<Layer> {
    let side = width.min(height);
    let light = side_light(rng);
    let mut stage = Stage { rng, width, height, side, light, layers: Vec::new() };
    match index % 10 {
        0 => stage.mountains(),
        1 => stage.dunes(),
        2 => stage.sea(),
        3 => stage.forest(),
        4 => stage.fruit(),
        5 => stage.pebbles(),
        6 => stage.foliage(),
        7 => stage.city(),
        8 => stage.snow(),
        _ => stage.flowers(),
    }
    stage.layers
}

/// Shape and colours of a ridge.
struct Range {
    /// Row of the ridge's upper edge without its peaks, as a fraction of the image height.
    base: f32,
    /// Height of the peaks, as a fraction of the image height.
    peaks: f32,
    /// Width of the largest feature, as a fraction of the image's shorter side.
    cell: f32,
    rough: f32,
    contrast: f32,
    colour: Colour,
    foot: Colour,
    snow: Option<Colour>,
    texture: f32,
}

struct Stage<'a> {
    rng: &'a mut SampleRng,
    width: f32,
    height: f32,
    side: f32,
    /// Direction of the light, -1 (left) to 1 (right).
    light: f32,
    layers: Vec<Layer>,
}

impl Stage<'_> {
    fn between(&mut self, low: f32, high: f32) -> f32 {
        between(self.rng, low, high)
    }

    fn vary(&mut self, colour: Colour, levels: f32) -> Colour {
        vary(self.rng, colour, levels)
    }

    fn toward_light(&self) -> [f32; 3] {
        // The result is a unit vector. For light from the side at full strength, the squares of its
        // components are 0.36, 0.38 and 0.26.
        let across = 0.6 * self.light;
        let depth = (1.0 - across * across - 0.38).max(0.0).sqrt();
        [across, -0.616, depth]
    }

    /// Adds a sky down to row `horizon`, and returns the column of its sun.
    fn sky(&mut self, horizon: f32, [top, low, glow, cloud]: [Colour; 4], sun: f32) -> f32 {
        let (top, low) = (self.vary(top, 14.0), self.vary(low, 12.0));
        let column = self.width * (0.5 + self.light * self.between(0.12, 0.36));
        let row = horizon * sun;
        let radius = self.side * self.between(0.025, 0.045);
        let cell = [0.9 * self.side, 0.28 * self.side];
        let clouds = Noise::fractal(self.rng, cell, 0.5, 6, 0.55);
        let cover = self.between(-0.3, 0.25);
        let sun = [column, row];
        self.layers.push(Layer::Sky(Sky {
            top,
            low,
            horizon,
            sun,
            radius,
            glow,
            clouds,
            cloud,
            cover,
        }));
        column
    }

    fn ridge(&mut self, range: Range) {
        let Range { base, peaks, cell, rough, contrast, colour, foot, snow, texture } = range;
        let (peaks, cell) = (peaks * self.height, cell * self.side);
        let base = base * self.height;
        let edge = Ridge::edge(self.rng, self.width, base, peaks, cell, rough);
        // Wind smooths dunes, so they have no gullies.
        let gullies = if rough < 0.4 { 0.12 } else { 2.0 * rough };
        let bump = 0.16 * peaks.max(0.05 * self.side) * gullies;
        let relief = Noise::fractal(self.rng, [0.22 * cell, 0.3 * cell], bump, 6, rough + 0.05);
        let colour = self.vary(colour, 10.0);
        let snow = snow.map(|snow| (base - peaks * between(self.rng, -0.35, 0.25), snow));
        let height = (2.0 * peaks).max(0.2 * self.height);
        let light = self.light;
        self.layers.push(Layer::Ridge(Ridge {
            edge,
            relief,
            colour,
            foot,
            height,
            light,
            contrast,
            snow,
            texture,
        }));
    }

    fn ground(
        &mut self,
        horizon: f32,
        near: Colour,
        far: Colour,
        contrast: f32,
        stretch: f32,
        texture: f32,
    ) {
        self.plane(horizon, near, far, contrast, stretch, texture, None);
    }

    #[expect(clippy::too_many_arguments, reason = "every scene sets all properties of a plane")]
    fn plane(
        &mut self,
        horizon: f32,
        near: Colour,
        far: Colour,
        contrast: f32,
        stretch: f32,
        texture: f32,
        glitter: Option<(f32, Colour)>,
    ) {
        let near = self.vary(near, 10.0);
        let horizon = horizon * self.height;
        self.layers.push(Layer::Ground(Ground {
            horizon,
            height: (self.height - horizon).max(1.0),
            centre: 0.5 * self.width,
            near,
            far,
            contrast,
            stretch,
            glitter,
            texture,
            salt: self.rng.bits(),
        }));
    }

    /// Adds a ball on the ground with its shadow. `flat` is the ratio of height to width.
    fn ball(
        &mut self,
        centre: [f32; 2],
        radius: f32,
        flat: f32,
        colour: Colour,
        [gloss, texture]: [f32; 2],
        blur: f32,
    ) {
        let radii = [radius.max(0.5), (radius * flat).max(0.5)];
        let shadow = [centre[0] - 0.5 * self.light * radii[0], centre[1] + 0.75 * radii[1]];
        self.shade(shadow, [1.45 * radii[0], 0.55 * radii[1]], [0.35, 0.36, 0.4]);
        let turn = if flat < 1.0 {
            let tilt = self.between(-0.2, 0.2);
            [(1.0 - tilt * tilt).sqrt(), tilt]
        } else {
            [1.0, 0.0]
        };
        let light = self.toward_light();
        let softness = blur.max(1.0);
        self.layers.push(Layer::Ball(Ball {
            centre,
            radii,
            turn,
            colour,
            light,
            gloss,
            texture,
            softness,
        }));
    }

    fn shade(&mut self, centre: [f32; 2], radii: [f32; 2], factor: Colour) {
        let radii = radii.map(|it| it.max(0.5));
        self.layers.push(Layer::Shade(Shade {
            centre,
            radii,
            factor,
            light: [0.0; 3],
            disc: false,
        }));
    }

    /// Adds a light: a soft glow, or a disc if the light is out of focus.
    fn glow(&mut self, centre: [f32; 2], radius: f32, light: Colour, disc: bool) {
        let radii = [radius.max(0.5); 2];
        self.layers.push(Layer::Shade(Shade { centre, radii, factor: [1.0; 3], light, disc }));
    }

    fn leaf(
        &mut self,
        centre: [f32; 2],
        length: f32,
        slim: f32,
        colour: Colour,
        texture: f32,
        blur: f32,
    ) {
        let turn = direction(self.rng);
        let fold = self.between(0.04, 0.2) * self.light;
        let radii = [length.max(0.5), (length * slim).max(0.5)];
        self.layers.push(Layer::Leaf(Leaf {
            centre,
            turn,
            radii,
            colour,
            fold,
            texture,
            softness: blur.max(1.0),
        }));
    }

    /// Adds stones on the ground between two rows, distant ones first.
    fn stones(&mut self, count: u64, top: f32, bottom: f32, colour: Colour) {
        for number in 0..count {
            let part = (number as f32 + self.between(0.0, 1.0)) / count as f32;
            let y = self.height * (top + (bottom - top) * part * part);
            let x = self.width * self.between(0.0, 1.0);
            let radius = self.side * self.between(0.012, 0.05) * (0.25 + 1.3 * part);
            let (flat, colour) = (self.between(0.5, 0.8), self.vary(colour, 26.0));
            self.ball([x, y], radius, flat, colour, [0.06, 0.9], 1.2);
        }
    }
}
