//! Views of one sample: outputs of its image, and of images in its fields.

use std::time::{Duration, Instant};

use super::{Admitted, Planned, Read, Reserve, SamplePipeline};
use crate::annotation::{Canvas, Objects};
use crate::error::{DataError, Reason};
use crate::geometry::Size;
use crate::header::Header;
use crate::image::HostImage;
use crate::loader::sample::fields::{Cell, FieldReader};
use crate::loader::sample::large::{Room, Take};
use crate::measure::Stage;
use crate::plan::{ColumnRole, Place, Plan, SampleMemory, SamplePlan};
use crate::random::SampleKey;
use crate::transform::{HostTransform, Views};

/// Views of a sample, and the decoded image that the views of one image share.
pub(super) struct SampleViews {
    /// Views of the sample's image.
    of_sample: Views,
    /// Views of the image of each field with an image, in the order of the fields.
    of_fields: Vec<Views>,
    image: HostTransform,
    /// Whether `image` is the window of the current sample's image that all its chains need.
    is_decoded: bool,
    /// For each view on the CPU, the number of its column in host memory. For each view on the
    /// device, its offset in a finished sample, in bytes.
    columns: Vec<usize>,
}

/// Image that chains read.
#[derive(Clone, Copy)]
pub(super) enum ImageOf {
    Sample,
    /// Image in a field, by the field's number among those with an image.
    Field(usize),
}

/// Bounds on the memory of an image and its chains, whatever random numbers are drawn.
pub(super) struct Bound {
    need: SampleMemory,
    /// The part of `need` that does not depend on the drawn actions.
    rest: SampleMemory,
    /// Tables of views of other images, in bytes. They stay in memory.
    others: u64,
    /// Tables of one output of each view of the image, in bytes.
    tables: Vec<u64>,
}

impl Bound {
    /// Adds the tables of views of other images.
    fn with_others(&self, need: SampleMemory) -> SampleMemory {
        let [tables, shared] = need.views;
        SampleMemory { views: [self.others.saturating_add(tables), shared], ..need }
    }
}

impl SampleViews {
    pub fn new(plan: &Plan) -> Self {
        let mut finished = plan.finished_parts().skip(1).map(|part| part.start);
        let columns = plan.views.iter().enumerate().map(|(number, view)| match view.place {
            Place::Cpu => plan.column(ColumnRole::View(number)).map_or(0, |column| column.slot),
            Place::Gpu => finished.next().unwrap_or(0),
        });
        let columns = columns.collect();
        let groups = plan.view_groups().into_iter();
        let mut groups = groups.map(|group| Views::new(plan, group.views));
        let of_sample = groups.next().unwrap_or_else(|| Views::new(plan, Vec::new()));
        let of_fields = groups.collect();
        Self { of_sample, of_fields, image: HostTransform::new(plan), is_decoded: false, columns }
    }

    /// Window of the sample's image that all chains need. `None` if there are no views of it.
    pub fn shared(&self) -> Option<&SamplePlan> {
        (!self.of_sample.is_empty()).then(|| self.of_sample.shared())
    }

    /// Plans of the outputs of a view of the sample's image.
    pub fn outputs(&self, plan: &Plan, view: usize) -> &[SamplePlan] {
        self.of_sample.of_view(plan, view)
    }

    /// Views of an image, and `sample`, the plan of the main chain, if the chain reads this image.
    fn of<'a>(
        &'a mut self,
        of: ImageOf,
        sample: &'a mut SamplePlan,
    ) -> (&'a mut Views, Option<&'a mut SamplePlan>) {
        match of {
            ImageOf::Sample => (&mut self.of_sample, Some(sample)),
            ImageOf::Field(number) => (&mut self.of_fields[number], None),
        }
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
        self.is_decoded = false;
    }

    /// Plans of the outputs of the views on the device, in order.
    pub fn device_outputs<'a>(
        &'a self,
        plan: &'a Plan,
    ) -> impl Iterator<Item = &'a SamplePlan> + Clone {
        self.of_sample.outputs_at(plan, Place::Gpu)
    }

    /// Like [`device_outputs`](Self::device_outputs), for writing.
    pub fn device_outputs_mut<'a>(
        &'a mut self,
        plan: &'a Plan,
    ) -> impl Iterator<Item = &'a mut SamplePlan> {
        self.of_sample.outputs_at_mut(plan, Place::Gpu)
    }
}

