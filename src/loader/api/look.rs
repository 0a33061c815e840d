//! Inspection of a source for a plan. Parses the headers of evenly spaced samples, and of the
//! largest samples if the source lists sizes.

use std::sync::{Mutex, PoisonError};

use crate::decode::memory_bytes;
use crate::error::{DataError, Reason};
use crate::geometry::Size;
use crate::header::Header;
use crate::plan::{Limits, ScannedSample};
use crate::source::{HostPage, Source};
use crate::storage::{OpeningOf, fail_opening, opening_apart};
use crate::threads::in_parts;

/// Number of samples to inspect if the first bytes of a sample can be read without the rest. This
/// number, `WHOLE` and `FEW` are fixed, so the same source always yields the same plan.
const HEADS: u64 = 1024;
/// Number of samples to inspect if samples must be read whole.
const WHOLE: u64 = 256;
/// Number of samples to inspect if random reads are slow, or if the source is remote.
const FEW: u64 = 16;
/// Number of largest samples that are inspected in addition, if the source lists sizes. It is
/// small, so the other samples still represent the set.
const LARGEST: usize = 4;
/// Number of first bytes of a sample that are read. If the header is longer, the rest of the sample
/// is read too.
const HEAD_BYTES: usize = 64 << 10;
/// Number of threads that inspect samples if inspecting needs little memory. The threads mostly
/// wait for a disk or a network.
const THREADS: u64 = 8;

/// Result of the inspection of a source.
pub(in crate::loader) struct Looks {
    /// Size of the largest image that a worker can be expected to decode.
    pub image: Size,
    /// The inspected samples within the limits, in the order of the source.
    pub scanned: Vec<ScannedSample>,
    /// Whether all samples were inspected.
    pub all: bool,
}

impl Looks {
    /// Inspects a fixed choice of samples. Skips samples that cannot be read, whose header cannot
    /// be parsed, or that exceed the limits, because they cannot be decoded later either.
    ///
    /// A URL that does not respond is an error of its sample. Opening the source fails only if no
    /// sample can be inspected.
    pub fn at(source: &dyn Source, limits: &Limits, strict: bool) -> Self {
        let (this, cancelled) = opening_apart(|| Self::of(source, limits, strict));
        if let Some(problem) = cancelled.filter(|_| this.scanned.is_empty()) {
            fail_opening(problem);
        }
        this
    }

    fn of(source: &dyn Source, limits: &Limits, strict: bool) -> Self {
        let (len, (most, threads)) = (source.len(), most(source));
        let spread = len.min(most);
        let index = |look: u64| (u128::from(look) * u128::from(len) / u128::from(spread)) as u64;
        let mut indices: Vec<u64> = (0..spread).map(index).collect();
        if spread < len {
            indices.extend(source.largest_samples(LARGEST).into_iter().map(|(index, _)| index));
            indices.sort_unstable();
            indices.dedup();
        }
        let indices = &indices;
        let count = indices.len() as u64;
        let threads = count.min(threads);
        // Only one whole sample is in memory at a time, because memory limits apply only once the
        // plan is made.
        let whole = Mutex::new(HostPage::default());
        let whole = &whole;
        let opening = &OpeningOf::current();
        let part = |thread: u64| {
            let mut page = HostPage::default();
            let begin = |thread: u64| (thread * count / threads) as usize;
            let looks = begin(thread)..begin(thread + 1);
            indices[looks]
                .iter()
                .map(|&index| look(source, index, &mut page, whole, (limits, strict)))
                .collect::<Vec<_>>()
        };
        let found: Vec<Vec<Result<ScannedSample, DataError>>> = match threads {
            0 | 1 => (0..threads).map(part).collect(),
            _ => {
                let parts =
                    in_parts(threads as usize, |thread| opening.within(|| part(thread as u64)));
                parts.into_iter().map(Result::unwrap_or_default).collect()
            }
        };
        let scanned: Vec<ScannedSample> =
            found.into_iter().flatten().filter_map(Result::ok).collect();
        let usable = scanned.iter().filter(|it| it.decode.total() <= limits.large_image_memory);
        let largest = usable.max_by_key(|it| it.header.size.pixels());
        let largest = largest.or_else(|| scanned.iter().min_by_key(|it| it.decode.total()));
        let image = largest.map_or(Size::default(), |it| it.header.size);
        Self { image, scanned, all: spread == len }
    }

    /// Size of the largest inspected sample, in bytes.
    pub fn largest_bytes(&self) -> u64 {
        self.scanned.iter().map(|it| it.file_bytes).max().unwrap_or(0)
    }
}

/// Number of samples to inspect, and number of threads that inspect them.
fn most(source: &dyn Source) -> (u64, u64) {
    match (source.is_remote(), source.has_heads()) {
        (true, _) => (FEW, THREADS),
        (false, true) => (HEADS, THREADS),
        (false, false) if source.slow_shuffled().is_some() => (FEW, 1),
        (false, false) => (WHOLE, 1),
    }
}

fn look(
    source: &dyn Source,
    index: u64,
    page: &mut HostPage,
    whole: &Mutex<HostPage>,
    (limits, strict): (&Limits, bool),
) -> Result<ScannedSample, DataError> {
    let limit = limits.max_file_bytes;
    let mut file_bytes = source.read_head(index, page, HEAD_BYTES, limit)?;
    let mut header = Header::parse_head(page.bytes(), strict);
    if matches!(&header, Err(DataError { reason: Reason::Truncated, .. }))
        && (page.bytes().len() as u64) < file_bytes
    {
        let mut whole = whole.lock().unwrap_or_else(PoisonError::into_inner);
        source.read(index, &mut *whole, limit)?;
        file_bytes = whole.bytes().len() as u64;
        header = Header::parse_as(whole.bytes(), strict);
    }
    let header = header?;
    limits.check_size(header.size)?;
    // The head of the file, which `page` holds, is sufficient for `memory_bytes`.
    let decode = memory_bytes(&header, page.bytes(), file_bytes);
    Ok(ScannedSample { header, file_bytes, decode })
}
