//! Actions: what operators do to one sample.

use std::ops::Range;

use crate::geometry::{Roi, Size};
use crate::image::{HostImage, Image, PixelType};
use crate::tensor::CHANNELS;

use super::formula::elastic::Field;
use super::formula::warp::{self, Warp};
use super::kind::mix::{Mix, Mixer};
use super::kind::{ImageForm, Kind, PixelForm, StatisticsForm, StencilForm, crop, flip, table};
use super::resample::{self, Weights};
use super::{ParamBytes, Trace, Wanted};

/// One thing that is done to one sample's image.
#[derive(Clone, Debug)]
pub struct Action {
    /// What is done.
    pub what: What,
    /// Range of its part of [`Actions::table`](super::Actions::table).
    pub table: Range<usize>,
    /// Size of its whole output.
    pub whole: Size,
    /// Window of its input that it reads.
    pub input: Roi,
    /// Window of its output that is needed.
    pub output: Roi,
}

/// What an action does, with its parameters.
#[derive(Clone, Debug)]
pub enum What {
    /// [`Kind::Crop`].
    Crop(crop::Params),
    /// [`Kind::Flip`].
    Flip(flip::Params),
    /// [`Kind::Resample`].
    Resample(resample::Params, Weights),
    /// [`Kind::Table`].
    Table,
    /// [`Kind::FloatTable`].
    FloatTable,
    /// [`Kind::Pixel`].
    Pixel(&'static PixelForm, ParamBytes),
    /// [`Kind::Statistics`].
    Statistics(&'static StatisticsForm, ParamBytes),
    /// [`Kind::Stencil`], with the size of the image.
    Stencil(&'static StencilForm, Size, ParamBytes),
    /// [`Kind::Warp`], with the size of the input, and the field of displacements if the map has one.
    Warp(Warp, Size, Option<Field>),
    /// [`Kind::Mix`].
    Mix(Mix),
    /// [`Kind::Image`].
    Image(&'static ImageForm, ParamBytes),
}

impl What {
    /// Kind of the action.
    pub fn kind(&self) -> Kind {
        match self {
            What::Crop(_) => Kind::Crop,
            What::Flip(_) => Kind::Flip,
            What::Resample(..) => Kind::Resample,
            What::Table => Kind::Table,
            What::FloatTable => Kind::FloatTable,
            What::Pixel(form, _) => Kind::Pixel(form),
            What::Statistics(form, _) => Kind::Statistics(form),
            What::Stencil(form, ..) => Kind::Stencil(form),
            What::Warp(..) => Kind::Warp,
            What::Mix(_) => Kind::Mix,
            What::Image(form, _) => Kind::Image(form),
        }
    }

    /// Returns the input window that an output window needs. Appends whatever depends on the window to `table`, where
    /// the action's part begins at `start`.
    pub(super) fn demand(&mut self, wanted: Wanted, table: &mut Vec<i32>, start: usize) -> Roi {
        match self {
            What::Crop(params) => params.demand(wanted.output),
            What::Flip(params) => params.demand(wanted.output),
            What::Resample(params, weights) => weights.fill_table(params, wanted, table),
            // Windows of mixes are set for all their actions together.
            What::Table | What::FloatTable | What::Pixel(..) | What::Mix(_) => wanted.output,
            What::Statistics(..) => wanted.input.window(),
            What::Stencil(_, whole, _) => StencilForm::demand(wanted.output, *whole),
            What::Warp(params, input, field) => {
                if let Some(field) = field {
                    field.append(*input, table);
                }
                warp::demand(params, &table[start..], *input, wanted.output)
            }
            What::Image(form, params) => (form.demand)(params, wanted),
        }
    }

    /// Records how the pixels move. `output` is the size of the whole output.
    pub(super) fn trace(&self, output: Size, trace: &mut Trace) {
        match self {
            What::Crop(params) => params.trace(trace),
            What::Flip(params) => params.trace(trace),
            What::Resample(params, _) => {
                trace.crop(params.of());
                trace.cropping = false;
                trace.view.resize(params.of(), params.output());
            }
            What::Table
            | What::FloatTable
            | What::Pixel(..)
            | What::Statistics(..)
            | What::Stencil(..)
            | What::Mix(_) => {}
            What::Image(form, params) => (form.trace)(params, output, trace),
            What::Warp(params, ..) => {
                trace.cropping = false;
                // Boxes stay where they are when pixels are displaced one by one.
                if let Some(back) = params.back() {
                    trace.view.warp(back, output);
                }
            }
        }
    }

    /// Reference implementation. `out` has its pixel type and window set, `src` holds at least the action's input.
    /// `table` is the action's part of the table. `mixer` is the same for all actions of a sample.
    pub fn reference(
        &self,
        table: &[i32],
        src: &HostImage,
        out: &mut HostImage,
        mixer: &mut Mixer,
    ) {
        match self {
            What::Crop(params) => crop::reference(params, src, out),
            What::Flip(params) => flip::reference(params, src, out),
            What::Resample(params, _) => resample::reference(params, table, src, out),
            What::Table | What::FloatTable => table::reference(table, src, out),
            What::Pixel(form, params) => form.reference(params, src, out),
            What::Statistics(form, params) => form.reference(params, src, out),
            What::Stencil(form, whole, params) => form.reference(params, *whole, src, out),
            What::Warp(params, ..) => read_through(params, table, src, out),
            What::Mix(mix) => mixer.take(*mix, src, out).expect("a reference may allocate"),
            What::Image(form, params) => (form.reference)(params, src, out),
        }
    }

    /// Computes row `y` of a stencil or a warp, from the column `x` on. `src` holds at least the action's input.
    /// `table` is the action's part of the table.
    pub fn read_row(
        &self,
        table: &[i32],
        src: &Image<u8>,
        (x, y): (u32, u32),
        out: &mut [[u8; CHANNELS]],
    ) {
        match self {
            What::Stencil(form, whole, params) => form.row(params, src, (x, y), *whole, out),
            What::Warp(params, ..) => warp::row(params, table, src, x, y, out),
            _ => unreachable!("neither a stencil nor a warp"),
        }
    }

    /// Parameters for a kernel. `table_address` is the address of the action's part of the table.
    pub fn params(&self, table_address: u64) -> ParamBytes {
        match self {
            What::Crop(params) => ParamBytes::new(params),
            What::Flip(params) => ParamBytes::new(params),
            What::Resample(params, _) => {
                ParamBytes::new(&resample::Params { table: table_address, ..*params })
            }
            What::Table | What::FloatTable => ParamBytes::new(&table_address),
            What::Warp(params, ..) => {
                let mut params = *params;
                if params.has_table() {
                    params.set_table(table_address);
                }
                ParamBytes::new(&params)
            }
            // No kernel mixes.
            What::Mix(_) => ParamBytes::new(&[0u64; 0]),
            What::Pixel(_, params)
            | What::Statistics(_, params)
            | What::Stencil(_, _, params)
            | What::Image(_, params) => *params,
        }
    }
}

impl Kind {
    /// Size of an action's parameters for a kernel, in bytes.
    pub fn params_bytes(self) -> usize {
        match self {
            Kind::Crop => size_of::<crop::Params>(),
            Kind::Flip => size_of::<flip::Params>(),
            Kind::Resample => size_of::<resample::Params>(),
            Kind::Table | Kind::FloatTable => size_of::<u64>(),
            Kind::Warp => size_of::<Warp>(),
            Kind::Pixel(form) => form.params_bytes,
            Kind::Statistics(form) => form.params_bytes,
            Kind::Stencil(form) => form.params_bytes,
            Kind::Mix => 0,
            Kind::Image(form) => form.params_bytes,
        }
    }
}

impl Action {
    /// An action on an image of this size, whose windows are not known yet: the whole image stands in for them.
    pub(super) fn new(what: What, input: Size, output: Size) -> Self {
        let (input, whole) = (input.window(), output);
        Self { what, table: 0..0, whole, input, output: whole.window() }
    }

    /// Records how actions move the pixels, one after another. Those of a mix are not recorded, because boxes stay
    /// where they are in one of the images.
    pub(super) fn trace_all(actions: &[Self], trace: &mut Trace) {
        let mut mixes = false;
        for action in actions {
            match action.what {
                What::Mix(Mix::Begin { .. }) => mixes = true,
                What::Mix(Mix::Add { last, .. }) => mixes = !last,
                _ if mixes => {}
                _ => action.what.trace(action.whole, trace),
            }
        }
    }

    /// Output pixel type for an input pixel type that the action accepts.
    pub fn pixels(&self, input: PixelType) -> PixelType {
        self.what.kind().pixels(input).unwrap_or(input)
    }
}

/// Reference implementation of warps.
fn read_through(params: &Warp, table: &[i32], src: &HostImage, out: &mut HostImage) {
    let (HostImage::U8(src), HostImage::U8(out)) = (src, out) else {
        unreachable!("warps map bytes to bytes");
    };
    let window = out.window();
    for y in window.y..window.bottom() {
        for x in window.x..window.right() {
            let read = |x: i32, y: i32| src.pixel(x as u32, y as u32);
            out.set_pixel(x, y, warp::pixel(params, table, &read, x as i32, y as i32));
        }
    }
}
