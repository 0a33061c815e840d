//! Interpreter of PTX, NVIDIA's intermediate code for GPUs, with checks.
//!
//! The interpreter runs kernels on a CPU, from the PTX that the compiler NVRTC emits. It reports
//! errors of these kernels: accesses out of bounds, reads of unwritten memory, races, divergent
//! barriers and more ([`FaultKind`]). It also counts instructions, bank conflicts and memory
//! traffic ([`Counts`]).
//!
//! ```
//! use feedwater_ptx::{Access, Launch, Memory, Module, Options};
//!
//! let text = ".version 7.0 .target sm_75 .address_size 64
//! .visible .entry double(.param .u64 data) {
//!     .reg .b32 %r<3>; .reg .b64 %rd<4>;
//!     ld.param.u64 %rd1, [data];
//!     mov.u32 %r1, %tid.x;
//!     mul.wide.u32 %rd2, %r1, 4;
//!     add.s64 %rd3, %rd1, %rd2;
//!     ld.global.u32 %r2, [%rd3];
//!     shl.b32 %r2, %r2, 1;
//!     st.global.u32 [%rd3], %r2;
//!     ret;
//! }";
//! let module = Module::parse(text)?;
//! let mut memory = Memory::new();
//! let data = memory.allocate_with("data", &[1, 0, 0, 0, 2, 0, 0, 0], Access::ReadWrite);
//! let params = data.to_le_bytes().to_vec();
//! let launch = Launch { kernel: "double".into(), grid: [1; 3], block: [2, 1, 1], params, shared_bytes: 0 };
//! let outcome = module.run(&mut memory, &launch, &Options::default())?;
//! assert!(outcome.faults.is_empty());
//! assert_eq!(memory.read(data, 8).unwrap(), [2, 0, 0, 0, 4, 0, 0, 0]);
//! # Ok::<(), feedwater_ptx::Error>(())
//! ```
//!
//! [`Module::compare`] runs a kernel under several schedules and fills of uninitialized memory. A
//! correct kernel computes the same bytes in all of them.
//!
//! # Limits
//!
//! * The interpreter executes PTX, not machine code. It does not model the assembler ptxas, time or
//!   caches.
//! * Instructions of `wgmma`, `tcgen05`, `mbarrier`, bulk copies, textures and floating-point `mma`
//!   are errors of [`Module::parse`], like all unknown instructions.
//! * Memory is sequentially consistent. Fences have no effect. The race check ignores flags and
//!   locks, so data that they protect is reported as a race.
//! * `.approx` instructions return the correctly rounded result of a computation in double
//!   precision. A device's result may differ by the error that the PTX ISA states.
mod c_interface;
mod check;
mod compare;
mod counts;
mod error;
mod exec;
mod fault;
mod float;
mod isa;
mod launch;
mod memory;
mod module;
mod parse;
mod random;

pub use compare::{Comparison, Difference};
pub use counts::{Class, Counts};
pub use error::{Error, Result};
pub use fault::{Fault, FaultKind};
pub use launch::{Launch, Options, Outcome, Schedule};
pub use memory::{Access, Contents, Memory};
pub use module::Module;
