//! Trace of a run, for ui.perfetto.dev or chrome://tracing.
//!
//! Format: Chrome's "Trace Event Format", JSON. Times are microseconds since the earliest event.
//!
//! * Each thread has a track with its stages, and its waits for input or for space for output
//!   (waits under 20 microseconds are not recorded). Spans of a track are disjoint or nested.
//! * Rows are decoded and transformed alternately. The trace shows a sample's `transform` after its
//!   `decode`, each with the total time of its rows.
//! * The consumer has two tracks: one with its waits and steps, and one with the named parts of its
//!   steps.
//! * The ring has two counters: batches that are ready, and batches that are being filled.
//! * A third counter is the number of threads that waited for a processor, averaged from one batch
//!   to the next, if the system reports it.
//! * An arrow leads from the last span of a batch to the moment when the consumer received it.
//! * Memory is constant: each track stores its latest spans. `otherData.lost_events` is the number
//!   of older spans that were dropped.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::io::{self, Write};
use std::time::{Duration, Instant};

use super::Meters;
use super::watch::{Kind, Latest, Span, nanoseconds_since};

/// Maximum number of names of step parts: the names that are counted separately, and `other`.
const NAMES: usize = 33;
/// Track numbers of the consumer and of the named parts of its steps. The tracks of threads follow.
const CONSUMER: u64 = 1;
const PARTS: u64 = 2;
const FIRST_THREAD: u64 = 10;

/// Number of tracks besides those of the threads: the consumer's two tracks, and the ring's. Each
/// of them stores as many spans as the track of a thread.
pub const OTHER_TRACKS: u64 = 3;

/// Trace of batches.
#[derive(Clone, Debug)]
pub(super) struct BatchTrace {
    base: Instant,
    consumer: Latest<Turn>,
    parts: Latest<StepPart>,
    names: Vec<String>,
    levels: Latest<Level>,
    waits: Latest<Waited>,
}

/// Wait or step of the consumer.
#[derive(Clone, Copy, Debug)]
struct Turn {
    start: i64,
    took: u64,
    /// For a wait, the sequence number of the batch that ended it.
    got: Option<u64>,
}

/// Part of a step, with the index of its name.
#[derive(Clone, Copy, Debug)]
struct StepPart {
    start: i64,
    took: u64,
    name: usize,
}

/// Fill level of the ring from the time `at` on.
#[derive(Clone, Copy, Debug)]
struct Level {
    at: i64,
    ready: usize,
    filling: usize,
}

/// Total time that threads had waited for a processor at the time `at`, in seconds.
#[derive(Clone, Copy, Debug)]
struct Waited {
    at: i64,
    seconds: f64,
}

/// Memory of a trace with `spans` spans per track and `threads` threads, in bytes.
pub fn trace_bytes(spans: u64, threads: u64) -> u64 {
    let batches =
        size_of::<Turn>() + size_of::<StepPart>() + size_of::<Level>() + size_of::<Waited>();
    spans * (threads * super::SPAN_BYTES + batches as u64)
}

impl BatchTrace {
    pub fn new(base: Instant, spans: usize) -> Self {
        let (consumer, parts, levels) =
            (Latest::new(spans), Latest::new(spans), Latest::new(spans));
        Self { base, consumer, parts, names: Vec::new(), levels, waits: Latest::new(spans) }
    }

    pub fn waited(&mut self, asked: Instant, now: Instant, got: Option<u64>) {
        let start = nanoseconds_since(self.base, asked);
        self.consumer.push(Turn { start, took: (now - asked).as_nanos() as u64, got });
    }

    pub fn stepped(&mut self, since: Instant, now: Instant) {
        let start = nanoseconds_since(self.base, since);
        self.consumer.push(Turn { start, took: (now - since).as_nanos() as u64, got: None });
    }

