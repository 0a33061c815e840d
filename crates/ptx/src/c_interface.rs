//! C interface for a simulated driver. The header `tests/simulated/executor.h` declares the same
//! functions.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};

use crate::{Access, Comparison, Contents, Counts, Launch, Memory, Module, Options};

/// Callback that receives one message: a fault, or the reason why a source or a launch is refused.
type Report = extern "C" fn(*const c_char);

/// Sums of the [`Counts`] of several launches.
#[repr(C)]
#[derive(Default)]
pub struct Totals {
    launches: u64,
    blocks: u64,
    instructions: u64,
    lanes: u64,
    branches: u64,
    divergent_branches: u64,
    shared_wavefronts: u64,
    ideal_wavefronts: u64,
    sectors_loaded: u64,
    sectors_stored: u64,
    mma: u64,
    barriers: u64,
    longest_blocks: u64,
}

/// Sizes of a launch (grid, block and shared memory), and how to schedule it.
#[repr(C)]
pub struct Shape {
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u64,
    /// Number that selects the schedule and the content of uninitialized memory.
    number: u64,
    /// Whether to run the launch under every schedule and compare the results.
    every_schedule: c_int,
}

fn report_with(report: Report, message: impl ToString) {
    let text = CString::new(message.to_string().replace('\0', " ")).unwrap_or_default();
    report(text.as_ptr());
}

/// # Safety
/// `text` must end with a NUL byte.
unsafe fn text<'a>(text: *const c_char) -> std::borrow::Cow<'a, str> {
    // SAFETY: the caller guarantees that the text ends with a NUL byte.
    unsafe { CStr::from_ptr(text) }.to_string_lossy()
}

/// Creates empty memory.
#[unsafe(no_mangle)]
pub extern "C" fn feedwater_ptx_memory() -> *mut Memory {
    Box::into_raw(Box::new(Memory::new()))
}

/// Adds an allocation whose content is unwritten. Returns 0, or 1 if the allocation overlaps
/// another one.
///
/// # Safety
/// `memory` must come from `feedwater_ptx_memory` and be used by one thread at a time. The
/// allocation must exist until it is unmapped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn feedwater_ptx_map(memory: *mut Memory, address: u64, bytes: u64) -> c_int {
    let (access, contents) = (Access::ReadWrite, Contents::Unwritten);
    let name = format!("the allocation at {address:#x}");
    // SAFETY: the caller guarantees that the memory is valid, is used by one thread at a time, and
    // that the allocation exists until it is unmapped.
    unsafe { (*memory).map(&name, address, bytes, access, contents) }.is_err().into()
}

/// Removes an allocation.
///
/// # Safety
/// The requirements are those of `feedwater_ptx_map`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn feedwater_ptx_unmap(memory: *mut Memory, address: u64) {
    // SAFETY: the caller guarantees that the memory is valid and used by one thread at a time.
    unsafe { (*memory).remove(address) };
}

/// Marks bytes as written, because a copy has written them.
///
/// # Safety
/// The requirements are those of `feedwater_ptx_map`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn feedwater_ptx_wrote(memory: *mut Memory, address: u64, bytes: u64) {
    // SAFETY: the caller guarantees that the memory is valid and used by one thread at a time.
    unsafe { (*memory).mark_written(address, bytes) };
}

/// Whether all of these bytes were written.
///
/// # Safety
/// The requirements are those of `feedwater_ptx_map`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn feedwater_ptx_is_written(
    memory: *const Memory,
    address: u64,
    bytes: u64,
) -> c_int {
    // SAFETY: the caller guarantees that the memory is valid and used by one thread at a time.
    unsafe { (*memory).is_written(address, bytes) }.unwrap_or(false).into()
}

