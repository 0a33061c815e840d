//! Caches in host memory that persist over all epochs: of encoded files, of decoded images, of the
//! values of fields, and of row indexes.
//!
//! Each of the following points has a test in `tests/loader/cache/`:
//!
//! * A cache never evicts (MinIO, in Mohan et al., "Analyzing and mitigating data stalls in DNN
//!   training", VLDB 2021). Under a full shuffle, LRU eviction would never hit if the set is
//!   slightly larger than the cache.
//! * A cache stores samples in the order in which they arrive, until the cache is full. A cache
//!   never takes more memory than its limit, its table included.
//! * A hit makes no request to the source. If the set fits the cache, the second epoch makes no
//!   requests, except for samples that were still being loaded for the first epoch when the second
//!   began.
//! * Batches have the same bytes with and without a cache, whatever the cache contains.
//! * A sample that cannot be read, or whose header is rejected, is not cached. It is read again
//!   each time and fails with the same error. An image that cannot be decoded whole is not stored
//!   in the decoded cache. As without a cache, only its window is then decoded, if that is
//!   possible.
//! * An image in the decoded cache is not stored in the encoded cache too.
//! * With `presize`, the chain receives the resized image, cached or not. So batches do not depend
//!   on the cache.
//! * Samples with the same bytes, such as copies in a combined source, are stored once
//!   ([`Source::original`](crate::source::Source::original)).
//! * The values of a sample's fields are stored in the encoded cache, or in the decoded cache if
//!   there is no encoded one, as the source has passed them to the columns. An entry has the fields
//!   that the columns of the loader use. Samples with the same bytes may have different fields, so
//!   fields have numbers of their own
//!   ([`Fields::field_original`](crate::source::custom::Fields::field_original)). A sample that
//!   occurs several times in a combination has one entry.
//! * On a device, cached decoded images use the route `cpu`: their window is uploaded.
//! * A file in device memory is decoded there, by the route `feedwater`. If its sample cannot be
//!   processed there, the file is read from the other caches or from the source.

use bytes::Bytes;

use crate::decode::{Decoders, JpegDecoder, RowIndexTask, is_indexable};
use crate::error::DataError;
use crate::geometry::{Orientation, Size};
use crate::header::Header;
use crate::plan::{CacheSettings, DeviceFilesPlan, Plan};
use crate::source::Source;

use store::Store;

pub use stats::{CacheEpoch, CacheStats};

pub(in crate::loader) use device_files::DeviceFiles;
pub(in crate::loader) use row_indexes::RowIndexes;
pub(in crate::loader) use store::Kept;

mod device_files;
mod row_indexes;
mod stats;
mod store;

/// Caches of a loader, shared by all threads.
pub(in crate::loader) struct Caches {
    /// Cache of files.
    pub encoded: Option<Store>,
    /// Cache of decoded images.
    pub decoded: Option<Store>,
    /// Cache of files in device memory.
    pub device: Option<DeviceFiles>,
    /// Cache of row indexes.
    pub row_indexes: Option<RowIndexes>,
    /// First number of the fields of samples in a cache. `None` if no column uses fields.
    fields_from: Option<u64>,
}

impl Caches {
    /// Creates the caches of a source, also of its fields if `reads_fields`. Row indexes take at
    /// most `row_index_bytes` bytes. The caches of files and images are empty at first.
    pub fn open(
        settings: &CacheSettings,
        row_index_bytes: u64,
        device: Option<DeviceFilesPlan>,
        source: &dyn Source,
        reads_fields: bool,
    ) -> Self {
        let originals = source.originals();
        let fields = if reads_fields { source.field_originals() } else { 0 };
        let store = |limit: Option<u64>| limit.map(|limit| Store::new(limit, originals, fields));
        Self {
            fields_from: reads_fields.then_some(originals),
            encoded: store(settings.encoded),
            decoded: store(settings.decoded),
            device: device.map(|files| DeviceFiles::new(files, originals)),
            row_indexes: match (row_index_bytes, settings.row_index) {
                (0, _) => None,
                (limit, Some(_)) => Some(RowIndexes::open(limit, source)),
                (limit, None) => Some(RowIndexes::for_this_run(limit, source)),
            },
        }
    }