impl SamplePipeline {
    /// Bounds for the current sample's image, from the memory that it may need.
    pub(super) fn bound_of_sample(&mut self) -> Bound {
        let Self { plan, views, sample, need, .. } = self;
        let mut tables = std::mem::take(&mut sample.view_tables);
        let mut fields = plan.views.iter().map(|view| view.field.as_ref());
        tables.retain(|_| fields.next().is_some_and(|field| field.is_none()));
        let others = views.kept()[0] - views.of_sample.table_bytes();
        Bound { need: *need, rest: need.before_draw(), others, tables }
    }

    /// Draws the actions of all chains of an image, and computes their windows and tables. Sets the
    /// memory that the sample needs. Returns how long it waited for memory.
    ///
    /// If the worker's share covers the bound, the memory for `reserve` is reserved first.
    /// Otherwise the actions are drawn first, and only the memory for planning them is reserved:
    /// file, tables and masks.
    pub(super) fn plan_chains(
        &mut self,
        of: ImageOf,
        image: (SampleKey, &Header),
        mut bound: Bound,
        reserve: Reserve,
    ) -> Result<Duration, DataError> {
        let (_, header) = image;
        let is_covered = self.room.covers(&bound.need);
        if !is_covered {
            // Pages keep the size of earlier files. Counting the largest of them makes the need
            // independent of the worker.
            for need in [&mut bound.need, &mut bound.rest] {
                need.file = need.file.max(self.room.file_bytes());
            }
            self.is_drawn = true;
        }
        if let ImageOf::Sample = of {
            self.views.is_decoded = false;
        }
        if !is_covered || !self.room.covers(&bound.need.max(&self.kept())) {
            bound.others = self.release_idle_tables(of);
        }
        let first = match (is_covered, reserve) {
            (true, Reserve::All) => bound.need,
            (true, Reserve::Tables) => bound.need.for_planning(),
            (false, _) => {
                let (views, _) = self.views.of(of, &mut self.sample);
                let fixed = bound.with_others(self.plan.fixed_tables(views.members()));
                bound.rest.max(&fixed).for_planning()
            }
        };
        self.need = bound.need;
        let begin = Instant::now();
        self.reserve(first, Take::Needed, header)?;
        let mut waited = begin.elapsed();
        let Self { plan, views, sample, .. } = self;
        let (views, mut main) = views.of(of, sample);
        let known = |bytes| if is_covered { bytes } else { 0 };
        if let Some(main) = &mut main {
            plan.allocate_tables(main, known(bound.need.tables))?;
            views.put_boxes(plan, &main.actions.boxes);
        }
        views.allocate_tables(plan, bound.tables.iter().map(|&bytes| known(bytes)))?;
        views.draw(plan, image, main.as_deref_mut());
        if !is_covered {
            let drawn = bound.with_others(views.drawn_tables(plan, main));
            let begin = Instant::now();
            self.reserve_for_planning(&bound, &drawn, header)?;
            waited += begin.elapsed();
            let Self { plan, views, sample, .. } = self;
            let (views, main) = views.of(of, sample);
            if let Some(main) = main {
                plan.allocate_tables(main, plan.drawn_table_bytes(main))?;
            }
            views.allocate_drawn_tables(plan)?;
        }
        let Self { plan, views, sample, room, need, .. } = self;
        let (views, mut main) = views.of(of, sample);
        views.demand(plan, header, main.as_deref_mut())?;
        let main = main.filter(|_| plan.has_images()).map(|main| plan.drawn_memory(main));
        let drawn = views.planned(plan).map(|(_, plan, output)| plan.drawn_memory(output));
        *need = room.need_of_drawn(*need, is_covered, drawn.chain(main));
        sample.view_tables = bound.tables;
        Ok(waited)
    }

