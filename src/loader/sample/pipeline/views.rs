//! Views of one sample: outputs of its image, and of images in its fields.

use std::time::Duration;

use super::{Admitted, SamplePipeline};
use crate::annotation::{Canvas, Objects};
use crate::error::{DataError, Reason};
use crate::geometry::Size;
use crate::header::Header;
use crate::loader::sample::fields::{Cell, FieldReader};
use crate::loader::sample::large::{Part, Room};
use crate::measure::Stage;
use crate::plan::{ColumnRole, Plan, SampleMemory, SamplePlan};
use crate::random::SampleKey;
use crate::transform::{HostTransform, Views};

/// Views of a sample, and the decoded image that the views of one image share.
pub(super) struct SampleViews {
    /// Views of the sample's image.
    of_sample: Views,
    /// Views of the image of each field with an image, in the order of the fields.
    of_fields: Vec<Views>,
    image: HostTransform,
    /// For each view, the number of its column in host memory.
    columns: Vec<usize>,
}

impl SampleViews {
    pub fn new(plan: &Plan) -> Self {
        let column = |view| plan.column(ColumnRole::View(view)).map_or(0, |column| column.slot);
        let columns = (0..plan.views.len()).map(column).collect();
        let groups = plan.view_groups().into_iter();
        let mut groups = groups.map(|(_, members)| Views::new(plan, members));
        let of_sample = groups.next().unwrap_or_else(|| Views::new(plan, Vec::new()));
        let of_fields = groups.collect();
        Self { of_sample, of_fields, image: HostTransform::new(plan), columns }
    }

    /// Window of the sample's image that all chains need. `None` if there are no views of it.
    pub fn shared(&self) -> Option<&SamplePlan> {
        (!self.of_sample.is_empty()).then(|| self.of_sample.shared())
    }

    /// Plans of the outputs of a view of the sample's image.
    pub fn outputs(&self, plan: &Plan, view: usize) -> &[SamplePlan] {
        self.of_sample.of_view(plan, view)
    }

    /// Memory that stays if buffers are released.
    pub fn kept(&self) -> [u64; 2] {
        let groups = self.of_fields.iter().chain([&self.of_sample]);
        [groups.map(Views::table_bytes).sum(), 0]
    }

    /// Frees the tables.
    pub fn release_tables(&mut self) {
        self.of_sample.release_tables();
        self.of_fields.iter_mut().for_each(Views::release_tables);
    }

    /// Frees the image.
    pub fn release(&mut self) {
        self.image.release();
    }
}

impl SamplePipeline {
    /// Draws the actions of all chains that read the sample's image. Allocates their tables first,
    /// if the worker's share covers the bounds on them.
    pub(super) fn draw(
        &mut self,
        image: (SampleKey, &Header),
        is_covered: bool,
    ) -> Result<(), DataError> {
        let Self { plan, views, sample, need, .. } = self;
        let views = &mut views.of_sample;
        let bound = |bytes| if is_covered { bytes } else { 0 };
        plan.reserve_tables(sample, bound(need.tables))?;
        if views.is_empty() {
            plan.draw(image, sample);
            return Ok(());
        }
        let is_of_sample = |(number, _): &(usize, &u64)| plan.views[*number].field.is_none();
        let bounds = sample.view_tables.iter().enumerate().filter(is_of_sample);
        views.reserve(plan, bounds.map(|(_, &bytes)| bound(bytes)))?;
        views.put_boxes(plan, &sample.actions.boxes);
        views.draw(plan, image, Some(sample));
        Ok(())
    }

    /// Reserves the memory for planning a sample whose actions are drawn, and allocates its tables.
    pub(super) fn reserve_drawn(&mut self, header: &Header, file: u64) -> Result<(), DataError> {
        let Self { plan, views, sample, need, .. } = self;
        let drawn = need.before_draw().max(&views.of_sample.drawn_tables(plan, Some(sample)));
        self.reserve_for_planning(drawn, (header, file))?;
        let Self { plan, views, sample, .. } = self;
        plan.reserve_tables(sample, plan.drawn_table_bytes(sample))?;
        views.of_sample.reserve_drawn(plan)
    }

