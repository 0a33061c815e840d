//! Drawing: operators turn settings and random numbers into actions for one sample.

use std::sync::Arc;

use bytemuck::Pod;
use serde::Serialize;

use crate::geometry::{BoundingBox, Roi, Size};
use crate::random::{OperatorPath, SampleKey, SampleRng};
use crate::tensor::CHANNELS;

use super::action::Action;
use super::kind::mix::Mix;
use super::kind::{
    ColourFormula, ImageFormula, ImageKind, PixelKind, PositionFormula, StatisticsFormula,
    StatisticsKind, StencilFormula, StencilKind, crop, flip, float_table, image, pixel, resample,
    statistics, stencil, table, warp,
};
use super::record::Record;
use super::resample::{Blur, Filter, Weights};
use super::shared::noise;
use super::warp::field::{Field, Smoothness};
use super::warp::{Interpolation, Warp};
use super::{ActionParams, Operator, ParamBytes, Trace};

/// Takes the actions that an operator draws for one sample, and provides the random numbers of the
/// sample.
#[derive(Debug)]
pub struct Draw<'a> {
    pub(super) size: Size,
    pub(super) channels: usize,
    /// Whether the decoder gives floats.
    pub(super) floats: bool,
    /// Whether the actions change the alpha channel of an image.
    pub(super) is_alpha: bool,
    pub(super) sample: SampleKey,
    pub(super) output: u32,
    pub(super) path: OperatorPath,
    pub(super) rng: SampleRng,
    pub(super) actions: &'a mut Vec<Action>,
    /// Tables of the actions, in the order of the actions. The table range of an action counts from
    /// the start of this vector.
    pub(super) tables: &'a mut Vec<i32>,
    /// Record of the actions by name. `None` if they are not recorded.
    pub(super) record: Option<&'a mut Record>,
    pub(super) boxes: Boxes<'a>,
}

/// Boxes of the sample's objects, before and after the actions so far.
#[derive(Debug)]
pub(super) struct Boxes<'a> {
    /// Boxes in the upright image, before all actions.
    pub(super) upright: &'a [BoundingBox],
    /// Trace of the actions before action number `first`.
    pub(super) trace: &'a Trace,
    /// Number of the first action that is not in `trace`.
    pub(super) first: usize,
    /// Boxes after all actions so far. Stored here only so that the memory is reused.
    pub(super) present: &'a mut Vec<BoundingBox>,
}

impl Boxes<'_> {
    /// Moves the boxes by the actions, and writes their visible parts to `present`.
    fn follow(&mut self, actions: &[Action]) {
        let mut trace = *self.trace;
        Action::trace_all(&actions[self.first..], &mut trace);
        let placed = self.upright.iter().map(|it| trace.mapping.visible_box(it));
        self.present.clear();
        self.present.extend(placed.filter(|it| it.area() > 0.0));
    }
}