    /// Frees the tables that are not needed any more when the chains of this image are planned. The
    /// views of the sample's image are made before those of its fields. The main chain has run too.
    /// On a GPU, the main chain and the views on the GPU have not run yet. Returns the bytes of the
    /// tables of views of other images that stay.
    fn release_idle_tables(&mut self, of: ImageOf) -> u64 {
        let waits = matches!(of, ImageOf::Field(_)) && self.plan.uses_gpu();
        if !waits {
            self.sample.actions.release();
        }
        if !waits || !self.plan.has_device_views() {
            self.views.release_tables();
            return 0;
        }
        self.views.of_fields.iter_mut().for_each(Views::release_tables);
        self.views.of_sample.table_bytes()
    }

    /// Reserves the file, tables and masks of an image whose actions are drawn. Replaces the bound
    /// on the memory that the sample needs by `drawn`.
    fn reserve_for_planning(
        &mut self,
        bound: &Bound,
        drawn: &SampleMemory,
        header: &Header,
    ) -> Result<(), DataError> {
        self.need = bound.rest.max(drawn);
        let planning = self.need.for_planning();
        if self.room.covers(&planning.max(&self.kept())) {
            return self.reserve(planning, Take::Needed, header);
        }
        // The windows may need more memory later. A worker that holds a part of the pool must not
        // wait for a second part, so it takes the most that the image may need.
        match self.reserve(bound.need.max(drawn), Take::Needed, header) {
            Err(DataError { reason: Reason::Oversized, .. }) => {
                self.reserve(planning, Take::WholePool, header)
            }
            reserved => reserved,
        }
    }

    /// Decodes the window of the sample's image that all its chains need, and writes the views on
    /// the CPU to `cell`. Does nothing if there are no such views of this image.
    pub fn make_views(
        &mut self,
        Admitted(planned): &Admitted<'_>,
        cell: &mut impl Cell,
    ) -> Result<(), DataError> {
        if !self.views.of_sample.has_views_at(&self.plan, Place::Cpu) {
            return Ok(());
        }
        self.run_on_shared(planned, Place::Cpu, cell)
    }

    /// Writes the views on the device to their places in a finished sample.
    pub(super) fn make_device_views(
        &mut self,
        planned: &Planned<'_>,
        out: &mut [u8],
    ) -> Result<(), DataError> {
        self.run_on_shared(planned, Place::Gpu, &mut Finished(out))
    }

    fn run_on_shared(
        &mut self,
        planned: &Planned<'_>,
        place: Place,
        cell: &mut impl Cell,
    ) -> Result<(), DataError> {
        let decoded = self.decode_shared(planned)?;
        let Self { plan, transform, views, room, .. } = self;
        let SampleViews { of_sample, image, columns, .. } = views;
        run((of_sample, place), (plan, room), (image, transform), columns, cell)?;
        self.count_shared(&decoded);
        Ok(())
    }

    /// Runs the main chain on the image that it shares with the views.
    pub(super) fn run_shared(
        &mut self,
        planned: &Planned<'_>,
        out: &mut [u8],
    ) -> Result<(), DataError> {
        let decoded = self.decode_shared(planned)?;
        let Self { plan, sample, transform, views, .. } = self;
        transform.run_decoded(plan, &sample.actions, &views.image, out)?;
        self.count_shared(&decoded);
        Ok(())
    }

    /// The window of the sample's image that all its chains need.
    pub(super) fn shared_image(&mut self, planned: &Planned<'_>) -> Result<&HostImage, DataError> {
        let decoded = self.decode_shared(planned)?;
        self.count_shared(&decoded);
        Ok(self.views.image.image())
    }

