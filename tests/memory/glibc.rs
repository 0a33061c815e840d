//! Counts every allocation of this process. Rust and the C libraries both use `malloc`.
//!
//! The functions below replace those of the GNU C library. Each of them counts, and then calls the
//! replaced function. A block counts with the size that the allocator reports for it, which is
//! rounded up. Pages of stacks and code are not counted.

use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering;

use super::counted::{CALLS, HELD, MOST};

unsafe extern "C" {
    fn __libc_malloc(bytes: usize) -> *mut c_void;
    fn __libc_calloc(count: usize, bytes: usize) -> *mut c_void;
    fn __libc_realloc(block: *mut c_void, bytes: usize) -> *mut c_void;
    fn __libc_memalign(align: usize, bytes: usize) -> *mut c_void;
    fn __libc_free(block: *mut c_void);
    fn malloc_usable_size(block: *mut c_void) -> usize;
}

fn add(block: *mut c_void) -> *mut c_void {
    if !block.is_null() {
        CALLS.set(CALLS.get() + 1);
        // SAFETY: the allocator has just returned `block`.
        let bytes = unsafe { malloc_usable_size(block) } as i64;
        let held = HELD.fetch_add(bytes, Ordering::Relaxed) + bytes;
        MOST.fetch_max(held, Ordering::Relaxed);
    }
    block
}

fn subtract(block: *mut c_void) {
    if !block.is_null() {
        // SAFETY: the caller owns `block`, which the allocator returned.
        HELD.fetch_sub(unsafe { malloc_usable_size(block) } as i64, Ordering::Relaxed);
    }
}

// SAFETY: each function with `no_mangle` has the name and the behaviour of the C library's
// function.
#[unsafe(no_mangle)]
extern "C" fn malloc(bytes: usize) -> *mut c_void {
    // SAFETY: the allocator accepts any size.
    add(unsafe { __libc_malloc(bytes) })
}

// SAFETY: `calloc` behaves like the C library's function.
#[unsafe(no_mangle)]
extern "C" fn calloc(count: usize, bytes: usize) -> *mut c_void {
    // SAFETY: the allocator accepts any count and size.
    add(unsafe { __libc_calloc(count, bytes) })
}

// SAFETY: `realloc` behaves like the C library's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn realloc(block: *mut c_void, bytes: usize) -> *mut c_void {
    // While a block is moved, both blocks may exist at once. This is not counted, because large
    // blocks are moved by remapping pages.
    subtract(block);
    // SAFETY: the caller owns `block`, which the allocator returned.
    add(unsafe { __libc_realloc(block, bytes) })
}

// SAFETY: `posix_memalign` behaves like the C library's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn posix_memalign(out: *mut *mut c_void, align: usize, bytes: usize) -> c_int {
    // SAFETY: the caller passes a power of two as alignment.
    let block = add(unsafe { __libc_memalign(align, bytes) });
    if block.is_null() {
        return 12;
    }
    // SAFETY: the caller passes a pointer to which the block's address may be written.
    unsafe { *out = block };
    0
}

// SAFETY: `aligned_alloc` behaves like the C library's function.
#[unsafe(no_mangle)]
extern "C" fn aligned_alloc(align: usize, bytes: usize) -> *mut c_void {
    // SAFETY: the caller passes a power of two as alignment.
    add(unsafe { __libc_memalign(align, bytes) })
}

// SAFETY: `free` behaves like the C library's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn free(block: *mut c_void) {
    subtract(block);
    // SAFETY: the caller owns `block`, which the allocator returned.
    unsafe { __libc_free(block) }
}
