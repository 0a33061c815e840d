//! One image.

use feedwater::random::{SampleKey, SampleRng};

/// Image number `index` of the set `seed`: `3 * width * height` bytes of RGB, row after row.
pub fn picture(seed: u64, index: u64, width: u32, height: u32) -> Vec<u8> {
    let scene = Scene::new(seed, index, width, height);
    let (width, height) = (width as usize, height as usize);
    let mut row = Row::new(width);
    let mut rgb = Vec::with_capacity(3 * width * height);
    for y in 0..height {
        scene.background(y, &mut row);
        for leaf in &scene.leaves {
            leaf.draw(y, &mut row);
        }
        scene.expose(y, &row, &mut rgb);
    }
    rgb
}

type Colour = [f32; 3];

/// What is in the image.
struct Scene {
    width: usize,
    height: usize,
    /// Colours of the background: top left, top right, bottom left, bottom right.
    corners: [Colour; 4],
    /// Clouds: brightness of the background.
    clouds: Vec<Noise>,
    /// Slow changes of red against blue over the whole image.
    tint: Noise,
    /// Fine structure, as strong as the surface under it says.
    grain: Vec<Noise>,
    /// Back to front.
    leaves: Vec<Leaf>,
    /// Standard deviation of the sensor's noise in levels.
    sensor: f32,
    salt: u32,
}

/// How much of the finest structure is left in an image of so many pixels across, 0 to 1: what a lens does not
/// resolve is spread over more pixels the more there are, so that large photographs have fewer bytes per pixel.
fn sharpness(side: f32) -> f32 {
    const RESOLVED: f32 = 375.0;
    let root = (RESOLVED / side).min(1.0).sqrt();
    root * root.sqrt()
}

/// One row of the image while it is painted.
struct Row {
    colour: Vec<Colour>,
    /// Strength of the grain, 0 to 1.
    texture: Vec<f32>,
    noise: Vec<f32>,
}

impl Row {
    fn new(width: usize) -> Self {
        Self { colour: vec![[0.0; 3]; width], texture: vec![0.0; width], noise: vec![0.0; width] }
    }
}

impl Scene {
    fn new(seed: u64, index: u64, width: u32, height: u32) -> Self {
        let mut rng = SampleRng::new(SampleKey { seed, epoch: 0, index }, 0);
        let side = width.min(height) as f32;
        let corners = [(); 4].map(|()| colour(&mut rng, 60.0, 220.0));
        let clouds = [(3, 26.0), (7, 14.0), (15, 8.0), (31, 4.0)]
            .map(|(part, amplitude)| Noise::new(&mut rng, side as usize / part, amplitude))
            .into();
        let tint = Noise::new(&mut rng, side as usize / 4, 9.0);
        let busy = between(&mut rng, 0.9, 1.9);
        let sharp = sharpness(side);
        let grain = [(13, 16.0), (5, 22.0), (2, 30.0 * sharp), (1, 24.0 * sharp)]
            .map(|(cell, amplitude)| Noise::new(&mut rng, cell, busy * amplitude))
            .into();
        let count = 60 + rng.below(160);
        let mut leaves: Vec<Leaf> =
            (0..count).map(|_| Leaf::new(&mut rng, width as f32, height as f32)).collect();
        // The large ones behind, or they would hide the rest.
        leaves.sort_by(|a, b| b.reach.total_cmp(&a.reach));
        let sensor = sharp * between(&mut rng, 3.5, 7.0);
        let (width, height) = (width as usize, height as usize);
        let salt = rng.bits();
        Self { width, height, corners, clouds, tint, grain, leaves, sensor, salt }
    }

    fn background(&self, y: usize, row: &mut Row) {
        let v = y as f32 / self.height as f32;
        let left = mix(self.corners[0], self.corners[2], v);
        let right = mix(self.corners[1], self.corners[3], v);
        row.noise.fill(0.0);
        for clouds in &self.clouds {
            clouds.add(y, &mut row.noise);
        }
        for (x, (colour, cloud)) in row.colour.iter_mut().zip(&row.noise).enumerate() {
            *colour = mix(left, right, x as f32 / self.width as f32).map(|value| value + cloud);
        }
        row.texture.fill(0.4);
        row.noise.fill(0.0);
        self.tint.add(y, &mut row.noise);
    }

