//! Predicted effect of row indexes (`cache.row_index`) on decoding JPEGs on the CPU or by the route
//! `feedwater`.

use serde::Serialize;

use crate::decode::{Decoders, JpegDecoder, is_indexable};
use crate::footprint::bytes;
use crate::header::Header;
use crate::random::SampleKey;

use super::{Facts, Place, Plan, Route, SamplePlan, ScannedSample};

/// Maximum number of images for which windows are drawn.
const DRAWN: usize = 128;
/// Time to parse a part of an image outside the window, relative to the time to decode the same
/// part. With this value, predicted gains match those that `cargo bench --bench jpeg` measures.
const PARSED: f64 = 0.26;
/// Share of the decoding time of a window that is spent on reading coefficients. The rest of the
/// time shrinks if the decoder reduces the image.
const CODED: f64 = 0.6;
/// Time of the kernels for the coded data of an image (without an index), and for the coded data of
/// the needed rows (with an index), relative to the inverse transform of the same area. The values
/// are ratios of counted instructions (benches/results/device-jpeg-2026-12-01.md), because no GPU
/// has run the kernels.
const KERNELS: [f64; 2] = [2.9, 2.1];
/// Size of a row index in the cache without the bytes per row, in bytes.
const INDEX_BYTES: f64 = 140.0;
/// Bytes per row of blocks in an index, for images with one and with three components.
const ROW_BYTES: [f64; 2] = [3.2, 5.8];
/// The cache is larger than the indexes in it by this factor plus the bytes below, because the
/// cache's blocks have unused space.
const LEFT_OVER: f64 = 1.1;
const LEFT_OVER_BYTES: f64 = 64.0 * 1024.0;
/// Smallest predicted speed-up for which indexes are used by default.
const WORTH: f64 = 1.03;
/// Maximum memory for indexes by default, in bytes.
const MOST_BY_DEFAULT: u64 = 256 * MIB;
const MIB: u64 = 1 << 20;

/// Predicted effect of row indexes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RowIndexGain {
    /// Share of the scanned images that can have an index, 0 to 1.
    pub share: f64,
    /// Rate of decoding all images with indexes, divided by the rate without indexes, if all
    /// indexes fit the cache. All images are assumed to take the same time without indexes.
    pub speedup: f64,
    /// Memory for the indexes of the whole source, in bytes. If `cache.row_index` has this value,
    /// all indexes fit.
    pub bytes: u64,
}

