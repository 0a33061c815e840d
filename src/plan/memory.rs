//! The footprint: arithmetic on the settings and a few facts about the source.

use crate::footprint::{Footprint, Memory};
use crate::geometry::Size;
use crate::op::resample::Resampler;
use crate::op::{Bounds, Fusion};
use crate::random::{SampleKey, SampleRng};

use super::{Facts, Plan};

/// Slots besides those that are ready ahead: one is being filled, one is in use.
pub const EXTRA_SLOTS: usize = 2;

/// Code, stacks, the allocator's own, and what the decoders keep: measured, not predicted.
const PROCESS_BYTES: u64 = 12 << 20;

/// All memory of a plan, row by row.
pub fn footprint(plan: &Plan, facts: &Facts) -> Footprint {
    let mut rows = Footprint::default();
    let loader = &plan.settings.loader;
    let workers = loader.workers as u64;
    let slots = plan.slots() as u64;
    let pages = facts.largest_bytes.min(plan.settings.limits.max_file_bytes);
    let note = format!("largest sample {} bytes", facts.largest_bytes);
    rows.add(Memory::Host, "encoded pages", pages, workers, note);
    let note = format!("tables and rows of a {} picture", facts.picture);
    rows.add(Memory::Host, "worker scratch", scratch_bytes(plan, facts), workers, note);
    let note = "coefficients of progressive JPEGs, whole PNGs and WebPs";
    rows.add(Memory::Host, "decoders", facts.decoder_bytes, workers, note);
    match &plan.device {
        Some(device) => device.add_rows(plan, &mut rows),
        None => {
            let note = format!("{}, {} ahead + {EXTRA_SLOTS}", plan.shape, loader.prefetch);
            rows.add(Memory::Host, "output slots", plan.shape.bytes() as u64, slots, note);
        }
    }
    rows.add(Memory::Host, "source", facts.source_bytes, 1, "names of the samples");
    rows.add(Memory::Host, "process", PROCESS_BYTES, 1, "code, stacks, allocator (measured)");
    rows
}

/// What a worker needs for a picture of the expected size: its tables, and rows where rows go straight from the
/// decoder into the resampler, or else the windows between operators.
fn scratch_bytes(plan: &Plan, facts: &Facts) -> u64 {
    let Size { width, height } = facts.picture;
    let side = width.max(height).max(1);
    let wanted = Size::new(plan.shape.width, plan.shape.height);
    let bounds = Bounds { pixels: facts.picture.pixels(), side, wanted: Some(wanted) };
    let entries = plan.steps.iter().map(|step| step.operator.table_len(bounds)).sum::<usize>();
    let tables = (size_of::<i32>() * entries) as u64;
    if streams(plan, facts.picture) {
        tables + Resampler::max_scratch_bytes(entries, wanted, side) as u64
    } else {
        // The image that is worked on and the next one, of bytes.
        tables + 2 * 3 * facts.picture.pixels()
    }
}

/// Whether a picture is resampled before anything else but crops is done to it.
fn streams(plan: &Plan, picture: Size) -> bool {
    let mut size = picture;
    for (place, step) in plan.steps.iter().enumerate() {
        let mut rng = SampleRng::new(SampleKey::default(), place as u16);
        let (output, params) = step.operator.prepare(size, &mut rng);
        match step.operator.fusion(&params) {
            Fusion::Crop { .. } => size = output,
            Fusion::Resample(_) => return true,
            _ => return false,
        }
    }
    false
}