    /// Whether there is a cache of files or of images.
    pub fn are_there(&self) -> bool {
        self.encoded.is_some() || self.decoded.is_some()
    }

    /// Whether a cache of files or images holds the sample with the index `original`, so the source
    /// is not needed. A file in device memory is still read if the CPU processes its sample, which
    /// is the exception.
    pub fn hold(&self, original: u64) -> bool {
        let on_host = [&self.encoded, &self.decoded].into_iter().flatten();
        let on_device = self.device.as_ref().is_some_and(|files| files.holds(original));
        on_device || on_host.into_iter().any(|store| store.holds(original))
    }

    /// The cache that may hold the fields with the number `original`, and their number there.
    fn fields_of(&self, original: u64) -> Option<(&Store, u64)> {
        let store = self.encoded.as_ref().or(self.decoded.as_ref())?;
        Some((store, self.fields_from?.saturating_add(original)))
    }

    /// Whether a cache holds the fields with the number `original`, so the source is not needed for
    /// them.
    pub fn hold_fields(&self, original: u64) -> bool {
        self.fields_of(original).is_some_and(|(store, number)| store.holds(number))
    }

    /// Whether the fields with the number `original` could be stored now, if they are small.
    pub fn have_room_for_fields(&self, original: u64) -> bool {
        self.fields_of(original).is_some_and(|(store, number)| store.has_room(number, 1))
    }

    /// Returns the stored fields with the number `original`. Counts a hit or a miss.
    pub fn get_fields(&self, original: u64, epoch: u32) -> Option<Bytes> {
        let (store, number) = self.fields_of(original)?;
        store.get(number, epoch).map(|kept| kept.bytes)
    }

    /// Stores a copy of the fields with the number `original` if there is space.
    pub fn keep_fields(&self, original: u64, bytes: &[u8]) {
        if let Some((store, number)) = self.fields_of(original) {
            store.keep(number, Size::new(0, 0), Orientation::UPRIGHT, None, bytes);
        }
    }

    /// Statistics of each cache.
    pub fn stats(&self) -> Vec<CacheStats> {
        let named = [("encoded", &self.encoded), ("decoded", &self.decoded)];
        let there = named.into_iter().filter_map(|(name, store)| Some((name, store.as_ref()?)));
        let mut all: Vec<_> =
            there.map(|(cache, store)| CacheStats { cache, ..store.stats() }).collect();
        let device = self.device.as_ref();
        all.extend(device.map(|it| CacheStats { cache: "device", ..it.stats() }));
        let fields = self.fields_of(0).map(|(store, _)| store.field_stats());
        all.extend(fields.map(|it| CacheStats { cache: "fields", ..it }));
        let row_indexes = self.row_indexes.as_ref();
        all.extend(row_indexes.map(|it| CacheStats { cache: "row_index", ..it.stats() }));
        all
    }

    /// Decodes an image with its row index, if it has one. Otherwise the decoder may create one.
    /// `decode` decodes the image, and is called again if the decoder rejects the index.
    pub fn decode_indexed(
        &self,
        (bytes, header): (&[u8], &Header),
        (plan, epoch): (&Plan, u32),
        decoder: &mut Decoders,
        mut decode: impl FnMut(&mut Decoders) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        let ours = plan.settings.decode.jpeg != JpegDecoder::Libjpeg;
        let indexes = self.row_indexes.as_ref().filter(|_| ours && is_indexable(header));
        let Some(indexes) = indexes else { return decode(decoder) };
        decoder.set_row_index(indexes.task(bytes, epoch));
        let result = decode(decoder);
        if indexes.learn(decoder, bytes) {
            // The decoder rejected the index, and may have decoded wrong rows with it before. So
            // the image is decoded again without an index.
            decoder.set_row_index(RowIndexTask::None);
            return decode(decoder);
        }
        result
    }
}
