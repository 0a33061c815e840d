//! Counters of the simulated machine.

/// Allocations of one kind of memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SimMemory {
    /// Live allocations.
    pub allocations: u64,
    /// Number of bytes that are allocated now.
    pub bytes: u64,
    /// Maximum number of bytes that were allocated at one time since the reset.
    pub peak_bytes: u64,
}

/// Counters of the simulated machine. The layout is that of `SimCounts` in simulated.h.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SimCounts {
    pub device: SimMemory,
    pub pinned: SimMemory,
    pub contexts: u64,
    pub streams: u64,
    pub events: u64,
    pub modules: u64,
    pub nvjpeg_objects: u64,
    pub timed_events: u64,
    pub calls: u64,
    pub operations: u64,
    pub launches: u64,
    pub injected: u64,
    pub overruns: u64,
    pub write_combined: u64,
    pub timed_waits: u64,
    pub destroyed_in_use: u64,
    pub misused: u64,
    pub kernel_faults: u64,
}

impl SimCounts {
    /// Returns the number of objects and allocations that exist now.
    pub fn live(&self) -> u64 {
        self.device.allocations
            + self.pinned.allocations
            + self.contexts
            + self.streams
            + self.events
            + self.modules
            + self.nvjpeg_objects
    }

    /// Returns the number of wrong uses of the API or of memory.
    pub fn faults(&self) -> u64 {
        self.overruns
            + self.write_combined
            + self.timed_waits
            + self.destroyed_in_use
            + self.misused
            + self.kernel_faults
    }
}

/// Statistics of the PTX interpreter since the reset, summed over launches. The layout is that of
/// `SimTotals` in simulated.h.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SimTotals {
    pub launches: u64,
    pub blocks: u64,
    /// Executed instructions, each counted once per warp.
    pub instructions: u64,
    /// Sum over all instructions of the number of lanes that executed the instruction.
    pub lanes: u64,
    pub branches: u64,
    pub divergent_branches: u64,
    pub shared_wavefronts: u64,
    /// Number of wavefronts that the accesses to shared memory would need without bank conflicts.
    pub ideal_wavefronts: u64,
    /// Number of 32-byte sectors of global memory that were loaded.
    pub sectors_loaded: u64,
    pub sectors_stored: u64,
    pub mma: u64,
    pub barriers: u64,
    /// Number of instructions of the block that executed the most instructions in a launch, summed
    /// over all launches.
    pub longest_blocks: u64,
}