impl Draw<'_> {
    /// Size of the image after the actions that were added so far.
    pub fn size(&self) -> Size {
        self.size
    }

    /// Number of channels of the operator's input: 3, or 1 if the three channels of the image are
    /// equal and must stay equal ([`Operator::channels`]).
    pub fn channels(&self) -> usize {
        self.channels
    }

    /// Index of the output that this run of the chain makes: 0 to `n - 1` if an operator of the
    /// chain has `n` outputs ([`Operator::outputs`]), else 0.
    pub fn output(&self) -> u32 {
        self.output
    }

    /// Random numbers of this operator for this sample.
    pub fn rng(&mut self) -> &mut SampleRng {
        &mut self.rng
    }

    /// Describes the next action for `feedwater dump`: a formula, and the numbers that it depends
    /// on. Only tables need a description. Without a description, all entries of the table are
    /// written. The parameters of other kinds are written in any case.
    pub fn note(&mut self, formula: &'static str, numbers: &[(&'static str, &[f64])]) {
        if let Some(record) = &mut self.record {
            record.note(formula, numbers);
        }
    }

    /// Describes the next action for `feedwater dump`: a formula, and the text that it depends on.
    pub(crate) fn note_text(&mut self, formula: &'static str, name: &'static str, text: &str) {
        if let Some(record) = &mut self.record {
            record.text(formula, name, text);
        }
    }

    /// Calls `choose` with the visible boxes of the sample's objects in the present image, and with
    /// the operator's random numbers. There are no boxes if the source has no annotations, or if
    /// [`reads_boxes`](Operator::reads_boxes) returns false.
    pub fn by_boxes<T>(&mut self, choose: impl FnOnce(&[BoundingBox], &mut SampleRng) -> T) -> T {
        self.boxes.follow(self.actions);
        choose(self.boxes.present, &mut self.rng)
    }

    /// Crops a window inside the image, and drops objects whose boxes have their centres outside
    /// the window.
    pub(crate) fn crop_to_centres(&mut self, window: Roi) {
        let position = (window.x.into(), window.y.into());
        let params = crop::Params::new(position, window.size(), self.size, [0.0; CHANNELS]);
        self.push(params.dropping_objects(), window.size());
    }

    /// Crops the window of size `size` whose first column and row are `position`. The window may
    /// extend beyond the image. Pixels outside the image become `fill`: red, green and blue, in the
    /// unit of the input pixels.
    pub fn crop(&mut self, position: (i64, i64), size: Size, fill: [f32; 3]) {
        self.push(crop::Params::new(position, size, self.size, fill), size);
    }

    /// Mirrors the image left to right, top to bottom, or both.
    pub fn flip(&mut self, horizontal: bool, vertical: bool) {
        self.push(flip::Params::new(self.size, horizontal, vertical), self.size);
    }

    /// Resamples the region `of` of the image to an image of size `to`.
    pub fn resample(&mut self, of: Roi, to: Size, filter: Filter) {
        let params = resample::Params::new(of, to, Weights::Filter(filter), self.floats);
        self.push(params, to);
    }

    /// Blurs rows and columns. The image is reflected at its borders.
    pub(crate) fn blur(&mut self, blur: Blur) {
        let of = self.size.window();
        let params = resample::Params::new(of, self.size, Weights::Blur(blur), self.floats);
        self.push(params, self.size);
    }

    /// Computes an image of size `to`. Each pixel is read at the position of the input that the map
    /// `warp` gives.
    pub(crate) fn warp(&mut self, mut warp: Warp, to: Size) {
        let starts = warp.starts(to);
        let params = warp::Params { warp, input: self.size, field: None };
        match starts {
            Some(starts) => self.push_table(params, bytemuck::bytes_of(&starts), to),
            None => self.push(params, to),
        }
    }

    /// Reads each pixel at its own position plus the displacement of a random field.
    /// `interpolation` must be nearest or bilinear.
    pub(crate) fn displace(
        &mut self,
        smoothness: Smoothness,
        interpolation: Interpolation,
        fill: [u8; CHANNELS],
    ) {
        let (size, key) = (self.size, noise::key(&mut self.rng));
        let warp = Warp::displaced(size, (0, 0), size.width as i32, interpolation, fill);
        let field = Some(Field { smoothness, key });
        self.push(warp::Params { warp, input: size, field }, size);
    }

    /// Computes the weighted sum of the image and of the results of several branches. A branch is a
    /// sequence of actions that begins with the image and keeps its size and pixel type. `chain`
    /// draws the actions of one branch. `weights` holds the weight of the image, then the weights
    /// of the branches.
    pub(crate) fn mix(&mut self, weights: &[f32], mut chain: impl FnMut(&mut Self)) {
        let Some((&weight, chains)) = weights.split_first() else { return };
        let (size, window) = (self.size, self.size.window());
        self.push(Mix::Begin { weight, window }, size);
        for (number, &weight) in chains.iter().enumerate() {
            chain(self);
            let last = number + 1 == chains.len();
            self.push(Mix::Add { weight, last }, size);
        }
    }

    /// Maps each byte of a channel to a byte. `value` is called with the channel and the byte.
    pub fn table(&mut self, value: impl Fn(usize, u8) -> u8) {
        self.push_table(table::Params, bytemuck::bytes_of(&table::of(value)), self.size);
    }

    /// Maps each byte of a channel to a float. `value` is called with the channel and the byte.
    pub fn float_table(&mut self, value: impl Fn(usize, u8) -> f32) {
        let values: [[f32; 256]; CHANNELS] = table::of(value);
        self.push_table(float_table::Params, bytemuck::bytes_of(&values), self.size);
    }

    /// Computes each pixel from its value by the formula `F`.
    pub fn colour<F: ColourFormula>(&mut self, params: &F::Params) {
        let (formula, params) = (PixelKind::colour::<F>(), self.noted::<F, _>(params));
        self.push(pixel::Params { formula, params }, self.size);
    }

    /// Computes each pixel from its value and position by the formula `F`.
    pub fn position<F: PositionFormula>(&mut self, params: &F::Params) {
        let (formula, params) = (PixelKind::position::<F>(), self.noted::<F, _>(params));
        self.push(pixel::Params { formula, params }, self.size);
    }

    /// Maps bytes by a table that the formula `F` computes from the histograms of the whole image.
    pub fn statistics<F: StatisticsFormula>(&mut self, params: &F::Params) {
        let (formula, params) = (StatisticsKind::of::<F>(), self.noted::<F, _>(params));
        self.push(statistics::Params { formula, params }, self.size);
    }

    /// Computes each pixel from itself and its neighbours by the formula `F`.
    pub fn stencil<F: StencilFormula>(&mut self, params: &F::Params) {
        let (formula, params) = (StencilKind::of::<F>(), self.noted::<F, _>(params));
        let whole = self.size;
        self.push(stencil::Params { formula, whole, params }, whole);
    }

    /// Computes an image of size `to` by the formula `F`.
    pub fn image<F: ImageFormula>(&mut self, params: &F::Params, to: Size) {
        let (formula, params) = (ImageKind::of::<F>(), self.noted::<F, _>(params));
        self.push(image::Params { formula, params }, to);
    }

    /// Adds the actions of a combinator's inner operators, one operator after another. Each
    /// operator has its own random numbers. `which` are indices into `operators`.
    pub fn inner(
        &mut self,
        operators: &[Arc<dyn Operator>],
        which: impl IntoIterator<Item = usize>,
    ) {
        for place in which {
            let operator = &operators[place];
            let name = operator.name();
            let before = operators[..place].iter().filter(|it| it.name() == name).count();
            let path = self.path.child(name, before);
            let mut draw = Draw {
                size: self.size,
                channels: self.channels,
                floats: self.floats,
                is_alpha: self.is_alpha,
                sample: self.sample,
                output: self.output,
                path,
                rng: SampleRng::of_operator(self.sample, path),
                actions: &mut *self.actions,
                tables: &mut *self.tables,
                boxes: Boxes { present: &mut *self.boxes.present, ..self.boxes },
                record: self.record.as_deref_mut(),
            };
            let outer = draw.record.as_mut().map(|record| record.enter(name));
            operator.draw(&mut draw);
            self.size = draw.size;
            if let (Some(record), Some(outer)) = (&mut self.record, outer) {
                record.enter(outer);
            }
        }
    }

    /// Adds an action with a table. `values` are the bytes of the table.
    fn push_table(&mut self, params: impl Into<ActionParams>, values: &[u8], output: Size) {
        let start = self.tables.len();
        let entries = values.as_chunks().0.iter().map(|bytes| i32::from_ne_bytes(*bytes));
        self.tables.extend(entries);
        self.push_from(start, params.into(), output);
        if let Some(action) = self.actions.last_mut() {
            action.table = start..self.tables.len();
        }
    }

    /// Parameters of the formula `F` as bytes. They are also recorded for the next action.
    fn noted<F, P: Pod + Serialize>(&mut self, params: &P) -> ParamBytes {
        if let Some(record) = &mut self.record {
            record.formula(std::any::type_name::<F>(), params);
        }
        ParamBytes::new(params)
    }

    /// Adds an action without a table, whose output has the size `output`.
    pub(super) fn push(&mut self, params: impl Into<ActionParams>, output: Size) {
        self.push_from(self.tables.len(), params.into(), output);
    }

    /// Adds an action whose table begins at `start`.
    fn push_from(&mut self, start: usize, params: ActionParams, output: Size) {
        if let Some(record) = &mut self.record {
            record.push(&params, &self.tables[start..], output);
        }
        self.actions.push(Action::new(params, self.size, output));
        self.size = output;
    }
}
