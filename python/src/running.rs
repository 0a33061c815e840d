//! The state of a loader: its epochs while it runs, and its last values after it was closed.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use feedwater::loader::{LoaderState, SharedEpoch, Stats};
use feedwater::{Plan, Profile};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::background;
use crate::source::Sequence;

/// A loader that runs, and the values that remain after it was closed.
pub struct Slot {
    /// `None` after the loader was closed. No code calls Python or waits while it holds this lock,
    /// so the lock may be taken with the interpreter attached.
    pub running: Mutex<Option<Running>>,
    pub facts: Facts,
    /// Set before `running` becomes `None`, except if the loader is dropped without being closed.
    pub last: OnceLock<Last>,
}

/// A loader and its epochs. Each epoch is also an owner of the loader.
pub struct Running {
    pub loader: Arc<feedwater::Loader>,
    pub epochs: Vec<Weak<Shared>>,
    /// Whether the loader is being closed, so that no epoch may begin.
    pub is_closing: bool,
}

/// An epoch, or `None` after its loader was closed. A thread holds the lock while it waits for a
/// batch, so the lock is only taken with the interpreter detached.
pub type Shared = Mutex<Option<SharedEpoch>>;

/// What does not change while a loader runs.
pub struct Facts {
    pub plan: Plan,
    /// The device on which batches are made, and why it was chosen.
    pub device: String,
    /// Number of samples in the source.
    pub samples: u64,
    /// Names of the classes in the order of their labels.
    pub classes: Vec<String>,
    pub has_objects: bool,
    pub batches_per_epoch: u64,
}

/// The last values of a loader that was closed.
pub struct Last {
    pub state: LoaderState,
    pub stats: Stats,
    pub metrics: String,
    pub profile: Profile,
    pub notices: Vec<String>,
    pub failures: Option<String>,
}

impl Slot {
    pub fn new(loader: Arc<feedwater::Loader>) -> Self {
        let source = loader.source();
        let facts = Facts {
            plan: loader.plan().clone(),
            device: loader.device().to_string(),
            samples: source.len(),
            classes: source.classes().to_vec(),
            has_objects: source.annotations().is_some(),
            batches_per_epoch: loader.batches_per_epoch(),
        };
        let running = Running { loader, epochs: Vec::new(), is_closing: false };
        Self { running: Mutex::new(Some(running)), facts, last: OnceLock::new() }
    }
}

impl Last {
    fn of(loader: &feedwater::Loader) -> Self {
        Self {
            state: loader.state(),
            stats: loader.stats(),
            metrics: loader.metrics(),
            profile: loader.profile(),
            notices: loader.notices(),
            failures: loader.failures(),
        }
    }
}

/// Stops a loader. Returns a function that waits for the loader's threads and keeps its last
/// values.
pub fn closed(slot: &Arc<Slot>) -> Option<impl FnOnce() + Send + 'static> {
    let (loader, epochs) = match &mut *locked(&slot.running) {
        Some(running) => {
            running.is_closing = true;
            (running.loader.clone(), std::mem::take(&mut running.epochs))
        }
        None => return None,
    };
    loader.stop_handle().stop();
    let slot = slot.clone();
    Some(move || {
        for epoch in epochs.iter().filter_map(Weak::upgrade) {
            drop(locked(&epoch).take());
        }
        // No epoch is left, so the position does not change any more.
        slot.last.get_or_init(|| Last::of(&loader));
        let running = locked(&slot.running).take();
        drop((running, loader));
    })
}

/// Drops a value that may be the last owner of a loader. Dropping a loader waits for the loader's
/// threads. If the current thread is one of these, another thread drops the value.
pub fn dropped(py: Python<'_>, sequences: &[Arc<Sequence>], owner: impl Send + 'static) {
    match check_thread(sequences) {
        Ok(()) => py.detach(|| drop(owner)),
        // If no thread can be started, the owner is dropped on this thread. This function cannot
        // report the error.
        Err(_) => drop(background::leave(py, move || drop(owner))),
    }
}

/// Fails if this thread is in `__getitem__` of one of these sequences. The loader's threads wait
/// for that item, so a wait for them would never end.
pub fn check_thread(sequences: &[Arc<Sequence>]) -> PyResult<()> {
    match sequences.iter().any(|it| it.is_asked_here()) {
        true => Err(PyRuntimeError::new_err(
            "__getitem__ of fw.samples uses the loader that asks for the item, which would wait for itself; use another loader there",
        )),
        false => Ok(()),
    }
}

pub fn locked<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}