    /// Computes the windows and tables of the drawn actions, and the memory that they need.
    pub(super) fn demand(&mut self, header: &Header) -> Result<(), DataError> {
        let Self { plan, views, sample, room, need, .. } = self;
        let views = &mut views.of_sample;
        match views.is_empty() {
            true => plan.demand(header, sample)?,
            false => views.demand(plan, header, Some(sample))?,
        }
        let main = plan.has_images().then(|| plan.drawn_memory(sample));
        let of_views = views.planned(plan).map(|(_, plan, it)| plan.drawn_memory(it));
        *need = room.need_of_drawn(*need, of_views.chain(main));
        Ok(())
    }

    /// Decodes the window of the sample's image that all its views need, and the main chain if it
    /// shares the image. Writes the views to `cell`. Does nothing if there are no views of this
    /// image.
    pub fn make_views(
        &mut self,
        Admitted(planned): &Admitted<'_>,
        cell: &mut impl Cell,
    ) -> Result<(), DataError> {
        if self.views.of_sample.is_empty() {
            return Ok(());
        }
        let (header, bytes) = (planned.header(), planned.bytes());
        let begin = self.meter.begin(Stage::Decode);
        let Self { plan, decoder, transform, views, caches, epoch, room, .. } = self;
        let SampleViews { of_sample, image, columns, .. } = views;
        caches.decode_indexed((bytes, header), (plan, *epoch), decoder, |decoder| {
            of_sample.decode((bytes, header), plan, decoder, image)
        })?;
        let decode = self.meter.since(begin);
        run(of_sample, (plan, room), (image, transform), columns, cell)?;
        let transform = self.meter.since(begin) - decode;
        self.add(begin, (decode, transform), bytes);
        Ok(())
    }

    /// Runs the main chain on the image that it shares with the views.
    pub(super) fn run_shared(&mut self, out: &mut [u8]) -> Result<(), DataError> {
        let begin = self.meter.begin(Stage::Transform);
        let Self { plan, sample, transform, views, .. } = self;
        transform.set_shape(plan.shape);
        transform.run_image(
            &sample.actions,
            0..plan.steps.len(),
            views.image.image(),
            Some(out),
        )?;
        self.add(begin, (Duration::ZERO, self.meter.since(begin)), &[]);
        Ok(())
    }

    /// Decodes the images in the fields of a sample, and writes their views to `cell`. `upright` is
    /// the size of the sample's image. Must be called after the sample's image was processed,
    /// because it uses the same buffers.
    ///
    /// # Errors
    /// Errors of the files, with the name of the field. [`Reason::Field`] if two images must have
    /// the same size and do not.
    pub fn make_field_views(
        &mut self,
        key: SampleKey,
        upright: Size,
        fields: &FieldReader,
        cell: &mut impl Cell,
    ) -> Result<(), DataError> {
        let of_sample = self.need;
        for number in 0..self.views.of_fields.len() {
            let bytes = fields.file(number);
            let made = self.make_field_view(key, (number, bytes), upright, cell);
            made.map_err(|error| fields.file_error(number, error))?;
        }
        self.need = of_sample;
        Ok(())
    }

