//! SIGBUS handler. The kernel sends SIGBUS to a thread that accesses bytes of a mapping that no
//! longer exist.
//!
//! The handler is installed before the first mapping and remains installed. Each mapping has a slot
//! in a table of atomics, which the handler may read at any time. Only a copy accesses a mapping.
//! So if the faulting address lies in a mapping, this thread is copying from it, and the mapping
//! exists until the copy ends. The handler marks the mapping as lost, replaces it by pages of zeros
//! (one `mmap` system call with `MAP_FIXED`) and returns. The copy continues with zeros, sees the
//! mark, and its result is discarded. Several threads may do this at the same time. (libwayland
//! uses the same technique for memory that it shares with clients, `wayland-shm.c`. Its handler
//! finds the mapping in a thread-local variable.)
//!
//! Every other SIGBUS is handled as if this handler did not exist. It is passed to the previous
//! handler, with the same signal mask, or to the default action, which ends the process. A faulting
//! access ends the process even if SIGBUS is ignored, as the kernel does. A handler that other code
//! installs later runs first. It should pass on signals that it does not handle.
#![allow(unsafe_code)]

use std::mem;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use libc::{c_int, c_void, siginfo_t};

/// Maximum number of concurrent mappings.
const MAPPING_SLOTS: usize = 4096;

/// Slot of the table with the location of one mapping.
#[derive(Debug)]
struct MappingSlot {
    taken: AtomicBool,
    /// Address, or 0 if the slot has no mapping. Written after `len`, and cleared before the slot
    /// is released.
    start: AtomicUsize,
    len: AtomicUsize,
    lost: AtomicBool,
}

static TABLE: [MappingSlot; MAPPING_SLOTS] = [const {
    MappingSlot {
        taken: AtomicBool::new(false),
        start: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        lost: AtomicBool::new(false),
    }
}; MAPPING_SLOTS];

/// Action for SIGBUS that was set before this handler was installed.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// `si_code` values of signals that the thread's own access caused (`BUS_ADRALN` to
/// `BUS_MCEERR_AR`). Other signals have no address, or an address that no thread accessed.
const ACCESS: [c_int; 4] = [1, 2, 3, 4];

/// Registration of a mapping in the table.
#[derive(Debug)]
pub struct Registration(&'static MappingSlot);

impl Registration {
    /// Registers a mapping at address `start`. Returns `None` if the table is full or the handler
    /// cannot be installed.
    pub fn new(start: usize, len: usize) -> Option<Self> {
        static INSTALLED: OnceLock<bool> = OnceLock::new();
        if !INSTALLED.get_or_init(install) {
            return None;
        }
        let place = TABLE.iter().find(|place| !place.taken.swap(true, Ordering::AcqRel))?;
        place.lost.store(false, Ordering::Relaxed);
        place.len.store(len, Ordering::Release);
        place.start.store(start, Ordering::Release);
        Some(Self(place))
    }

    /// Whether an access found that bytes of the mapping no longer exist.
    pub fn is_lost(&self) -> bool {
        self.0.lost.load(Ordering::Acquire)
    }

    /// Unregisters the mapping. Must be called before unmapping, because the addresses may be
    /// reused afterwards.
    pub fn end(&self) {
        self.0.start.store(0, Ordering::Release);
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.end();
        self.0.taken.store(false, Ordering::Release);
    }
}

impl MappingSlot {
    /// Address and length of the mapping, if the slot contains the same mapping during the whole
    /// call.
    ///
    /// If the slot changes during the call, the two values can belong to different mappings only if
    /// the new mapping begins at the same address. In this case this thread is not copying from
    /// either mapping, and the range of the old mapping contains no other memory.
    fn extent(&self) -> Option<(usize, usize)> {
        let start = self.start.load(Ordering::Acquire);
        let len = self.len.load(Ordering::Acquire);
        (start != 0 && self.start.load(Ordering::Acquire) == start).then_some((start, len))
    }
}

/// Whether this thread blocks the signal SIGBUS.
pub fn is_blocked() -> bool {
    // SAFETY: a signal set consists of plain numbers. The call writes it before it is read.
    unsafe {
        let mut set = mem::zeroed();
        let told = libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), &mut set);
        told != 0 || libc::sigismember(&set, libc::SIGBUS) != 0
    }
}

