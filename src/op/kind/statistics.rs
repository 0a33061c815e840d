//! Statistics: look-up tables that are computed from the histograms of the whole image.

use bytemuck::Pod;
use serde::Serialize;
use serde_json::Value;

use crate::geometry::Roi;
use crate::image::{HostImage, PixelType};
use crate::op::Wanted;
use crate::op::shared::Histograms;
use crate::tensor::CHANNELS;

use super::mix::Mixer;
use super::table::{Bytes, Floats, look_up};
use super::{
    ActionKind, Cases, Codes, Cuda, Execution, Executor, Facts, Kind, MakeTable, ParamBytes,
    ProgramRole,
};

/// Computes a look-up table from the histograms of the image.
pub trait StatisticsFormula: 'static {
    /// Parameters of one sample, with the same rules as
    /// [`ColourFormula::Params`](super::ColourFormula::Params).
    type Params: Pod + Serialize;
    /// Type of the values in the table: bytes or floats.
    type Value: TableValue;
    /// CUDA implementation: a type with the function `static __device__ T of(const Params& p, const
    /// Histograms& h, int channel, int byte)`, which computes one entry of the table. The name of
    /// the parameters' type is the name of this type followed by `Params`.
    const CUDA: Option<Cuda>;
    /// Histograms from which the table is computed. On the CPU, all other histograms are empty.
    const READS: Reads = Reads::All;

    /// The table.
    fn table(params: &Self::Params, histograms: &Histograms) -> [[Self::Value; 256]; CHANNELS];
}

/// Which histograms a formula reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// The histograms of the channels.
    Channels,
    /// Only the smallest and the largest byte that occur in each channel. The bins of all other
    /// bytes may be empty.
    Extremes,
    /// Only the number of pixels and the sum of their gray values. The histogram of the gray image
    /// gives both numbers.
    MeanGray,
    /// All.
    All,
}

/// Type of the values in a table.
pub trait TableValue: Sized + 'static {
    /// Pixel type of an image that is made with the table.
    const TYPE: PixelType;
    /// Wraps a table, which has 256 entries for each channel.
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

/// A look-up table that was computed from histograms.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "only one value per sample is on the stack")]
pub enum Made {
    /// Maps bytes to bytes.
    Bytes(Bytes),
    /// Maps bytes to floats.
    Floats(Floats),
}

/// Kind of the actions whose tables one [`StatisticsFormula`] computes.
#[derive(Debug)]
#[non_exhaustive]
pub struct StatisticsKind {
    pub(super) facts: Facts,
    table: fn(&ParamBytes, &Histograms) -> Made,
    reads: Reads,
}

impl StatisticsKind {
    /// Kind of the actions whose tables the formula `F` computes.
    pub const fn of<F: StatisticsFormula>() -> &'static Self {
        const {
            &Self {
                facts: Facts {
                    pixels: |input| {
                        (input == PixelType::U8).then_some(<F::Value as TableValue>::TYPE)
                    },
                    cuda: F::CUDA,
                    params_bytes: size_of::<F::Params>(),
                    program: ProgramRole::added(cases),
                    ..Facts::new::<(Params, F)>(Execution::Statistics)
                },
                table: |params, histograms| F::Value::made(F::table(params.get(), histograms)),
                reads: F::READS,
            }
        }
    }
}

impl Kind {
    /// Kind of the actions whose tables the formula `F` computes from histograms.
    pub const fn statistics<F: StatisticsFormula>() -> Self {
        Kind::Statistics(StatisticsKind::of::<F>())
    }
}

/// Parameters of one sample.
#[derive(Clone, Debug)]
pub struct Params {
    /// The kind.
    pub formula: &'static StatisticsKind,
    /// Parameters of the formula.
    pub params: ParamBytes,
}

impl ActionKind for Params {
    fn demand(&mut self, wanted: Wanted, _: &mut Vec<i32>, _: usize) -> Roi {
        wanted.input.window()
    }

    fn executor(&self) -> Executor<'_> {
        Executor::Statistics(self)
    }

    /// Computes all histograms, and from them the table. `src` is the whole image.
    fn reference(&self, _: &[i32], src: &HostImage, out: &mut HostImage, _: &mut Mixer) {
        let HostImage::U8(bytes) = src else { unreachable!("statistics are of bytes") };
        let mut histograms = Histograms::EMPTY;
        histograms.add(bytes.data().as_chunks().0);
        match ((self.formula.table)(&self.params, &histograms), src, out) {
            (Made::Bytes(table), HostImage::U8(src), HostImage::U8(out)) => {
                look_up(&table, src, out)
            }
            (Made::Floats(table), HostImage::U8(src), HostImage::F32(out)) => {
                look_up(&table, src, out);
            }
            _ => unreachable!("the pixel types of the images are those of the table"),
        }
    }

    fn bytes(&self, _: u64) -> ParamBytes {
        self.params
    }

    fn named(&self) -> (&'static str, Option<Value>) {
        ("statistics", None)
    }
}

impl MakeTable for Params {
    /// Computes only the histograms that the formula reads, and from them the table.
    fn table(&self, image: &HostImage) -> Made {
        let HostImage::U8(image) = image else { unreachable!("statistics are of bytes") };
        let mut histograms = Histograms::EMPTY;
        let pixels = image.data().as_chunks().0;
        match self.formula.reads {
            Reads::Channels => histograms.add_channels(pixels),
            Reads::Extremes => histograms.add_extremes(pixels),
            Reads::MeanGray => histograms.add_mean_gray(pixels),
            Reads::All => histograms.add(pixels),
        }
        (self.formula.table)(&self.params, &histograms)
    }
}

fn cases(codes: &Codes, cases: &mut Cases) {
    if let Some(code) = codes.bytes {
        let name = codes.type_name;
        let call = format!("{name}::of(step.as<{name}Params>(), h, channel, byte)");
        cases.entries.push_str(&format!("    case {code}: return {call};\n"));
    }
}
