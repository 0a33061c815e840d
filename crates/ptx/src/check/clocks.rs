//! Vector clocks of a block's warps, and of the lanes of each warp.
//!
//! A warp's time advances with every synchronization in which the warp takes part. Warp `w` has
//! seen time `t` of warp `v` if everything that `v` did up to `t` happened before the current
//! instruction of `w`.

use super::shadow::Stamp;

/// Clocks of a block.
#[derive(Debug)]
pub(crate) struct Clocks {
    block: u32,
    warps: usize,
    time: Vec<u32>,
    /// For each warp, the latest time of each other warp that this warp has seen. The entry for
    /// warp `w` and the other warp `v` is at `w * warps + v`.
    seen: Vec<u32>,
    lanes: Vec<LaneClocks>,
}

/// For each lane of a warp, the latest times of the other lanes that this lane has seen.
#[derive(Debug, Default)]
struct LaneClocks {
    /// Time of the last synchronization of all lanes.
    all: u32,
    /// `some[a][b]` is the latest time of lane `b` that lane `a` has seen. Set only after a
    /// synchronization in which not all lanes took part.
    some: Option<Box<[[u32; 32]; 32]>>,
}

/// Clocks of the warps that have arrived at a barrier.
#[derive(Clone, Debug, Default)]
pub(crate) struct BarrierClock(Vec<u32>);

impl Clocks {
    pub fn new(block: u32, warps: usize) -> Self {
        let mut lanes = Vec::new();
        lanes.resize_with(warps, LaneClocks::default);
        Self { block, warps, time: vec![1; warps], seen: vec![0; warps * warps], lanes }
    }

    /// Returns the stamp (thread and time) for an access that happens now.
    #[inline]
    pub fn stamp(&self, warp: usize, lane: usize) -> Stamp {
        Stamp::new(self.block, (warp * 32 + lane) as u32, self.time[warp])
    }

    /// Whether an access happened before the current instruction of a lane.
    #[inline]
    pub fn ordered(&self, warp: usize, lane: usize, before: Stamp) -> bool {
        if before.block() != self.block {
            return false;
        }
        let other = before.warp() as usize;
        if other != warp {
            return self.seen[warp * self.warps + other] >= before.time();
        }
        let other_lane = before.thread() as usize % 32;
        let lanes = &self.lanes[warp];
        if !before.is_many() && other_lane == lane || lanes.all >= before.time() {
            return true;
        }
        let Some(some) = &lanes.some else { return false };
        if before.is_many() {
            some[lane].iter().all(|seen| *seen >= before.time())
        } else {
            some[lane][other_lane] >= before.time()
        }
    }

    /// Synchronizes lanes of a warp. `whole` means that `mask` contains all remaining lanes.
    pub fn sync_lanes(&mut self, warp: usize, mask: u32, whole: bool) {
        let now = self.time[warp];
        let lanes = &mut self.lanes[warp];
        if whole {
            lanes.all = now;
        } else {
            let some = lanes.some.get_or_insert_with(|| Box::new([[0; 32]; 32]));
            let mut joint = [0; 32];
            for lane in (0..32).filter(|lane| mask >> lane & 1 == 1) {
                for other in 0..32 {
                    joint[other] = joint[other].max(some[lane][other]);
                }
                joint[lane] = now;
            }
            for lane in (0..32).filter(|lane| mask >> lane & 1 == 1) {
                some[lane] = joint;
            }
        }
        self.time[warp] = now + 1;
    }

    /// Records that a warp arrives at a barrier.
    pub fn arrive(&self, warp: usize, barrier: &mut BarrierClock) {
        barrier.0.resize(self.warps, 0);
        for other in 0..self.warps {
            let seen = self.seen[warp * self.warps + other];
            barrier.0[other] = barrier.0[other].max(seen);
        }
        barrier.0[warp] = self.time[warp];
    }

    /// Records that a warp passes a barrier without waiting (`bar.arrive`).
    pub fn pass(&mut self, warp: usize) {
        self.time[warp] += 1;
    }

    /// Records that a warp continues after a barrier for which it has waited.
    pub fn leave(&mut self, warp: usize, barrier: &BarrierClock) {
        for (other, seen) in barrier.0.iter().enumerate() {
            let own = &mut self.seen[warp * self.warps + other];
            *own = (*own).max(*seen);
        }
        self.lanes[warp].all = self.time[warp];
        self.time[warp] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_barrier_orders_only_the_warps_that_take_part() {
        let mut clocks = Clocks::new(0, 3);
        let before = clocks.stamp(0, 5);
        let mut barrier = BarrierClock::default();
        clocks.arrive(0, &mut barrier);
        clocks.arrive(1, &mut barrier);
        assert!(!clocks.ordered(1, 0, before));
        clocks.leave(0, &barrier);
        clocks.leave(1, &barrier);
        assert!(clocks.ordered(1, 0, before) && !clocks.ordered(2, 0, before));
        assert!(!clocks.ordered(1, 0, clocks.stamp(0, 5)));
    }

    #[test]
    fn a_partial_warp_synchronization_orders_its_lanes() {
        let mut clocks = Clocks::new(0, 1);
        let before = clocks.stamp(0, 1);
        assert!(clocks.ordered(0, 1, before) && !clocks.ordered(0, 0, before));
        clocks.sync_lanes(0, 0b11, false);
        assert!(clocks.ordered(0, 0, before) && !clocks.ordered(0, 2, before));
        clocks.sync_lanes(0, 0b101, false);
        assert!(clocks.ordered(0, 2, before), "through lane 0");
    }
}
