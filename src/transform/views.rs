//! Views of a sample: chains that read the same decoded image.

use crate::decode::Decoders;
use crate::error::DataError;
use crate::geometry::BoundingBox;
use crate::header::Header;
use crate::plan::{Plan, SamplePlan, ViewPlan};
use crate::random::SampleKey;

use super::{HostTransform, PlannedImage};

/// Plans of the views of one sample, and the image that they share. The buffers are reused for
/// later samples.
pub struct Views {
    /// One plan per output of each view, in order.
    samples: Vec<SamplePlan>,
    /// Window of the image that all chains need, without actions.
    shared: SamplePlan,
    /// Stores the window.
    image: HostTransform,
}

impl Views {
    /// Creates the buffers for a plan's views.
    pub fn new(plan: &Plan) -> Self {
        let samples = vec![SamplePlan::default(); plan.outputs()];
        Self { samples, shared: SamplePlan::default(), image: HostTransform::new(plan) }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// Allocates the tables. `bounds` are those of one output of each view, in bytes.
    ///
    /// # Errors
    /// [`Reason::OutOfMemory`](crate::error::Reason::OutOfMemory) if this memory is not available.
    pub fn reserve(&mut self, plan: &Plan, bounds: &[u64]) -> Result<(), DataError> {
        let mut samples = self.samples.iter_mut();
        for (view, bound) in plan.views.iter().zip(bounds) {
            let fixed = view.plan.fixed_entries();
            let entries = (bound / size_of::<i32>() as u64) as usize;
            for sample in samples.by_ref().take(view.outputs() as usize) {
                sample.actions.reserve(entries.saturating_sub(fixed), fixed)?;
            }
        }
        Ok(())
    }

    /// Sets the boxes of the sample's objects, for views that read them.
    pub fn put_boxes(&mut self, plan: &Plan, boxes: &[BoundingBox]) {
        let mut samples = self.samples.iter_mut();
        for view in &plan.views {
            for sample in samples.by_ref().take(view.outputs() as usize) {
                sample.actions.boxes.clear();
                if view.plan.reads_boxes() {
                    sample.actions.boxes.extend_from_slice(boxes);
                }
            }
        }
    }

    /// Plans the views of a sample, and its main chain in `main`. `boxes` are those of the sample's
    /// objects.
    pub fn plan(
        &mut self,
        plan: &Plan,
        (key, header): (SampleKey, &Header),
        main: &mut SamplePlan,
    ) -> Result<(), DataError> {
        plan.sample_views(key, header, main, (&mut self.samples, &mut self.shared))
    }

    /// Plans of the outputs with the plans of their chains.
    pub fn planned<'a>(
        &'a self,
        plan: &'a Plan,
    ) -> impl Iterator<Item = (&'a Plan, &'a SamplePlan)> {
        let plans = plan
            .views
            .iter()
            .flat_map(|view| std::iter::repeat_n(&view.plan, view.outputs() as usize));
        plans.zip(&self.samples)
    }

    /// Plans of the outputs of one view.
    pub fn of_view(&self, plan: &Plan, view: usize) -> &[SamplePlan] {
        let outputs = |views: &[ViewPlan]| -> usize {
            views.iter().map(|view| view.outputs() as usize).sum()
        };
        let begin = outputs(&plan.views[..view]);
        &self.samples[begin..begin + outputs(&plan.views[view..=view])]
    }

    /// The window of the image that all chains need.
    pub fn shared(&self) -> &SamplePlan {
        &self.shared
    }

    /// Decodes the window of the image that all chains need.
    pub fn decode(
        &mut self,
        (bytes, header): (&[u8], &Header),
        plan: &Plan,
        decoder: &mut Decoders,
    ) -> Result<(), DataError> {
        let Self { shared, image, .. } = self;
        image.run_prefix(PlannedImage { bytes, header, plan, sample: shared }, decoder, 0)
    }

    /// Runs a chain on the decoded window, and writes its tensor to `out`.
    pub fn run(
        &self,
        (plan, sample): (&Plan, &SamplePlan),
        transform: &mut HostTransform,
        out: &mut [u8],
    ) -> Result<(), DataError> {
        transform.set_shape(plan.shape);
        let steps = 0..plan.steps.len();
        transform.run_image(&sample.actions, steps, self.image.image(), Some(out))
    }

    /// Memory of the tables, in bytes.
    pub fn table_bytes(&self) -> u64 {
        self.samples.iter().map(SamplePlan::table_bytes).sum()
    }

    /// Frees the tables.
    pub fn release_tables(&mut self) {
        self.samples.iter_mut().for_each(|sample| sample.actions.release());
    }

    /// Frees the image.
    pub fn release_image(&mut self) {
        self.image.release();
    }
}
