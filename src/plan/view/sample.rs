//! Views of one sample: their plans, and the memory that they need.

use std::collections::BTreeMap;

use super::ViewPlan;
use crate::decode::{DecodeMemory, ValueImage};
use crate::error::DataError;
use crate::geometry::{BoundingBox, Roi, Size};
use crate::header::Header;
use crate::op::{DrawnOperator, OriginMap, OriginRows};
use crate::plan::windows::{Stage, bytes_of};
use crate::plan::{Plan, SampleMemory, SamplePlan};
use crate::random::SampleKey;

impl Plan {
    /// Empty plans for the outputs of the views with the numbers `members`, in order.
    pub(crate) fn view_plans(&self, members: &[usize]) -> Vec<SamplePlan> {
        let views = members.iter().map(|&number| &self.views[number]);
        let outputs = views.flat_map(|view| (0..view.outputs()).map(|it| it % view.of_run));
        let planned = |output| {
            let mut plan = SamplePlan::default();
            plan.actions.output = output;
            plan
        };
        outputs.map(planned).collect()
    }

    /// For each output of the views with the numbers `members`, the number of the view and the plan
    /// of its chain.
    pub(crate) fn outputs_of<'a>(
        &'a self,
        members: &'a [usize],
    ) -> impl Iterator<Item = (usize, &'a Self)> + Clone {
        members.iter().flat_map(|&number| {
            let view = &self.views[number];
            std::iter::repeat_n((number, &view.plan), view.outputs() as usize)
        })
    }

    /// Draws the actions of the views with the numbers `members` for an image with this header, and
    /// of the main chain in `main` if it reads this image. `outputs` has one plan per output.
    pub(crate) fn draw_views(
        &self,
        (key, header): (SampleKey, &Header),
        main: Option<&mut SamplePlan>,
        members: &[usize],
        outputs: &mut [SamplePlan],
    ) {
        if let Some(main) = main {
            self.draw((key, header), main);
        }
        let mut plans = outputs.iter_mut();
        for view in members.iter().map(|&number| &self.views[number]) {
            for (output, plan) in (0..view.outputs()).zip(&mut plans) {
                view.plan.draw((view.key(key, output), header), plan);
            }
        }
    }

    /// Names and parameters of the actions of the views, by name of the view: for each output,
    /// those of its operators. The arguments are those of [`drawn`](Self::drawn). Leaves out views
    /// of images in fields, because the record of a sample does not have the size of these images.
    pub fn drawn_views(
        &self,
        epoch: u32,
        index: u64,
        repeat: u32,
        size: Size,
        boxes: &[BoundingBox],
    ) -> BTreeMap<String, Vec<Vec<DrawnOperator>>> {
        if size.pixels() == 0 {
            return BTreeMap::new();
        }
        let seed = self.settings.loader.seed;
        let key = SampleKey { seed, epoch, index }.of_repeat(repeat);
        let of_view = |view: &ViewPlan| {
            let outputs = (0..view.outputs()).map(|output| {
                let drawn = (view.key(key, output), output % view.of_run);
                view.plan.named(drawn, size, boxes.to_vec())
            });
            (view.name.clone(), outputs.collect())
        };
        self.views.iter().filter(|view| view.field.is_none()).map(of_view).collect()
    }

    /// Computes the windows and tables of the drawn actions. Stores in `shared` the window of the
    /// image that all chains need.
    pub(crate) fn demand_views(
        &self,
        header: &Header,
        mut main: Option<&mut SamplePlan>,
        members: &[usize],
        (outputs, shared): (&mut [SamplePlan], &mut SamplePlan),
    ) -> Result<(), DataError> {
        let of_main = main.as_ref().filter(|_| self.reads_image).map(|main| main.reduction);
        let reductions = outputs.iter().map(|plan| plan.reduction).chain(of_main);
        // The chains of views on the device assume that the decoder reduces images.
        let reduces = !self.has_device_views() || self.reduces(header);
        let reduction = reductions.min().filter(|_| reduces).unwrap_or(1);
        let mut window: Option<Roi> = None;
        let mut add = |of: &SamplePlan| {
            window = Some(window.map_or(of.window, |it| it.around(of.window)));
        };
        if let Some(main) = &mut main {
            if self.reads_image || !self.has_images() {
                main.reduction = reduction;
            }
            if self.has_images() || members.is_empty() {
                self.demand(header, main)?;
            }
            if self.reads_image {
                add(main);
            }
        }
        for ((_, plan), output) in self.outputs_of(members).zip(outputs) {
            output.reduction = reduction;
            plan.demand(header, output)?;
            add(output);
        }
        shared.orientation = self.orientation(header);
        shared.upright = shared.orientation.upright_size(header.size);
        shared.reduction = reduction;
        shared.stored = header.size.reduced(reduction);
        shared.window = window.unwrap_or_default();
        shared.stored_window = shared.orientation.stored_window(shared.stored, shared.window);
        Ok(())
    }

    /// Tables that do not depend on windows, of the main chain and of the views with the numbers
    /// `members`.
    pub(crate) fn fixed_tables(&self, members: &[usize]) -> SampleMemory {
        let bytes = |plan: &Self| (plan.fixed_entries() * size_of::<i32>()) as u64;
        let of_views = self.outputs_of(members).map(|(_, plan)| bytes(plan)).sum();
        SampleMemory { tables: bytes(self), views: [of_views, 0], ..SampleMemory::default() }
    }

    /// Memory for the tables and masks of the drawn actions, before their windows are computed.
    pub(crate) fn drawn_tables(
        &self,
        main: Option<&mut SamplePlan>,
        members: &[usize],
        outputs: &mut [SamplePlan],
    ) -> SampleMemory {
        let mut need = SampleMemory::default();
        if let Some(main) = main {
            need.tables = self.drawn_table_bytes(main);
            need.masks = self.drawn_mask_bytes(self.followers(None), main);
        }
        for ((number, plan), output) in self.outputs_of(members).zip(outputs) {
            need.views[0] = need.views[0].saturating_add(plan.drawn_table_bytes(output));
            let followers = self.followers(Some(number));
            need.masks = need.masks.max(plan.drawn_mask_bytes(followers, output));
        }
        need
    }

    /// Maximum memory to apply the drawn geometry to a mask, in bytes.
    fn drawn_mask_bytes(&self, followers: [bool; 2], sample: &mut SamplePlan) -> u64 {
        if followers == [false; 2] {
            return 0;
        }
        Stage::put(&self.steps, &sample.actions, &mut sample.stages);
        self.mask_bytes(followers, sample.upright, &sample.stages)
    }

    /// Maximum memory that a worker needs for the views with the numbers `members` of an image with
    /// this header, without its file. Stores in `scratch` the bounds on the tables of one output of
    /// each of these views.
    pub(crate) fn view_memory(
        &self,
        members: &[usize],
        header: &Header,
        decode: DecodeMemory,
        scratch: &mut SamplePlan,
    ) -> SampleMemory {
        // All views of a group have the same pixel format.
        let plan = members.first().map_or(self, |&number| &self.views[number].plan);
        let mut need = SampleMemory::of_decode(plan.decode_memory(header, decode));
        let upright = self.orientation(header).upright_size(header.size);
        self.add_views(members.iter().copied(), (header, upright), scratch, &mut need);
        need
    }

    /// Adds to the memory of a sample that of the views with the numbers `members`, and of the
    /// image that they share. `upright` is the size of the sample's image. An image in a field is
    /// assumed to have the same header. Stores in `scratch` the bounds on the tables of one output
    /// of each view.
    pub(in crate::plan) fn add_views(
        &self,
        members: impl ExactSizeIterator<Item = usize>,
        (header, upright): (&Header, Size),
        scratch: &mut SamplePlan,
        need: &mut SampleMemory,
    ) {
        scratch.view_tables.clear();
        if members.len() == 0 {
            return;
        }
        let mut bounds = std::mem::take(&mut scratch.view_tables);
        for (number, view) in members.map(|number| (number, &self.views[number])) {
            let of_view = view.plan.sample_memory(header, 0, DecodeMemory::default(), scratch);
            let image = match view.field {
                // Only the sample's own image may come from a cache in another size.
                Some(_) => self.orientation(header).upright_size(header.size),
                None => upright,
            };
            let followers = self.followers(Some(number));
            let masks = view.plan.mask_bytes(followers, image, &scratch.stages);
            need.masks = need.masks.max(masks);
            bounds.push(of_view.tables);
            let outputs = u64::from(view.outputs());
            need.views[0] = need.views[0].saturating_add(of_view.tables.saturating_mul(outputs));
            let format = view.plan.pixel_format();
            let images = view.plan.lists_of_actions() as u64;
            let shared = bytes_of(format.pixel_type(), image).saturating_mul(images);
            need.views[1] = need.views[1].max(shared);
            *need = need.max(&SampleMemory { tables: 0, ..of_view });
        }
        scratch.view_tables = bounds;
    }

    /// Maximum memory to apply the chain's geometry to masks and to outlines of objects in an image
    /// of this size, in bytes, if there are such `followers`.
    pub(in crate::plan) fn mask_bytes(
        &self,
        followers: [bool; 2],
        image: Size,
        stages: &[Stage],
    ) -> u64 {
        if followers == [false; 2] {
            return 0;
        }
        let (lines, others) = self.mask_bounds(image, stages);
        let rows = OriginRows::most_bytes(self.shape.width);
        let origins = OriginMap::most_bytes(lines, others).saturating_add(rows);
        let [mask, outlines] = followers;
        let mask = if mask { ValueImage::most_bytes(image) } else { 0 };
        // A byte for each pixel of the image, and the number of a pixel for each one of the result.
        let result = Size::new(self.shape.width, self.shape.height).pixels();
        let object = image.pixels().saturating_add(result.saturating_mul(size_of::<u32>() as u64));
        let object = if outlines { object } else { 0 };
        [object, origins].into_iter().fold(mask, u64::saturating_add)
    }
}
