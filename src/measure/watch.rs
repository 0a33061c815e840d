//! Records the spans of a thread one by one, and sets profiler markers (NVTX) around them. Sums
//! over all spans are counted even without this module.

use std::cmp::Ordering::Less;
use std::ffi::CStr;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::Stage;

/// Minimum length of a wait that is recorded as a span. Even a thread that finds a free slot waits
/// a few hundred nanoseconds.
pub const SHORTEST_WAIT: Duration = Duration::from_micros(20);

/// Bytes per recorded span.
pub const SPAN_BYTES: u64 = size_of::<Span>() as u64;

/// Value for an unknown batch or sample.
const UNKNOWN: u64 = u64::MAX;

/// Receiver of the begin and end of a thread's stages, for the markers of a profiler. The methods
/// are called on that thread. Every `begin` is followed by an `end` on the same thread before the
/// next `begin`, unless the thread ends within a stage.
pub trait Marker: Send + Sync {
    /// Called when a stage of this name begins on this thread.
    fn begin(&self, name: &'static CStr);
    /// Called when the stage that began last on this thread ends.
    fn end(&self);
}

/// Data to record besides the counts; nothing by default.
#[derive(Clone, Default)]
pub struct Watching {
    /// Number of latest spans that each thread, the consumer and the ring record; 0 for none.
    pub spans: usize,
    /// Receiver of stage markers.
    pub marker: Option<Arc<dyn Marker>>,
}

/// Latest items of a stream, in constant memory.
#[derive(Clone, Debug)]
pub(super) struct Latest<T> {
    kept: Vec<T>,
    most: usize,
    /// Index of the oldest item once the buffer is full.
    oldest: usize,
    lost: u64,
}

/// Kind of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The thread worked in the stage.
    Busy,
    /// The thread waited for input of the stage.
    Input,
    /// The thread waited for space for the stage's output.
    Room,
}

/// Time span of one thread. Times are nanoseconds since the loader was built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub start: i64,
    pub took: u64,
    pub kind: Kind,
    pub stage: Stage,
    batch: u64,
    index: u64,
}

/// Recorder of the spans and marker calls of one thread.
pub(super) struct Recorder {
    base: Instant,
    spans: Option<Mutex<Latest<Span>>>,
    marker: Option<Arc<dyn Marker>>,
    /// Whether the marker received a begin without an end.
    open: AtomicBool,
    batch: AtomicU64,
    index: AtomicU64,
}

impl Watching {
    /// Creates the recorder of a new thread, if anything is recorded.
    pub(super) fn watch(&self, base: Instant) -> Option<Box<Recorder>> {
        let told = self.marker.is_some() || cfg!(feature = "tracing");
        (self.spans > 0 || told).then(|| {
            Box::new(Recorder {
                base,
                spans: (self.spans > 0).then(|| Mutex::new(Latest::new(self.spans))),
                marker: self.marker.clone(),
                open: AtomicBool::new(false),
                batch: AtomicU64::new(UNKNOWN),
                index: AtomicU64::new(UNKNOWN),
            })
        })
    }
}

impl fmt::Debug for Watching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { spans, marker } = self;
        f.debug_struct("Watching").field("spans", spans).field("marker", &marker.is_some()).finish()
    }
}

impl Recorder {
    pub fn batch(&self, batch: u64) {
        self.batch.store(batch, Relaxed);
    }

    pub fn index(&self, index: u64) {
        self.index.store(index, Relaxed);
    }

    pub fn begin(&self, stage: Stage) {
        if let Some(marker) = &self.marker {
            // End the stage that an error left open.
            self.close();
            marker.begin(stage.c_name());
            self.open.store(true, Relaxed);
        }
    }

    /// Ends the marker's open range, if there is one.
    pub fn close(&self) {
        if let Some(marker) = &self.marker
            && self.open.swap(false, Relaxed)
        {
            marker.end();
        }
    }

    /// Records a stage with its begin and duration.
    pub fn add(&self, stage: Stage, begin: Instant, took: Duration) {
        self.close();
        self.note(stage, Kind::Busy, nanoseconds_since(self.base, begin), took);
    }

    /// Records a span that ends now.
    pub fn ended(&self, stage: Stage, kind: Kind, took: Duration) {
        let end = nanoseconds_since(self.base, Instant::now());
        self.note(stage, kind, end.saturating_sub_unsigned(took.as_nanos() as u64), took);
    }

    /// Recorded spans, ordered by their end, and number of older spans that were dropped.
    pub fn spans(&self) -> (Vec<Span>, u64) {
        match &self.spans {
            Some(spans) => {
                let spans = lock(spans);
                (spans.in_order(), spans.lost)
            }
            None => (Vec::new(), 0),
        }
    }

