//! All actions of one sample. A forward pass over the operators draws random numbers and computes
//! sizes. A backward pass over the actions computes windows.

use crate::error::{DataError, reserve};
use crate::geometry::{BoundingBox, Mapping, PointMap, Roi, Size};
use crate::image::{HostImage, PixelFormat};
use crate::random::{OperatorPath, SampleKey, SampleRng};

use super::action::Action;
use super::draw::{Boxes, Draw};
use super::kind::Executor;
use super::kind::mix::{Branches, Mix, Mixer};
use super::record::{DrawnOperator, Record};
use super::resample::Weights;
use super::{ActionParams, Kind, Operator, OriginMap, ParamBytes, Trace, Wanted};

use parts::Parts;

mod parts;

/// Actions of one sample. The vectors are reused for the next sample, so nothing is allocated after
/// they have grown to their final size.
#[derive(Clone, Debug, Default)]
pub struct Actions {
    /// Actions in the order in which they are executed.
    pub list: Vec<Action>,
    /// Element `i` is the number of actions of the first `i + 1` operators together.
    pub ends: Vec<usize>,
    /// Tables of all actions, beginning with the table of the last action.
    pub table: Vec<i32>,
    /// Tables that do not depend on windows, beginning with the table of the first action.
    fixed: Vec<i32>,
    /// Names of the operators, in order.
    names: Vec<&'static str>,
    /// Boxes of the sample's objects in the upright image, for operators that read them.
    pub boxes: Vec<BoundingBox>,
    /// Number of the output, for an operator that has several ([`Operator::outputs`]). Random
    /// numbers do not depend on it.
    pub output: u32,
    /// Pixels of the decoded image.
    pub format: PixelFormat,
    /// Parts of the chain between displacements.
    parts: Parts,
    /// Actions on the alpha channel, if the format has one. They have the same kinds, windows and
    /// random numbers. Fill colours and tables may differ.
    pub alpha: Option<Box<Actions>>,
    /// Whether these are the actions on an alpha channel.
    is_alpha: bool,
    /// Boxes of the objects, as they are in the image that the next operator receives. Stored here
    /// only so that the memory is reused.
    present: Vec<BoundingBox>,
}

