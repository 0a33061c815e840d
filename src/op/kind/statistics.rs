//! Statistics: a table made from the histograms of the whole image.

use std::any::TypeId;

use bytemuck::Pod;
use serde::Serialize;

use crate::image::{HostImage, PixelType};
use crate::op::formula::Histograms;
use crate::op::{Cuda, ParamBytes};
use crate::tensor::CHANNELS;

use super::table::{Bytes, Floats, look_up};

/// A table that follows from the histograms of the image.
pub trait StatisticsFormula: 'static {
    /// As [`ColourFormula::Params`](super::ColourFormula::Params).
    type Params: Pod + Serialize;
    /// Values of the table: bytes or floats.
    type Value: TableValue;
    /// CUDA implementation: a type with the function `static __device__ T of(const Params& p, const Histograms& h, int
    /// channel, int byte)` for one entry, whose parameters' type has the same name and `Params` behind it.
    const CUDA: Option<Cuda>;
    /// Histograms that the table is made from. On the CPU the others are empty.
    const READS: Reads = Reads::All;

    /// The table.
    fn table(params: &Self::Params, histograms: &Histograms) -> [[Self::Value; 256]; CHANNELS];
}

/// Histograms that a formula reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// Those of the channels.
    Channels,
    /// Of those of the channels only the first and the last byte that occurs. All other bins may be empty.
    Extremes,
    /// Of that of the gray image only the number of pixels and their sum.
    MeanGray,
    /// All.
    All,
}

/// Value of a table.
pub trait TableValue: Sized + 'static {
    #[doc(hidden)]
    const TYPE: PixelType;
    #[doc(hidden)]
    fn made(table: [[Self; 256]; CHANNELS]) -> Made;
}

impl TableValue for u8 {
    const TYPE: PixelType = PixelType::U8;

    fn made(table: Bytes) -> Made {
        Made::Bytes(table)
    }
}

impl TableValue for f32 {
    const TYPE: PixelType = PixelType::F32;

    fn made(table: Floats) -> Made {
        Made::Floats(table)
    }
}

/// A table made from histograms.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "made once per sample, and never stored")]
pub enum Made {
    /// From bytes to bytes.
    Bytes(Bytes),
    /// From bytes to floats.
    Floats(Floats),
}

/// A [`StatisticsFormula`] as data.
#[derive(Debug)]
#[non_exhaustive]
pub struct StatisticsForm {
    /// Identifies the formula.
    pub(super) formula: fn() -> TypeId,
    pub(super) cuda: Option<Cuda>,
    pub(crate) params_bytes: usize,
    /// Pixel type of the output.
    pub(crate) output: PixelType,
    pub(crate) table: fn(&ParamBytes, &Histograms) -> Made,
    reads: Reads,
}

impl StatisticsForm {
    /// The formula `F`.
    pub const fn of<F: StatisticsFormula>() -> &'static Self {
        const {
            &Self {
                formula: TypeId::of::<F>,
                cuda: F::CUDA,
                params_bytes: size_of::<F::Params>(),
                output: <F::Value as TableValue>::TYPE,
                table: |params, histograms| F::Value::made(F::table(params.get(), histograms)),
                reads: F::READS,
            }
        }
    }

    /// Table for an image of bytes that is stored whole, from the histograms that the formula reads.
    pub(crate) fn made(&self, params: &ParamBytes, image: &HostImage) -> Made {
        let HostImage::U8(image) = image else { unreachable!("statistics are of bytes") };
        let mut histograms = Histograms::EMPTY;
        let pixels = image.data().as_chunks().0;
        match self.reads {
            Reads::Channels => histograms.add_channels(pixels),
            Reads::Extremes => histograms.add_extremes(pixels),
            Reads::MeanGray => histograms.add_mean_gray(pixels),
            Reads::All => histograms.add(pixels),
        }
        (self.table)(params, &histograms)
    }

    /// Reference implementation, from all histograms. `src` is the whole image.
    pub(crate) fn reference(&self, params: &ParamBytes, src: &HostImage, out: &mut HostImage) {
        let HostImage::U8(bytes) = src else { unreachable!("statistics are of bytes") };
        let mut histograms = Histograms::EMPTY;
        histograms.add(bytes.data().as_chunks().0);
        match ((self.table)(params, &histograms), src, out) {
            (Made::Bytes(table), HostImage::U8(src), HostImage::U8(out)) => {
                look_up(&table, src, out)
            }
            (Made::Floats(table), HostImage::U8(src), HostImage::F32(out)) => {
                look_up(&table, src, out);
            }
            _ => unreachable!("the images have the types of the table"),
        }
    }
}