/// Parses a PTX source. If the source is refused, reports the reason and returns null.
///
/// # Safety
/// `source` must end with a NUL byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn feedwater_ptx_parse(source: *const c_char, report: Report) -> *mut Module {
    // SAFETY: the caller guarantees that the source ends with a NUL byte.
    match Module::parse(&unsafe { text(source) }) {
        Ok(module) => Box::into_raw(Box::new(module)),
        Err(error) => {
            report_with(report, error);
            std::ptr::null_mut()
        }
    }
}

/// Frees a module.
///
/// # Safety
/// `module` must come from `feedwater_ptx_parse` and not be used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn feedwater_ptx_forget(module: *mut Module) {
    // SAFETY: the caller guarantees that `feedwater_ptx_parse` created the module, and does not use
    // the module afterwards.
    drop(unsafe { Box::from_raw(module) });
}

/// Writes the offset and size of at most `most` parameters of a kernel. Returns the number of
/// parameters, or -1 if there is no such kernel.
///
/// # Safety
/// `module` must come from `feedwater_ptx_parse`, `kernel` must end with a NUL byte, and `out` must
/// have space for `most` pairs of offset and size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn feedwater_ptx_parameters(
    module: *const Module,
    kernel: *const c_char,
    out: *mut [u64; 2],
    most: usize,
) -> c_int {
    // SAFETY: the caller guarantees a valid module, and a name that ends with a NUL byte.
    let (module, kernel) = unsafe { (&*module, text(kernel)) };
    let Ok(parameters) = module.parameters(&kernel) else { return -1 };
    for (at, (offset, bytes)) in parameters.iter().take(most).enumerate() {
        // SAFETY: the caller guarantees space for `most` pairs.
        unsafe { out.add(at).write([*offset, *bytes]) };
    }
    parameters.len() as c_int
}

/// Runs a kernel. Reports every fault and returns the number of faults. A difference between
/// schedules and a refused launch are faults too. Adds the counts to `totals`. If the kernel runs
/// under every schedule, only the counts of the first run are added.
///
/// # Safety
/// `module` and `memory` must come from the functions above and be used by one thread at a time.
/// `kernel` must end with a NUL byte, and `params` must have `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn feedwater_ptx_launch(
    module: *const Module,
    memory: *mut Memory,
    kernel: *const c_char,
    shape: *const Shape,
    params: *const c_void,
    bytes: usize,
    totals: *mut Totals,
    report: Report,
) -> u64 {
    // SAFETY: the caller guarantees that all pointers are valid, that the name ends with a NUL
    // byte, and that `params` has `bytes` bytes.
    let (module, memory, kernel, shape, params, totals) = unsafe {
        let params = std::slice::from_raw_parts(params.cast::<u8>(), bytes);
        (&*module, &mut *memory, text(kernel), &*shape, params.to_vec(), &mut *totals)
    };
    let launch = Launch {
        kernel: kernel.into_owned(),
        grid: shape.grid,
        block: shape.block,
        shared_bytes: shape.shared_bytes,
        params,
    };
    let runs = Options::every_schedule(shape.number);
    let comparison = match shape.every_schedule {
        0 => {
            let outcome = module.run(memory, &launch, &runs[shape.number as usize % runs.len()]);
            outcome.map(|outcome| Comparison { outcomes: vec![outcome], difference: None })
        }
        _ => module.compare(memory, &launch, &runs),
    };
    let comparison = match comparison {
        Ok(comparison) => comparison,
        Err(error) => {
            report_with(report, error);
            return 1;
        }
    };
    let mut faults = 0;
    for fault in comparison.outcomes.iter().flat_map(|outcome| &outcome.faults) {
        report_with(report, fault);
        faults += 1;
    }
    if let Some(difference) = &comparison.difference {
        report_with(
            report,
            format!(
                "the result of the kernel depends on the order in which its warps run: \
                 {difference:?}"
            ),
        );
        faults += 1;
    }
    totals.add(&launch, &comparison.outcomes[0].counts);
    faults
}