impl Actions {
    /// Actions of the operators for an image of size `input`, with the windows for the whole
    /// output.
    pub fn of<'a>(
        operators: impl IntoIterator<Item = &'a dyn Operator, IntoIter: Clone>,
        key: SampleKey,
        input: Size,
    ) -> Self {
        let mut actions = Self::default();
        let output = actions.draw(operators, key, input, &mut Trace::new(input));
        actions.demand(output.window());
        actions
    }

    /// Draws the actions of the operators for an image of size `input`, and records in `trace` how
    /// the pixels move. Returns the output size. The actions have the windows of whole images until
    /// [`demand`](Self::demand) is called.
    pub fn draw<'a>(
        &mut self,
        operators: impl IntoIterator<Item = &'a dyn Operator, IntoIter: Clone>,
        key: SampleKey,
        input: Size,
        trace: &mut Trace,
    ) -> Size {
        let operators = operators.into_iter();
        if let Some(alpha) = self.begin_alpha() {
            alpha.draw_recorded(operators.clone(), key, input, &mut Trace::new(input), None);
        }
        self.draw_recorded(operators, key, input, trace, None)
    }

    /// Returns the actions on the alpha channel to draw, if there is one.
    fn begin_alpha(&mut self) -> Option<&mut Self> {
        if self.is_alpha || !self.format.has_alpha() {
            self.alpha = None;
            return None;
        }
        let alpha = self.alpha.get_or_insert_with(|| Box::new(Self::default()));
        (alpha.is_alpha, alpha.format, alpha.output) = (true, self.format, self.output);
        alpha.boxes.clone_from(&self.boxes);
        Some(alpha)
    }

    /// Names and parameters of the actions for an image of this size and format, by operator.
    /// `output` is the number of the output of operators with several ones. `boxes` are the boxes
    /// of the objects in this image.
    pub fn named<'a>(
        operators: impl IntoIterator<Item = &'a dyn Operator>,
        (key, output): (SampleKey, u32),
        (input, format): (Size, PixelFormat),
        boxes: Vec<BoundingBox>,
    ) -> Vec<DrawnOperator> {
        let mut record = Record::default();
        let trace = &mut Trace::new(input);
        let mut actions = Self { boxes, format, output, ..Self::default() };
        actions.draw_recorded(operators, key, input, trace, Some(&mut record));
        record.operators
    }

    fn draw_recorded<'a>(
        &mut self,
        operators: impl IntoIterator<Item = &'a dyn Operator>,
        key: SampleKey,
        input: Size,
        trace: &mut Trace,
        mut record: Option<&mut Record>,
    ) -> Size {
        self.list.clear();
        self.ends.clear();
        self.table.clear();
        self.fixed.clear();
        let (mut size, mut channels) = (input, self.format.channels());
        let floats = self.format.is_floats();
        self.names.clear();
        for operator in operators {
            let first = self.list.len();
            let name = operator.name();
            let before = self.names.iter().filter(|it| **it == name).count();
            self.names.push(name);
            let path = OperatorPath::CHAIN.child(name, before);
            let rng = SampleRng::of_operator(key, path);
            let (actions, tables) = (&mut self.list, &mut self.fixed);
            if let Some(record) = &mut record {
                record.begin(name);
            }
            let record = record.as_deref_mut();
            let present = &mut self.present;
            let boxes = Boxes { upright: &self.boxes, trace: &*trace, first, present };
            let (sample, output) = (key, self.output);
            let mut draw = Draw {
                size,
                channels,
                floats,
                is_alpha: self.is_alpha,
                sample,
                output,
                path,
                rng,
                actions,
                tables,
                boxes,
                record,
            };
            operator.draw(&mut draw);
            size = draw.size;
            // The plan has checked that the operator accepts its input.
            channels = operator.channels(channels).unwrap_or(channels);
            Action::trace_all(&self.list[first..], trace);
            self.ends.push(self.list.len());
        }
        self.parts.find(&self.list, input);
        size
    }

    /// Computes the windows and tables of all actions for the output window `wanted`. Returns the
    /// window of the image that the first action reads.
    pub fn demand(&mut self, wanted: Roi) -> Roi {
        self.demand_reduced(1, Size::default(), wanted)
    }

    /// Does the work of [`demand`](Self::demand) for an image whose sides the decoder reduces by
    /// `reduction`. `reduction` may be more than 1 only if the first action resamples. `padding` is
    /// [`Wanted::padding`].
    pub fn demand_reduced(&mut self, reduction: u32, padding: Size, wanted: Roi) -> Roi {
        if let Some(alpha) = &mut self.alpha {
            alpha.demand_reduced(reduction, padding, wanted);
        }
        let mut window = wanted;
        let mut branches = Branches::default();
        for (place, action) in self.list.iter_mut().enumerate().rev() {
            window = branches.pass_back(&mut action.params, window);
            let (reduction, padding) =
                if place == 0 { (reduction, padding) } else { (1, Size::default()) };
            let input = action.input.size().reduced(reduction);
            let start = self.table.len();
            action.output = window;
            let wanted = Wanted { input, reduction, padding, output: window };
            self.table.extend_from_slice(&self.fixed[action.table.clone()]);
            window = action.params.demand(wanted, &mut self.table, start);
            action.table = start..self.table.len();
            action.input = window;
        }
        Branches::set_outputs(self.list.iter_mut().map(|it| (&it.params, &mut it.output)));
        self.parts.find_displacements(&self.list, &self.table);
        window
    }

    /// Number of actions of the first `operators` operators.
    pub fn end(&self, operators: usize) -> usize {
        operators.checked_sub(1).map_or(0, |last| self.ends[last])
    }

    /// Index of the first action from `place` on that is not pointwise, or `end` if all actions
    /// before `end` are pointwise.
    pub fn pointwise_end(&self, place: usize, end: usize) -> usize {
        let rest = &self.list[place..end];
        place + rest.iter().take_while(|it| it.params.kind().is_pointwise()).count()
    }

    /// Kinds of the actions, in order.
    pub fn kinds(&self) -> Vec<Kind> {
        self.list.iter().map(|action| action.params.kind()).collect()
    }

    /// Applies all actions to an image by the reference implementations.
    pub fn reference(&self, image: &HostImage) -> HostImage {
        let (mut image, mut mixer) = (image.clone(), Mixer::default());
        for (place, action) in self.list.iter().enumerate() {
            let mut out = HostImage::new(action.pixels(image.pixels()), action.output);
            action.params.reference(self.table_of(place), &image, &mut out, &mut mixer);
            image = out;
        }
        image
    }

    /// Adds the steps from the pixels of the result to those of the upright image before the
    /// actions. A mix does not move pixels, because it also contains the image from before its
    /// actions.
    pub fn origins(&self, origins: &mut OriginMap) {
        let mut in_mix = false;
        for action in self.list.iter().rev() {
            match &action.params {
                ActionParams::Mix(mix) => in_mix = !matches!(mix, Mix::Begin { .. }),
                _ if in_mix => {}
                params => params.follow(action.table.clone(), action.whole, origins),
            }
        }
    }

    /// Map from positions of the upright image to those of the result. `whole` is the mapping of
    /// all actions that was traced when they were drawn. The tables were computed
    /// ([`demand`](Self::demand)).
    pub fn point_map<'a>(&'a self, whole: &'a Mapping) -> PointMap<'a> {
        self.parts.map(whole, &self.table)
    }

    /// Whether an action displaces pixels.
    pub fn are_displaced(&self) -> bool {
        self.parts.are_displaced()
    }

    /// Returns the parameters of the actions from index `first` on, in the form in which a kernel
    /// reads them. The tables of the actions begin at `address`.
    pub fn params(&self, first: usize, address: u64) -> impl Iterator<Item = ParamBytes> {
        self.list[first..].iter().map(move |action| {
            let table = size_of::<i32>() * action.table.start;
            action.params.bytes(address + table as u64)
        })
    }

    /// Table of action number `place`.
    pub fn table_of(&self, place: usize) -> &[i32] {
        &self.table[self.list[place].table.clone()]
    }

    /// Tables of all actions of the operators from index `first` on.
    pub fn tables_from(&self, first: usize) -> &[i32] {
        let end = self.list.get(self.end(first)).map_or(0, |action| action.table.end);
        &self.table[..end]
    }

    /// Parameters of the first action's resampling. `None` if the first action does not resample by
    /// a filter.
    pub fn first_resampling(&self) -> Option<&super::resample::Params> {
        match self.list.first()?.params.executor() {
            Executor::Resample(params) if matches!(params.weights, Weights::Filter(_)) => {
                Some(&params.axes)
            }
            _ => None,
        }
    }

    /// Maximum number of 32-bit entries that [`demand`](Self::demand) needs for the drawn actions:
    /// all tables and scratch memory.
    pub fn most_entries(&self) -> usize {
        let entries = |it: &Action| it.table.len().saturating_add(it.params.most_entries());
        self.list.iter().map(entries).fold(0, usize::saturating_add)
    }

    /// Allocates memory for tables of `entries` entries in total, and for `fixed` entries that do
    /// not depend on windows. The actions on an alpha channel get as much memory again.
    ///
    /// # Errors
    /// [`Reason::OutOfMemory`](crate::error::Reason::OutOfMemory) if this memory is not available.
    pub fn reserve(&mut self, entries: usize, fixed: usize) -> Result<(), DataError> {
        if let Some(alpha) = self.begin_alpha() {
            alpha.reserve(entries, fixed)?;
        }
        for (table, entries) in [(&mut self.table, entries), (&mut self.fixed, fixed)] {
            if table.capacity() < entries {
                reserve::free(table);
                reserve::reserve(table, entries)?;
            }
        }
        Ok(())
    }

    /// Frees the tables.
    pub fn release(&mut self) {
        self.alpha = None;
        reserve::free(&mut self.table);
        reserve::free(&mut self.fixed);
    }

    /// Memory that the tables hold, in bytes.
    pub fn table_bytes(&self) -> u64 {
        let own = (self.table.capacity() + self.fixed.capacity()) * size_of::<i32>();
        own as u64 + self.alpha.as_ref().map_or(0, |alpha| alpha.table_bytes())
    }
}
