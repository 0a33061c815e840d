//! Memory footprint, computed from the settings and a few facts about the source.

use std::collections::BTreeSet;

use crate::field::FieldPath;
use crate::footprint::{Footprint, Memory, counted};
use crate::measure::{OTHER_TRACKS, trace_bytes};

use super::need::sum;
use super::{
    CacheSettings, ColumnKind, ColumnPlan, ColumnRole, ColumnSettings, DevicePlan, Facts, Place,
    Plan, SampleRoom, Shuffle,
};

/// Name of the source's row in the footprint. The source's memory is in use before the loader is
/// built.
pub(super) const SOURCE: &str = "source";

/// Maximum memory per sample in a slot besides its columns, in bytes.
pub(crate) const RECORD_BYTES: u64 = 688;

/// Memory per sample and host column, in bytes: the pointer to the sample's part of the column.
pub(crate) const PART_BYTES: u64 = 32;

/// Maximum memory per pair of samples in a slot, in bytes, if there are batch operators or soft
/// targets.
pub(crate) const PAIR_BYTES: u64 = 256;

/// Code, stacks, allocator overhead and fixed memory of the decoders, in bytes. The value was
/// measured.
const PROCESS_BYTES: u64 = 13 << 20;

/// Maximum memory of a field's value in a cache besides its bytes, in bytes: its header,
/// and its shape or the name of a JSON member.
const FIELD_HEAD_BYTES: u64 = 256;

/// Name of the row for samples that need more than their worker's share.
pub const LARGE_IMAGES: &str = "large images";

/// Memory per file with `loader.shuffle_window`, in bytes: where the file ends in the source, and
/// for each of two epochs the index of its first sample and its place in the order.
const ORDER_BYTES: u64 = 8 + 2 * 16;

/// Maximum read buffer of one of hyper's connections, in bytes: 8 KiB plus 100 pages of 4 KiB.
const CONNECTION_BYTES: u64 = (8 + 400) << 10;

/// Predicted memory of a plan: one row for each kind of buffer.
pub fn footprint(plan: &Plan, facts: &Facts) -> Footprint {
    let mut rows = Footprint::default();
    // A gatherer thread decodes images on the CPU if the JPEG engines reject them. So it needs the
    // same memory as a worker.
    let gatherers = plan.device.as_ref().map_or(0, DevicePlan::gatherers);
    let workers = (plan.workers.most + gatherers) as u64;
    let SampleRoom { share, large, .. } = plan.room;
    let note = format!("largest sample {} bytes", facts.largest_bytes);
    match &plan.device {
        // Files that fit into a page are read into page-locked pages, which have their own row in
        // the footprint. So only larger files need host memory here.
        Some(device) if plan.decode == Place::Gpu => {
            if share.file > device.encoded_bytes as u64 {
                rows.add(Memory::Host, "files beyond a page", share.file, workers, note);
            }
        }
        _ => rows.add(Memory::Host, "encoded pages", share.file, workers, note),
    }
    let note = format!("tables, rows and windows of a {} image", facts.image);
    rows.add(Memory::Host, "worker scratch", share.scratch(), workers, note);
    let note =
        "rows and tables; coefficients of JPEGs of several scans, whole interlaced PNGs and WebPs";
    let decoder = sum([share.library, sum(share.decoder)]);
    rows.add(Memory::Host, "decoders", decoder, workers, note);
    if large > 0 {
        let note = "limits.large_image_memory: for samples that need more than a worker's share";
        rows.add(Memory::Host, LARGE_IMAGES, large, 1, note);
    }
    add_caches(plan, facts, &mut rows);
    if let Some(device) = &plan.device {
        let note = match plan.has_device_views() {
            true => "actions and tables of samples waiting for launch, and of their views",
            false => "tables of samples waiting for launch",
        };
        rows.add(Memory::Host, "sample plans", plan.waiting_plans(), device.pages as u64, note);
        device.add_rows(plan, &mut rows);
    }
    ColumnPlan::add_rows(&plan.columns, &mut rows, (plan.shape.batch, plan.slots()), |column| {
        match column.role {
            ColumnRole::Image => plan.slots_note(),
            ColumnRole::View(_) | ColumnRole::Field(_) => {
                format!("{}: {}", column.name.escape_debug(), column.note(plan.shape.batch))
            }
            _ => column.note(plan.shape.batch),
        }
    });
    // Groups of views: those of the sample's image, and those of each field with an image.
    let image_fields = plan.view_groups().len() - 1;
    if plan.reads_fields {
        // The text of a sample's fields, and a text without escapes in a buffer that grows by
        // doubling. Each mask and each image in a field keeps its file.
        let kept = |it: &&ColumnSettings| it.kind == ColumnKind::Mask || it.kind.has_outlines();
        let masks = plan.settings.columns.iter().filter(kept).count();
        // A value from a cache is copied, because numbers in a cache are not aligned.
        let aligned = usize::from(plan.cached_field_bytes() > 0);
        let count = (3 + masks + image_fields + aligned) as u64;
        let bytes = plan.settings.limits.max_field_bytes.saturating_mul(count);
        let bytes = bytes.saturating_add(plan.cached_field_bytes());
        let note = match plan.cached_field_bytes() {
            0 => "limits.max_field_bytes, read and parsed",
            _ => "limits.max_field_bytes, read and parsed; values of a sample for a cache",
        };
        rows.add(Memory::Host, "fields", bytes, workers, note);
    }
    let records = plan.record_bytes();
    let note = "index, label, size and window of each sample of a batch";
    rows.add(Memory::Host, "records", records, plan.slots() as u64, note);
    if plan.stage.is_some() {
        let pairs = (plan.shape.batch.div_ceil(2) as u64).saturating_mul(PAIR_BYTES);
        let note = "what was drawn for each pair of samples of a batch";
        rows.add(Memory::Host, "pairs", pairs, plan.slots() as u64, note);
    }
    if let Shuffle::Windows(windows) = plan.shuffle {
        let note = format!(
            "where each of {} ends, and their order in two epochs",
            counted(windows.files, "file")
        );
        rows.add(Memory::Host, "order", ORDER_BYTES, windows.files, note);
    }
    if let Some((samples, each)) = plan.ahead {
        // `samples` buffers hold data that is being received or was not read yet. Workers copy from
        // up to two more buffers each.
        let count = samples as u64 + 2 * workers;
        let note = format!("the largest sample has {each} bytes; {samples} are prefetched");
        rows.add(Memory::Host, "read ahead", each, count, note);
        let connections = plan.settings.storage.connections as u64;
        let note = "read buffers at their largest";
        rows.add(Memory::Host, "connections", CONNECTION_BYTES, connections, note);
    }
    if facts.trace_spans > 0 {
        // In the trace, each of these threads has a track: the workers, the thread that feeds the
        // JPEG engines, the thread that opened the source, and the launcher.
        let threads = workers + 1 + u64::from(plan.uses_gpu());
        let spans = facts.trace_spans;
        let note = format!("{spans} spans for each of {} tracks", threads + OTHER_TRACKS);
        rows.add(Memory::Host, "trace", trace_bytes(spans, threads), 1, note);
    }
    rows.add(Memory::Host, SOURCE, facts.source_bytes, 1, "names of the samples");
    rows.add(Memory::Host, "process", PROCESS_BYTES, 1, "code, stacks, allocator (measured)");
    rows
}

