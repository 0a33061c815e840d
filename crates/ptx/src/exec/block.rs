//! A block of threads: shared memory, barriers and warps.

use super::registers::{ALL, Ids};
use super::warp::Warp;
use crate::check::{BarrierClock, Clocks, Shadow};
use crate::launch::Launch;
use crate::memory::Bitmap;
use crate::module::{Function, Module};

/// State of a running block.
pub(crate) struct Block {
    pub at: [u32; 3],
    pub threads: u32,
    pub shared: Shared,
    pub clocks: Clocks,
    pub barriers: Vec<BarrierState>,
    pub warps: Vec<Warp>,
    /// Warp that ran last.
    pub last: usize,
}

/// Shared memory of a block.
pub(crate) struct Shared {
    pub data: Vec<u8>,
    pub written: Bitmap,
    pub shadow: Shadow,
}

/// One of a block's sixteen barriers.
#[derive(Clone, Debug, Default)]
pub(crate) struct BarrierState {
    /// Number of threads that have arrived.
    pub arrived: u32,
    /// Number of threads that the barrier waits for. `None` means all threads of the block.
    pub expected: Option<u32>,
    /// Index of the instruction at which the first threads arrived.
    pub pc: u32,
    pub clock: BarrierClock,
    /// Number of threads whose predicate is true, for a barrier that combines a predicate of all
    /// its threads.
    pub holds: u32,
    /// Whether a fault was already reported because threads wait at this barrier at different
    /// instructions.
    pub reported: bool,
}

impl Block {
    pub fn new(
        number: u32,
        module: &Module,
        function: (u32, &Function),
        launch: &Launch,
        fill: u64,
    ) -> Self {
        let [width, height, _] = launch.grid;
        let at = [number % width, number / width % height, number / width / height];
        let threads: u32 = launch.block.iter().product();
        let warps = threads.div_ceil(32);
        let dynamic = module.dynamic_shared();
        let bytes = if launch.shared_bytes > 0 {
            dynamic + launch.shared_bytes
        } else {
            module.static_shared
        };
        let [x, y, _] = launch.block;
        let warp = |warp: u32| {
            let thread = |lane: usize| warp * 32 + lane as u32;
            let ids = Ids {
                threads: [
                    std::array::from_fn(|lane| thread(lane) % x),
                    std::array::from_fn(|lane| thread(lane) / x % y),
                    std::array::from_fn(|lane| thread(lane) / x / y),
                ],
                block_size: launch.block,
                block: at,
                grid: launch.grid,
                warp,
                warps,
                dynamic_shared: dynamic,
                dynamic_shared_bytes: launch.shared_bytes,
                clock: 0,
            };
            let left = threads - warp * 32;
            let live = if left >= 32 { ALL } else { (1 << left) - 1 };
            Warp::new(ids, live, function, fill)
        };
        let shared = Shared {
            data: vec![(fill >> 8) as u8; bytes as usize],
            written: Bitmap::new(bytes),
            shadow: Shadow::new(bytes),
        };
        Self {
            at,
            threads,
            shared,
            clocks: Clocks::new(number, warps as usize),
            barriers: vec![BarrierState::default(); 16],
            warps: (0..warps).map(warp).collect(),
            last: 0,
        }
    }

    /// Number of executed instructions, each counted once per warp.
    pub fn instructions(&self) -> u64 {
        self.warps.iter().map(|it| it.ids.clock).sum()
    }

    /// Number of threads that have not exited.
    pub fn live(&self) -> u32 {
        self.warps.iter().map(|it| it.live.count_ones()).sum()
    }
}
