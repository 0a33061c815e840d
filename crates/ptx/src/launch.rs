//! What to launch, and how.

use crate::counts::Counts;
use crate::fault::Fault;

/// Kernel, grid and parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Launch {
    /// Name of the kernel.
    pub kernel: String,
    /// Number of blocks in each dimension.
    pub grid: [u32; 3],
    /// Number of threads of a block in each dimension; at most 1024 together.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared_bytes: u64,
    /// Parameters, each at the offset that [`Module::parameters`](crate::Module::parameters) gives.
    pub params: Vec<u8>,
}

/// Order in which warps and blocks run. A correct kernel gives the same result with every order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Schedule {
    /// Blocks and warps one after another; a warp runs until it waits.
    #[default]
    InOrder,
    /// The same, from the last to the first. Atomics of a warp go from the last lane to the first.
    Reverse,
    /// One warp runs as far ahead of the others as barriers allow.
    RunAhead,
    /// Four blocks at a time; another warp runs after every access to memory.
    Switch,
    /// Four blocks at a time; the next warp, and the next of a warp's diverged lanes, are drawn at random.
    Random(u64),
}

/// Schedule, fill and limits of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Order of warps and blocks.
    pub schedule: Schedule,
    /// Seed of what registers, shared and local memory hold before they are written.
    pub fill: u64,
    /// Whether the use of registers that were never written is a fault.
    pub check_registers: bool,
    /// Instructions after which a launch is ended, counted once per warp.
    pub max_instructions: u64,
    /// Number of places at which faults are reported; further ones are only counted.
    pub max_faults: usize,
    /// Line of a PTX instruction that is skipped: a planted fault, such as a missing barrier.
    pub skip_line: Option<u32>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            schedule: Schedule::InOrder,
            fill: 0,
            check_registers: true,
            max_instructions: 1 << 34,
            max_faults: 256,
            skip_line: None,
        }
    }
}

/// Result of a launch.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Faults by place; empty for a correct kernel.
    pub faults: Vec<Fault>,
    /// Occurrences of faults at further places, beyond [`Options::max_faults`].
    pub dropped_faults: u64,
    /// What was executed.
    pub counts: Counts,
}

impl Outcome {
    /// Panics with all faults if there are any: for tests.
    ///
    /// # Panics
    /// If the launch has faults.
    pub fn expect_clean(self) -> Counts {
        let list: Vec<String> = self.faults.iter().map(Fault::to_string).collect();
        assert!(list.is_empty(), "faults:\n{}", list.join("\n"));
        self.counts
    }
}