impl RowIndexGain {
    /// Predicts the effect from windows drawn for some of the scanned images. `None` if indexes
    /// have no effect.
    pub(super) fn of(plan: &Plan, facts: &Facts) -> Option<Self> {
        // Without vector instructions, libjpeg-turbo decodes all images, and it cannot use row
        // indexes.
        let has_vectors = Decoders::jpeg_instructions().len() > 1;
        let is_ours = plan.settings.decode.jpeg != JpegDecoder::Libjpeg && has_vectors;
        let cache = &plan.settings.cache;
        let by_kernels = plan.device.as_ref().is_some_and(|it| it.has(Route::Feedwater));
        // nvJPEG cannot use indexes, and cached pixels need no decoding. If `cache.row_index` is
        // set anyway, the user expects that some images are not cached or decoded on the CPU.
        let by_nvjpeg = plan.decode == Place::Gpu && !by_kernels;
        let has_none = cache.decoded.is_some() || by_nvjpeg;
        // Some operators choose windows by the boxes of a sample, which are not known before the
        // sample is read.
        if plan.reads_boxes() || has_none && cache.row_index.is_none() || !is_ours {
            return None;
        }
        let all = facts.scanned.len() as f64;
        // Draw windows only for images that can have an index. For other images this would be
        // useless, and their tables of coefficients may be huge.
        let indexed: Vec<_> = facts.scanned.iter().filter(|it| is_indexable(&it.header)).collect();
        let share = indexed.len() as f64 / all;
        let every = indexed.len().div_ceil(DRAWN).max(1);
        let mut sample = SamplePlan::default();
        let (mut drawn, mut index_bytes) = (0.0, 0.0);
        let [mut without, mut with] = [0.0; 2];
        for (index, scanned) in (0..).zip(indexed.into_iter().step_by(every)) {
            let ScannedSample { header, file_bytes, decode } = scanned;
            let need = plan.sample_memory(header, *file_bytes, *decode, &mut sample);
            // Skip images that need more than a worker's share. Their tables could exceed the
            // memory of the plan.
            if need.total() > plan.room.share.total() {
                continue;
            }
            // Reserve the upper bound, because a growing vector allocates up to twice its length.
            let entries = (need.tables / size_of::<i32>() as u64) as usize;
            if sample.actions.reserve(entries, 0).is_err() {
                continue;
            }
            let key = SampleKey { seed: plan.settings.loader.seed, epoch: 0, index };
            if plan.sample(key, header, &mut sample).is_err() {
                continue;
            }
            let window = sample.stored_window;
            let stored = [sample.stored.width, sample.stored.height].map(f64::from);
            // Areas are in pixels of the reduced image. Each of these pixels stands for `merged`
            // pixels of the stored image.
            let merged = f64::from(sample.reduction).powi(2);
            let rows = stored[0] * f64::from(window.height);
            if by_kernels {
                let transformed = window.size().pixels() as f64;
                without += merged * KERNELS[0] * stored[0] * stored[1] + transformed;
                with += merged * KERNELS[1] * rows + transformed;
            } else {
                let wanted = (CODED + (1.0 - CODED) / merged) * window.size().pixels() as f64;
                let above = stored[0] * f64::from(window.y);
                let beside = rows - window.size().pixels() as f64;
                let left = f64::from(window.x) * f64::from(window.height);
                without += merged * (wanted + PARSED * (above + beside));
                with += merged * (wanted + PARSED * left);
            }
            drawn += 1.0;
            index_bytes += INDEX_BYTES + row_bytes(header);
        }
        let held = index_bytes / drawn * share * facts.samples as f64;
        let bytes = (LEFT_OVER * held + LEFT_OVER_BYTES) as u64;
        let speedup = 1.0 / (1.0 - share + share * with / without);
        (drawn > 0.0).then_some(Self { share, speedup, bytes })
    }

    /// Default memory for indexes, in bytes. `left` is the memory that the limits leave, in bytes.
    pub(super) fn default_bytes(&self, left: u64) -> u64 {
        if self.speedup < WORTH {
            return 0;
        }
        self.bytes.next_multiple_of(MIB).min(MOST_BY_DEFAULT).min(left / MIB * MIB)
    }

    /// Description of the effect of indexes, for users. `planned` is the memory for indexes.
    /// `None` if no memory is planned and indexes would not make decoding much faster.
    pub(super) fn note(&self, setting: Option<u64>, planned: u64) -> Option<String> {
        let Self { speedup, bytes: needed, .. } = *self;
        let faster = |held: f64, epoch| {
            let speedup = 1.0 / (1.0 - held * (1.0 - 1.0 / speedup));
            format!("{speedup:.2} times as fast from the {epoch} epoch on (predicted)")
        };
        match planned {
            0 if speedup < WORTH => None,
            0 => {
                let (limit, faster) = (needed.div_ceil(MIB), faster(1.0, "second"));
                Some(format!("cache.row_index = \"{limit} MiB\" would make decoding {faster}"))
            }
            _ => {
                let held = (planned as f64 / needed as f64).min(1.0);
                let faster = match setting {
                    Some(_) => faster(held, "second") + ", in later runs from the first on",
                    None => faster(held, "third") + ", with packed indexes from the first on",
                };
                let part = match held {
                    1.0 => String::new(),
                    _ => format!(" for {:.0} % of the images", 100.0 * held),
                };
                let needed = bytes(needed);
                Some(format!(
                    "of rows{part}: decoding is {faster}; the indexes of all images need {needed}"
                ))
            }
        }
    }
}

/// Bytes of all rows of an index.
fn row_bytes(header: &Header) -> f64 {
    let components = header.jpeg.as_ref().map_or(&[][..], |jpeg| jpeg.components());
    let (high, each) = match components {
        [_] | [] => (8, ROW_BYTES[0]),
        [first, ..] => (8 * u32::from(first.v.max(1)), ROW_BYTES[1]),
    };
    each * f64::from(header.size.height.div_ceil(high))
}