    /// Records a part of a step that ends now.
    pub fn part(&mut self, name: &str, took: Duration, now: Instant) {
        let number = match self.names.iter().position(|it| it == name) {
            Some(number) => number,
            None if self.names.len() < NAMES => {
                self.names.push(name.to_string());
                self.names.len() - 1
            }
            None => NAMES - 1,
        };
        let took = took.as_nanos() as u64;
        let start = nanoseconds_since(self.base, now).saturating_sub_unsigned(took);
        self.parts.push(StepPart { start, took, name: number });
    }

    /// Records how long threads have waited for a processor in total, if the system reports it.
    pub fn processor(&mut self, now: Instant, waited: Option<f64>) {
        if let Some(seconds) = waited {
            self.waits.push(Waited { at: nanoseconds_since(self.base, now), seconds });
        }
    }

    pub fn level(&mut self, now: Instant, ready: usize, filling: usize) {
        self.levels.push(Level { at: nanoseconds_since(self.base, now), ready, filling });
    }
}

/// Event of a track.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    start: i64,
    /// The duration, reversed, so longer events are sorted before events that are nested in them.
    took: Reverse<u64>,
    name: String,
    category: &'static str,
    /// Name and value of each argument.
    args: Vec<(&'static str, u64)>,
}

/// Path of a batch: its last span on a thread, and its receipt by the consumer.
#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    /// End, start and track of the last span of the batch.
    from: Option<(i64, i64, u64)>,
    /// Time when the consumer received the batch.
    to: Option<i64>,
}

