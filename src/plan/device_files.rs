//! Memory of the cache of files in device memory (`cache.device`).

use crate::error::{Error, Result};

use super::{Place, Plan, Route};

/// What the host keeps of a file, in bytes: the segments of a JPEG with four Huffman tables, its
/// entry in a table, and a row index without its rows.
const KEPT_BYTES: f64 = 1024.0;
/// What the host keeps of each row of pixels, in bytes: a row of blocks takes up to 6 bytes in an
/// index.
const KEPT_BYTES_PER_ROW: f64 = 0.75;
/// Size of a file that is assumed if none was scanned, in bytes.
const ASSUMED_BYTES: f64 = 16.0 * 1024.0;
/// Free space of the store beyond its entries, in bytes and relative to them.
const LEFT_OVER_BYTES: f64 = 128.0 * 1024.0;
const LEFT_OVER: f64 = 1.1;

/// Memory of the cache of files in device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceFilesPlan {
    /// Device memory for the coded data of files, in bytes.
    pub device_bytes: usize,
    /// Host memory for what the host keeps of each file, in bytes: the other segments, and a row
    /// index.
    pub host_bytes: u64,
}

impl DeviceFilesPlan {
    /// Plans the cache, if it is set, for a device with these decode routes and `samples` samples
    /// (0 if unknown). `mean` are the mean bytes of a file and rows of an image, if some were
    /// scanned.
    ///
    /// # Errors
    /// [`Error::Config`] if the settings leave the cache without effect.
    pub(super) fn new(
        plan: &Plan,
        routes: &[Route],
        (samples, mean): (u64, Option<[f64; 2]>),
    ) -> Result<Option<Self>> {
        let Some(bytes) = plan.settings.cache.device else { return Ok(None) };
        let refused = |problem: &str| Err(Error::config("cache.device", problem));
        if !routes.contains(&Route::Feedwater) {
            return refused(
                "keeps files for the decode route feedwater, which this plan does not use; allow the route in \
                 decode.routes and place decoding on the GPU, or remove cache.device",
            );
        }
        if plan.settings.cache.decoded.is_some() {
            return refused(
                "and cache.decoded are alternatives: images are decoded either in each epoch or once; remove one of \
                 the two",
            );
        }
        if let Some(view) = plan.views.iter().find(|view| view.place == Place::Cpu) {
            return refused(&format!(
                "keeps no file where the CPU can read it, but the view {:?} is made on the CPU; place the view on \
                 the GPU, use cache.encoded, or remove cache.device",
                view.name
            ));
        }
        let [file_bytes, rows] = mean.unwrap_or([ASSUMED_BYTES, 0.0]);
        let in_memory = bytes as f64 / file_bytes.max(1.0);
        let files = match samples {
            0 => in_memory,
            samples => in_memory.min(samples as f64),
        };
        let each = KEPT_BYTES + KEPT_BYTES_PER_ROW * rows;
        Ok(Some(Self {
            device_bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
            host_bytes: (LEFT_OVER * files * each + LEFT_OVER_BYTES) as u64,
        }))
    }
}
