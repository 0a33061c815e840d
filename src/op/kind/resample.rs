//! Actions that resample an image: they compute weighted sums along rows and columns. The weights
//! are in a table of coefficients. `op/resample/` computes the sums.

use std::ops::Range;

use serde_json::{Value, json};

use crate::geometry::{Roi, Size};
use crate::image::HostImage;
use crate::op::resample::{self, TableBounds, Weights};
use crate::op::{OriginMap, Trace, Wanted};

use super::mix::Mixer;
use super::{
    ActionKind, Cases, Codes, Cuda, Execution, Executor, Facts, ParamBytes, ProgramRole, Tiling,
};

const CUDA: Cuda =
    Cuda::new("Resample", include_str!("../../../kernels/resample.cu")).tiled(Tiling::Resamples);

/// The kind.
pub static FACTS: Facts = Facts {
    takes_decoded_floats: true,
    cuda: Some(CUDA),
    params_bytes: size_of::<resample::Params>(),
    nests: true,
    program: ProgramRole { cases, ..ProgramRole::BUILT_IN },
    ..Facts::new::<Params>(Execution::Resample)
};

/// Parameters of the resampling of one sample.
#[derive(Clone, Debug)]
pub struct Params {
    /// Region that is resampled, size of the output, and offsets into the table of coefficients.
    pub axes: resample::Params,
    /// How the coefficients are computed: from a filter or a blur.
    pub weights: Weights,
    /// Whether the image has floats.
    pub floats: bool,
}

impl Params {
    /// Resamples the region `of` of an image to an image of size `to`.
    pub fn new(of: Roi, to: Size, weights: Weights, floats: bool) -> Self {
        Self { axes: resample::Params::new(of, to), weights, floats }
    }

    /// Bounds on the table, whatever window of the output is wanted.
    pub fn table_bounds(&self) -> TableBounds {
        let bounds = self.weights.table_bounds(self.axes.of().size(), self.axes.output());
        if self.floats { bounds.for_floats() } else { bounds }
    }
}

impl ActionKind for Params {
    fn demand(&mut self, wanted: Wanted, table: &mut Vec<i32>, _: usize) -> Roi {
        self.weights.fill_table(&mut self.axes, wanted, self.floats, table)
    }

    /// The weights of one output are computed in f64 and then converted to entries.
    fn most_entries(&self) -> usize {
        let TableBounds { entries, taps, .. } = self.table_bounds();
        let weights = (size_of::<f64>() / size_of::<i32>()) * taps[0].max(taps[1]);
        entries.saturating_add(weights)
    }

    fn trace(&self, _: Size, trace: &mut Trace) {
        trace.crop(self.axes.of());
        trace.cropping = false;
        trace.mapping.resize(self.axes.of(), self.axes.output());
    }

    /// A blur moves no pixels.
    fn follow(&self, _: Range<usize>, _: Size, origins: &mut OriginMap) {
        if let Weights::Filter(_) = self.weights {
            let (columns, rows) = (self.axes.nearest_columns(), self.axes.nearest_rows());
            origins.add_axes(columns.map(|at| Some(at as i32)), rows.map(|at| Some(at as i32)));
        }
    }

    fn executor(&self) -> Executor<'_> {
        Executor::Resample(self)
    }

    fn reference(&self, table: &[i32], src: &HostImage, out: &mut HostImage, _: &mut Mixer) {
        resample::reference(&self.axes, table, src, out);
    }

    fn bytes(&self, table_address: u64) -> ParamBytes {
        ParamBytes::new(&resample::Params { table: table_address, ..self.axes })
    }

    fn named(&self) -> (&'static str, Option<Value>) {
        match self.weights {
            Weights::Filter(filter) => {
                let Roi { x, y, width, height } = self.axes.of();
                ("resample", Some(json!({ "box": [x, y, width, height], "filter": filter })))
            }
            Weights::Blur(blur) => {
                ("blur", Some(json!({ "kernel": blur.kernel, "sigma": blur.sigma })))
            }
        }
    }
}

/// Adds the `case` labels for the two passes of a resampling. The first pass computes weighted sums
/// of a row's pixels, the second weighted sums of a column's pixels.
fn cases(_: &Codes, cases: &mut Cases) {
    cases.reads.push_str(
        "    case READ_ACROSS: value.bytes = sum_across(pass.as<Resample<Leaf>>(), x, y); break;\n    \
         case READ_DOWN: value.bytes = sum_down(pass.as<Resample<Leaf>>(), x, y); break;\n",
    );
}