    /// Adds tint, grain and noise, and writes the bytes.
    fn expose(&self, y: usize, row: &Row, rgb: &mut Vec<u8>) {
        let mut grain = vec![0.0; self.width];
        for noise in &self.grain {
            noise.add(y, &mut grain);
        }
        let surface = row.colour.iter().zip(&row.texture).zip(&row.noise).zip(&grain);
        for (x, (((&[red, green, blue], texture), tint), grain)) in surface.enumerate() {
            let bits = hash(x as u32, y as u32, self.salt);
            let luma = texture * grain + self.sensor * gaussian(bits);
            let chroma = 0.5 * self.sensor * gaussian(bits.wrapping_mul(0x9e37_79b1));
            rgb.extend_from_slice(&[
                level(red + luma + tint + chroma),
                level(green + luma),
                level(blue + luma - tint - chroma),
            ]);
        }
    }
}

/// An ellipse or a rectangle, turned, shaded from one side, with a more or less sharp edge.
struct Leaf {
    centre: [f32; 2],
    /// Cosine and sine of its turn.
    turn: [f32; 2],
    /// Half its extent along its own axes, in pixels.
    radii: [f32; 2],
    round: bool,
    colour: Colour,
    /// Change of brightness from the centre to the edge along its own axes, as a share.
    shade: [f32; 2],
    /// Strength of the grain on it.
    texture: f32,
    /// Pixels over which its edge fades: depth of field.
    softness: f32,
    /// No pixel of it is further than this from the centre.
    reach: f32,
}

impl Leaf {
    fn new(rng: &mut SampleRng, width: f32, height: f32) -> Self {
        let side = width.min(height);
        // Density proportional to radius^-2 between 2 % and 45 % of the shorter side.
        let radius = 0.02 * side / (1.0 - between(rng, 0.0, 1.0) * (1.0 - 0.02 / 0.45));
        let radii = [radius, radius * between(rng, 0.4, 1.0)];
        let round = rng.chance(0.6);
        let softness = 0.8 + 5.0 * cube(between(rng, 0.0, 1.0));
        let [long, short] = radii;
        let reach = if round { long } else { (long * long + short * short).sqrt() };
        let share = between(rng, 0.0, 1.0);
        Self {
            centre: [between(rng, 0.0, width), between(rng, 0.0, height)],
            turn: direction(rng),
            radii,
            round,
            colour: colour(rng, 20.0, 235.0),
            shade: direction(rng).map(|part| 0.4 * part),
            texture: share,
            softness,
            reach: reach + softness,
        }
    }

    fn draw(&self, y: usize, row: &mut Row) {
        let dy = y as f32 + 0.5 - self.centre[1];
        let square = self.reach * self.reach - dy * dy;
        if square <= 0.0 {
            return;
        }
        let half = square.sqrt();
        let first = (self.centre[0] - half).max(0.0) as usize;
        let end = ((self.centre[0] + half).max(0.0) as usize + 1).min(row.colour.len());
        let [cos, sin] = self.turn;
        let [long, short] = self.radii;
        let (per_long, per_short, per_softness) = (1.0 / long, 1.0 / short, 1.0 / self.softness);
        // Both shapes have faded away where either coordinate is beyond this.
        let outside = 1.0 + 0.5 * self.softness * per_short;
        for x in first..end {
            let dx = x as f32 + 0.5 - self.centre[0];
            // -1 to 1 along the leaf's own axes.
            let u = (dx * cos + dy * sin) * per_long;
            let v = (dy * cos - dx * sin) * per_short;
            if u.abs().max(v.abs()) > outside {
                continue;
            }
            let inside = if self.round {
                (1.0 - (u * u + v * v).sqrt()) * short
            } else {
                ((1.0 - u.abs()) * long).min((1.0 - v.abs()) * short)
            };
            let cover = (inside * per_softness + 0.5).clamp(0.0, 1.0);
            if cover > 0.0 {
                let light = 1.0 + u * self.shade[0] + v * self.shade[1];
                let colour = self.colour.map(|value| value * light);
                row.colour[x] = mix(row.colour[x], colour, cover);
                row.texture[x] += cover * (self.texture - row.texture[x]);
            }
        }
    }
}