/// Installs the handler. Returns whether this succeeded.
fn install() -> bool {
    // SAFETY: both actions consist of plain numbers, and zeros are a valid action. The handler only
    // does what signal handlers may do.
    unsafe {
        let mut before: libc::sigaction = mem::zeroed();
        if libc::sigaction(libc::SIGBUS, ptr::null(), &mut before) != 0 {
            return false;
        }
        // The previous handler runs inside this handler, so this handler blocks the signals that
        // the previous one blocks.
        let mut own = *BEFORE.get_or_init(|| before);
        let kept = before.sa_flags & (libc::SA_NODEFER | libc::SA_RESTART);
        own.sa_sigaction = on_bus_error as *const () as usize;
        own.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | kept;
        libc::sigaction(libc::SIGBUS, &own, ptr::null_mut()) == 0
    }
}

/// The handler may interrupt any instruction. It therefore uses only atomic loads and stores and
/// system calls.
extern "C" fn on_bus_error(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes valid pointers to a handler with SA_SIGINFO, and `errno` belongs to
    // this thread.
    unsafe {
        let errno = *libc::__errno_location();
        let is_access = ACCESS.contains(&(*info).si_code);
        if !(is_access && replace((*info).si_addr().addr())) {
            pass_on(signal, info, context, is_access);
        }
        *libc::__errno_location() = errno;
    }
}

/// Replaces the mapping that contains `address` by zeros. Returns false if there is no such
/// mapping.
fn replace(address: usize) -> bool {
    let holds =
        |&(start, len): &(usize, usize)| address.checked_sub(start).is_some_and(|it| it < len);
    let inside = |place: &MappingSlot| place.extent().filter(|it| holds(it));
    let Some((place, (start, len))) = TABLE.iter().find_map(|place| Some((place, inside(place)?)))
    else {
        return false;
    };
    // The mark is set before the zeros are mapped, so a thread that reads zeros also sees the mark.
    place.lost.store(true, Ordering::SeqCst);
    let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: the addresses belong to a mapping that the table lists. The mapping stays in place
    // while this thread copies from it, and no references into the mapping exist.
    let made = unsafe {
        let start = ptr::without_provenance_mut(start);
        libc::mmap(start, len, libc::PROT_READ, flags, -1, 0)
    };
    made != libc::MAP_FAILED
}

/// Handles SIGBUS as the process would without this handler.
///
/// # Safety
///
/// The arguments must be those that the kernel passed to a signal handler.
unsafe fn pass_on(signal: c_int, info: *mut siginfo_t, context: *mut c_void, is_access: bool) {
    // Without a stored action, the default action without flags applies.
    let before = BEFORE.get();
    let (action, flags) = before.map_or((libc::SIG_DFL, 0), |it| (it.sa_sigaction, it.sa_flags));
    match action {
        libc::SIG_IGN if !is_access => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: the default action runs no code of ours, and `raise` may be called in a
            // handler. After an access fault, the access is repeated on return, which ends the
            // process with the original address. Other signals are raised again.
            unsafe {
                set_default(signal);
                if !is_access {
                    libc::raise(signal);
                }
            }
        }
        handler => {
            // SAFETY: the address is a handler of the kind that its flags state, because it was
            // installed with these flags.
            unsafe {
                if flags & libc::SA_RESETHAND != 0 {
                    set_default(signal);
                }
                if flags & libc::SA_SIGINFO != 0 {
                    type Handler = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);
                    mem::transmute::<usize, Handler>(handler)(signal, info, context);
                } else {
                    mem::transmute::<usize, extern "C" fn(c_int)>(handler)(signal);
                }
            }
        }
    }
}

/// # Safety
///
/// No code may depend on a handler for this signal any more.
unsafe fn set_default(signal: c_int) {
    // SAFETY: zeros are a valid action, and `SIG_DFL` is one of its values.
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction = libc::SIG_DFL;
        libc::sigaction(signal, &action, ptr::null_mut());
    }
}
