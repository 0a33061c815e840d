//! The footprint: arithmetic on the settings and a few facts about the source.

use crate::footprint::{Footprint, Memory};
use crate::geometry::Size;
use crate::op::resample::Resampler;
use crate::op::{Fusion, Operator, Resize};
use crate::random::{SampleKey, SampleRng};

use super::{CacheSettings, Facts, Place, Plan, RECORD_BYTES, Shuffle};

/// Name of the source's row. Its memory is in use before the loader is built.
pub(super) const SOURCE: &str = "source";

/// Code, stacks, the allocator's own, and what the decoders keep: measured, not predicted.
const PROCESS_BYTES: u64 = 12 << 20;

/// For each file of a shuffle by windows: its end, and twice its first sample and its place in an epoch.
const ORDER_BYTES: u64 = 8 + 2 * 16;

/// hyper's read buffer of a connection grows to 8 KiB and a hundred pages.
const CONNECTION_BYTES: u64 = (8 + 400) << 10;

/// All memory of a plan, row by row.
pub fn footprint(plan: &Plan, facts: &Facts) -> Footprint {
    let mut rows = Footprint::default();
    let workers = plan.workers.most as u64;
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
    add_caches(plan, facts, &mut rows);
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
    let records = (plan.shape.batch as u64).saturating_mul(RECORD_BYTES);
    let note = "index, label, size and window of each sample of a batch";
    rows.add(Memory::Host, "records", records, plan.slots() as u64, note);
    if let Shuffle::Windows(windows) = plan.shuffle {
        let note = format!("{} files, their ends and their order in two epochs", windows.files);
        rows.add(Memory::Host, "order", ORDER_BYTES, windows.files, note);
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
    rows.add(Memory::Host, SOURCE, facts.source_bytes, 1, "names of the samples");
    rows.add(Memory::Host, "process", PROCESS_BYTES, 1, "code, stacks, allocator (measured)");
    rows
}

/// The caches, each with all that it may ever take, and what a worker needs to decode a picture whole for one.
fn add_caches(plan: &Plan, facts: &Facts, rows: &mut Footprint) {
    let CacheSettings { encoded, decoded, presize } = plan.settings.cache;
    let note = "at most: grows with what is kept, and never shrinks";
    if let Some(bytes) = encoded {
        rows.add(Memory::Host, "encoded cache", bytes, 1, note);
    }
    if let Some(bytes) = decoded {
        rows.add(Memory::Host, "decoded cache", bytes, 1, note);
        // Resizing reads one picture and writes another.
        let small = presize.and_then(|it| Resize::shorter(it).fixed_output(Some(facts.picture)));
        let pixels = facts.picture.pixels().saturating_add(small.map_or(0, Size::pixels));
        let each = pixels.saturating_mul(3);
        let note = format!("whole {} pictures for the decoded cache", facts.picture);
        let workers = plan.workers.most as u64;
        rows.add(Memory::Host, "whole pictures", each, workers, note);
    }
}

/// Entries of all coefficient tables of a picture of the expected size, and their bytes.
fn table_bytes(plan: &Plan, facts: &Facts) -> (usize, u64) {
    let entries = plan.table_len(facts.picture);
    (entries, (entries as u64).saturating_mul(size_of::<i32>() as u64))
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
        tables.saturating_add(facts.picture.pixels().saturating_mul(2 * 3))
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