impl Plan {
    /// Memory of a slot besides its columns and pairs, in bytes.
    pub(super) fn record_bytes(&self) -> u64 {
        let parts = PART_BYTES * self.columns_in(Memory::Host).count() as u64;
        (self.shape.batch as u64).saturating_mul(RECORD_BYTES + parts)
    }
}

impl Plan {
    /// Maximum size of the fields of a sample as a cache stores them, in bytes. 0 if no cache
    /// stores fields.
    pub(crate) fn cached_field_bytes(&self) -> u64 {
        let CacheSettings { encoded, decoded, .. } = self.settings.cache;
        if !self.reads_fields || encoded.or(decoded).is_none() {
            return 0;
        }
        let columns = self.settings.columns.iter().filter_map(|it| it.field_path().ok());
        let images = self.view_groups().into_iter().filter_map(|it| it.field?.parse().ok());
        let names: BTreeSet<String> = columns.chain(images).map(|it: FieldPath| it.name).collect();
        let each = self.settings.limits.max_field_bytes.saturating_add(FIELD_HEAD_BYTES);
        each.saturating_mul(names.len() as u64)
    }
}

/// Adds the rows for the caches, which are assumed to be full, and for the memory in which workers
/// decode whole images for the caches.
fn add_caches(plan: &Plan, facts: &Facts, rows: &mut Footprint) {
    let CacheSettings { encoded, decoded, .. } = plan.settings.cache;
    let note = "maximum: grows as images are cached, never shrinks";
    if let Some(bytes) = encoded {
        rows.add(Memory::Host, "encoded cache", bytes, 1, note);
    }
    if let Some(bytes) = decoded {
        rows.add(Memory::Host, "decoded cache", bytes, 1, note);
        let note = format!("whole {} images for the decoded cache", facts.image);
        let workers = plan.workers.most as u64;
        rows.add(Memory::Host, "whole images", sum(plan.room.share.whole), workers, note);
    }
    if let Some(files) = plan.device.as_ref().and_then(|device| device.files) {
        let note = "maximum: what the host keeps of files in device memory";
        rows.add(Memory::Host, super::rows::FILES, files.host_bytes, 1, note);
    }
    if plan.row_index_bytes > 0 {
        let note = "maximum: grows as JPEGs are decoded, never shrinks";
        rows.add(Memory::Host, "row indexes", plan.row_index_bytes, 1, note);
    }
}
