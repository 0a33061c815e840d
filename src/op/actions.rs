//! All actions of one sample: a forward pass over the operators for random numbers and sizes, then a backward pass for
//! windows.

use crate::geometry::{BoundingBox, Roi, Size};
use crate::image::HostImage;
use crate::random::{OperatorPath, SampleKey, SampleRng};

use super::action::Action;
use super::draw::{Boxes, Draw};
use super::kind::Executor;
use super::kind::mix::{Branches, Mixer};
use super::record::{DrawnOperator, Record};
use super::resample::Weights;
use super::{Kind, Operator, ParamBytes, Trace, Wanted};

/// Actions of one sample. Overwritten for each sample, so that nothing is allocated once it has reached its size.
#[derive(Clone, Debug, Default)]
pub struct Actions {
    /// Actions in order.
    pub list: Vec<Action>,
    /// Number of actions of the first operators: of one, of two, and so on.
    pub ends: Vec<usize>,
    /// Tables of all actions, the last action's first.
    pub table: Vec<i32>,
    /// Tables that do not depend on windows, the first action's first.
    fixed: Vec<i32>,
    /// Names of the operators.
    names: Vec<&'static str>,
    /// Boxes of the sample's objects in the upright image, for operators that read them.
    pub boxes: Vec<BoundingBox>,
    /// Memory for boxes in other images.
    present: Vec<BoundingBox>,
}

impl Actions {
    /// Actions of the operators for a whole output of an image of size `input`.
    pub fn of<'a>(
        operators: impl IntoIterator<Item = &'a dyn Operator>,
        key: SampleKey,
        input: Size,
    ) -> Self {
        let mut actions = Self::default();
        let output = actions.draw(operators, key, input, &mut Trace::new(input));
        actions.demand(output.window());
        actions
    }

    /// Draws the actions of the operators for an image of size `input`, and records in `trace` how the pixels move.
    /// Returns the output size. Windows are those of whole images until [`demand`](Self::demand).
    pub fn draw<'a>(
        &mut self,
        operators: impl IntoIterator<Item = &'a dyn Operator>,
        key: SampleKey,
        input: Size,
        trace: &mut Trace,
    ) -> Size {
        self.draw_recorded(operators, key, input, trace, None)
    }

    /// Actions of the operators for an image of size `input`, by name. `boxes` are those of its objects.
    pub fn named<'a>(
        operators: impl IntoIterator<Item = &'a dyn Operator>,
        key: SampleKey,
        input: Size,
        boxes: Vec<BoundingBox>,
    ) -> Vec<DrawnOperator> {
        let mut record = Record::default();
        let trace = &mut Trace::new(input);
        let mut actions = Self { boxes, ..Self::default() };
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
        let mut size = input;
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
            let mut draw = Draw { size, sample: key, path, rng, actions, tables, boxes, record };
            operator.draw(&mut draw);
            size = draw.size;
            Action::trace_all(&self.list[first..], trace);
            self.ends.push(self.list.len());
        }
        size
    }

    /// Computes the windows and tables for the output window `wanted`. Returns the window of the image that is needed.
    pub fn demand(&mut self, wanted: Roi) -> Roi {
        self.demand_reduced(1, Size::default(), wanted)
    }

    /// The same if the decoder reduces both sides of the image by `reduction`, more than 1 only if the first action
    /// resamples. `padding` is [`Wanted::padding`].
    pub fn demand_reduced(&mut self, reduction: u32, padding: Size, wanted: Roi) -> Roi {
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
        window
    }

    /// Number of actions of the first `operators` operators.
    pub fn end(&self, operators: usize) -> usize {
        operators.checked_sub(1).map_or(0, |last| self.ends[last])
    }

    /// Number of the first action from `place` on, before `end`, that is not pointwise.
    pub fn pointwise_end(&self, place: usize, end: usize) -> usize {
        let rest = &self.list[place..end];
        place + rest.iter().take_while(|it| it.params.kind().is_pointwise()).count()
    }

    /// Kinds of the actions.
    pub fn kinds(&self) -> Vec<Kind> {
        self.list.iter().map(|action| action.params.kind()).collect()
    }

    /// Result of all actions for an image, by the reference implementations.
    pub fn reference(&self, image: &HostImage) -> HostImage {
        let (mut image, mut mixer) = (image.clone(), Mixer::default());
        for (place, action) in self.list.iter().enumerate() {
            let mut out = HostImage::new(action.pixels(image.pixels()), action.output);
            action.params.reference(self.table_of(place), &image, &mut out, &mut mixer);
            image = out;
        }
        image
    }

    /// Parameters for a kernel of the actions from index `first` on. The tables begin at `address`.
    pub fn params(&self, first: usize, address: u64) -> impl Iterator<Item = ParamBytes> {
        self.list[first..].iter().map(move |action| {
            let table = size_of::<i32>() * action.table.start;
            action.params.bytes(address + table as u64)
        })
    }

    /// Part of the table of action number `place`.
    pub fn table_of(&self, place: usize) -> &[i32] {
        &self.table[self.list[place].table.clone()]
    }

    /// Tables of the operators from index `first` on.
    pub fn tables_from(&self, first: usize) -> &[i32] {
        let end = self.list.get(self.end(first)).map_or(0, |action| action.table.end);
        &self.table[..end]
    }

    /// Resampling by the first action, if it resamples.
    pub fn first_resampling(&self) -> Option<&super::resample::Params> {
        match self.list.first()?.params.executor() {
            Executor::Resample(params) if matches!(params.weights, Weights::Filter(_)) => {
                Some(&params.axes)
            }
            _ => None,
        }
    }

    /// Makes room for tables of `entries` entries in all, `fixed` of which do not depend on windows.
    pub fn reserve(&mut self, entries: usize, fixed: usize) {
        for (table, entries) in [(&mut self.table, entries), (&mut self.fixed, fixed)] {
            if table.capacity() < entries {
                *table = Vec::new();
                table.reserve_exact(entries);
            }
        }
    }

    /// Frees the tables.
    pub fn release(&mut self) {
        (self.table, self.fixed) = (Vec::new(), Vec::new());
    }

    /// Memory that the tables hold, in bytes.
    pub fn table_bytes(&self) -> u64 {
        ((self.table.capacity() + self.fixed.capacity()) * size_of::<i32>()) as u64
    }
}
