//! Launches: kernel, grid, parameters, and options for running them.

use crate::counts::Counts;
use crate::fault::Fault;

/// Kernel, grid and parameters of a launch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Launch {
    /// Name of the kernel.
    pub kernel: String,
    /// Number of blocks in each dimension.
    pub grid: [u32; 3],
    /// Number of threads per block in each dimension. The product of the three numbers is at most
    /// 1024.
    pub block: [u32; 3],
    /// Size of dynamic shared memory in bytes.
    pub shared_bytes: u64,
    /// Parameters, each at the offset that [`Module::parameters`](crate::Module::parameters)
    /// returns.
    pub params: Vec<u8>,
}

/// Order in which warps and blocks run. A correct kernel gives the same result with every order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Schedule {
    /// Blocks and warps run one after another. A warp runs until it waits.
    #[default]
    InOrder,
    /// Blocks and warps run from the last to the first. Atomics of a warp execute from the last
    /// lane to the first.
    Reverse,
    /// One warp runs as far ahead of the others as barriers allow.
    RunAhead,
    /// Four blocks run at a time. Another warp runs after every access to memory.
    Switch,
    /// Four blocks run at a time. The next warp, and the next group of a warp's diverged lanes, are
    /// chosen at random.
    Random(u64),
}

/// Schedule, content of uninitialized memory, and limits of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Order of warps and blocks.
    pub schedule: Schedule,
    /// Seed for the content of registers, shared memory and local memory before they are written.
    pub fill: u64,
    /// Whether using a register that was never written is a fault.
    pub check_registers: bool,
    /// Number of instructions after which a launch is ended. An instruction counts once per warp.
    pub max_instructions: u64,
    /// Maximum number of places (an instruction and a kind of fault) at which faults are reported.
    /// Faults at other places are only counted.
    pub max_faults: usize,
    /// Line of a PTX instruction that is skipped, to plant an error such as a missing barrier.
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
    /// Faults, one for each instruction and kind of fault. Empty for a correct kernel.
    pub faults: Vec<Fault>,
    /// Number of faults that are not in `faults`, because [`Options::max_faults`] was reached.
    pub dropped_faults: u64,
    /// Counts of executed instructions and accesses.
    pub counts: Counts,
}

impl Outcome {
    /// Panics with all faults if there are any. For tests.
    ///
    /// # Panics
    /// Panics if the launch has faults.
    pub fn expect_clean(self) -> Counts {
        let list: Vec<String> = self.faults.iter().map(Fault::to_string).collect();
        assert!(list.is_empty(), "faults:\n{}", list.join("\n"));
        self.counts
    }
}
