//! A loader that chooses for itself: batches are measured in windows, and a thread of its own decides.
//!
//! * Batches that were begun under another choice are not measured.
//! * The consumer only counts batches and takes what was measured; it never waits for a decision.
//! * A window has the tuner's number of batches, and lasts at least [`SHORTEST`].
//! * A choice that is made by hand stays. Any thread may make one at any time (`tests/choose.rs`).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::measure::{Meters, Profile, Snapshot};
use crate::plan::Plan;
use crate::tune::{Choice, Decision, Space, Tuner};

use super::stats::{DECISIONS, push_latest};
use super::{Loader, PrefetcherReport};

/// What is shorter says nothing.
const SHORTEST: Duration = Duration::from_millis(50);
/// Batches at the very beginning that are not measured: threads and caches begin with them.
const START: u64 = 2;

/// What a loader of this plan may choose.
pub(super) fn space(plan: &Plan) -> Space {
    let offload = plan.offloads.clone();
    let space = Space { workers: plan.workers, prefetch: plan.ahead_batches, offload };
    if plan.settings.loader.tune { space } else { space.of_one() }
}

/// Makes a choice the loader's.
pub(super) type Apply = Box<dyn Fn(Choice) + Send>;

impl Loader {
    /// How many workers work now, how many batches are ahead, and what is on the device.
    pub fn choice(&self) -> Choice {
        self.own_tuning().map_or(self.fixed, Tuning::choice)
    }

    /// What the loader has chosen so far by itself, and why, the first choice first; empty where all is set. The latest 100 are
    /// kept. Of what was chosen by hand the last choice is there.
    pub fn decisions(&self) -> Vec<Decision> {
        self.own_tuning().map(|it| lock(&it.shared.decisions).clone()).unwrap_or_default()
    }

    /// The tuning, where there is one and this process built the loader.
    fn own_tuning(&self) -> Option<&Tuning> {
        self.check_process().ok()?;
        self.tuning.as_ref()
    }

    /// How many samples are fetched ahead now, and why; `None` where the source is not remote. The most follow from
    /// `storage.read_ahead` and `storage.connections`, and memory is taken for so many; fewer are chosen where they are as good
    /// ([`PrefetchDepth`](crate::tune::PrefetchDepth)), unless `loader.tune` is false.
    pub fn read_ahead(&self) -> Option<PrefetcherReport> {
        self.check_process().ok()?;
        self.ahead.as_ref().map(|ahead| ahead.report())
    }

    /// Whether nothing is being tried out: the choice is to stay, or all is set.
    pub fn is_settled(&self) -> bool {
        self.tuning.is_none() || self.decisions().last().is_some_and(|it| it.settled)
    }

    /// Chooses by hand, while the loader runs, what it would choose by itself; from then on it chooses nothing any more. No byte
    /// of a batch changes. Batches that are begun already are still as they were chosen before. Any thread may call it, at any time.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for what the plan has no threads, memory or kernel for, and for what is set and not left to choose.
    pub fn choose(&self, choice: Choice) -> Result<()> {
        self.check_process()?;
        match &self.tuning {
            Some(tuning) => tuning.choose(choice, &self.engine.apply()),
            None => space(&self.plan).check(choice),
        }
    }
}

pub(super) struct Tuning {
    shared: Arc<Shared>,
    space: Space,
    profiles: Option<Sender<(Profile, u64)>>,
    thread: Option<JoinHandle<()>>,
}

/// Whoever has the phase may ask for what is chosen, as a profile does, and not the other way round.
struct Shared {
    phase: Mutex<Phase>,
    /// Batches of a window.
    window: AtomicU64,
    /// Batches that the consumer had.
    batches: AtomicU64,
    chosen: Mutex<Chosen>,
    decisions: Mutex<Vec<Decision>>,
}

struct Chosen {
    choice: Choice,
    by_hand: bool,
}

enum Phase {
    /// So many batches are not measured, at least one.
    Skip(u64),
    /// Since then, so many.
    Measure { since: Box<Snapshot>, began: Instant, batches: u64 },
    /// The thread decides.
    Decide,
}

impl Tuning {
    /// Starts with the first choice, which `apply` has been told.
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
        let thread = thread.map_err(|error| Error::Internal {
            problem: format!("cannot start a thread: {error}"),
        })?;
        Ok(Self { shared, space, profiles: Some(profiles), thread: Some(thread) })
    }

    /// What is chosen now.
    pub fn choice(&self) -> Choice {
        lock(&self.shared.chosen).choice
    }

    /// Makes a choice by hand.
    fn choose(&self, choice: Choice, apply: &Apply) -> Result<()> {
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

    /// The consumer has a further batch. What was chosen by hand is not measured.
    pub fn batch_taken(&self, loader: &Loader) {
        let mut phase = lock(&self.shared.phase);
        let all = self.shared.batches.fetch_add(1, Ordering::Relaxed) + 1;
        match &mut *phase {
            Phase::Decide => {}
            Phase::Skip(left) if *left > 1 => *left -= 1,
            Phase::Skip(_) => {
                let since = Box::new(loader.measured());
                *phase = Phase::Measure { since, began: Instant::now(), batches: 0 };
            }
            Phase::Measure { since, began, batches } => {
                *batches += 1;
                let window = self.shared.window.load(Ordering::Relaxed);
                if *batches >= window && began.elapsed() >= SHORTEST {
                    let profile = loader.profile_since(since);
                    *phase = Phase::Decide;
                    if let Some(profiles) = &self.profiles {
                        // Where nobody listens any more, nothing is decided any more.
                        let _ = profiles.send((profile, all));
                    }
                }
            }
        }
    }
}

impl Shared {
    /// Decides about every window, until there are no more.
    fn decide(
        &self,
        mut tuner: Tuner,
        profiles: &Receiver<(Profile, u64)>,
        meters: &Meters,
        apply: &Apply,
    ) {
        for (profile, batches) in profiles {
            let before = tuner.choice();
            // Without anything measured the next window will tell.
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
            // What it chose counts no more.
            let _ = thread.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
