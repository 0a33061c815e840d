//! The loader: threads, rings and the public face.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Instant;

use crate::error::{Error, Result};
use crate::footprint::Footprint;
use crate::plan::Plan;
use crate::ring::{Consumer, ring};
use crate::source::Source;

mod batch;
mod builder;
mod feed;
mod host;
mod order;
mod stats;

pub use batch::{Batch, Outcome, SampleRecord};
pub use builder::{DeviceChoice, LoaderBuilder};
pub use order::{EpochOrder, Order, Position};
pub use stats::{StageSeconds, Stats};

use batch::{BatchMemory, BatchSlot};
use feed::Feed;
use host::{HostSlot, Worker};
use stats::Counters;

/// Gives batches that are ready for the model, epoch after epoch.
///
/// Its life, each sentence with a test in `tests/loader.rs`:
///
/// * Building it plans, checks, takes all memory and starts the threads, which begin to fill batches at once.
/// * `for batch in &loader` is one epoch; the next `for` is the next epoch. When an epoch ends, the batches of the
///   next one are already being filled, unless `epochs` says that there is none.
/// * Batches come in the order of the epoch, whatever the number of threads.
/// * A loop that is left early ends its epoch: what is ready is given up, and the next `for` begins the next epoch.
/// * When a sample cannot be used and the policy is `stop`, the batches before it come first, then its error, and
///   after that nothing but the same error. Every other error ends the loader in the same way.
/// * A batch that is dropped gives its slot back. When all slots are with the user, `next` waits, since no batch can
///   be filled: `prefetch + 2` batches at most can be held.
/// * A batch that is leaked shortens the ring by one slot; the loader goes on with the others.
/// * A panic of the consumer drops its batch, and the loader ends as it does when it is dropped.
/// * A panic in an operator ends the loader with an error that says so.
/// * The consumer may be any thread, batches may be sent to other threads, and they may outlive the loader. Two loops over
///   one loader at the same time cannot be: the second gets an error.
/// * Dropping the loader, at any time, stops and joins all threads and gives all memory back, except that of
///   batches which are still held.
pub struct Loader {
    source: Arc<dyn Source>,
    plan: Arc<Plan>,
    device: String,
    order: Order,
    counters: Arc<Counters>,
    feed: Arc<Feed<HostSlot>>,
    consumer: Consumer<HostSlot>,
    threads: Vec<JoinHandle<()>>,
    state: Mutex<State>,
    iterating: AtomicBool,
}

struct State {
    next_epoch: u32,
    end_epoch: Option<u32>,
    /// The error that ended the loader.
    ended: Option<Error>,
}

impl Loader {
    /// Starts to describe a loader of this source and chain; see [`LoaderBuilder`] for what can be set.
    pub fn builder(source: impl Source + 'static, chain: crate::op::Chain) -> LoaderBuilder {
        LoaderBuilder::new(Arc::new(source), chain)
    }

    fn start(builder: LoaderBuilder) -> Result<Self> {
        let (plan, device) = builder.plan_and_device()?;
        let plan = Arc::new(plan);
        let order = Order::new(builder.source.len(), &plan.settings.loader);
        if order.batches() == 0 {
            let loader = &plan.settings.loader;
            return Err(Error::config(
                "loader.batch",
                format!(
                    "is {}, but this shard has {} samples and the last batch is dropped: no batch would come; \
                     lower batch, or set loader.last to partial or pad",
                    loader.batch,
                    order.own()
                ),
            ));
        }
        let counters = Arc::new(Counters::new());
        let slots = plan.slots();
        let sample_bytes = plan.shape.sample_bytes();
        let slots = (0..slots).map(|_| HostSlot::new(plan.shape.batch, sample_bytes)).collect();
        let (producer, consumer) = ring(slots);
        let feed = Arc::new(Feed::new(order, builder.start_epoch, builder.epochs, producer));
        let mut this = Self {
            source: builder.source,
            device,
            order,
            counters,
            feed,
            consumer,
            threads: Vec::new(),
            state: Mutex::new(State {
                next_epoch: builder.start_epoch,
                end_epoch: builder.epochs.map(|epochs| builder.start_epoch.saturating_add(epochs)),
                ended: None,
            }),
            iterating: AtomicBool::new(false),
            plan,
        };
        for number in 0..this.plan.settings.loader.workers {
            let worker = Worker::new(this.source.clone(), this.plan.clone(), this.counters.clone());
            let feed = this.feed.clone();
            let thread = std::thread::Builder::new()
                .name(format!("feedwater-{number}"))
                .spawn(move || guard(&feed.clone(), move || worker.run(&feed)))
                .map_err(|error| Error::Internal {
                    problem: format!("cannot start a thread: {error}"),
                })?;
            this.threads.push(thread);
        }
        Ok(this)
    }

