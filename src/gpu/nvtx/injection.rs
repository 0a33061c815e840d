//! Program side of NVTX version 3, which lets a profiler receive ranges.
//!
//! NVTX 3 is a C header without a library. Every program holds tables of function slots, and a
//! profiler's library writes its functions into these slots. The program opens the profiler's
//! library and calls its function `InitializeInjectionNvtx2`. The argument is a function that
//! returns tables by number. Through one of these tables, the library requests the slots of each
//! module, which is a group of NVTX functions.
//!
//! The numbers and layouts are those of nvtxTypes.h. The sequence of calls is that of nvtxInit.h
//! and nvtxImpl.h (NVTX 3, `NVTX_VERSION` 3). None of them changes within NVTX 3, because programs
//! and profilers are built separately.
//!
//! Two kinds of profilers are not supported: those that are linked into the program, and those that
//! the driver provides (`cuNvtxGetInjectionInitializer`).

use std::ffi::{CStr, OsStr, c_char, c_int, c_uint, c_void};
use std::mem;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering::Acquire};

use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL};

/// Slot for one profiler function: `NvtxFunctionPointer`, null if there is no function.
type Slot = AtomicPtr<c_void>;

/// The types `NvtxGetExportTableFunc_t` and `NvtxInitializeInjectionNvtxFunc_t` of nvtxTypes.h.
type ExportTable = unsafe extern "C" fn(u32) -> *const c_void;
type Initialize = unsafe extern "C" fn(ExportTable) -> c_int;

/// Values of `NvtxCallbackModule`.
const CORE: usize = 1;
const CORE2: usize = 5;
const MODULES: usize = 7;

/// Number of functions per module, including the unused number 0: `NVTX_CBID_*_SIZE`.
const SIZES: [usize; MODULES] = [0, 16, 9, 15, 7, 16, 7];
const LARGEST: usize = 16;

/// Values of `NvtxCallbackIdCore` for `nvtxRangePushA` and `nvtxRangePop`.
const PUSH: usize = 9;
const POP: usize = 11;

/// Values of `NvtxCallbackIdCore2` for `nvtxDomainRangePushEx`, `nvtxDomainRangePop` and
/// `nvtxDomainCreateA`.
const DOMAIN_PUSH: usize = 4;
const DOMAIN_POP: usize = 5;
const DOMAIN_CREATE: usize = 12;

/// Values of `NvtxExportTableID`.
const CALLBACKS: u32 = 1;
const VERSION_INFO: u32 = 3;

/// `NVTX_VERSION`.
const VERSION: u16 = 3;

/// `NVTX_MESSAGE_TYPE_ASCII`.
const ASCII: i32 = 1;

type Push = unsafe extern "C" fn(*const c_char) -> c_int;
type Pop = unsafe extern "C" fn() -> c_int;
type DomainPush = unsafe extern "C" fn(*mut c_void, *const Attributes) -> c_int;
type DomainPop = unsafe extern "C" fn(*mut c_void) -> c_int;
type DomainCreate = unsafe extern "C" fn(*const c_char) -> *mut c_void;

/// Initialised profiler library. It stays loaded until the process ends.
pub(super) struct Injection {
    /// Handle of the NVTX domain `feedwater`, if the profiler supports domains.
    domain: Option<AtomicPtr<c_void>>,
}

