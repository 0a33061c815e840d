//! Plan of one sample. All random numbers and parameters of a sample are computed here and nowhere
//! else.

use crate::error::{DataError, reserve};
use crate::geometry::{BoundingBox, Mapping, Orientation, OwnedPointMap, Roi, Size};
use crate::header::Header;
use crate::op::{Actions, Bounds, DrawnOperator, Kind, Trace};
use crate::random::SampleKey;

use super::windows::Stage;
use super::{Place, Plan, PlannedStep};

/// Parameters for processing one sample. A `SamplePlan` is reused for many samples. Nothing is
/// allocated after the tables have reached their final size.
#[derive(Clone, Debug, Default)]
pub struct SamplePlan {
    /// Size of the image as stored, after the decoder's reduction.
    pub stored: Size,
    /// Rotation and mirroring of the stored pixels.
    pub orientation: Orientation,
    /// Size of the upright image, before any reduction.
    pub upright: Size,
    /// Size of the chain's output.
    pub(super) output: Size,
    /// Factor by which the decoder reduces both sides: 1, 2, 4 or 8.
    pub reduction: u32,
    /// Pixels that the chain reads, in the upright image after the reduction.
    pub window: Roi,
    /// The pixels of `window`, in the coordinates of the stored image.
    pub stored_window: Roi,
    /// Actions of all operators of the chain, with their tables.
    pub actions: Actions,
    /// Images between the passes of the CPU transform, in bytes: two of bytes, two of floats, and
    /// two that a mix keeps.
    pub windows: [u64; 6],
    /// Stages from which `windows` is computed.
    pub(super) stages: Vec<Stage>,
    /// Record of the geometric actions on the sample, such as its crop and flip, for people and
    /// other tools.
    pub trace: Trace,
    /// Bounds on the tables of one output of each view, in bytes.
    pub view_tables: Vec<u64>,
}

impl SamplePlan {
    /// Memory of the tables, in bytes.
    pub fn table_bytes(&self) -> u64 {
        self.actions.table_bytes()
    }
}

impl PlannedStep {
    /// Maximum number of entries (of 32 bits) of the tables of the operator's actions.
    pub(super) fn table_len(&self, bounds: Bounds) -> usize {
        self.operator.coefficients(bounds).saturating_add(self.kinds.entries())
    }
}

impl Plan {
    /// Plans one sample: a forward pass over the chain for sizes and random numbers, then a
    /// backward pass for windows. [`header`](Self::header) has already checked the limits.
    pub fn sample(
        &self,
        key: SampleKey,
        header: &Header,
        out: &mut SamplePlan,
    ) -> Result<(), DataError> {
        self.draw((key, header), out);
        self.demand(header, out)
    }

    /// Forward pass over the chain: sizes, random numbers and the reduction. Needs no tables but
    /// those that do not depend on windows.
    pub fn draw(&self, (key, header): (SampleKey, &Header), out: &mut SamplePlan) {
        out.orientation = self.orientation(header);
        out.upright = out.orientation.upright_size(header.size);
        out.trace = Trace::new(out.upright);
        let operators = self.steps.iter().map(|step| &*step.operator);
        out.actions.format = self.pixel_format();
        out.output = out.actions.draw(operators, key, out.upright, &mut out.trace);
        out.reduction = self.reduction(header, out);
    }

    /// Backward pass over the chain: windows and tables.
    pub fn demand(&self, header: &Header, out: &mut SamplePlan) -> Result<(), DataError> {
        out.stored = header.size.reduced(out.reduction);
        // If the table's vector grows, it allocates up to twice its length. If its capacity
        // suffices, it allocates nothing.
        let entries = self.lists_of_actions() * out.actions.most_entries();
        let grows =
            if entries > out.actions.table.capacity() { entries.saturating_mul(2) } else { 0 };
        let _tables = reserve::promise((grows as u64).saturating_mul(size_of::<i32>() as u64))?;
        let padding = out.orientation.padding(header.size, out.reduction);
        out.window = out.actions.demand_reduced(out.reduction, padding, out.output.window());
        out.stored_window = out.orientation.stored_window(out.stored, out.window);
        self.set_windows(out);
        Ok(())
    }

    /// Rotation and mirroring that make an image with this header upright.
    pub(super) fn orientation(&self, header: &Header) -> Orientation {
        match self.settings.decode.orientation {
            true => header.orientation,
            false => Orientation::UPRIGHT,
        }
    }

    /// Whether an operator of the main chain or of a view reads the boxes of the sample's objects.
    pub fn reads_boxes(&self) -> bool {
        self.views.iter().any(|view| view.plan.reads_boxes())
            || self.steps.iter().any(|step| step.operator.reads_boxes())
    }

