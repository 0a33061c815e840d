//! Statistics: a table made from the histograms of the whole image.

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
    /// Pixel type of the output.
    const TYPE: PixelType;
    /// Converts one table per channel.
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
#[expect(clippy::large_enum_variant, reason = "only one value per sample is on the stack")]
pub enum Made {
    /// From bytes to bytes.
    Bytes(Bytes),
    /// From bytes to floats.
    Floats(Floats),
}

/// The kind of tables that one [`StatisticsFormula`] makes.
#[derive(Debug)]
#[non_exhaustive]
pub struct StatisticsKind {
    pub(super) facts: Facts,
    table: fn(&ParamBytes, &Histograms) -> Made,
    reads: Reads,
}

impl StatisticsKind {
    /// The kind with the formula `F`.
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
    /// The kind of tables that the formula `F` makes from histograms.
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

    /// From all histograms. `src` is the whole image.
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
    /// From the histograms that the formula reads.
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
