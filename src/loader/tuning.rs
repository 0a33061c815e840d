//! A loader that chooses for itself: batches are measured in windows, and a thread of its own decides.
//!
//! * Batches that were begun under another choice are not measured.
//! * The consumer only counts batches and takes what was measured; it never waits for a decision.
//! * A window has the tuner's number of batches, and lasts at least [`SHORTEST`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::measure::{Meters, Profile, Snapshot};
use crate::op::{Chain, Placement};
use crate::plan::{Place, Plan, Route};
use crate::tune::{Choice, Decision, Offload, Space, Tuner};

use super::Loader;

/// What is shorter says nothing.
const SHORTEST: Duration = Duration::from_millis(50);
/// Batches at the very beginning that are not measured: threads and caches begin with them.
const START: u64 = 2;

/// What a loader of this plan may choose. Work goes to the device, or not, only where no placement is written for it, and
/// only where the CPU may decode.
pub(super) fn space(chain: &Chain, plan: &Plan) -> Space {
    let decode = plan.settings.decode.placement == Placement::Auto;
    let operators = chain.steps().iter().all(|step| step.placement == Placement::Auto);
    let by_cpu = plan.device.as_ref().is_some_and(|device| device.has(Route::Cpu));
    let planned = match (plan.uses_gpu(), plan.decode) {
        (false, _) => Offload::Nothing,
        (true, Place::Cpu) => Offload::Operators,
        (true, Place::Gpu) => Offload::Everything,
    };
    let may = |offload: Offload| match offload {
        _ if offload == planned => true,
        _ if offload > planned || !by_cpu => false,
        Offload::Nothing => operators && (decode || planned == Offload::Operators),
        Offload::Operators | Offload::Everything => decode,
    };
    let all = [Offload::Nothing, Offload::Operators, Offload::Everything];
    let offload = all.into_iter().filter(|it| may(*it)).collect();
    let space = Space { workers: plan.workers, prefetch: plan.ahead_batches, offload };
    if plan.settings.loader.tune { space } else { space.of_one(planned) }
}

/// Makes a choice the loader's.
pub(super) type Apply = Box<dyn Fn(Choice) + Send>;

pub(super) struct Tuning {
    shared: Arc<Shared>,
    profiles: Option<Sender<Profile>>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    phase: Mutex<Phase>,
    /// Batches of a window.
    window: AtomicU64,
    choice: Mutex<Choice>,
    decisions: Mutex<Vec<Decision>>,
}

enum Phase {
    /// So many batches are not measured.
    Skip(u64),
    /// Since then, so many.
    Measure { since: Box<Snapshot>, began: Instant, batches: u64 },
    /// The thread decides.
    Decide,
}

impl Tuning {
    /// Starts with the first choice, which `apply` has been told.
    pub fn start(space: Space, meters: Arc<Meters>, apply: Apply) -> Result<Self> {
        let tuner = Tuner::new(space);
        let shared = Arc::new(Shared {
            phase: Mutex::new(Phase::Skip(START)),
            window: AtomicU64::new(tuner.window()),
            choice: Mutex::new(tuner.choice()),
            decisions: Mutex::default(),
        });
        let (profiles, inbox) = channel();
        let thread = std::thread::Builder::new().name("feedwater-tune".into());
        let others = shared.clone();
        let thread = thread.spawn(move || others.decide(tuner, &inbox, &meters, &apply));
        let thread = thread.map_err(|error| Error::Internal {
            problem: format!("cannot start a thread: {error}"),
        })?;
        Ok(Self { shared, profiles: Some(profiles), thread: Some(thread) })
    }

    /// What is chosen now.
    pub fn choice(&self) -> Choice {
        *lock(&self.shared.choice)
    }

    /// All choices so far, the first one first.
    pub fn decisions(&self) -> Vec<Decision> {
        lock(&self.shared.decisions).clone()
    }

    /// The consumer has a further batch.
    pub fn batch_taken(&self, loader: &Loader) {
        let mut phase = lock(&self.shared.phase);
        match &mut *phase {
            Phase::Decide => {}
            Phase::Skip(left) if *left > 0 => *left -= 1,
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
                        let _ = profiles.send(profile);
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
        profiles: &Receiver<Profile>,
        meters: &Meters,
        apply: &Apply,
    ) {
        for profile in profiles {
            let before = tuner.choice();
            // Without anything measured the next window will tell.
            let decision = tuner.observe(&profile).ok().flatten();
            let mut skip = 0;
            if tuner.choice() != before {
                apply(tuner.choice());
                *lock(&self.choice) = tuner.choice();
                let (ready, filling) = meters.batches_ahead();
                skip = (ready + filling) as u64;
            }
            if let Some(decision) = decision {
                #[cfg(feature = "tracing")]
                tracing::info!(target: "feedwater::tune", "{decision}");
                lock(&self.decisions).push(decision);
            }
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
