//! Reports of errors in kernels.

use std::collections::BTreeMap;
use std::fmt;

use crate::isa::Instruction;
use crate::module::Module;

/// Kind of a [`Fault`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaultKind {
    /// Access outside the ranges of global memory, outside the block's shared memory or outside the
    /// thread's local memory.
    OutOfBounds,
    /// Address that is not a multiple of the access's size.
    Misaligned,
    /// Store to read-only memory.
    ReadOnly,
    /// Load of memory that was never written.
    Unwritten,
    /// Use of a register that was never written in this lane.
    UnwrittenRegister,
    /// Two accesses to shared memory by different warps without a barrier between them, of which at
    /// least one is a store. Also an access to the target of an asynchronous copy for which no
    /// thread has waited.
    SharedRace,
    /// Two accesses to one byte by lanes of one warp without a warp synchronization between them,
    /// of which at least one is a store. Lanes that store the same value with one instruction do
    /// not race.
    WarpRace,
    /// Two accesses to global memory by different blocks, or by warps of one block without a
    /// barrier between them, of which at least one is a store.
    GlobalRace,
    /// Barrier that not all threads reach together: some threads have exited, have diverged or wait
    /// at a different barrier.
    DivergentBarrier,
    /// Instruction of a whole warp (`mma`, `shfl.sync`, `ldmatrix`, …) in which not all lanes of
    /// its mask take part.
    IncompleteWarp,
    /// Launch whose parameters have a different size than the kernel declares, or access outside
    /// the declared parameters.
    Parameter,
    /// Address of a parameter or of shared or local memory that is stored in global memory. The
    /// stored address outlives the memory at that address.
    AddressLeak,
    /// Integer division by zero.
    DivisionByZero,
    /// Operand with a value that the instruction does not allow.
    Operand,
    /// The kernel executed `trap`.
    Trap,
    /// The kernel executed more instructions than
    /// [`Options::max_instructions`](crate::Options::max_instructions).
    Timeout,
}

/// One kind of fault at one instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Kind of the fault.
    pub kind: FaultKind,
    /// Kernel that was launched.
    pub kernel: String,
    /// Block of the first occurrence.
    pub block: [u32; 3],
    /// Warp in the block.
    pub warp: u32,
    /// Lane in the warp. `None` if the fault concerns the whole warp.
    pub lane: Option<u32>,
    /// Line in the PTX source.
    pub line: u32,
    /// Opcode with its modifiers.
    pub opcode: String,
    /// File and line in the CUDA source, if the source was compiled with `-lineinfo`.
    pub source: Option<(String, u32)>,
    /// Description of the first occurrence, with its addresses, sizes and other threads.
    pub message: String,
    /// Number of occurrences.
    pub count: u64,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.message)?;
        if let Some((file, line)) = &self.source {
            write!(f, " at {file}:{line}")?;
        }
        let [x, y, z] = self.block;
        write!(f, " (kernel {}, block {x},{y},{z}, warp {}", self.kernel, self.warp)?;
        if let Some(lane) = self.lane {
            write!(f, ", lane {lane}")?;
        }
        write!(f, ", PTX line {}: {}; {} times)", self.line, self.opcode, self.count)
    }
}

/// Thread or warp in which a fault occurred.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FaultLocation {
    pub block: [u32; 3],
    pub warp: u32,
    pub lane: Option<u32>,
}

/// Faults of a launch, one for each instruction and kind.
#[derive(Debug)]
pub(crate) struct Faults {
    kernel: String,
    limit: usize,
    found: BTreeMap<(u32, FaultKind), Fault>,
    /// Number of faults that are only counted, because faults at `limit` other places are reported.
    pub dropped: u64,
}

impl Faults {
    pub fn new(kernel: &str, limit: usize) -> Self {
        Self { kernel: kernel.to_string(), limit, found: BTreeMap::new(), dropped: 0 }
    }

    /// Records a fault of instruction `pc`.
    pub fn add(
        &mut self,
        module: &Module,
        pc: u32,
        kind: FaultKind,
        place: FaultLocation,
        message: impl FnOnce() -> String,
    ) {
        if let Some(fault) = self.found.get_mut(&(pc, kind)) {
            fault.count += 1;
            return;
        }
        if self.found.len() >= self.limit {
            self.dropped += 1;
            return;
        }
        let i: &Instruction = &module.instructions[pc as usize];
        let file = module.files.get(&i.source.0);
        let fault = Fault {
            kind,
            kernel: self.kernel.clone(),
            block: place.block,
            warp: place.warp,
            lane: place.lane,
            line: i.line,
            opcode: module.names[i.name as usize].clone(),
            source: file.map(|file| (file.clone(), i.source.1)),
            message: message(),
            count: 1,
        };
        self.found.insert((pc, kind), fault);
    }

    pub fn into_list(self) -> Vec<Fault> {
        self.found.into_values().collect()
    }
}
