//! Views of a sample: chains that read the same decoded image.

use crate::decode::{DecodeMemory, Decoders};
use crate::error::DataError;
use crate::geometry::BoundingBox;
use crate::header::Header;
use crate::plan::{Place, Plan, SampleMemory, SamplePlan};
use crate::random::SampleKey;

use super::{HostTransform, PlannedImage};

/// Plans of those views of one sample that share an image. The buffers are reused for later
/// samples.
pub struct Views {
    /// Numbers of the views, in order.
    members: Vec<usize>,
    /// One plan per output of each of these views, in order.
    outputs: Vec<SamplePlan>,
    /// Window of the image that all chains need, without actions.
    shared: SamplePlan,
}

impl Views {
    /// Creates the buffers for the views with the numbers `members`.
    pub fn new(plan: &Plan, members: Vec<usize>) -> Self {
        Self { outputs: plan.view_plans(&members), members, shared: SamplePlan::default() }
    }

    /// Numbers of the views.
    pub fn members(&self) -> &[usize] {
        &self.members
    }

    /// Whether the image has no views.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Maximum memory for an image with this header, without its file, and the bounds on the tables
    /// for [`allocate_tables`](Self::allocate_tables).
    pub fn memory(
        &mut self,
        plan: &Plan,
        header: &Header,
        decode: DecodeMemory,
    ) -> (SampleMemory, Vec<u64>) {
        let Self { members, outputs, .. } = self;
        let scratch = &mut outputs[0];
        let need = plan.view_memory(members, header, decode, scratch);
        (need, std::mem::take(&mut scratch.view_tables))
    }

    /// Allocates the coefficient tables of all outputs. `bounds` are those of one output of each of
    /// the views, in bytes.
    ///
    /// # Errors
    /// [`Reason::OutOfMemory`](crate::error::Reason::OutOfMemory) if this memory is not available.
    pub fn allocate_tables(
        &mut self,
        plan: &Plan,
        bounds: impl Iterator<Item = u64>,
    ) -> Result<(), DataError> {
        let mut outputs = self.outputs.iter_mut();
        for (&number, bound) in self.members.iter().zip(bounds) {
            let view = &plan.views[number];
            for output in outputs.by_ref().take(view.outputs() as usize) {
                view.plan.allocate_tables(output, bound)?;
            }
        }
        Ok(())
    }

    /// Allocates the coefficient tables of all outputs for the drawn actions.
    ///
    /// # Errors
    /// [`Reason::OutOfMemory`](crate::error::Reason::OutOfMemory) if this memory is not available.
    pub fn allocate_drawn_tables(&mut self, plan: &Plan) -> Result<(), DataError> {
        let mut chains = plan.outputs_of(&self.members).zip(&mut self.outputs);
        chains.try_for_each(|((_, plan), output)| {
            plan.allocate_tables(output, plan.drawn_table_bytes(output))
        })
    }

    /// Sets the boxes of the sample's objects, for views that read them.
    pub fn put_boxes(&mut self, plan: &Plan, boxes: &[BoundingBox]) {
        let mut outputs = self.outputs.iter_mut();
        for view in self.members.iter().map(|&number| &plan.views[number]) {
            for output in outputs.by_ref().take(view.outputs() as usize) {
                output.actions.boxes.clear();
                if view.plan.reads_boxes() {
                    output.actions.boxes.extend_from_slice(boxes);
                }
            }
        }
    }

    /// Draws the actions of the views for an image with this header, and those of the main chain in
    /// `main` if it reads this image.
    pub fn draw(
        &mut self,
        plan: &Plan,
        image: (SampleKey, &Header),
        main: Option<&mut SamplePlan>,
    ) {
        plan.draw_views(image, main, &self.members, &mut self.outputs);
    }

    /// Memory for the tables and masks of the drawn actions.
    pub fn drawn_tables(&mut self, plan: &Plan, main: Option<&mut SamplePlan>) -> SampleMemory {
        plan.drawn_tables(main, &self.members, &mut self.outputs)
    }

    /// Computes the windows and tables of the drawn actions.
    pub fn demand(
        &mut self,
        plan: &Plan,
        header: &Header,
        main: Option<&mut SamplePlan>,
    ) -> Result<(), DataError> {
        let Self { members, outputs, shared } = self;
        plan.demand_views(header, main, members, (outputs, shared))
    }

    /// Plans of the outputs, with the number of the view and the plan of its chain.
    pub fn planned<'a>(
        &'a self,
        plan: &'a Plan,
    ) -> impl Iterator<Item = (usize, &'a Plan, &'a SamplePlan)> {
        let chains = plan.outputs_of(&self.members);
        chains.zip(&self.outputs).map(|((number, plan), output)| (number, plan, output))
    }

    /// Whether there are views at a place.
    pub fn has_views_at(&self, plan: &Plan, place: Place) -> bool {
        self.members.iter().any(|&number| plan.views[number].place == place)
    }

    /// Plans of the outputs of the views at a place.
    pub fn outputs_at<'a>(
        &'a self,
        plan: &'a Plan,
        place: Place,
    ) -> impl Iterator<Item = &'a SamplePlan> + Clone {
        let views = plan.outputs_of(&self.members).zip(&self.outputs);
        let here = views.filter(move |((number, _), _)| plan.views[*number].place == place);
        here.map(|(_, output)| output)
    }

    /// Like [`outputs_at`](Self::outputs_at), for writing.
    pub fn outputs_at_mut<'a>(
        &'a mut self,
        plan: &'a Plan,
        place: Place,
    ) -> impl Iterator<Item = &'a mut SamplePlan> {
        let views = plan.outputs_of(&self.members).zip(&mut self.outputs);
        let here = views.filter(move |((number, _), _)| plan.views[*number].place == place);
        here.map(|(_, output)| output)
    }

    /// Plans of the outputs of one view.
    pub fn of_view(&self, plan: &Plan, number: usize) -> &[SamplePlan] {
        let count = |views: &mut dyn Iterator<Item = &usize>| -> usize {
            views.map(|&number| plan.views[number].outputs() as usize).sum()
        };
        let begin = count(&mut self.members.iter().take_while(|&&it| it != number));
        &self.outputs[begin..][..count(&mut [number].iter())]
    }

    /// The window of the image that all chains need.
    pub fn shared(&self) -> &SamplePlan {
        &self.shared
    }

    /// Decodes the window of the image that all chains need, and stores it in `image`.
    pub fn decode(
        &self,
        (bytes, header): (&[u8], &Header),
        plan: &Plan,
        decoder: &mut Decoders,
        image: &mut HostTransform,
    ) -> Result<(), DataError> {
        // All views of a group have the same pixel format.
        let plan = self.members.first().map_or(plan, |&number| &plan.views[number].plan);
        image.run_prefix(PlannedImage { bytes, header, plan, sample: &self.shared }, decoder, 0)
    }

    /// Memory of the tables, in bytes.
    pub fn table_bytes(&self) -> u64 {
        self.outputs.iter().map(SamplePlan::table_bytes).sum()
    }

    /// Frees the tables.
    pub fn release_tables(&mut self) {
        self.outputs.iter_mut().for_each(|output| output.actions.release());
    }
}
