//! SIGBUS: what the kernel sends a thread that touches bytes of a mapping which are gone.
//!
//! Before there is a first mapping the process gets a handler, and keeps it. Each mapping has a place in a table of atomics
//! that the handler may read at any time. Nothing but a copy touches a mapping; so where the address of the fault lies in
//! one, this thread is in a copy out of it, and the mapping stays there meanwhile. The handler marks it as lost, puts pages of
//! zeros in its place (`mmap` with `MAP_FIXED`: one system call) and returns; the copy goes on over zeros, sees the
//! mark, and its result is thrown away. Several threads may do that at once. (The technique is that of libwayland for
//! memory that it shares with clients, `wayland-shm.c`; there the handler learns from a thread-local what is copied.)
//!
//! Every other SIGBUS is passed on as if the handler were not there: to the one before, with the same mask; to
//! the default, which ends the process; a fault ends it as well where SIGBUS is ignored, as the kernel does. A handler
//! that others set later comes first, and should pass on what is not its own.
#![allow(unsafe_code)]

use std::mem;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use libc::{c_int, c_void, siginfo_t};

/// Most mappings at a time.
const PLACES: usize = 4096;

/// Where a mapping is.
#[derive(Debug)]
struct Place {
    taken: AtomicBool,
    /// Its address; 0 where there is none. Written after `len` and before all else is over.
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

/// What the process did with SIGBUS before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// `si_code` of what a thread's own access has caused (`BUS_ADRALN` to `BUS_MCEERR_AR`): others have no address, or one that nobody
/// touches.
const ACCESS: [c_int; 4] = [1, 2, 3, 4];

/// A mapping that is in the table.
#[derive(Debug)]
pub struct Watch(&'static Place);

impl Watch {
    /// Of a mapping at this address. `None` where the table is full, or there can be no handler.
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

    /// Whether the bytes under it were gone when they were touched.
    pub fn is_lost(&self) -> bool {
        self.0.lost.load(Ordering::Acquire)
    }

    /// Before the mapping goes: its addresses may be anybody's afterwards.
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
    /// Its address and length, where it is that of a mapping all the time while this is asked.
    ///
    /// Of a place that changes meanwhile both may be of different mappings only if the new one begins where the old one did. Neither is
    /// then one that this thread is copying out of, nor is there anybody else's memory in what was the old one's.
    fn extent(&self) -> Option<(usize, usize)> {
        let start = self.start.load(Ordering::Acquire);
        let len = self.len.load(Ordering::Acquire);
        (start != 0 && self.start.load(Ordering::Acquire) == start).then_some((start, len))
    }
}

/// Whether this thread does not take SIGBUS.
pub fn is_blocked() -> bool {
    // SAFETY: a set of signals is plain numbers, written by the call and then read.
    unsafe {
        let mut set = mem::zeroed();
        let told = libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), &mut set);
        told != 0 || libc::sigismember(&set, libc::SIGBUS) != 0
    }
}

/// Sets the handler; says whether it could.
fn install() -> bool {
    // SAFETY: both are plain numbers, zeros are a valid action, and the handler does only what handlers may do.
    unsafe {
        let mut before: libc::sigaction = mem::zeroed();
        if libc::sigaction(libc::SIGBUS, ptr::null(), &mut before) != 0 {
            return false;
        }
        // The handler before runs inside of this one, so this one blocks what that one wants blocked.
        let mut own = *BEFORE.get_or_init(|| before);
        let kept = before.sa_flags & (libc::SA_NODEFER | libc::SA_RESTART);
        own.sa_sigaction = on_bus_error as *const () as usize;
        own.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | kept;
        libc::sigaction(libc::SIGBUS, &own, ptr::null_mut()) == 0
    }
}

/// Does nothing but atomic loads and stores and system calls: it may run anywhere between two instructions.
extern "C" fn on_bus_error(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel gives a handler with SA_SIGINFO what belongs to the signal, and `errno` is this thread's.
    unsafe {
        let errno = *libc::__errno_location();
        let is_access = ACCESS.contains(&(*info).si_code);
        if !(is_access && replace((*info).si_addr().addr())) {
            pass_on(signal, info, context, is_access);
        }
        *libc::__errno_location() = errno;
    }
}

/// Puts zeros in the place of the mapping that this address lies in, if there is one.
fn replace(address: usize) -> bool {
    let holds =
        |&(start, len): &(usize, usize)| address.checked_sub(start).is_some_and(|it| it < len);
    let inside = |place: &Place| place.extent().filter(|it| holds(it));
    let Some((place, (start, len))) = TABLE.iter().find_map(|place| Some((place, inside(place)?)))
    else {
        return false;
    };
    // Before the zeros are there: who has read them must learn it.
    place.lost.store(true, Ordering::SeqCst);
    let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: the addresses are those of a mapping of this table, which stays while this thread copies out of it, and of
    // which there are no references.
    let made = unsafe {
        let start = ptr::without_provenance_mut(start);
        libc::mmap(start, len, libc::PROT_READ, flags, -1, 0)
    };
    made != libc::MAP_FAILED
}

/// Does what was done with SIGBUS before.
///
/// # Safety
///
/// The arguments are those of a handler.
unsafe fn pass_on(signal: c_int, info: *mut siginfo_t, context: *mut c_void, is_access: bool) {
    // What is left out is zeros: no flags, the default.
    let before = BEFORE.get();
    let (action, flags) = before.map_or((libc::SIG_DFL, 0), |it| (it.sa_sigaction, it.sa_flags));
    match action {
        libc::SIG_IGN if !is_access => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: the default is no code of ours, and `raise` may be called in a handler. An access is made once more
            // on return, which ends the process with its own address; for other signals one is sent for it.
            unsafe {
                set_default(signal);
                if !is_access {
                    libc::raise(signal);
                }
            }
        }
        handler => {
            // SAFETY: it is the address of a handler of the sort that its flags say, since it was set with them.
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
/// Whoever relies on a handler for the signal must not do so any more.
unsafe fn set_default(signal: c_int) {
    // SAFETY: zeros are a valid action, and `SIG_DFL` is one of its values.
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction = libc::SIG_DFL;
        libc::sigaction(signal, &action, ptr::null_mut());
    }
}