impl Totals {
    fn add(&mut self, launch: &Launch, counts: &Counts) {
        self.launches += 1;
        self.blocks += launch.grid.iter().map(|it| u64::from(*it)).product::<u64>();
        self.instructions += counts.instructions;
        self.lanes += counts.lanes;
        self.branches += counts.branches;
        self.divergent_branches += counts.divergent_branches;
        self.shared_wavefronts += counts.shared_wavefronts;
        self.ideal_wavefronts += counts.ideal_wavefronts;
        self.sectors_loaded += counts.sectors_loaded;
        self.sectors_stored += counts.sectors_stored;
        self.mma += counts.mma;
        self.barriers += counts.barriers;
        self.longest_blocks += counts.longest_block;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    thread_local!(static REPORTS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) });

    extern "C" fn note(message: *const c_char) {
        // SAFETY: the functions above pass strings with a NUL byte.
        let message = unsafe { text(message) }.into_owned();
        REPORTS.with_borrow_mut(|reports| reports.push(message));
    }

    const TEXT: &CStr = c".version 7.0 .target sm_75 .address_size 64
        .visible .entry put(.param .u64 data, .param .u32 value) {
            .reg .b32 %r<2>; .reg .b64 %rd<2>;
            ld.param.u64 %rd1, [data];
            ld.param.u32 %r1, [value];
            st.global.u32 [%rd1], %r1;
            ret;
        }";

    #[test]
    fn a_driver_maps_memory_and_launches() {
        let mut data = [0u32; 2];
        let address = data.as_mut_ptr() as u64;
        let memory = feedwater_ptx_memory();
        let mut totals = Totals::default();
        // SAFETY: `memory` and the other pointers come from the functions of this file. All strings
        // end with a NUL byte.
        unsafe {
            assert_eq!(feedwater_ptx_map(memory, address, 8), 0);
            assert_eq!(feedwater_ptx_map(memory, address + 4, 8), 1);
            let module = feedwater_ptx_parse(TEXT.as_ptr(), note);
            let mut places = [[0; 2]; 4];
            let count = feedwater_ptx_parameters(module, c"put".as_ptr(), places.as_mut_ptr(), 4);
            assert_eq!((count, &places[..2]), (2, &[[0, 8], [8, 4]][..]));
            assert_eq!(
                feedwater_ptx_parameters(module, c"get".as_ptr(), places.as_mut_ptr(), 4),
                -1
            );
            for (offset, every_schedule) in [(0, 0), (0, 1), (8, 0)] {
                let mut params = (address + offset).to_le_bytes().to_vec();
                params.extend(7u32.to_le_bytes());
                let shape = Shape {
                    grid: [1; 3],
                    block: [1; 3],
                    shared_bytes: 0,
                    number: 3,
                    every_schedule,
                };
                let faults = feedwater_ptx_launch(
                    module,
                    memory,
                    c"put".as_ptr(),
                    &raw const shape,
                    params.as_ptr().cast(),
                    params.len(),
                    &raw mut totals,
                    note,
                );
                assert_eq!(faults, u64::from(offset == 8));
            }
            assert_eq!(feedwater_ptx_is_written(memory, address, 4), 1);
            assert_eq!(feedwater_ptx_is_written(memory, address, 8), 0);
            feedwater_ptx_wrote(memory, address, 8);
            assert_eq!(feedwater_ptx_is_written(memory, address, 8), 1);
            feedwater_ptx_unmap(memory, address);
            assert_eq!(feedwater_ptx_is_written(memory, address, 8), 0);
            feedwater_ptx_forget(module);
            assert!(feedwater_ptx_parse(c"no PTX".as_ptr(), note).is_null());
            drop(Box::from_raw(memory));
        }
        assert_eq!((data[0], totals.launches, totals.instructions), (7, 3, 12));
        assert_eq!(totals.longest_blocks, 12);
        REPORTS.with_borrow(|reports| {
            assert_eq!(reports.len(), 2);
            assert!(reports[0].starts_with("OutOfBounds"), "{reports:?}");
        });
    }
}