impl Meters {
    /// Writes the trace. `rank` and `world` name the process. A thread that ends a span is blocked
    /// only while its spans are copied.
    pub fn write_trace(&self, rank: u64, world: u64, out: &mut dyn Write) -> io::Result<()> {
        // Locks are held only while data is copied.
        let kept = self.batches().trace.clone();
        let by_thread = self.by_thread().clone();
        let mut tracks = Vec::new();
        let mut flows = BTreeMap::<u64, Flow>::new();
        let (mut levels, mut waits, mut lost) = (Vec::new(), Vec::new(), 0);
        if let Some(BatchTrace {
            consumer,
            parts,
            names,
            levels: of_ring,
            waits: of_processor,
            ..
        }) = kept
        {
            lost += consumer.lost() + parts.lost() + of_ring.lost() + of_processor.lost();
            levels = of_ring.in_order();
            waits = of_processor.in_order();
            let turns = consumer.in_order();
            for turn in &turns {
                if let Some(batch) = turn.got {
                    let end = turn.start.saturating_add_unsigned(turn.took);
                    flows.entry(batch).or_default().to = Some(end.max(turn.start + 1) - 1);
                }
            }
            let turns: Vec<_> = turns.iter().map(Turn::event).collect();
            tracks.push((CONSUMER, "consumer".to_string(), turns));
            let parts = parts.in_order();
            let parts = parts.iter().map(|it| it.event(&names[it.name]));
            tracks.push((PARTS, "parts of the step".to_string(), parts.collect()));
        }
        for (track, meter) in (FIRST_THREAD..).zip(by_thread) {
            let (spans, older) = meter.spans();
            lost += older;
            for span in &spans {
                let end = span.start.saturating_add_unsigned(span.took);
                if let (Kind::Busy, Some(batch)) = (span.kind, span.batch()) {
                    let from = &mut flows.entry(batch).or_default().from;
                    *from = (*from).max(Some((end, span.start, track)));
                }
            }
            tracks.push((track, meter.name.clone(), spans.iter().map(Event::of).collect()));
        }
        let starts = tracks.iter().flat_map(|(.., events)| events.iter().map(|it| it.start));
        let others = levels.iter().map(|it| it.at).chain(waits.iter().map(|it| it.at));
        let first = starts.chain(others).min().unwrap_or(0);
        let mut json = Json { out, pid: rank + 1, first, comma: false };
        json.out.write_all(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[")?;
        json.process(&format!("feedwater, rank {rank} of {world}"))?;
        for (track, name, events) in tracks {
            json.track(track, &name)?;
            for event in nested(events) {
                json.event(track, &event)?;
            }
        }
        for level in levels {
            json.counter("batches ready", level.at, ("batches", level.ready))?;
            json.counter("batches being filled", level.at, ("batches", level.filling))?;
        }
        for pair in waits.windows(2) {
            let seconds = (pair[1].at - pair[0].at) as f64 * 1e-9;
            let threads = (pair[1].seconds - pair[0].seconds) / seconds.max(1e-9);
            let threads = (100.0 * threads).round() / 100.0;
            json.counter("threads waiting for a processor", pair[0].at, ("threads", threads))?;
        }
        for (batch, flow) in flows {
            if let (Some((_, from, track)), Some(to)) = (flow.from, flow.to) {
                json.flow(batch, (from, track), to.max(from))?;
            }
        }
        write!(json.out, "],\"otherData\":{{\"lost_events\":{lost}}}}}")
    }
}

impl Turn {
    fn event(&self) -> Event {
        Event {
            start: self.start,
            took: Reverse(self.took),
            name: if self.got.is_some() { "wait" } else { "step" }.into(),
            category: "consumer",
            args: self.got.iter().map(|&batch| ("batch", batch)).collect(),
        }
    }
}

impl StepPart {
    fn event(&self, name: &str) -> Event {
        Event {
            start: self.start,
            took: Reverse(self.took),
            name: name.to_string(),
            category: "part",
            args: Vec::new(),
        }
    }
}

impl Event {
    fn of(span: &Span) -> Self {
        let stage = span.stage.name();
        let (name, category) = match span.kind {
            Kind::Busy => (stage.to_string(), "stage"),
            Kind::Input => (format!("{stage} waits for input"), "wait"),
            Kind::Room => (format!("{stage} waits for room"), "wait"),
        };
        let args = [("batch", span.batch()), ("sample", span.index())];
        let args = args.into_iter().filter_map(|(name, value)| Some((name, value?)));
        Event { start: span.start, took: Reverse(span.took), name, category, args: args.collect() }
    }

    fn end(&self) -> i64 {
        self.start.saturating_add_unsigned(self.took.0)
    }
}

/// Sorts the events and makes them disjoint or nested. If an event begins inside an earlier event
/// and ends after it, the begin of the later event is moved to the end of the earlier one.
fn nested(events: Vec<Event>) -> Vec<Event> {
    let mut waiting: BinaryHeap<_> = events.into_iter().map(Reverse).collect();
    let mut around: Vec<i64> = Vec::new();
    let mut done = Vec::with_capacity(waiting.len());
    while let Some(Reverse(mut event)) = waiting.pop() {
        while around.last().is_some_and(|end| *end <= event.start) {
            around.pop();
        }
        match around.last() {
            Some(&end) if event.end() > end => {
                event.took = Reverse((event.end() - end) as u64);
                event.start = end;
                waiting.push(Reverse(event));
            }
            _ => {
                around.push(event.end());
                done.push(event);
            }
        }
    }
    done
}

/// Writer of trace events.
struct Json<'a> {
    out: &'a mut dyn Write,
    pid: u64,
    first: i64,
    comma: bool,
}

impl Json<'_> {
    fn process(&mut self, name: &str) -> io::Result<()> {
        let (pid, name) = (self.pid, quoted(name)?);
        self.separate()?;
        let name = format_args!("\"args\":{{\"name\":{name}}}");
        write!(self.out, r#"{{"ph":"M","name":"process_name","pid":{pid},"tid":0,{name}}}"#)
    }

    fn track(&mut self, track: u64, name: &str) -> io::Result<()> {
        let (pid, name) = (self.pid, quoted(name)?);
        self.separate()?;
        let name = format_args!("\"args\":{{\"name\":{name}}}");
        write!(self.out, r#"{{"ph":"M","name":"thread_name","pid":{pid},"tid":{track},{name}}}"#)?;
        self.separate()?;
        let order = format_args!("\"args\":{{\"sort_index\":{track}}}");
        write!(
            self.out,
            r#"{{"ph":"M","name":"thread_sort_index","pid":{pid},"tid":{track},{order}}}"#
        )
    }

    fn event(&mut self, track: u64, event: &Event) -> io::Result<()> {
        let Event { start, took, name, category, args } = event;
        let (pid, name, ts) = (self.pid, quoted(name)?, self.micros(*start));
        let dur = Micros(took.0);
        self.separate()?;
        write!(
            self.out,
            r#"{{"ph":"X","name":{name},"cat":"{category}","pid":{pid},"tid":{track},"ts":{ts},"dur":{dur}"#
        )?;
        if !args.is_empty() {
            let args: Vec<_> = args.iter().map(|(name, it)| format!("\"{name}\":{it}")).collect();
            write!(self.out, ",\"args\":{{{}}}", args.join(","))?;
        }
        self.out.write_all(b"}")
    }

    fn counter(
        &mut self,
        name: &str,
        at: i64,
        (unit, value): (&str, impl std::fmt::Display),
    ) -> io::Result<()> {
        let (pid, name, ts) = (self.pid, quoted(name)?, self.micros(at));
        self.separate()?;
        let args = format_args!("\"args\":{{\"{unit}\":{value}}}");
        write!(self.out, r#"{{"ph":"C","name":{name},"pid":{pid},"tid":0,"ts":{ts},{args}}}"#)
    }

    fn flow(&mut self, batch: u64, (from, track): (i64, u64), to: i64) -> io::Result<()> {
        let (pid, from, to) = (self.pid, self.micros(from), self.micros(to));
        let flow = format!(r#""name":"batch","cat":"batch","id":{batch},"pid":{pid}"#);
        self.separate()?;
        write!(self.out, r#"{{"ph":"s",{flow},"tid":{track},"ts":{from}}}"#)?;
        self.separate()?;
        write!(self.out, r#"{{"ph":"f","bp":"e",{flow},"tid":{CONSUMER},"ts":{to}}}"#)
    }

    fn micros(&self, at: i64) -> Micros {
        Micros(at.saturating_sub(self.first).max(0) as u64)
    }

    fn separate(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.comma, true) {
            self.out.write_all(b",\n")?;
        }
        Ok(())
    }
}

/// Nanoseconds, displayed as microseconds.
#[derive(Clone, Copy)]
struct Micros(u64);

impl std::fmt::Display for Micros {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

fn quoted(text: &str) -> io::Result<String> {
    Ok(serde_json::to_string(text)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn event(start: i64, took: u64) -> Event {
        Event { start, took: Reverse(took), name: "a".into(), category: "", args: Vec::new() }
    }

    proptest! {
        #[test]
        fn events_are_disjoint_or_nested(spans in prop::collection::vec((0i64..60, 0u64..40), 0..30)) {
            let events = spans.iter().map(|&(start, took)| event(start, took)).collect();
            let done = nested(events);
            prop_assert_eq!(done.len(), spans.len());
            prop_assert!(done.is_sorted_by_key(|it| (it.start, it.took)));
            for (number, one) in done.iter().enumerate() {
                for other in &done[number + 1..] {
                    prop_assert!(other.start >= one.end() || other.end() <= one.end());
                }
            }
            // `nested` may move the begin of an event, but never its end.
            let mut ends: Vec<_> = spans.iter().map(|&(start, took)| start + took as i64).collect();
            let mut after: Vec<_> = done.iter().map(Event::end).collect();
            ends.sort_unstable();
            after.sort_unstable();
            prop_assert_eq!(ends, after);
        }
    }

    #[test]
    fn disjoint_and_nested_events_are_unchanged() {
        let events = vec![event(10, 5), event(0, 10), event(2, 3), event(2, 1), event(20, 0)];
        let mut sorted = events.clone();
        sorted.sort();
        assert_eq!(nested(events), sorted);
        assert_eq!(nested(vec![event(0, 10), event(5, 10)]), [event(0, 10), event(10, 5)]);
    }

    #[test]
    fn microseconds_have_three_decimals() {
        assert_eq!(Micros(1_234_007).to_string(), "1234.007");
        assert_eq!(Micros(5).to_string(), "0.005");
    }
}
