//! Resets the measurements after the warm-up, and computes the forecast from them at the end.

use super::Simulation;
use super::parts::{Pool, Worker};
use crate::model::{Forecast, Shares, StageUse};

impl Simulation<'_> {
    /// Ends the warm-up: resets all measurements.
    pub(super) fn forget(&mut self) {
        let now = self.now;
        self.counting = true;
        self.begin = now;
        (self.arrivals, self.found, self.finished, self.latencies) = (0, 0, 0, 0.0);
        self.ring.fill(0.0);
        self.ready_since = now;
        let pools = self.pools.iter_mut().map(|it| &mut it.busy);
        let stages = self.serving.iter_mut().chain(&mut self.queued);
        for level in pools.chain(stages).chain([&mut self.waits]) {
            (level.since, level.area) = (now, 0.0);
        }
        for worker in &mut self.workers {
            (worker.since, worker.sums) = (now, [0.0; 4]);
        }
    }

    pub(super) fn observed(mut self) -> Forecast {
        let now = self.now;
        let seconds = now - self.begin;
        for worker in 0..self.workers.len() {
            let state = self.workers[worker].state;
            self.turn(worker as u32, state);
        }
        self.set_ready(self.ready);
        let share = |area: f64| if seconds > 0.0 { area / seconds } else { 0.0 };
        let rate = share(f64::from(self.steps));
        let busy = |pool: &Pool| share(pool.busy.until(now)) / f64::from(pool.servers);
        let part = |part: u32, of: u32, none: f64| {
            if of > 0 { f64::from(part) / f64::from(of) } else { none }
        };
        let shares = |worker: &Worker| {
            let [busy, queued, page, slot] = worker.sums.map(share);
            Shares { busy, queued, page, slot }
        };
        Forecast {
            seconds,
            batches: self.steps,
            batches_per_second: rate,
            samples_per_second: rate * f64::from(self.model.batch),
            consumer_waits: share(self.waits.until(now)),
            readiness: part(self.found, self.arrivals, 1.0),
            ring: self.ring.iter().map(|&area| share(area)).collect(),
            stages: std::iter::zip(&self.serving, &self.queued)
                .map(|(serving, queued)| StageUse {
                    serving: share(serving.until(now)),
                    queued: share(queued.until(now)),
                })
                .collect(),
            resources: self.pools[1..].iter().map(busy).collect(),
            cores: busy(&self.pools[0]),
            workers: self.workers.iter().map(shares).collect(),
            latency: if self.finished > 0 {
                self.latencies / f64::from(self.finished)
            } else {
                0.0
            },
            events: self.events,
        }
    }
}
