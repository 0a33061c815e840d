//! The footprint: arithmetic on the settings and a few facts about the source.

use crate::footprint::{Footprint, Memory};

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
    let note = format!("{} of a {} picture", "rows and intermediate", facts.picture);
    rows.add(Memory::Host, "worker scratch", scratch_bytes(plan, facts), workers, note);
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

/// What a worker needs to resample a picture of the expected size, row by row.
fn scratch_bytes(plan: &Plan, facts: &Facts) -> u64 {
    let row = 4 * u64::from(facts.picture.width);
    let intermediate = 4 * u64::from(plan.shape.width) * u64::from(facts.picture.height);
    16 * row + intermediate
}