impl Injection {
    /// Opens and initialises the library at this path, once per process. Later calls return the
    /// result of the first call. An error is a text to append to the path.
    pub(super) fn start(path: &OsStr) -> Result<&'static Self, String> {
        static STARTED: OnceLock<Result<Injection, String>> = OnceLock::new();
        STARTED.get_or_init(|| Self::open(path)).as_ref().map_err(Clone::clone)
    }

    /// Begins a range with this name on this thread.
    pub(super) fn push(&self, name: &'static CStr) {
        match &self.domain {
            Some(domain) => {
                // SAFETY: nvtxTypes.h: the module and number are those of
                // `nvtxDomainRangePushEx_impl_fntype`.
                let Some(push) = (unsafe { function::<DomainPush>(CORE2, DOMAIN_PUSH) }) else {
                    return;
                };
                let attributes = Attributes::named(name);
                // SAFETY: nvToolsExt.h: the handle is that of `nvtxDomainCreateA`. The structure
                // has the version and size in its fields and is read before the call returns. Any
                // thread may call.
                unsafe { push(domain.load(Acquire), &attributes) };
            }
            None => {
                // SAFETY: nvtxTypes.h: the module and number are those of
                // `nvtxRangePushA_impl_fntype`.
                let Some(push) = (unsafe { function::<Push>(CORE, PUSH) }) else { return };
                // SAFETY: nvToolsExt.h: the text ends with a NUL byte; any thread may call.
                unsafe { push(name.as_ptr()) };
            }
        }
    }

    /// Ends the most recently begun range on this thread.
    pub(super) fn pop(&self) {
        match &self.domain {
            Some(domain) => {
                // SAFETY: nvtxTypes.h: the module and number are those of
                // `nvtxDomainRangePop_impl_fntype`.
                let Some(pop) = (unsafe { function::<DomainPop>(CORE2, DOMAIN_POP) }) else {
                    return;
                };
                // SAFETY: nvToolsExt.h: the handle is that of `nvtxDomainCreateA`. Any thread may
                // call.
                unsafe { pop(domain.load(Acquire)) };
            }
            None => {
                // SAFETY: nvtxTypes.h: the module and number are those of
                // `nvtxRangePop_impl_fntype`.
                let Some(pop) = (unsafe { function::<Pop>(CORE, POP) }) else { return };
                // SAFETY: nvToolsExt.h: the function has no arguments. Any thread may call.
                unsafe { pop() };
            }
        }
    }

    fn open(path: &OsStr) -> Result<Self, String> {
        if path == "./." {
            return Err(", which turns NVTX off".into());
        }
        // SAFETY: runs the initialisers of a library that the user's profiler specified. Functions
        // that the library itself lacks are resolved when they are called, as in nvtxInit.h.
        let library = unsafe { Library::open(Some(path), RTLD_LAZY | RTLD_LOCAL) }
            .map_err(|error| format!(": {error}"))?;
        // SAFETY: nvtxInit.h: a function of that name is a `NvtxInitializeInjectionNvtxFunc_t`.
        let initialize = *unsafe { library.get::<Initialize>(b"InitializeInjectionNvtx2") }
            .map_err(
                |_| ", which has no InitializeInjectionNvtx2: unset it, or let the profiler set it",
            )?;
        // The library is never closed. Its functions are called until the process ends, and it may
        // have started threads.
        mem::forget(library);
        // SAFETY: nvtxTypes.h: `NvtxInitializeInjectionNvtxFunc_t` takes a
        // `NvtxGetExportTableFunc_t`.
        if unsafe { initialize(export_table) } == 0 {
            return Err(", whose InitializeInjectionNvtx2 failed: see the profiler's output".into());
        }
        if is_set(CORE2, DOMAIN_PUSH) && is_set(CORE2, DOMAIN_POP) {
            // SAFETY: nvtxTypes.h: the module and number are those of
            // `nvtxDomainCreateA_impl_fntype`.
            let create = unsafe { function::<DomainCreate>(CORE2, DOMAIN_CREATE) };
            // SAFETY: nvToolsExt.h: the text ends with a NUL byte. A null domain is the default
            // domain.
            let domain = create.map_or(ptr::null_mut(), |it| unsafe { it(c"feedwater".as_ptr()) });
            return Ok(Self { domain: Some(AtomicPtr::new(domain)) });
        }
        match is_set(CORE, PUSH) && is_set(CORE, POP) {
            true => Ok(Self { domain: None }),
            false => Err(", which accepts no ranges: enable NVTX tracing in the profiler".into()),
        }
    }
}

/// `nvtxEventAttributes_v2`.
#[repr(C)]
struct Attributes {
    version: u16,
    size: u16,
    category: u32,
    color_type: i32,
    color: u32,
    payload_type: i32,
    reserved: i32,
    payload: u64,
    message_type: i32,
    message: *const c_char,
}

/// `NvtxExportTableCallbacks`.
#[repr(C)]
struct Callbacks {
    size: usize,
    module_functions:
        unsafe extern "C" fn(c_uint, *mut *const AtomicPtr<Slot>, *mut c_uint) -> c_int,
}

