//! Where views are computed.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::op::{Placement, View};
use crate::plan::column::aligned;
use crate::plan::{DeviceFacts, Place, Plan, not_there};

use super::ViewPlan;

/// Resolves where a view is computed: with the main chain on the device, or on the CPU. Returns
/// also why it is on the CPU although there is a device. `list` is the key of the chain.
pub(super) fn place(
    view: &View,
    list: &str,
    main: &Plan,
    device: &DeviceFacts,
) -> Result<(Place, Option<String>)> {
    let steps = view.chain.steps();
    let wanted = steps.iter().position(|step| step.placement == Placement::Gpu);
    let key = |number: usize| format!("{list}[{number}].placement");
    let own = not_on_device(view, list, main);
    let why = match (own, device) {
        (Some(why), _) => Some(why),
        (None, DeviceFacts::Gpu { .. }) => main_on_cpu(main),
        (None, DeviceFacts::None(why)) => {
            let Some(number) = wanted else { return Ok((Place::Cpu, None)) };
            let words = format!("places {} on the GPU", steps[number].operator.name());
            return Err(not_there("a gpu", why, &key(number), &words));
        }
    };
    match (why, wanted) {
        (None, _) => Ok((Place::Gpu, None)),
        (why, None) => Ok((Place::Cpu, why)),
        (Some(why), Some(number)) => {
            let problem = format!("is gpu, but {why}; write cpu or auto");
            Err(Error::config(key(number), problem))
        }
    }
}

/// Reason why no device can compute a view.
fn not_on_device(view: &View, list: &str, main: &Plan) -> Option<String> {
    let format = main.pixel_format();
    if view.field.is_some() {
        return Some("the images of fields are processed on the cpu".into());
    }
    if format.is_only_on_cpu() {
        return Some(format!("decode.pixels is {}, which runs on the cpu only", format.name()));
    }
    view.chain.steps().iter().enumerate().find_map(|(number, step)| {
        let name = step.operator.name();
        match step.operator.kinds().not_on_device() {
            Some(why) => Some(format!("{name} ({list}[{number}]) {why}")),
            None => (step.placement == Placement::Cpu).then(|| {
                format!("{name} ({list}[{number}]) is on cpu, and a view runs in one place")
            }),
        }
    })
}

/// Reason why the main chain keeps all views on the CPU.
fn main_on_cpu(main: &Plan) -> Option<String> {
    let on_cpu = main.steps.iter().position(|step| step.place == Place::Cpu)?;
    let name = main.steps[on_cpu].operator.name();
    Some(format!(
        "{name} (chain[{on_cpu}]) is on cpu, and a view runs on the gpu only with the whole main \
         chain"
    ))
}

impl Plan {
    /// Views on the device, with their numbers. They read the same decoded window as the main
    /// chain.
    pub(crate) fn device_views(&self) -> impl Iterator<Item = (usize, &ViewPlan)> {
        self.views.iter().enumerate().filter(|(_, view)| view.place == Place::Gpu)
    }

    /// Whether there are views on the device.
    pub(crate) fn has_device_views(&self) -> bool {
        self.device_views().next().is_some()
    }

    /// Number of operators in the chains of the views on the device.
    pub(in crate::plan) fn device_view_operators(&self) -> usize {
        self.device_views().map(|(_, view)| view.plan.steps.len()).sum()
    }

    /// Places of a finished sample in a buffer, in bytes: its image, then each of its views on the
    /// device. Each place is aligned, because tensors are written as numbers of their element type.
    pub(crate) fn finished_parts(&self) -> impl Iterator<Item = Range<usize>> {
        let views = self.device_views().map(|(_, view)| {
            view.plan.shape.sample_bytes().saturating_mul(view.outputs() as usize)
        });
        std::iter::once(self.shape.sample_bytes()).chain(views).scan(0, |end: &mut usize, bytes| {
            let begin = aligned(*end);
            *end = begin.saturating_add(bytes);
            Some(begin..*end)
        })
    }

    /// Size of a finished sample with its views on the device, in bytes.
    pub(crate) fn finished_bytes(&self) -> usize {
        self.finished_parts().last().map_or(0, |part| part.end)
    }

    /// Host memory for the plans of a sample and of the outputs of its views that wait in a page
    /// for their launch, in bytes.
    pub(in crate::plan) fn waiting_plans(&self) -> u64 {
        let outputs = self.device_views().map(|(_, view)| {
            view.plan.output_plan_bytes().saturating_mul(u64::from(view.outputs()))
        });
        outputs.fold(self.waiting_tables(), u64::saturating_add)
    }

    /// Bytes for the tables of a sample and of the outputs of its views that wait for their launch:
    /// those of a worker's share, plus 25 % for samples that were not scanned.
    pub(crate) fn waiting_tables(&self) -> u64 {
        let share = &self.room.share;
        let views = if self.has_device_views() { share.views[0] } else { 0 };
        let tables = share.tables.saturating_add(views);
        tables.saturating_add(tables / 4)
    }
}
