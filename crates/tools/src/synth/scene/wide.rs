//! Scenes with a view to the horizon.

use super::super::land::House;
use super::super::noise::{Colour, mix};
use super::super::objects::{Leaf, Shade, Trunk};
use super::{Layer, Range, Stage};

impl Stage<'_> {
    pub(super) fn mountains(&mut self) {
        let haze = [176.0, 196.0, 214.0];
        let clouds = [246.0, 246.0, 246.0];
        let sky = [[58.0, 112.0, 190.0], [178.0, 206.0, 228.0], [120.0, 110.0, 80.0], clouds];
        self.sky(0.62 * self.height, sky, 0.22);
        let rock = [104.0, 102.0, 108.0];
        for (number, base) in [0.36, 0.46, 0.55].into_iter().enumerate() {
            let near = number as f32 / 2.0;
            let snow = (number < 2).then_some([238.0, 242.0, 250.0]);
            let colour = mix(mix(haze, rock, 0.55), [70.0, 92.0, 62.0], near);
            let foot = mix(haze, [98.0, 122.0, 86.0], near);
            let (peaks, cell) = (0.26 - 0.09 * near, 0.75);
            let (rough, contrast, texture) = (0.5, 0.75, 0.12 + 0.3 * near);
            self.ridge(Range { base, peaks, cell, rough, contrast, colour, foot, snow, texture });
        }
        self.wood(0.63, 0.03, [36.0, 58.0, 36.0]);
        self.ground(0.66, [92.0, 116.0, 50.0], [140.0, 158.0, 96.0], 0.5, 1.4, 0.95);
        self.stones(9, 0.7, 0.98, [138.0, 134.0, 126.0]);
    }

    /// Adds a line of trees at the end of a meadow.
    pub(super) fn wood(&mut self, base: f32, peaks: f32, colour: Colour) {
        let foot = colour.map(|value| 0.7 * value);
        self.ridge(Range {
            base,
            peaks,
            cell: 0.09,
            rough: 0.8,
            contrast: 0.8,
            colour,
            foot,
            snow: None,
            texture: 0.6,
        });
    }

    pub(super) fn dunes(&mut self) {
        let sky = [
            [70.0, 112.0, 176.0],
            [240.0, 196.0, 150.0],
            [120.0, 76.0, 30.0],
            [250.0, 222.0, 196.0],
        ];
        self.sky(0.5 * self.height, sky, 0.5);
        for (number, base) in [0.43, 0.5, 0.62, 0.8].into_iter().enumerate() {
            let near = number as f32 / 3.0;
            let colour = mix([222.0, 168.0, 124.0], [206.0, 136.0, 70.0], near);
            let foot = mix([226.0, 184.0, 146.0], [150.0, 88.0, 46.0], near);
            let (peaks, cell) = (0.08 + 0.16 * near, 0.7 + 0.6 * near);
            let (rough, contrast, texture) = (0.3, 2.6, 0.2 + 0.4 * near);
            self.ridge(Range {
                base,
                peaks,
                cell,
                rough,
                contrast,
                colour,
                foot,
                snow: None,
                texture,
            });
        }
        self.stones(4, 0.86, 0.99, [120.0, 84.0, 60.0]);
    }

    pub(super) fn sea(&mut self) {
        let sky = [
            [58.0, 78.0, 136.0],
            [246.0, 160.0, 92.0],
            [170.0, 104.0, 40.0],
            [196.0, 128.0, 112.0],
        ];
        let column = self.sky(0.5 * self.height, sky, 0.84);
        let glitter = Some((column, [190.0, 124.0, 60.0]));
        self.plane(0.5, [26.0, 50.0, 74.0], [150.0, 118.0, 110.0], 0.75, 3.5, 0.6, glitter);
        let (colour, foot) = ([62.0, 52.0, 62.0], [90.0, 74.0, 76.0]);
        if self.rng.chance(0.7) {
            // Draw the hills of an island before the water, which then hides their lower part.
            let island = self.layers.pop();
            self.ridge(Range {
                base: 0.51,
                peaks: 0.09,
                cell: 0.8,
                rough: 0.5,
                contrast: 0.4,
                colour,
                foot,
                snow: None,
                texture: 0.2,
            });
            self.layers.extend(island);
        }
        self.stones(11, 0.78, 1.02, [66.0, 60.0, 60.0]);
    }

    pub(super) fn snow(&mut self) {
        let sky = [
            [92.0, 112.0, 168.0],
            [244.0, 190.0, 184.0],
            [120.0, 84.0, 60.0],
            [238.0, 206.0, 206.0],
        ];
        self.sky(0.56 * self.height, sky, 0.7);
        for (number, base) in [0.42, 0.52].into_iter().enumerate() {
            let near = number as f32;
            let colour = mix([168.0, 158.0, 186.0], [132.0, 136.0, 164.0], near);
            let foot = mix([226.0, 200.0, 206.0], [196.0, 198.0, 218.0], near);
            self.ridge(Range {
                base,
                peaks: 0.18,
                cell: 0.7,
                rough: 0.5,
                contrast: 0.55,
                colour,
                foot,
                snow: Some([242.0, 226.0, 228.0]),
                texture: 0.2 + 0.2 * near,
            });
        }
        self.wood(0.6, 0.045, [74.0, 80.0, 92.0]);
        self.ground(0.62, [206.0, 212.0, 230.0], [226.0, 214.0, 222.0], 0.14, 2.4, 0.6);
        for number in 0..9 {
            let near = (number as f32 + 1.0) / 9.0;
            let (x, foot) =
                (self.width * self.between(0.0, 1.0), self.height * (0.64 + 0.3 * near));
            self.fir(x, foot, self.height * (0.1 + 0.4 * near * near), 1.0 + near);
        }
    }

    /// Adds a fir tree with snow on it.
    fn fir(&mut self, x: f32, foot: f32, tall: f32, blur: f32) {
        self.shade(
            [x - 0.4 * self.light * tall, foot],
            [0.45 * tall, 0.06 * tall],
            [0.66, 0.7, 0.82],
        );
        let (salt, light) = (self.rng.bits(), self.light);
        self.layers.push(Layer::Trunk(Trunk {
            foot: x,
            top: foot - tall,
            bottom: foot,
            radius: (0.025 * tall).max(0.5),
            lean: 0.0,
            colour: [66.0, 54.0, 50.0],
            light,
            bark: 0.3,
            softness: blur,
            salt,
        }));
        let twigs = 46;
        for twig in 0..twigs {
            let up = 1.0 - (twig as f32 + 0.5) / twigs as f32;
            let wide = 0.3 * tall * (1.04 - up);
            let off = self.between(-1.0, 1.0);
            let centre =
                [x + 0.8 * off * wide, foot - tall * (0.1 + 0.9 * up) + 0.09 * tall * off * off];
            let colour =
                if self.rng.chance(0.4) { [222.0, 224.0, 236.0] } else { [40.0, 62.0, 56.0] };
            let colour = self.vary(colour, 14.0);
            let length = (0.5 * wide).max(0.03 * tall).max(0.5);
            let tilt = 0.5 * off;
            let turn = [(1.0 - tilt * tilt).sqrt(), tilt];
            let radii = [length, (0.34 * length).max(0.5)];
            self.layers.push(Layer::Leaf(Leaf {
                centre,
                turn,
                radii,
                colour,
                fold: 0.15,
                texture: 0.8,
                softness: blur,
            }));
        }
    }

    pub(super) fn city(&mut self) {
        let sky = [[14.0, 18.0, 44.0], [78.0, 62.0, 86.0], [60.0, 52.0, 44.0], [44.0, 40.0, 62.0]];
        let column = self.sky(0.66 * self.height, sky, 0.3);
        for number in 0..22 {
            let near = number as f32 / 21.0;
            let middle = self.width * self.between(0.0, 1.0);
            let half = self.side * self.between(0.04, 0.1) * (0.7 + 0.6 * near);
            let top = self.height * (self.between(0.2, 0.5) + 0.12 * near);
            let colour = mix([66.0, 58.0, 84.0], [30.0, 30.0, 42.0], near);
            let pitch = (self.side * (0.014 + 0.018 * near)).max(2.0);
            let lamp = self.vary([236.0, 190.0, 110.0], 30.0);
            let salt = self.rng.bits();
            self.layers.push(Layer::House(House {
                left: middle - half,
                right: middle + half,
                top,
                colour,
                pitch,
                lamp,
                salt,
            }));
        }
        self.plane(
            0.72,
            [34.0, 34.0, 44.0],
            [62.0, 54.0, 60.0],
            0.6,
            1.6,
            1.0,
            Some((column, [110.0, 82.0, 44.0])),
        );
        for number in 0..7 {
            let near = (number as f32 + 1.0) / 7.0;
            let x = self.width * self.between(0.03, 0.97);
            let (top, bottom) =
                (self.height * (0.56 - 0.3 * near), self.height * (0.73 + 0.2 * near));
            let (salt, light) = (self.rng.bits(), self.light);
            self.layers.push(Layer::Trunk(Trunk {
                foot: x,
                top,
                bottom,
                radius: (self.side * 0.008 * near).max(0.6),
                lean: 0.0,
                colour: [46.0, 44.0, 48.0],
                light,
                bark: 0.1,
                softness: 1.2,
                salt,
            }));
            let lamp = [210.0, 160.0, 84.0];
            self.glow(
                [x, top],
                self.side * (0.05 + 0.12 * near),
                lamp.map(|value| 0.55 * value),
                false,
            );
            self.glow([x, top], self.side * 0.022 * (0.5 + near), lamp, true);
            let wet = Shade {
                centre: [x, bottom + 0.03 * self.height],
                radii: [0.12 * self.side * near + 1.0, 0.05 * self.height * near + 1.0],
                factor: [1.0; 3],
                light: [70.0, 52.0, 26.0],
                disc: false,
            };
            self.layers.push(Layer::Shade(wet));
        }
    }
}