    fn make_field_view(
        &mut self,
        key: SampleKey,
        (number, bytes): (usize, &[u8]),
        upright: Size,
        cell: &mut impl Cell,
    ) -> Result<(), DataError> {
        let begin = self.meter.begin(Stage::Header);
        let header = self.plan.header(bytes)?;
        let decode = self.decoder.memory(&header, bytes, bytes.len() as u64);
        // Tables of other views stay in memory. Their size is taken first, because `memory` may let
        // those of this view grow.
        let others = self.views.kept()[0] - self.views.of_fields[number].table_bytes();
        let Self { plan, views, need, room, .. } = self;
        let views = &mut views.of_fields[number];
        let (of_view, bounds) = views.memory(plan, &header, decode);
        let of_sample = *need;
        let file = of_sample.file;
        let with_others = |of_view: SampleMemory| {
            let [tables, shared] = of_view.views;
            SampleMemory { views: [others.saturating_add(tables), shared], ..of_view }
        };
        *need = of_sample.max(&with_others(of_view));
        let is_covered = room.covers(need);
        if is_covered {
            self.reserve(self.need, Part::Needed, (&header, file))?;
        }
        let Self { plan, views, .. } = self;
        let views = &mut views.of_fields[number];
        views.reserve(plan, bounds.into_iter().map(|bytes| if is_covered { bytes } else { 0 }))?;
        views.put_boxes(plan, &[]);
        views.draw(plan, (key, &header), None);
        if !is_covered {
            let drawn = of_view.before_draw().max(&views.drawn_tables(plan, None));
            self.reserve_for_planning(of_sample.max(&with_others(drawn)), (&header, file))?;
            let Self { plan, views, .. } = self;
            views.of_fields[number].reserve_drawn(plan)?;
        }
        let Self { plan, views, need, room, .. } = self;
        let views = &mut views.of_fields[number];
        views.demand(plan, &header, None)?;
        let size = views.shared().upright;
        let unequal = |(view, ..): &(usize, &Plan, &SamplePlan)| {
            plan.views[*view].is_like_other && size != upright
        };
        if let Some((view, ..)) = views.planned(plan).find(unequal) {
            let problem = format!(
                "has an image of {size}, and the sample's image has {upright}; the view {:?} \
                 uses the random numbers of another image's view, so both images must have the \
                 same size",
                plan.views[view].name
            );
            return Err(DataError::new(Reason::Field, problem));
        }
        let drawn = views.planned(plan).map(|(_, plan, output)| plan.drawn_memory(output));
        *need = room.need_of_drawn(*need, drawn);
        self.meter.add(Stage::Header, begin, 0);
        self.reserve(self.need, Part::Needed, (&header, file))?;
        let begin = self.meter.begin(Stage::Decode);
        let Self { plan, decoder, transform, views, caches, epoch, room, .. } = self;
        let SampleViews { of_fields, image, columns, .. } = views;
        caches.decode_indexed((bytes, &header), (plan, *epoch), decoder, |decoder| {
            of_fields[number].decode((bytes, &header), plan, decoder, image)
        })?;
        let decode = self.meter.since(begin);
        run(&of_fields[number], (plan, room), (image, transform), columns, cell)?;
        let transform = self.meter.since(begin) - decode;
        self.add(begin, (decode, transform), bytes);
        Ok(())
    }

    /// Stores the boxes of the sample's objects if an operator reads them.
    pub(super) fn put_boxes(&mut self, index: u64, header: &Header, canvas: Canvas) {
        let boxes = &mut self.sample.actions.boxes;
        boxes.clear();
        let plans = self.plan.views.iter().map(|view| &view.plan).chain([&*self.plan]);
        if plans.into_iter().any(Plan::reads_boxes) {
            let turned = self.plan.settings.decode.orientation;
            let turn = if turned { header.orientation } else { Default::default() };
            let upright = (turn.upright_size(header.size), turn);
            let objects = self.source.objects(index);
            boxes.extend(Objects::upright_boxes(&objects, canvas.frame, upright));
        }
    }
}

/// Runs the chains of views on the image that they share, and writes the outputs to `cell`. Stops
/// after the current output if the loader is ending.
fn run(
    views: &Views,
    (plan, room): (&Plan, &Room),
    (image, transform): (&HostTransform, &mut HostTransform),
    columns: &[usize],
    cell: &mut impl Cell,
) -> Result<(), DataError> {
    let (mut last, mut begin) = (usize::MAX, 0);
    for (number, plan, output) in views.planned(plan) {
        if room.is_ending() {
            break;
        }
        // The outputs of a view follow one another in its column.
        begin = if number == last { begin + plan.shape.sample_bytes() } else { 0 };
        last = number;
        let out = &mut cell.part(columns[number])[begin..][..plan.shape.sample_bytes()];
        transform.set_shape(plan.shape);
        transform.run_image(&output.actions, 0..plan.steps.len(), image.image(), Some(out))?;
    }
    Ok(())
}
