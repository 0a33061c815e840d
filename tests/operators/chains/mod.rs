//! Chains of any operators equal their references bit for bit, and never output NaN.
//! `tests/memory/` measures their memory.

#[allow(dead_code, reason = "tests/memory uses the rest")]
mod drawn;
mod equal;
mod named;