    /// What is done, where, and with how much memory.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The memory that was taken, row by row.
    pub fn footprint(&self) -> &Footprint {
        &self.plan.footprint
    }

    /// Where batches are made, and why there: one line for people.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// The source.
    pub fn source(&self) -> &dyn Source {
        &*self.source
    }

    /// Batches in an epoch of this shard.
    pub fn batches_per_epoch(&self) -> u64 {
        self.order.batches()
    }

    /// Places in an epoch of this shard: samples, and what pads the last batch.
    pub fn places_per_epoch(&self) -> u64 {
        self.order.places()
    }

    /// What has been done so far.
    pub fn stats(&self) -> Stats {
        self.counters.stats()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        self.feed.stop();
        self.consumer.close();
        for thread in self.threads.drain(..) {
            // A worker's panic was caught and told; joining cannot tell more.
            let _ = thread.join();
        }
    }
}

impl<'a> IntoIterator for &'a Loader {
    type Item = Result<Batch>;
    type IntoIter = Epoch<'a>;

    /// The next epoch.
    fn into_iter(self) -> Epoch<'a> {
        if self.iterating.swap(true, Ordering::AcqRel) {
            return Epoch { loader: self, epoch: 0, remaining: 0, turn: Turn::Refused };
        }
        let mut state = self.state();
        let epoch = state.next_epoch;
        let over = state.end_epoch.is_some_and(|end| epoch >= end);
        let remaining = if over { 0 } else { self.order.batches() };
        state.next_epoch = epoch.saturating_add(1);
        drop(state);
        self.feed.want_epoch(epoch);
        Epoch { loader: self, epoch, remaining, turn: Turn::Running }
    }
}

/// The batches of one epoch.
pub struct Epoch<'a> {
    loader: &'a Loader,
    epoch: u32,
    remaining: u64,
    turn: Turn,
}

#[derive(PartialEq)]
enum Turn {
    Running,
    /// Another loop has the loader; this one has still to say so.
    Refused,
    Over,
}

impl Epoch<'_> {
    /// The epoch's number, from 0.
    pub fn number(&self) -> u32 {
        self.epoch
    }
}

impl Iterator for Epoch<'_> {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Result<Batch>> {
        match self.turn {
            Turn::Running => {}
            Turn::Over => return None,
            Turn::Refused => {
                self.turn = Turn::Over;
                let problem =
                    "another loop over this loader is running; make one loader for each".into();
                return Some(Err(Error::Internal { problem }));
            }
        }
        if let Some(error) = &self.loader.state().ended
            && self.remaining > 0
        {
            self.remaining = 0;
            return Some(Err(error.clone()));
        }
        if self.remaining == 0 {
            return None;
        }
        let begin = Instant::now();
        let batch = loop {
            match self.loader.consumer.next() {
                // What was ready when the epoch before was left early.
                Some(Ok(slot)) if slot.info().epoch < self.epoch => drop(slot),
                Some(Ok(slot)) => {
                    break Ok(Batch::new(BatchMemory::Host(slot), self.loader.plan.shape));
                }
                Some(Err(error)) => break Err(error),
                None => break Err(Error::Internal { problem: "the loader has ended".into() }),
            }
        };
        self.loader.counters.consumer.add(begin.elapsed());
        match batch {
            Ok(batch) => {
                self.loader.counters.hand_out(batch.info());
                self.remaining -= 1;
                Some(Ok(batch))
            }
            Err(error) => {
                self.loader.feed.stop();
                self.loader.state().ended = Some(error.clone());
                self.remaining = 0;
                Some(Err(error))
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.remaining as usize + 1))
    }
}

impl Drop for Epoch<'_> {
    fn drop(&mut self) {
        // An epoch that was refused never had the loader.
        if self.turn == Turn::Running {
            self.loader.iterating.store(false, Ordering::Release);
        }
    }
}

/// Runs a thread of the loader; a panic in it ends the loader with an error instead of a hang.
fn guard(feed: &Feed<HostSlot>, run: impl FnOnce()) {
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
    if let Err(panic) = caught {
        let text = panic.downcast_ref::<&str>().map(ToString::to_string);
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        feed.fail(Error::Internal { problem: format!("a loader thread panicked: {text}") });
    }
}