    fn note(&self, stage: Stage, kind: Kind, start: i64, took: Duration) {
        let (batch, index) = (self.batch.load(Relaxed), self.index.load(Relaxed));
        let span = Span { start, took: took.as_nanos() as u64, kind, stage, batch, index };
        #[cfg(feature = "tracing")]
        tell(&span);
        if let Some(spans) = &self.spans {
            lock(spans).push(span);
        }
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

impl Span {
    /// Sequence number of the batch, if known.
    pub fn batch(&self) -> Option<u64> {
        Some(self.batch).filter(|it| *it != UNKNOWN)
    }

    /// Index of the sample in its source, if known.
    pub fn index(&self) -> Option<u64> {
        Some(self.index).filter(|it| *it != UNKNOWN)
    }
}

impl<T: Copy> Latest<T> {
    pub fn new(most: usize) -> Self {
        Self { kept: Vec::with_capacity(most), most, oldest: 0, lost: 0 }
    }

    pub fn push(&mut self, item: T) {
        if self.kept.len() < self.most {
            self.kept.push(item);
        } else if self.most > 0 {
            self.kept[self.oldest] = item;
            self.oldest = (self.oldest + 1) % self.most;
            self.lost += 1;
        }
    }

    /// Stored items, oldest first.
    pub fn in_order(&self) -> Vec<T> {
        let (newer, older) = self.kept.split_at(self.oldest);
        [older, newer].concat()
    }

    /// Number of older items that were dropped.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

/// Nanoseconds from `base` to `at`; negative if `at` is earlier.
pub(super) fn nanoseconds_since(base: Instant, at: Instant) -> i64 {
    match at.cmp(&base) {
        Less => -((base - at).as_nanos() as i64),
        _ => (at - base).as_nanos() as i64,
    }
}

/// Emits a span as an event of the `tracing` crate.
#[cfg(feature = "tracing")]
fn tell(span: &Span) {
    let what = match span.kind {
        Kind::Busy => "busy",
        Kind::Input => "waits_for_input",
        Kind::Room => "waits_for_room",
    };
    tracing::trace!(
        target: "feedwater::stage",
        stage = span.stage.name(),
        what,
        batch = span.batch(),
        index = span.index(),
        nanoseconds = span.took,
    );
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Meters;

    #[test]
    fn the_latest_items_are_kept_in_order() {
        let mut latest = Latest::new(3);
        for number in 0..8 {
            latest.push(number);
            let first = (number - 2).max(0);
            assert_eq!(latest.in_order(), (first..=number).collect::<Vec<i32>>());
            assert_eq!(latest.lost(), (number - 2).max(0) as u64);
        }
        assert_eq!(latest.kept.capacity(), 3);
    }

    #[test]
    fn nothing_is_recorded_by_default() {
        let watch = Watching::default().watch(Instant::now());
        assert_eq!(watch.is_some(), cfg!(feature = "tracing"));
    }

    /// A marker that records names, and `-` for ends.
    #[derive(Default)]
    struct Told(Mutex<Vec<&'static str>>);

    impl Marker for Told {
        fn begin(&self, name: &'static CStr) {
            lock(&self.0).push(name.to_str().unwrap());
        }

        fn end(&self) {
            lock(&self.0).push("-");
        }
    }

    #[test]
    fn a_marker_receives_every_begin_and_as_many_ends() {
        let told = Arc::new(Told::default());
        let meters = Meters::watched(1, Watching { spans: 0, marker: Some(told.clone()) });
        let meter = meters.thread("a");
        let begin = meter.begin(Stage::Read);
        meter.add(Stage::Read, begin, 1);
        // A stage that ends early with an error records no end. Its end is recorded when the next
        // stage begins.
        meter.begin(Stage::Header);
        let begin = meter.begin(Stage::Decode);
        meter.add_from(Stage::Decode, begin, Duration::ZERO, 0);
        meter.add_from(Stage::Transform, begin, Duration::ZERO, 0);
        meter.begin(Stage::Read);
        meter.sample_took(Duration::ZERO);
        meter.sample_took(Duration::ZERO);
        let expected = ["read", "-", "header", "-", "decode", "-", "read", "-"];
        assert_eq!(*lock(&told.0), expected);
    }

    #[test]
    fn short_waits_are_counted_and_not_recorded() {
        let meters = Meters::watched(1, Watching { spans: 8, marker: None });
        let meter = meters.thread("a");
        meter.waited_for_room(Stage::HandOver, SHORTEST_WAIT / 2);
        meter.waited_for_room(Stage::HandOver, SHORTEST_WAIT);
        meter.waited_for_input(Stage::Read, 2 * SHORTEST_WAIT);
        let (spans, lost) = meter.spans();
        let kept: Vec<_> = spans.iter().map(|it| (it.kind, it.took)).collect();
        assert_eq!(kept, [(Kind::Room, 20_000), (Kind::Input, 40_000)]);
        assert_eq!((lost, meters.waits()), (0, (40e-6, 30e-6)));
    }
}