    /// Decodes the window of the sample's image that all its chains need, unless it is decoded
    /// already.
    fn decode_shared<'a>(&mut self, planned: &Planned<'a>) -> Result<Decoded<'a>, DataError> {
        let begin = self.meter.begin(Stage::Decode);
        if self.views.is_decoded {
            return Ok(Decoded { begin, took: Duration::ZERO, bytes: &[] });
        }
        let Read { sample, bytes, .. } = &planned.0;
        let (header, bytes) = (&sample.header, *bytes);
        let Self { plan, decoder, views, caches, epoch, .. } = self;
        let SampleViews { of_sample, image, is_decoded, .. } = views;
        caches.decode_indexed((bytes, header), (plan, *epoch), decoder, |decoder| {
            of_sample.decode((bytes, header), plan, decoder, image)
        })?;
        *is_decoded = true;
        Ok(Decoded { begin, took: self.meter.since(begin), bytes })
    }

    /// Records the time of decoding, and of the work from then to now.
    fn count_shared(&mut self, &Decoded { begin, took, bytes }: &Decoded<'_>) {
        let transform = self.meter.since(begin).saturating_sub(took);
        self.add(begin, (took, transform), bytes);
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
        planned: &Planned<'_>,
        upright: Size,
        fields: &FieldReader,
        cell: &mut impl Cell,
    ) -> Result<(), DataError> {
        let of_sample = self.need;
        for number in 0..self.views.of_fields.len() {
            let bytes = fields.file(number);
            let made = self.make_field_view(planned.0.key, (number, bytes), upright, cell);
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
        // Tables of other views stay in memory.
        let others = self.views.kept()[0] - self.views.of_fields[number].table_bytes();
        let (of_view, tables) = self.views.of_fields[number].memory(&self.plan, &header, decode);
        let rest = self.need.max(&of_view.before_draw());
        let mut bound = Bound { need: self.need, rest, others, tables };
        bound.need = self.need.max(&bound.with_others(of_view));
        let (of, reserve) = (ImageOf::Field(number), Reserve::All);
        let waited = self.plan_chains(of, (key, &header), bound, reserve)?;
        let Self { plan, views, .. } = self;
        let views = &views.of_fields[number];
        let size = views.shared().upright;
        let unequal = |(view, ..): &(usize, &Plan, &SamplePlan)| {
            plan.views[*view].is_like_other && size != upright
        };
        if let Some((view, ..)) = views.planned(plan).find(unequal) {
            let problem = format!(
                "has an image of {size}, and the sample's image has {upright}; the view {:?} \
                 uses the random numbers of another image's view, so both images must have the \
                 same size; correct the file, or remove like",
                plan.views[view].name
            );
            return Err(DataError::new(Reason::Field, problem));
        }
        let took = self.meter.since(begin).saturating_sub(waited);
        self.meter.add_from(Stage::Header, begin, took, 0);
        self.reserve(self.need, Take::Needed, &header)?;
        let begin = self.meter.begin(Stage::Decode);
        let Self { plan, decoder, transform, views, caches, epoch, room, .. } = self;
        let SampleViews { of_fields, image, is_decoded, columns, .. } = views;
        *is_decoded = false;
        caches.decode_indexed((bytes, &header), (plan, *epoch), decoder, |decoder| {
            of_fields[number].decode((bytes, &header), plan, decoder, image)
        })?;
        let decode = self.meter.since(begin);
        run((&of_fields[number], Place::Cpu), (plan, room), (image, transform), columns, cell)?;
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

/// Runs the chains of the views at a place on the image that they share, and writes the outputs to
/// `cell`. Stops after the current output if the loader is ending.
fn run(
    (views, place): (&Views, Place),
    (plan, room): (&Plan, &Room),
    (image, transform): (&HostTransform, &mut HostTransform),
    columns: &[usize],
    cell: &mut impl Cell,
) -> Result<(), DataError> {
    let (mut last, mut begin) = (usize::MAX, 0);
    let outputs = views.planned(plan).filter(|(number, ..)| plan.views[*number].place == place);
    for (number, plan, output) in outputs {
        if room.is_ending() {
            break;
        }
        // The outputs of a view follow one another in its column.
        begin = if number == last { begin + plan.shape.sample_bytes() } else { 0 };
        last = number;
        let out = &mut cell.part(columns[number])[begin..][..plan.shape.sample_bytes()];
        transform.run_decoded(plan, &output.actions, image, out)?;
    }
    Ok(())
}

/// Decoding of the window that the chains of a sample share.
struct Decoded<'a> {
    begin: Instant,
    took: Duration,
    /// The decoded file. Empty if the window was decoded earlier.
    bytes: &'a [u8],
}

/// Memory of a finished sample until it is uploaded. The columns of its views are named by their
/// offsets, in bytes.
struct Finished<'a>(&'a mut [u8]);

impl Cell for Finished<'_> {
    fn part(&mut self, offset: usize) -> &mut [u8] {
        &mut self.0[offset..]
    }

    /// Views have no lengths.
    fn set_len(&mut self, _: usize, _: usize) {}
}
