//! Scenes with objects close to the camera.

use super::super::noise::{Colour, direction, mix};
use super::super::objects::{Leaf, Trunk};
use super::{Layer, Stage};

impl Stage<'_> {
    pub(super) fn forest(&mut self) {
        let sky = [
            [190.0, 208.0, 150.0],
            [214.0, 222.0, 160.0],
            [96.0, 92.0, 40.0],
            [120.0, 150.0, 84.0],
        ];
        self.sky(0.7 * self.height, sky, 0.4);
        self.ground(0.6, [84.0, 72.0, 40.0], [150.0, 160.0, 90.0], 0.6, 1.2, 1.0);
        let mist = [168.0, 186.0, 124.0];
        for number in 0..26 {
            let near = (number as f32 / 25.0) * (number as f32 / 25.0);
            let radius = self.side * (0.008 + 0.05 * near) * self.between(0.7, 1.4);
            let bottom = self.height * (0.62 + 0.32 * near);
            let foot = self.width * self.between(0.0, 1.0);
            let colour = mix(mist, [74.0, 58.0, 44.0], 0.25 + 0.75 * near);
            self.shade(
                [foot - 2.0 * self.light * radius, bottom],
                [5.0 * radius, 0.9 * radius],
                [0.5; 3],
            );
            let (colour, lean) = (self.vary(colour, 8.0), self.between(-0.05, 0.05));
            let (light, salt) = (self.light, self.rng.bits());
            self.layers.push(Layer::Trunk(Trunk {
                foot,
                top: -1.0,
                bottom,
                radius: radius.max(0.5),
                lean,
                colour,
                light,
                bark: 0.1 + 0.32 * near,
                softness: 1.2 + 1.5 * (1.0 - near),
                salt,
            }));
        }
        for number in 0..150 {
            let near = number as f32 / 149.0;
            let y = self.height * self.between(0.0, 1.0) * self.between(0.1, 0.4);
            let x = self.width * self.between(0.0, 1.0);
            let colour = mix([150.0, 176.0, 84.0], [52.0, 92.0, 30.0], near);
            let (colour, length) = (self.vary(colour, 24.0), self.side * self.between(0.02, 0.05));
            self.leaf([x, y], length, 0.45, colour, 0.5, 1.0 + 3.0 * (1.0 - near));
        }
    }

    pub(super) fn fruit(&mut self) {
        let wall = self.vary([128.0, 104.0, 88.0], 34.0);
        let dark = wall.map(|value| 0.55 * value);
        let column = self.sky(0.62 * self.height, [dark, wall, [130.0, 96.0, 54.0], wall], 0.1);
        self.plane(
            0.6,
            [150.0, 98.0, 58.0],
            [120.0, 76.0, 46.0],
            0.3,
            7.0,
            0.6,
            Some((column, [26.0, 20.0, 12.0])),
        );
        let kinds = [
            [226.0, 132.0, 30.0],
            [186.0, 34.0, 28.0],
            [150.0, 176.0, 48.0],
            [228.0, 196.0, 60.0],
            [98.0, 40.0, 78.0],
        ];
        let count = 4 + self.rng.below(4);
        for number in 0..count {
            let near = (number as f32 + 0.5) / count as f32;
            let x = self.width * self.between(0.12, 0.88);
            let y = self.height * (0.6 + 0.24 * near);
            let radius = self.side * self.between(0.09, 0.13) * (0.75 + 0.6 * near);
            let kind = kinds[self.rng.below(5) as usize];
            let (colour, flat) = (self.vary(kind, 16.0), self.between(0.88, 0.98));
            self.ball([x, y], radius, flat, colour, [0.9, 0.35], 1.0 + 2.0 * (1.0 - near));
            let stalk = [x, y - 0.88 * radius * flat];
            self.shade(stalk, [0.28 * radius, 0.16 * radius], [0.3, 0.28, 0.2]);
            self.leaf(
                [stalk[0], stalk[1] - 0.1 * radius],
                0.22 * radius,
                0.4,
                [70.0, 96.0, 40.0],
                0.5,
                1.2,
            );
        }
    }

    pub(super) fn pebbles(&mut self) {
        self.ground(-0.6, [92.0, 84.0, 74.0], [80.0, 74.0, 66.0], 0.5, 1.0, 1.0);
        let kinds = [
            [142.0, 136.0, 130.0],
            [110.0, 104.0, 104.0],
            [168.0, 150.0, 128.0],
            [120.0, 92.0, 76.0],
            [186.0, 184.0, 178.0],
        ];
        let count = 150 + self.rng.below(60);
        for number in 0..count {
            let near = number as f32 / count as f32;
            let (x, y) =
                (self.width * self.between(-0.02, 1.02), self.height * (near * 1.1 - 0.04));
            let tail = 1.0 - self.between(0.0, 1.0) * 0.8;
            let radius = self.side * (0.02 / tail) * (0.7 + 1.0 * near);
            let kind = kinds[self.rng.below(5) as usize];
            let (colour, flat) = (self.vary(kind, 18.0), self.between(0.55, 0.9));
            let gloss = self.between(0.0, 0.35);
            let texture = self.between(0.35, 1.0);
            // Objects at 0.6 of the depth are in focus. The blur grows with the square of the
            // distance from there.
            let blur = 1.0 + 7.0 * (near - 0.6).abs() * (near - 0.6).abs();
            self.ball([x, y], radius, flat, colour, [gloss, texture], blur);
        }
    }

    pub(super) fn foliage(&mut self) {
        let sky =
            [[66.0, 96.0, 48.0], [104.0, 128.0, 60.0], [70.0, 70.0, 26.0], [44.0, 70.0, 36.0]];
        self.sky(self.height, sky, 0.25);
        for _ in 0..26 {
            let centre =
                [self.width * self.between(0.0, 1.0), self.height * self.between(0.0, 0.8)];
            let radius = self.side * self.between(0.03, 0.075);
            let strength = self.between(10.0, 44.0);
            self.glow(centre, radius, [strength, strength, 0.55 * strength], true);
        }
        let count = 130;
        for number in 0..count {
            let near = number as f32 / count as f32;
            let centre =
                [self.width * self.between(-0.05, 1.05), self.height * self.between(0.15, 1.1)];
            let colour = mix([42.0, 70.0, 36.0], [96.0, 148.0, 48.0], near);
            let colour = self.vary(colour, 24.0);
            let length = self.side * self.between(0.07, 0.15) * (0.7 + 0.5 * near);
            let blur = 1.0 + 12.0 * (1.0 - near) * (1.0 - near) * (1.0 - near);
            let below = [centre[0] - 0.15 * length * self.light, centre[1] + 0.2 * length];
            self.shade(below, [0.8 * length, 0.6 * length], [0.6, 0.62, 0.6]);
            self.leaf(centre, length, 0.42, colour, 0.2 + 0.6 * near, blur);
        }
    }

    pub(super) fn flowers(&mut self) {
        let sky = [
            [96.0, 150.0, 210.0],
            [206.0, 222.0, 224.0],
            [90.0, 84.0, 60.0],
            [248.0, 246.0, 240.0],
        ];
        self.sky(0.3 * self.height, sky, 0.3);
        self.wood(0.28, 0.05, [70.0, 98.0, 62.0]);
        self.ground(0.32, [56.0, 96.0, 32.0], [128.0, 156.0, 76.0], 0.6, 0.8, 1.0);
        let kinds = [
            [214.0, 44.0, 40.0],
            [236.0, 200.0, 52.0],
            [236.0, 232.0, 236.0],
            [150.0, 84.0, 176.0],
        ];
        let main = self.rng.below(4) as usize;
        let count = 70;
        for number in 0..count {
            let near = number as f32 / count as f32;
            let depth = near * near;
            let (x, y) =
                (self.width * self.between(-0.02, 1.02), self.height * (0.35 + 0.62 * depth));
            let radius = self.side * (0.007 + 0.075 * depth) * self.between(0.75, 1.2);
            let blade = self.vary([70.0, 112.0, 40.0], 18.0);
            self.leaf([x + radius, y + 1.5 * radius], 1.2 * radius, 0.25, blade, 0.7, 1.2);
            let kind = if self.rng.chance(0.7) { main } else { self.rng.below(4) as usize };
            let colour = self.vary(kinds[kind], 12.0);
            let blur = 1.0 + 3.0 * (near - 0.75).abs();
            self.flower([x, y], radius, colour, blur);
        }
    }

    fn flower(&mut self, [x, y]: [f32; 2], radius: f32, colour: Colour, blur: f32) {
        self.shade(
            [x - 0.4 * self.light * radius, y + 0.7 * radius],
            [1.3 * radius, radius],
            [0.6, 0.62, 0.6],
        );
        let petals: &[[f32; 2]] =
            &[[1.0, 0.0], [0.31, 0.95], [-0.81, 0.59], [-0.81, -0.59], [0.31, -0.95]];
        let tilt = self.between(0.55, 0.9);
        let spin = direction(self.rng);
        for [cos, sin] in petals {
            let out = [cos * spin[0] - sin * spin[1], (sin * spin[0] + cos * spin[1]) * tilt];
            let len = (out[0] * out[0] + out[1] * out[1]).sqrt().max(0.1);
            let shaded =
                colour.map(|value| value * (0.88 + 0.18 * out[0] * self.light - 0.1 * out[1]));
            self.layers.push(Layer::Leaf(Leaf {
                centre: [x + 0.52 * radius * out[0], y + 0.52 * radius * out[1]],
                turn: [out[0] / len, out[1] / len],
                radii: [(0.56 * radius * len).max(0.5), (0.34 * radius).max(0.5)],
                colour: shaded,
                fold: 0.05,
                texture: 0.5,
                softness: blur,
            }));
        }
        self.ball([x, y], 0.24 * radius, 0.9, [206.0, 160.0, 40.0], [0.1, 0.9], blur);
    }
}
