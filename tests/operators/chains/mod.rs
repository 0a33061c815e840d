//! Chains of any operators: equal to their references bit for bit, and without NaN. `tests/memory/` measures their memory.

#[allow(dead_code, reason = "tests/memory uses the rest")]
mod drawn;
mod equal;
mod named;
