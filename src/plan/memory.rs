//! The footprint: arithmetic on the settings and a few facts about the source.

use crate::footprint::{Footprint, Memory};
use crate::geometry::Size;
use crate::op::resample::Resampler;
use crate::op::{Bounds, Fusion};
use crate::random::{SampleKey, SampleRng};

use super::{Facts, Place, Plan};

/// Code, stacks, the allocator's own, and what the decoders keep: measured, not predicted.
const PROCESS_BYTES: u64 = 12 << 20;

/// hyper's read buffer of a connection grows to 8 KiB and a hundred pages.
const CONNECTION_BYTES: u64 = (8 + 400) << 10;

/// All memory of a plan, row by row.
pub fn footprint(plan: &Plan, facts: &Facts) -> Footprint {
    let mut rows = Footprint::default();
    let workers = plan.settings.loader.workers as u64;
    let largest = facts.largest_bytes.min(plan.settings.limits.max_file_bytes);
    let note = format!("largest sample {} bytes", facts.largest_bytes);
    match &plan.device {
        // What fits is read into page-locked pages.
        Some(device) if plan.decode == Place::Gpu => {
            if largest > device.encoded_bytes as u64 {
                rows.add(Memory::Host, "files beyond a page", largest, workers, note);
            }
        }
        _ => rows.add(Memory::Host, "encoded pages", largest, workers, note),
    }
    let note = format!("tables and rows of a {} picture", facts.picture);
    rows.add(Memory::Host, "worker scratch", scratch_bytes(plan, facts), workers, note);
    let note = "coefficients of JPEGs of several scans, whole PNGs and WebPs";
    rows.add(Memory::Host, "decoders", facts.decoder_bytes, workers, note);
    match &plan.device {
        Some(device) => {
            let (_, tables) = table_bytes(plan, facts);
            let note = "tables of samples that wait for their launch";
            rows.add(Memory::Host, "sample plans", tables, device.pages as u64, note);
            device.add_rows(plan, plan.prefetch, &mut rows);
        }
        None => {
            let note = format!("{}, {} ahead + 1", plan.shape, plan.prefetch);
            let (each, count) = (plan.shape.bytes() as u64, plan.slots() as u64);
            rows.add(Memory::Host, "output slots", each, count, note);
        }
    }
    if let Some((samples, each)) = plan.ahead {
        // Those on their way, those handed out and not yet read, and those that workers copy from.
        let count = samples as u64 + 2 * workers;
        let note = format!("largest sample {each} bytes, {samples} fetched ahead");
        rows.add(Memory::Host, "read ahead", each, count, note);
        let connections = plan.settings.storage.connections as u64;
        let note = "read buffers at their largest";
        rows.add(Memory::Host, "connections", CONNECTION_BYTES, connections, note);
    }
    rows.add(Memory::Host, "source", facts.source_bytes, 1, "names of the samples");
    rows.add(Memory::Host, "process", PROCESS_BYTES, 1, "code, stacks, allocator (measured)");
    rows
}

/// Entries of all coefficient tables of a picture of the expected size, and their bytes.
fn table_bytes(plan: &Plan, facts: &Facts) -> (usize, u64) {
    let Size { width, height } = facts.picture;
    let wanted = Size::new(plan.shape.width, plan.shape.height);
    let side = width.max(height).max(1);
    let bounds = Bounds { pixels: facts.picture.pixels(), side, wanted: Some(wanted) };
    let entries = plan.steps.iter().map(|step| step.operator.table_len(bounds)).sum::<usize>();
    (entries, (size_of::<i32>() * entries) as u64)
}

/// What a worker needs for a picture of the expected size: its tables, and rows where rows go straight from the
/// decoder into the resampler, or else the windows between operators.
fn scratch_bytes(plan: &Plan, facts: &Facts) -> u64 {
    let (entries, tables) = table_bytes(plan, facts);
    if streams(plan, facts.picture) {
        let side = facts.picture.width.max(facts.picture.height).max(1);
        let wanted = Size::new(plan.shape.width, plan.shape.height);
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
