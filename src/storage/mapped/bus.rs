//! SIGBUS handler: the kernel sends SIGBUS to a thread that touches bytes of a mapping that no longer exist.
//!
//! The handler is installed before the first mapping and stays installed. Each mapping has a slot in a table of
//! atomics that the handler may read at any time. Only a copy touches a mapping. So if the faulting address lies in
//! one, this thread is copying out of it, and the mapping stays until the copy ends. The handler marks the mapping as
//! lost, replaces it by pages of zeros (`mmap` with `MAP_FIXED`: one system call) and returns. The copy continues over
//! zeros, sees the mark, and its result is discarded. Several threads may do that at once. (libwayland uses the same
//! technique for memory that it shares with clients, `wayland-shm.c`, except that its handler learns from a
//! thread-local what is being copied.)
//!
//! Every other SIGBUS is passed on as if the handler did not exist: to the previous handler, with the same mask, or to
//! the default, which ends the process. A faulting access ends the process also if SIGBUS is ignored, as the kernel
//! does. A handler that other code installs later runs first and should pass on signals that are not its own.
#![allow(unsafe_code)]

use std::mem;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use libc::{c_int, c_void, siginfo_t};

/// Maximum number of concurrent mappings.
const PLACES: usize = 4096;

/// Table slot with a mapping's location.
#[derive(Debug)]
struct Place {
    taken: AtomicBool,
    /// Address, or 0 without a mapping. Written after `len`, and cleared before the slot is released.
    start: AtomicUsize,
    len: AtomicUsize,
    lost: AtomicBool,
}

static TABLE: [Place; PLACES] = [const {
    Place {
        taken: AtomicBool::new(false),
        start: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        lost: AtomicBool::new(false),
    }
}; PLACES];

/// Action for SIGBUS before this handler was installed.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// `si_code` values of signals caused by the thread's own access (`BUS_ADRALN` to `BUS_MCEERR_AR`). Others have no
/// address, or one that nobody touches.
const ACCESS: [c_int; 4] = [1, 2, 3, 4];

/// Table entry of a mapping.
#[derive(Debug)]
pub struct Watch(&'static Place);

impl Watch {
    /// Registers a mapping at this address. `None` if the table is full or the handler cannot be installed.
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

    /// Whether bytes of the mapping no longer existed when they were touched.
    pub fn is_lost(&self) -> bool {
        self.0.lost.load(Ordering::Acquire)
    }

    /// Unregisters the mapping. Must be called before it is unmapped, because its addresses may be reused afterwards.
    pub fn end(&self) {
        self.0.start.store(0, Ordering::Release);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.end();
        self.0.taken.store(false, Ordering::Release);
    }
}

impl Place {
    /// Address and length of the mapping, if the slot holds the same mapping throughout the call.
    ///
    /// If the slot changes meanwhile, the two values can belong to different mappings only if the new one begins at
    /// the same address. Then neither is a mapping that this thread is copying out of, and no other memory lies in the
    /// range of the old one.
    fn extent(&self) -> Option<(usize, usize)> {
        let start = self.start.load(Ordering::Acquire);
        let len = self.len.load(Ordering::Acquire);
        (start != 0 && self.start.load(Ordering::Acquire) == start).then_some((start, len))
    }
}

/// Whether this thread blocks SIGBUS.
pub fn is_blocked() -> bool {
    // SAFETY: a set of signals is plain numbers, written by the call and then read.
    unsafe {
        let mut set = mem::zeroed();
        let told = libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), &mut set);
        told != 0 || libc::sigismember(&set, libc::SIGBUS) != 0
    }
}

/// Installs the handler. Returns whether that succeeded.
fn install() -> bool {
    // SAFETY: both actions are plain numbers, zeros are a valid action, and the handler does only what handlers may
    // do.
    unsafe {
        let mut before: libc::sigaction = mem::zeroed();
        if libc::sigaction(libc::SIGBUS, ptr::null(), &mut before) != 0 {
            return false;
        }
        // The previous handler runs inside this one, so this one blocks the signals that the previous one wants
        // blocked.
        let mut own = *BEFORE.get_or_init(|| before);
        let kept = before.sa_flags & (libc::SA_NODEFER | libc::SA_RESTART);
        own.sa_sigaction = on_bus_error as *const () as usize;
        own.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | kept;
        libc::sigaction(libc::SIGBUS, &own, ptr::null_mut()) == 0
    }
}

/// Uses only atomic loads and stores and system calls, because it may run between any two instructions.
extern "C" fn on_bus_error(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes valid pointers to a handler with SA_SIGINFO, and `errno` belongs to this thread.
    unsafe {
        let errno = *libc::__errno_location();
        let is_access = ACCESS.contains(&(*info).si_code);
        if !(is_access && replace((*info).si_addr().addr())) {
            pass_on(signal, info, context, is_access);
        }
        *libc::__errno_location() = errno;
    }
}

/// Replaces the mapping that contains this address by zeros. Returns false if there is no such mapping.
fn replace(address: usize) -> bool {
    let holds =
        |&(start, len): &(usize, usize)| address.checked_sub(start).is_some_and(|it| it < len);
    let inside = |place: &Place| place.extent().filter(|it| holds(it));
    let Some((place, (start, len))) = TABLE.iter().find_map(|place| Some((place, inside(place)?)))
    else {
        return false;
    };
    // Set before the zeros are mapped, so that whoever reads zeros sees the mark.
    place.lost.store(true, Ordering::SeqCst);
    let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: the addresses belong to a mapping of this table, which stays mapped while this thread copies out of it,
    // and to which no references exist.
    let made = unsafe {
        let start = ptr::without_provenance_mut(start);
        libc::mmap(start, len, libc::PROT_READ, flags, -1, 0)
    };
    made != libc::MAP_FAILED
}

/// Handles SIGBUS as the process did before this handler was installed.
///
/// # Safety
///
/// The arguments must be those of a signal handler.
unsafe fn pass_on(signal: c_int, info: *mut siginfo_t, context: *mut c_void, is_access: bool) {
    // Omitted fields are zeros: no flags, the default action.
    let before = BEFORE.get();
    let (action, flags) = before.map_or((libc::SIG_DFL, 0), |it| (it.sa_sigaction, it.sa_flags));
    match action {
        libc::SIG_IGN if !is_access => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: the default action runs no code of ours, and `raise` may be called in a handler. After an access
            // fault the access is repeated on return, which ends the process with the original address. For other
            // signals one is raised.
            unsafe {
                set_default(signal);
                if !is_access {
                    libc::raise(signal);
                }
            }
        }
        handler => {
            // SAFETY: the address is a handler of the kind that its flags say, because it was installed with these
            // flags.
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
/// No code may rely on a handler for the signal any more.
unsafe fn set_default(signal: c_int) {
    // SAFETY: zeros are a valid action, and `SIG_DFL` is one of its values.
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction = libc::SIG_DFL;
        libc::sigaction(signal, &action, ptr::null_mut());
    }
}