    /// Names and parameters of the actions that [`sample`](Self::sample) draws for sample number
    /// `index` of an epoch. Together with the image they determine the tensor on any device.
    ///
    /// `repeat` and `size`, the size of the upright image, are in the sample's record. `boxes` are
    /// the boxes of the sample's objects. An image without pixels, which replaces an unusable
    /// image, has no actions.
    pub fn drawn(
        &self,
        epoch: u32,
        index: u64,
        repeat: u32,
        size: Size,
        boxes: Vec<BoundingBox>,
    ) -> Vec<DrawnOperator> {
        if size.pixels() == 0 {
            return Vec::new();
        }
        let seed = self.settings.loader.seed;
        let key = SampleKey { seed, epoch, index }.of_repeat(repeat);
        self.named((key, 0), size, boxes)
    }

    /// Map from positions of the upright image to those of the tensor, for sample number `index` of
    /// an epoch. `repeat`, the `size` of the upright image and `whole`, the mapping of the chain
    /// without displacements, are in the sample's record. `boxes` returns the boxes of the sample's
    /// objects. If an operator displaces pixels, the actions are drawn and the displacements are
    /// computed again, which allocates memory for their tables.
    pub(crate) fn point_map(
        &self,
        (epoch, index, repeat): (u32, u64, u32),
        size: Size,
        boxes: impl FnOnce() -> Vec<BoundingBox>,
        whole: Mapping,
    ) -> OwnedPointMap {
        let may_displace =
            |step: &PlannedStep| step.kinds.list().iter().any(|kind| kind.is(Kind::Warp));
        if size.pixels() == 0 || !self.steps.iter().any(may_displace) {
            return whole.into();
        }
        let seed = self.settings.loader.seed;
        let key = SampleKey { seed, epoch, index }.of_repeat(repeat);
        let format = self.pixel_format();
        let mut actions = Actions::default();
        (actions.boxes, actions.format) = (boxes(), format);
        let operators = self.steps.iter().map(|step| &*step.operator);
        let output = actions.draw(operators, key, size, &mut Trace::new(size));
        if !actions.are_displaced() {
            return whole.into();
        }
        actions.demand(output.window());
        actions.point_map(&whole).to_owned()
    }

    /// Names and parameters of the actions for one output of the chain.
    pub(super) fn named(
        &self,
        output: (SampleKey, u32),
        size: Size,
        boxes: Vec<BoundingBox>,
    ) -> Vec<DrawnOperator> {
        let operators = self.steps.iter().map(|step| &*step.operator);
        Actions::named(operators, output, (size, self.pixel_format()), boxes)
    }

    /// Maximum number of entries (of 32 bits) of all tables that do not depend on windows.
    pub(super) fn fixed_entries(&self) -> usize {
        self.steps.iter().map(|step| step.kinds.entries()).sum()
    }

    /// Allocates tables of `bytes` bytes in total, and at least those that do not depend on
    /// windows.
    ///
    /// # Errors
    /// [`Reason::OutOfMemory`](crate::error::Reason::OutOfMemory) if this memory is not available.
    pub fn allocate_tables(&self, sample: &mut SamplePlan, bytes: u64) -> Result<(), DataError> {
        let entries = (bytes / size_of::<i32>() as u64) as usize / self.lists_of_actions();
        let fixed = self.fixed_entries();
        sample.actions.format = self.pixel_format();
        sample.actions.reserve(entries.saturating_sub(fixed), fixed)
    }

    /// Maximum memory for the tables of the drawn actions of a sample, in bytes.
    pub fn drawn_table_bytes(&self, sample: &SamplePlan) -> u64 {
        let entries = sample.actions.most_entries().saturating_add(self.fixed_entries());
        let entries = entries.saturating_mul(self.lists_of_actions());
        (entries as u64).saturating_mul(size_of::<i32>() as u64)
    }

    /// Number of lists of actions of a sample, each with its own tables: 2 if the image has an
    /// alpha channel.
    pub(super) fn lists_of_actions(&self) -> usize {
        1 + usize::from(self.pixel_format().has_alpha())
    }

    /// Parses the header of a file. Rejects an image beyond the limits before memory is allocated
    /// for its pixels.
    ///
    /// # Errors
    /// Errors of [`Header::parse_as`]; [`Reason::Oversized`](crate::error::Reason::Oversized),
    /// whose message names the limit's key.
    pub fn header(&self, bytes: &[u8]) -> Result<Header, DataError> {
        self.settings.limits.header(bytes, self.settings.decode.strict)
    }

    /// Whether a decoder that supports the image can reduce it: libjpeg-turbo or the JPEG engines.
    pub(super) fn reduces(&self, header: &Header) -> bool {
        self.decode == Place::Cpu
            || self.device.as_ref().is_some_and(|device| {
                device.has_any(|route| route.reduces() && route.takes(header, 2).is_ok())
            })
    }

    /// Largest reduction at which the image still has at least the required size. 1 if the first
    /// action does not resample.
    fn reduction(&self, header: &Header, out: &SamplePlan) -> u32 {
        let prescale = self.settings.decode.prescale && self.reduces(header);
        let (Some(params), true) = (out.actions.first_resampling(), prescale) else { return 1 };
        let fits = |&by: &u32| {
            let by = by as i32;
            params.box_width / by >= params.out_width && params.box_height / by >= params.out_height
        };
        header.format.reductions().iter().copied().rev().find(fits).unwrap_or(1)
    }
}
