//! Routes of one loader: the images that are running on them, and the choice of the route for the
//! next image.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Instant;

use crate::error::{Error, Result};
use crate::gpu::{Device, Event, Stream};
use crate::loader::balance::{Balancer, ImageWork, RouteQueue, RouteReport, Ticket};
use crate::plan::Route;

/// All routes that a loader uses.
pub(in crate::loader) struct Router {
    balancer: Balancer,
    /// Maximum number of threads that decode on the CPU at the same time.
    cpu_threads: CpuThreads,
    state: Mutex<RouterState>,
    /// Events that a thread is querying. They are not in `state`, because every image takes the
    /// lock of `state`, which must not be held during the queries.
    observed: Mutex<Vec<Arc<Event>>>,
    /// Notified when an image is finished or cancelled.
    changed: Condvar,
}

/// Maximum number of threads that decode on the CPU at the same time.
#[derive(Clone, Copy)]
pub(in crate::loader) struct CpuThreads {
    /// Maximum while the device also decodes images.
    pub beside: usize,
    /// Maximum while the device runs only operators and decodes nothing.
    pub alone: usize,
}

struct RouterState {
    /// All events that mark the end of device work. An event is free if nothing else refers to it.
    marks: Vec<Arc<Event>>,
    running: Vec<(Ticket, Arc<Event>)>,
    /// Number of threads that decode on the CPU now.
    cpu_threads: usize,
    /// Number of times that an image was finished or cancelled. A waiting thread compares this
    /// number to detect a change.
    changes: u64,
}

impl Router {
    /// Creates the queues of the routes; at most `workers` threads submit images.
    pub fn new(
        device: &Arc<Device>,
        queues: &[RouteQueue],
        cpu_threads: CpuThreads,
        workers: usize,
    ) -> Result<Self> {
        let capacity = queues.iter().map(|queue| queue.capacity).sum();
        // A worker that waits for capacity holds one of these events, even after the event is
        // reached. So `workers` additional events are needed.
        let marks = (0..capacity + workers).map(|_| Event::new(device).map(Arc::new));
        let marks = marks.collect::<Result<_>>()?;
        let running = Vec::with_capacity(capacity);
        let state = Mutex::new(RouterState { marks, running, cpu_threads: 0, changes: 0 });
        let observed = Mutex::new(Vec::with_capacity(capacity));
        let balancer = Balancer::new(queues);
        Ok(Self { balancer, cpu_threads, state, observed, changed: Condvar::new() })
    }

    /// Submits an image to one of the routes in `allowed`, which must not be empty. Waits until one
    /// of them has capacity. `decodes` is whether the device decodes, which determines how many
    /// threads may decode on the CPU.
    pub fn submit(
        self: &Arc<Self>,
        allowed: &[Route],
        decodes: bool,
        work: ImageWork,
    ) -> Result<Submitted> {
        let CpuThreads { beside, alone } = self.cpu_threads;
        let most = if decodes { beside } else { alone };
        loop {
            self.observe()?;
            let mut state = self.lock();
            let cpu_is_free = state.cpu_threads < most;
            let may = |route: Route| {
                allowed.contains(&route) && (cpu_is_free || !route.uses_worker_cpu())
            };
            if let Some(ticket) = self.balancer.choose(may, work, Instant::now()) {
                let on_cpu = ticket.route().uses_worker_cpu();
                state.cpu_threads += usize::from(on_cpu);
                let queues = self.clone();
                return Ok(Submitted { queues, ticket: Some(ticket), on_cpu });
            }
            let running = state.running.iter().find(|(it, _)| allowed.contains(&it.route()));
            match running.map(|(_, mark)| mark.clone()) {
                Some(mark) => {
                    drop(state);
                    mark.synchronize()?;
                }
                None => {
                    let before = state.changes;
                    let unchanged = |state: &mut RouterState| state.changes == before;
                    let waited = self.changed.wait_while(state, unchanged);
                    drop(waited.unwrap_or_else(PoisonError::into_inner));
                }
            }
        }
    }

    /// Registers the images of one call as running. The images are finished when the stream reaches
    /// the event that this function records.
    pub fn track(
        &self,
        images: impl IntoIterator<Item = Submitted>,
        stream: &Stream,
    ) -> Result<()> {
        // The clone is a second reference, which marks the event as in use.
        let free = self.lock().marks.iter().find(|mark| Arc::strong_count(mark) == 1).cloned();
        let mark = free.ok_or_else(|| Error::Internal {
            problem: "more images are running than the routes allow".into(),
        })?;
        mark.record(stream)?;
        let mut state = self.lock();
        for mut image in images {
            if let Some(ticket) = image.ticket.take() {
                state.running.push((ticket, mark.clone()));
            }
            image.leave_cpu(&mut state);
        }
        self.change(state);
        Ok(())
    }

    /// Statistics of each route.
    pub fn report(&self) -> Vec<RouteReport> {
        self.balancer.report()
    }

    /// Reports finished device work to the balancer, unless another thread is doing so.
    fn observe(&self) -> Result<()> {
        let mut observed = match self.observed.try_lock() {
            Ok(observed) => observed,
            Err(TryLockError::Poisoned(observed)) => observed.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(()),
        };
        observed.clear();
        // Images of one call share an event and are adjacent, so the event is queried only once.
        observed.extend(self.lock().running.iter().map(|(_, mark)| mark.clone()));
        observed.dedup_by(|one, other| Arc::ptr_eq(one, other));
        let mut failed = Ok(());
        observed.retain(|mark| match mark.query() {
            Ok(reached) => reached,
            Err(error) => {
                failed = Err(error);
                false
            }
        });
        let now = Instant::now();
        let mut state = self.lock();
        for (ticket, _) in state
            .running
            .extract_if(.., |(_, mark)| observed.iter().any(|reached| Arc::ptr_eq(reached, mark)))
        {
            self.balancer.finish(ticket, now);
        }
        // Release the references while the lock is held. Other threads then see the reached events
        // as free.
        observed.clear();
        failed
    }

    fn change(&self, mut state: MutexGuard<'_, RouterState>) {
        state.changes += 1;
        drop(state);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, RouterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An image submitted to a route. Dropping this value cancels the image.
pub(in crate::loader) struct Submitted {
    queues: Arc<Router>,
    ticket: Option<Ticket>,
    on_cpu: bool,
}

impl Submitted {
    /// The chosen route.
    pub fn route(&self) -> Route {
        self.ticket.as_ref().map_or(Route::Cpu, Ticket::route)
    }

    /// Records that the image is decoded. The host must have observed this.
    pub fn finish(mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.queues.balancer.finish(ticket, Instant::now());
        }
        self.leave();
    }

    /// Wakes threads that wait for capacity.
    fn leave(&mut self) {
        let queues = self.queues.clone();
        let mut state = queues.lock();
        self.leave_cpu(&mut state);
        queues.change(state);
    }

    fn leave_cpu(&mut self, state: &mut RouterState) {
        state.cpu_threads -= usize::from(std::mem::take(&mut self.on_cpu));
    }
}

impl Drop for Submitted {
    fn drop(&mut self) {
        // An image that is tracked or finished has nothing to cancel.
        if self.ticket.is_none() && !self.on_cpu {
            return;
        }
        if let Some(ticket) = self.ticket.take() {
            self.queues.balancer.cancel(ticket);
        }
        self.leave();
    }
}
