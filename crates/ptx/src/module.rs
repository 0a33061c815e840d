//! Parsed PTX source.

use std::collections::BTreeMap;

use crate::error::{Error, Result};
use crate::isa::{Instruction, Register};
use crate::memory::HostBuffer;

/// Parsed PTX source: kernels, device functions and variables in global memory.
#[derive(Debug, Default)]
pub struct Module {
    pub(crate) instructions: Vec<Instruction>,
    pub(crate) functions: Vec<Function>,
    pub(crate) calls: Vec<Call>,
    /// Targets of `brx.idx`, as instruction indices.
    pub(crate) tables: Vec<Vec<u32>>,
    /// Opcodes with their modifiers, without duplicates.
    pub(crate) names: Vec<String>,
    /// Source files by their number in `.loc`.
    pub(crate) files: BTreeMap<u32, String>,
    pub(crate) static_shared: u64,
    /// Alignment of dynamic shared memory, in bytes.
    pub(crate) shared_align: u64,
    pub(crate) variables: Vec<Variable>,
}

/// Kernel or device function.
#[derive(Debug, Default)]
pub(crate) struct Function {
    pub name: String,
    pub kernel: bool,
    /// Whether the source has a body for the function.
    pub defined: bool,
    /// First instruction.
    pub start: u32,
    pub parameters: Vec<Slot>,
    pub results: Vec<Slot>,
    /// Size of the function's parameters in bytes.
    pub parameter_bytes: u64,
    /// Size of the function's parameter space in bytes: parameters, then results and arguments of
    /// calls.
    pub param_space: u64,
    pub local_bytes: u64,
    pub preds: u32,
    pub words: u32,
    pub longs: u32,
    /// Declared names of registers, each with its first register. A family such as `%r<10>` also
    /// has the number of its registers.
    pub registers: Vec<(String, Register, Option<u32>)>,
}

/// Variable in a frame's parameter space.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slot {
    pub offset: u64,
    pub bytes: u64,
}

/// Operands of a call: offsets in the caller's parameter space.
#[derive(Debug, Default)]
pub(crate) struct Call {
    pub line: u32,
    pub target: String,
    pub function: u32,
    pub arguments: Vec<Slot>,
    pub results: Vec<Slot>,
}

/// Variable of the module in global or constant memory.
#[derive(Debug)]
pub(crate) struct Variable {
    pub name: String,
    pub buffer: HostBuffer,
    pub bytes: u64,
    pub constant: bool,
}

impl Module {
    /// Iterates over the names of the kernels, in the order of the source.
    pub fn kernels(&self) -> impl Iterator<Item = &str> {
        self.functions.iter().filter(|it| it.kernel && it.defined).map(|it| it.name.as_str())
    }

    /// Returns the size of a kernel's parameters in bytes, or `None` if there is no such kernel.
    pub fn parameter_bytes(&self, kernel: &str) -> Option<u64> {
        self.kernel(kernel).ok().map(|it| it.parameter_bytes)
    }

    /// Returns offset and size of each of a kernel's parameters, in bytes.
    ///
    /// # Errors
    /// [`Error::NoKernel`] if there is no such kernel.
    pub fn parameters(&self, kernel: &str) -> Result<Vec<(u64, u64)>> {
        Ok(self.kernel(kernel)?.parameters.iter().map(|it| (it.offset, it.bytes)).collect())
    }

    /// Returns address and size of a `.global` or `.const` variable, like `cuModuleGetGlobal`.
    pub fn variable(&self, name: &str) -> Option<(u64, u64)> {
        let found = self.variables.iter().find(|it| it.name == name)?;
        Some((found.buffer.address(), found.bytes))
    }

    pub(crate) fn kernel(&self, name: &str) -> Result<&Function> {
        let found = self.functions.iter().find(|it| it.kernel && it.defined && it.name == name);
        found.ok_or_else(|| Error::NoKernel(name.to_string()))
    }

    /// Returns the start of dynamic shared memory.
    pub(crate) fn dynamic_shared(&self) -> u64 {
        self.static_shared.next_multiple_of(self.shared_align.max(16))
    }
}

impl Variable {
    pub fn contents(&self) -> Vec<u8> {
        let mut data = vec![0; self.bytes as usize];
        self.buffer.range().read(0, &mut data);
        data
    }
}

impl Function {
    /// Returns the name of a register, such as `%r12`.
    pub fn register_name(&self, register: Register) -> String {
        let number = |register: Register| match register {
            Register::Pred(at) => (0, at),
            Register::Half(at) | Register::Word(at) => (1, at),
            Register::Long(at) => (2, at),
        };
        let (kind, at) = number(register);
        for (name, first, count) in &self.registers {
            let (other_kind, first) = number(*first);
            if kind != other_kind || at < first || at >= first + count.unwrap_or(1) {
                continue;
            }
            return count.map_or(name.clone(), |_| format!("{name}{}", at - first));
        }
        String::new()
    }
}
