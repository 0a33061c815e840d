//! Noise and random numbers, computed with the same results on every machine.

use feedwater::internals::random::SampleRng;

/// RGB colour in levels of 0 to 255. Values may lie outside that range until they are written.
pub type Colour = [f32; 3];

/// Value noise: random values on a grid with smooth interpolation.
pub struct Noise {
    /// Number of rows between grid points.
    rows: usize,
    /// Interpolation weight of the next grid point, for each column of a cell.
    across: Vec<f32>,
    /// Interpolation weight of the next grid point, for each row of a cell.
    down: Vec<f32>,
    /// Number of columns and rows of the first cell that lie outside the image.
    shift: [usize; 2],
    amplitude: f32,
    salt: u32,
}

impl Noise {
    /// Creates noise whose cells are `cell` columns and rows large.
    pub fn new(rng: &mut SampleRng, cell: [f32; 2], amplitude: f32) -> Self {
        let [columns, rows] = cell.map(|pixels| pixels.max(1.0) as usize);
        let shift = [columns, rows].map(|pixels| rng.below(pixels as u64) as usize);
        let shares = |pixels: usize| -> Vec<f32> {
            (0..pixels).map(|inside| smooth(inside as f32 / pixels as f32)).collect()
        };
        let (across, down) = (shares(columns), shares(rows));
        Self { rows, across, down, shift, amplitude, salt: rng.bits() }
    }

    /// Creates several octaves of noise. The cells of the first octave have size `cell`. Each
    /// further octave has cells of half the size, and `gain` times the amplitude of the previous
    /// octave.
    pub fn fractal(
        rng: &mut SampleRng,
        cell: [f32; 2],
        amplitude: f32,
        octaves: i32,
        gain: f32,
    ) -> Vec<Self> {
        let (mut cell, mut amplitude) = (cell, amplitude);
        let mut all = Vec::new();
        for _ in 0..octaves {
            all.push(Self::new(rng, cell, amplitude));
            cell = cell.map(|pixels| 0.5 * pixels);
            amplitude *= gain;
            if cell[0] < 1.0 || cell[1] < 1.0 {
                break;
            }
        }
        all
    }

    /// Adds row `y` of the noise to `row`.
    pub fn add(&self, y: usize, row: &mut [f32]) {
        let y = y + self.shift[1];
        let down = self.down[y % self.rows];
        let node = |column: usize| {
            let value = |line: usize| signed(hash(column as u32, line as u32, self.salt));
            let above = value(y / self.rows);
            self.amplitude * (above + down * (value(y / self.rows + 1) - above))
        };
        let mut column = 0;
        let (mut left, mut right) = (node(0), node(1));
        let mut shares = &self.across[self.shift[0]..];
        let mut rest = row;
        while !rest.is_empty() {
            let (part, after) = rest.split_at_mut(shares.len().min(rest.len()));
            for (value, share) in part.iter_mut().zip(shares) {
                *value += left + share * (right - left);
            }
            (rest, shares) = (after, &self.across);
            column += 1;
            (left, right) = (right, node(column + 1));
        }
    }
}

/// Adds one row of value noise on a plane in perspective. The row starts at column `start`,
/// advances by `step` per pixel, and is at depth `depth`. These values are in cells of the noise.
pub fn add_plane(row: &mut [f32], start: f32, step: f32, depth: f32, amplitude: f32, salt: u32) {
    let line = depth as i32;
    let down = smooth(depth - line as f32);
    let node = |column: i32| {
        let above = signed(hash(column as u32, line as u32, salt));
        let below = signed(hash(column as u32, line as u32 + 1, salt));
        amplitude * (above + down * (below - above))
    };
    // The conversion to an integer truncates. With this offset the value is positive, so truncating
    // is rounding down.
    let mut at = f64::from(start) + 4_194_304.0;
    let mut column = at as i32;
    let (mut left, mut right) = (node(column), node(column + 1));
    for value in row {
        let now = at as i32;
        if now != column {
            left = if now == column + 1 { right } else { node(now) };
            right = node(now + 1);
            column = now;
        }
        *value += left + smooth((at - f64::from(now)) as f32) * (right - left);
        at += f64::from(step);
    }
}

/// Returns a random unit vector.
pub fn direction(rng: &mut SampleRng) -> [f32; 2] {
    loop {
        let [x, y] = [(); 2].map(|()| between(rng, -1.0, 1.0));
        let square = x * x + y * y;
        if (0.01..=1.0).contains(&square) {
            let len = square.sqrt();
            return [x / len, y / len];
        }
    }
}

pub fn between(rng: &mut SampleRng, low: f32, high: f32) -> f32 {
    rng.between(f64::from(low), f64::from(high)) as f32
}

/// Randomly changes the lightness and hue of a colour by about `levels` at most.
pub fn vary(rng: &mut SampleRng, colour: Colour, levels: f32) -> Colour {
    let light = between(rng, -levels, levels);
    colour.map(|value| (value + light + between(rng, -0.4 * levels, 0.4 * levels)).max(2.0))
}

pub fn mix(a: Colour, b: Colour, share: f32) -> Colour {
    [0, 1, 2].map(|channel| a[channel] + share * (b[channel] - a[channel]))
}

/// Smoothstep function on 0 to 1.
pub fn smooth(x: f32) -> f32 {
    x * x * (3.0 - 2.0 * x)
}

/// Maps 32 bits to -1..1.
fn signed(bits: u32) -> f32 {
    (bits >> 8) as f32 / 8_388_608.0 - 1.0
}

/// Returns a roughly normal value from random bits, with mean 0 and standard deviation 1. The value
/// is computed from the sum of the four bytes of `bits`. A single byte has the standard deviation
/// 73.9, so the sum has 147.8.
pub fn gaussian(bits: u32) -> f32 {
    let sum: u32 = bits.to_le_bytes().iter().map(|&byte| u32::from(byte)).sum();
    (sum as f32 - 510.0) / 147.8
}

/// Hashes three values with the finalizer of Murmur3.
pub fn hash(x: u32, y: u32, salt: u32) -> u32 {
    let mut bits = x.wrapping_mul(0x85eb_ca6b) ^ y.wrapping_mul(0xc2b2_ae35).rotate_left(15) ^ salt;
    bits = (bits ^ (bits >> 16)).wrapping_mul(0x85eb_ca6b);
    bits = (bits ^ (bits >> 13)).wrapping_mul(0xc2b2_ae35);
    bits ^ (bits >> 16)
}
