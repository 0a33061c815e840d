//! Chains of any operators: equal to their references bit for bit, without NaN, within the planned memory, and without
//! allocations once their buffers have grown.

mod drawn;
mod equal;
mod named;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod steady;

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code, dead_code, reason = "the allocator that counts, which other tests use too")]
#[path = "../bounds/counted.rs"]
mod counted;
