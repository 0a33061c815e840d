//! Autotuning of a running loader: the loader is measured over intervals of several batches, and a
//! separate thread decides.
//!
//! * Batches that began under another configuration are not measured.
//! * The consumer only counts batches and takes snapshots. It never waits for a decision.
//! * A measuring interval (`window` in the code) has the number of batches that the tuner requests,
//!   and lasts at least [`SHORTEST`].
//! * A choice by the user is never changed. Any thread may make a choice at any time
//!   (`tests/gpu/choose.rs`).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::measure::{Meters, Profile, Snapshot};
use crate::plan::Plan;
use crate::threads::refused;
use crate::tune::{Choice, Decision, Space, Tuner};

use crate::measure::{DECISIONS, push_latest};

/// Minimum duration of a measuring interval. Shorter measurements are too noisy.
const SHORTEST: Duration = Duration::from_millis(50);
/// Number of first batches that are not measured, because threads and caches warm up.
const START: u64 = 2;

/// Configurations that a loader with this plan may choose.
pub(in crate::loader) fn space(plan: &Plan) -> Space {
    let offload = plan.offloads.clone();
    let space = Space { workers: plan.workers, prefetch: plan.ahead_batches, offload };
    if plan.settings.loader.tune { space } else { space.of_one() }
}

/// Function that applies a choice to the loader.
pub(in crate::loader) type Apply = Box<dyn Fn(Choice) + Send>;

pub(in crate::loader) struct Tuning {
    shared: Arc<Shared>,
    space: Space,
    profiles: Option<Sender<(Profile, u64)>>,
    thread: Option<JoinHandle<()>>,
}

/// Lock order: `phase` before `chosen`. While `phase` is locked, computing a profile may lock
/// `chosen`.
struct Shared {
    phase: Mutex<Phase>,
    /// Number of batches per measuring interval.
    window: AtomicU64,
    /// Number of batches that the consumer has received.
    batches: AtomicU64,
    chosen: Mutex<Chosen>,
    decisions: Mutex<Vec<Decision>>,
}

struct Chosen {
    choice: Choice,
    by_hand: bool,
}

enum Phase {
    /// Phase in which batches are not measured. The value is the number of batches that are left,
    /// at least one.
    Skip(u64),
    /// Phase in which batches are measured, since the snapshot `since`. `batches` is their number
    /// so far.
    Measure { since: Box<Snapshot>, began: Instant, batches: u64 },
    /// Phase in which the tuning thread decides on the next configuration.
    Decide,
}

impl Tuning {
    /// Starts tuning with the first choice, which the caller has already applied.
    pub fn start(space: Space, meters: Arc<Meters>, apply: Apply) -> Result<Self> {
        let tuner = Tuner::new(space.clone());
        let shared = Arc::new(Shared {
            phase: Mutex::new(Phase::Skip(START)),
            window: AtomicU64::new(tuner.window()),
            batches: AtomicU64::new(0),
            chosen: Mutex::new(Chosen { choice: tuner.choice(), by_hand: false }),
            decisions: Mutex::default(),
        });
        let (profiles, inbox) = channel();
        let thread = std::thread::Builder::new().name("feedwater-tune".into());
        let others = shared.clone();
        let thread = thread.spawn(move || others.decide(tuner, &inbox, &meters, &apply));
        let thread =
            thread.map_err(|error| refused("feedwater-tune", &error, "set loader.tune = false"))?;
        Ok(Self { shared, space, profiles: Some(profiles), thread: Some(thread) })
    }

    /// The current choice.
    pub fn choice(&self) -> Choice {
        lock(&self.shared.chosen).choice
    }

    /// Latest decisions, in order.
    pub fn decisions(&self) -> Vec<Decision> {
        lock(&self.shared.decisions).clone()
    }

    /// Makes a choice on behalf of the user.
    pub fn choose(&self, choice: Choice, apply: &Apply) -> Result<()> {
        self.space.check(choice)?;
        let batch = self.shared.batches.load(Ordering::Relaxed);
        let decision = Decision { batch, choice, settled: true, why: "by hand".into() };
        let mut chosen = lock(&self.shared.chosen);
        let before = std::mem::replace(&mut *chosen, Chosen { choice, by_hand: true });
        apply(choice);
        let mut decisions = lock(&self.shared.decisions);
        if before.by_hand {
            decisions.pop();
        }
        push_latest(&mut decisions, DECISIONS, decision);
        drop(decisions);
        drop(chosen);
        *lock(&self.shared.phase) = Phase::Decide;
        Ok(())
    }

    /// Counts a batch that the consumer has received. After a choice by the user nothing is
    /// measured.
    pub fn batch_taken(
        &self,
        measured: impl Fn() -> Snapshot,
        profile_since: impl Fn(&Snapshot) -> Profile,
    ) {
        let mut phase = lock(&self.shared.phase);
        let all = self.shared.batches.fetch_add(1, Ordering::Relaxed) + 1;
        match &mut *phase {
            Phase::Decide => {}
            Phase::Skip(left) if *left > 1 => *left -= 1,
            Phase::Skip(_) => {
                let since = Box::new(measured());
                *phase = Phase::Measure { since, began: Instant::now(), batches: 0 };
            }
            Phase::Measure { since, began, batches } => {
                *batches += 1;
                let window = self.shared.window.load(Ordering::Relaxed);
                if *batches >= window && began.elapsed() >= SHORTEST {
                    let profile = profile_since(since);
                    *phase = Phase::Decide;
                    if let Some(profiles) = &self.profiles {
                        // The tuning thread may have ended. Then no decision is needed.
                        let _ = profiles.send((profile, all));
                    }
                }
            }
        }
    }
}

impl Shared {
    /// Decides after each measuring interval, until the channel closes.
    fn decide(
        &self,
        mut tuner: Tuner,
        profiles: &Receiver<(Profile, u64)>,
        meters: &Meters,
        apply: &Apply,
    ) {
        for (profile, batches) in profiles {
            let before = tuner.choice();
            // If nothing was measured, make no decision until the next measurement.
            let decision = tuner.observe(&profile, batches).ok().flatten();
            let mut chosen = lock(&self.chosen);
            if chosen.by_hand {
                break;
            }
            let mut skip = 1;
            if tuner.choice() != before {
                apply(tuner.choice());
                chosen.choice = tuner.choice();
                let (ready, filling) = meters.batches_ahead();
                skip = ((ready + filling) as u64).max(1);
            }
            if let Some(decision) = decision {
                #[cfg(feature = "tracing")]
                tracing::info!(target: "feedwater::tune", "{decision}");
                push_latest(&mut lock(&self.decisions), DECISIONS, decision);
            }
            drop(chosen);
            self.window.store(tuner.window(), Ordering::Relaxed);
            *lock(&self.phase) = Phase::Skip(skip);
        }
    }
}

impl Drop for Tuning {
    fn drop(&mut self) {
        self.profiles = None;
        if let Some(thread) = self.thread.take() {
            // The loader is being dropped, so a panic of the tuning thread has no consequences.
            let _ = thread.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
