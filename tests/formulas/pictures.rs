//! Pictures that tests/golden/operators/colour.py computes too, and operators applied to them.

use feedwater::op::formula::{Histograms, Tables, map_row};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// RGB pixels in row order.
#[derive(Clone)]
pub struct Picture {
    pub width: usize,
    pub height: usize,
    pub pixels: Vec<[u8; 3]>,
}

impl Picture {
    /// Waves with noise, equal to `picture` in tests/golden/ops.py.
    pub fn waves(width: usize, height: usize, seed: u64) -> Self {
        let value = |at: u64| {
            let (x, y, c) = (at / 3 % width as u64, at / 3 / width as u64, at % 3);
            let mut noise = (at + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            noise ^= noise >> 29;
            noise = noise.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 56;
            let wave = (x * (5 + c) + y * (3 + 2 * c)) % 512;
            let wave = if wave < 256 { wave } else { 511 - wave };
            (if noise < 96 { noise * 2 } else { wave }) as u8
        };
        let pixels = (0..(width * height) as u64).map(|at| [0, 1, 2].map(|c| value(3 * at + c)));
        Self { width, height, pixels: pixels.collect() }
    }

    fn dim(width: usize, height: usize, seed: u64) -> Self {
        Self::waves(width, height, seed).map(|pixel| pixel.map(|byte| byte / 9 * 5 + 40))
    }

    fn constant(width: usize, height: usize, byte: u8) -> Self {
        Self { width, height, pixels: vec![[byte; 3]; width * height] }
    }

    /// Applies a function to each pixel.
    pub fn map(&self, of: impl Fn([u8; 3]) -> [u8; 3]) -> Self {
        let mut out = self.clone();
        out.pixels.chunks_mut(self.width).for_each(|row| map_row(row, &of));
        out
    }

    /// Applies a table to each channel.
    pub fn look_up(&self, tables: &Tables) -> Self {
        self.map(|pixel| {
            std::array::from_fn(|channel| tables[channel][usize::from(pixel[channel])])
        })
    }

    /// Applies a function to the 3x3 neighbourhood of each pixel that is not at the border.
    pub fn stencil(&self, of: impl Fn(&[[u8; 3]; 9]) -> [u8; 3]) -> Self {
        let mut out = self.clone();
        for y in 1..self.height.saturating_sub(1) {
            for x in 1..self.width.saturating_sub(1) {
                out.pixels[y * self.width + x] = of(&self.around(x, y));
            }
        }
        out
    }

    /// Neighbourhood of a pixel that is not at the border, in row order.
    pub fn around(&self, x: usize, y: usize) -> [[u8; 3]; 9] {
        std::array::from_fn(|at| self.pixels[(y + at / 3 - 1) * self.width + x + at % 3 - 1])
    }

    pub fn histograms(&self) -> Histograms {
        let mut histograms = Histograms::EMPTY;
        histograms.add(&self.pixels);
        histograms
    }

    /// First 16 digits of the SHA-256 of all bytes.
    pub fn digest(&self) -> String {
        let bytes = Sha256::digest(self.pixels.as_flattened());
        bytes.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Twin of `PICTURES` in colour.py.
pub fn pictures() -> Vec<Picture> {
    vec![
        Picture::waves(1, 1, 1),
        Picture::waves(1, 9, 2),
        Picture::waves(11, 1, 3),
        Picture::waves(2, 2, 4),
        Picture::waves(3, 3, 5),
        Picture::waves(13, 17, 6),
        Picture::waves(64, 48, 7),
        Picture::waves(211, 97, 8),
        Picture::dim(64, 48, 9),
        Picture::dim(5, 4, 10),
        Picture::constant(6, 5, 0),
        Picture::constant(6, 5, 255),
        Picture::constant(1, 1, 77),
    ]
}

/// All 2^24 colours, blue first.
pub fn colours() -> Picture {
    let pixels = (0..1u32 << 24).map(|at| [(at >> 16) as u8, (at >> 8) as u8, at as u8]);
    Picture { width: 4096, height: 4096, pixels: pixels.collect() }
}

/// Rows of a list of colour.json.
pub fn golden(key: &str) -> Vec<Value> {
    let text = include_str!("../golden/operators/colour.json");
    let all: Value = serde_json::from_str(text).unwrap();
    let rows = all[key].as_array().unwrap().clone();
    assert!(!rows.is_empty());
    rows
}