/// Value noise: random values on a grid, smoothly joined.
struct Noise {
    /// Distance of the grid's points in pixels.
    cell: usize,
    /// Share of the next point at each pixel of a cell.
    shares: Vec<f32>,
    /// Where in its cell the image begins.
    shift: [usize; 2],
    amplitude: f32,
    salt: u32,
}

impl Noise {
    fn new(rng: &mut SampleRng, cell: usize, amplitude: f32) -> Self {
        let cell = cell.max(1);
        let shift = [(); 2].map(|()| rng.below(cell as u64) as usize);
        let shares = (0..cell).map(|inside| smooth(inside as f32 / cell as f32)).collect();
        Self { cell, shares, shift, amplitude, salt: rng.bits() }
    }

    /// Adds row `y` of the noise to `row`.
    fn add(&self, y: usize, row: &mut [f32]) {
        let y = y + self.shift[1];
        let down = self.shares[y % self.cell];
        let node = |column: usize| {
            let value = |line: usize| signed(hash(column as u32, line as u32, self.salt));
            let above = value(y / self.cell);
            self.amplitude * (above + down * (value(y / self.cell + 1) - above))
        };
        let mut column = 0;
        let (mut left, mut right) = (node(0), node(1));
        let mut shares = &self.shares[self.shift[0]..];
        let mut rest = row;
        while !rest.is_empty() {
            let (part, after) = rest.split_at_mut(shares.len().min(rest.len()));
            for (value, share) in part.iter_mut().zip(shares) {
                *value += left + share * (right - left);
            }
            (rest, shares) = (after, &self.shares);
            column += 1;
            (left, right) = (right, node(column + 1));
        }
    }
}

/// A colour of some brightness, more often grey than garish.
fn colour(rng: &mut SampleRng, darkest: f32, brightest: f32) -> Colour {
    let grey = between(rng, darkest, brightest);
    let strength = 60.0 * cube(between(rng, 0.3, 1.0));
    [(); 3].map(|()| grey + strength * between(rng, -1.0, 1.0))
}

/// A unit vector of any direction.
fn direction(rng: &mut SampleRng) -> [f32; 2] {
    loop {
        let [x, y] = [(); 2].map(|()| between(rng, -1.0, 1.0));
        let square = x * x + y * y;
        if (0.01..=1.0).contains(&square) {
            let len = square.sqrt();
            return [x / len, y / len];
        }
    }
}

fn between(rng: &mut SampleRng, low: f32, high: f32) -> f32 {
    rng.between(f64::from(low), f64::from(high)) as f32
}

fn mix(a: Colour, b: Colour, share: f32) -> Colour {
    [0, 1, 2].map(|channel| a[channel] + share * (b[channel] - a[channel]))
}

fn cube(x: f32) -> f32 {
    x * x * x
}

/// 0 to 1 without a kink at either end.
fn smooth(x: f32) -> f32 {
    x * x * (3.0 - 2.0 * x)
}

/// 32 bits to -1 up to 1.
fn signed(bits: u32) -> f32 {
    (bits >> 8) as f32 / 8_388_608.0 - 1.0
}

/// Sum of four bytes, shifted and scaled to mean 0 and standard deviation 1 (that of a byte is 73.9).
fn gaussian(bits: u32) -> f32 {
    let sum: u32 = bits.to_le_bytes().iter().map(|&byte| u32::from(byte)).sum();
    (sum as f32 - 510.0) / 147.8
}

/// Rounded to the nearest byte.
fn level(value: f32) -> u8 {
    // `as` cuts off the fraction and clamps to 0..=255.
    (value + 0.5) as u8
}

/// Murmur3's finaliser over a mix of the three.
fn hash(x: u32, y: u32, salt: u32) -> u32 {
    let mut bits = x.wrapping_mul(0x85eb_ca6b) ^ y.wrapping_mul(0xc2b2_ae35).rotate_left(15) ^ salt;
    bits = (bits ^ (bits >> 16)).wrapping_mul(0x85eb_ca6b);
    bits = (bits ^ (bits >> 13)).wrapping_mul(0xc2b2_ae35);
    bits ^ (bits >> 16)
}