/// `NvtxExportTableVersionInfo`.
#[repr(C)]
struct VersionInfo {
    size: usize,
    version: u32,
    reserved: u32,
    set_injection_version: extern "C" fn(u32),
}

// Sizes and offsets in nvToolsExt.h and nvtxTypes.h on all platforms with 64-bit pointers.
const _: () = assert!(size_of::<Attributes>() == 48 && mem::offset_of!(Attributes, message) == 40);
const _: () = assert!(size_of::<Callbacks>() == 16 && size_of::<VersionInfo>() == 24);

/// Function slots, by module and number.
static SLOTS: [[Slot; LARGEST]; MODULES] =
    [const { [const { Slot::new(ptr::null_mut()) }; LARGEST] }; MODULES];

/// Pointers to the slots, for the profiler. The list of each module ends with a null, as in
/// nvtxImpl.h.
static TABLES: [[AtomicPtr<Slot>; LARGEST + 1]; MODULES] = tables();

static CALLBACKS_TABLE: Callbacks = Callbacks { size: size_of::<Callbacks>(), module_functions };

static VERSION_TABLE: VersionInfo = VersionInfo {
    size: size_of::<VersionInfo>(),
    version: VERSION as u32,
    reserved: 0,
    set_injection_version,
};

impl Attributes {
    /// Creates the attributes of a range with this name. All other attributes have their default
    /// values.
    fn named(name: &'static CStr) -> Self {
        Self {
            version: VERSION,
            size: size_of::<Self>() as u16,
            category: 0,
            color_type: 0,
            color: 0,
            payload_type: 0,
            reserved: 0,
            payload: 0,
            message_type: ASCII,
            message: name.as_ptr(),
        }
    }
}

const fn tables() -> [[AtomicPtr<Slot>; LARGEST + 1]; MODULES] {
    let mut tables = [const { [const { AtomicPtr::new(ptr::null_mut()) }; LARGEST + 1] }; MODULES];
    let mut module = 1;
    while module < MODULES {
        let mut number = 1;
        while number < SIZES[module] {
            tables[module][number] = AtomicPtr::new((&raw const SLOTS[module][number]).cast_mut());
            number += 1;
        }
        module += 1;
    }
    tables
}

/// Whether the profiler has set the function with this number.
fn is_set(module: usize, number: usize) -> bool {
    !SLOTS[module][number].load(Acquire).is_null()
}

/// Returns the profiler's function. The slot is read at every call, because the profiler may clear
/// the slot at any time.
///
/// # Safety
/// `F` must be the type of the function with the number `number`.
unsafe fn function<F: Copy>(module: usize, number: usize) -> Option<F> {
    let found = SLOTS[module][number].load(Acquire);
    // SAFETY: the caller guarantees the type of the function pointer, which is as large as a data
    // pointer. The pointer is not null.
    (!found.is_null()).then(|| unsafe { mem::transmute_copy::<*mut c_void, F>(&found) })
}

/// `nvtxGetExportTable`.
unsafe extern "C" fn export_table(id: u32) -> *const c_void {
    match id {
        CALLBACKS => (&raw const CALLBACKS_TABLE).cast(),
        VERSION_INFO => (&raw const VERSION_TABLE).cast(),
        _ => ptr::null(),
    }
}

/// `nvtxEtiGetModuleFunctionTable`: returns the slots of a module and their number.
unsafe extern "C" fn module_functions(
    module: c_uint,
    out_table: *mut *const AtomicPtr<Slot>,
    out_size: *mut c_uint,
) -> c_int {
    let module = module as usize;
    let (Some(table), Some(size @ 1..)) = (TABLES.get(module), SIZES.get(module)) else {
        return 0;
    };
    if !out_size.is_null() {
        // SAFETY: in nvtxTypes.h the argument is `unsigned int *out_size`. It is not null.
        unsafe { out_size.write(*size as c_uint) };
    }
    if !out_table.is_null() {
        // SAFETY: in nvtxTypes.h the argument is `NvtxFunctionTable *out_table`, a pointer to
        // pointers to slots. It is not null.
        unsafe { out_table.write(table.as_ptr()) };
    }
    1
}

/// `nvtxEtiSetInjectionNvtxVersion`: does nothing, as in nvtxImpl.h.
extern "C" fn set_injection_version(_version: u32) {}
