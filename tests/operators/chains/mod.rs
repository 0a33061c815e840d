//! Chains of arbitrary operators. All implementations equal the reference bit for bit and never
//! output NaN. `tests/memory/` measures the memory of such chains.

#[allow(dead_code, reason = "tests/memory uses the rest")]
mod drawn;
mod equal;
mod named;
