//! Warps: each pixel of the output is read at a position of the input that a map gives. `op/warp/`
//! implements them.

use std::ops::Range;

use serde_json::{Value, json};

use crate::geometry::{Roi, Size};
use crate::image::{HostImage, Image};
use crate::op::warp::field::{Field, Smoothness};
use crate::op::warp::{self, Warp};
use crate::op::{OriginMap, Trace, Wanted};
use crate::tensor::CHANNELS;

use super::mix::Mixer;
use super::{
    ActionKind, Cases, Codes, Cuda, Execution, Executor, Facts, MakeRow, ParamBytes, ProgramRole,
};

/// Code of the function by which the program kernel reads pixels of warps: `READ_WARP` in
/// `kernels/steps.cu`.
const READ_WARP: i32 = 4;

/// The kind.
pub static FACTS: Facts = Facts {
    takes_decoded_floats: true,
    cuda: Some(Cuda::new("Warp", include_str!("../../../kernels/warp.cu"))),
    params_bytes: size_of::<Warp>(),
    entries: warp::START_ENTRIES,
    program: ProgramRole { reader: Some(READ_WARP), ..ProgramRole::added(cases) },
    ..Facts::new::<Params>(Execution::Rows)
};

/// Parameters of the warp of one sample.
#[derive(Clone, Debug)]
pub struct Params {
    /// The map.
    pub warp: Warp,
    /// Size of the input.
    pub input: Size,
    /// Field of displacements, if the map uses one.
    pub field: Option<Field>,
}

impl ActionKind for Params {
    fn demand(&mut self, wanted: Wanted, table: &mut Vec<i32>, start: usize) -> Roi {
        if let Some(field) = &self.field {
            field.append(self.input, table);
        }
        warp::demand(&self.warp, &table[start..], self.input, wanted.output)
    }

    fn most_entries(&self) -> usize {
        self.field.map_or(0, |field| field.smoothness.entries(self.input))
    }

    fn trace(&self, output: Size, trace: &mut Trace) {
        trace.cropping = false;
        // For a field of displacements, `back` is `None`, and boxes keep their positions.
        if let Some(back) = self.warp.back() {
            trace.mapping.warp(back, output);
        }
    }

    fn follow(&self, table: Range<usize>, output: Size, origins: &mut OriginMap) {
        origins.add_warp(&self.warp, table, output);
    }

    fn executor(&self) -> Executor<'_> {
        Executor::Rows(self)
    }

    fn reference(&self, table: &[i32], src: &HostImage, out: &mut HostImage, _: &mut Mixer) {
        let (src, out) = match (src, out) {
            (HostImage::U8(src), HostImage::U8(out)) => (src, out),
            (HostImage::F32(src), HostImage::F32(out)) => return self.floats(table, src, out),
            _ => unreachable!("a warp keeps the pixel type"),
        };
        let window = out.window();
        for y in window.y..window.bottom() {
            for x in window.x..window.right() {
                let read = |x: i32, y: i32| src.pixel(x as u32, y as u32);
                out.set_pixel(x, y, warp::pixel(&self.warp, table, &read, x as i32, y as i32));
            }
        }
    }

    fn bytes(&self, table_address: u64) -> ParamBytes {
        let mut warp = self.warp;
        if warp.has_table() {
            warp.set_table(table_address);
        }
        ParamBytes::new(&warp)
    }

    fn named(&self) -> (&'static str, Option<Value>) {
        let (interpolation, fill) = (self.warp.interpolation(), self.warp.fill());
        match &self.field {
            Some(Field { smoothness: Smoothness { alpha, sigma }, key }) => {
                let params = json!({ "alpha": alpha, "sigma": sigma, "key": key, "interpolation": interpolation, "fill": fill });
                ("displace", Some(params))
            }
            None => {
                let matrix = self.warp.back().map(|plane| plane.matrix());
                let params =
                    json!({ "matrix": matrix, "interpolation": interpolation, "fill": fill });
                ("warp", Some(params))
            }
        }
    }
}

impl MakeRow for Params {
    fn floats(&self, table: &[i32], src: &Image<f32>, out: &mut Image<f32>) {
        let window = out.window();
        for y in window.y..window.bottom() {
            let row = out.row_mut(y).as_chunks_mut().0;
            warp::row_of_floats(&self.warp, table, src, (window.x, y), row);
        }
    }

    fn row(&self, table: &[i32], src: &Image<u8>, (x, y): (u32, u32), out: &mut [[u8; CHANNELS]]) {
        warp::row(&self.warp, table, src, x, y, out);
    }
}

fn cases(_: &Codes, cases: &mut Cases) {
    cases
        .reads
        .push_str("    case READ_WARP: value.bytes = pass.as<Warp<Leaf>>().at(x, y); break;\n");
}
