//! The shape, element type and memory order of a batch.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Element type of the output tensor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum DType {
    /// Unsigned byte, 0 to 255.
    U8,
    /// IEEE 754 binary16, rounded to nearest even.
    F16,
    /// bfloat16 (the upper half of an f32), rounded to nearest even.
    BF16,
    /// IEEE 754 binary32.
    #[default]
    F32,
}

impl DType {
    /// Every element type.
    pub const ALL: [DType; 4] = [DType::U8, DType::F16, DType::BF16, DType::F32];

    /// Bytes of one element.
    pub const fn bytes(self) -> usize {
        match self {
            DType::U8 => 1,
            DType::F16 | DType::BF16 => 2,
            DType::F32 => 4,
        }
    }

    /// The name in TOML and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            DType::U8 => "u8",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::F32 => "f32",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Order of the axes in memory, slowest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// Batch, channel, row, column: planes, as PyTorch has them.
    #[default]
    Nchw,
    /// Batch, row, column, channel: interleaved, as TensorFlow has them.
    Nhwc,
}

impl Layout {
    /// Both layouts.
    pub const ALL: [Layout; 2] = [Layout::Nchw, Layout::Nhwc];

    /// The name in TOML and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Layout::Nchw => "nchw",
            Layout::Nhwc => "nhwc",
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Channels of every image: red, green, blue.
pub const CHANNELS: usize = 3;

/// What one batch looks like in memory: dense, no padding between rows, planes or samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorShape {
    /// Samples.
    pub batch: usize,
    /// Columns of a sample.
    pub width: u32,
    /// Rows of a sample.
    pub height: u32,
    /// Element type.
    pub dtype: DType,
    /// Order of the axes.
    pub layout: Layout,
}

impl TensorShape {
    /// Elements of one sample: 3 x height x width. This and the bytes saturate at `usize::MAX`.
    pub const fn sample_len(self) -> usize {
        CHANNELS.saturating_mul(self.width as usize).saturating_mul(self.height as usize)
    }

    /// Bytes of one sample.
    pub const fn sample_bytes(self) -> usize {
        self.sample_len().saturating_mul(self.dtype.bytes())
    }

    /// Bytes of the batch.
    pub const fn bytes(self) -> usize {
        self.sample_bytes().saturating_mul(self.batch)
    }

    /// Extent of the four axes in memory order, slowest first.
    pub const fn dims(self) -> [usize; 4] {
        let (width, height) = (self.width as usize, self.height as usize);
        match self.layout {
            Layout::Nchw => [self.batch, CHANNELS, height, width],
            Layout::Nhwc => [self.batch, height, width, CHANNELS],
        }
    }
}

impl fmt::Display for TensorShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d] = self.dims();
        write!(f, "{a}x{b}x{c}x{d} {} {}", self.dtype, self.layout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_axes_follow_the_layout() {
        let shape =
            TensorShape { batch: 2, width: 5, height: 3, dtype: DType::F16, layout: Layout::Nchw };
        assert_eq!(shape.bytes(), 2 * 3 * 5 * 3 * 2);
        assert_eq!(shape.dims(), [2, 3, 3, 5]);
        assert_eq!(TensorShape { layout: Layout::Nhwc, ..shape }.dims(), [2, 3, 5, 3]);
    }

    #[test]
    fn bytes_saturate() {
        let shape = TensorShape {
            batch: 1 << 20,
            width: u32::MAX,
            height: u32::MAX,
            dtype: DType::F32,
            layout: Layout::Nchw,
        };
        assert_eq!((shape.sample_bytes(), shape.bytes()), (usize::MAX, usize::MAX));
    }
}
