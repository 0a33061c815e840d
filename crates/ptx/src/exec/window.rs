//! Generic addresses. Each state space except global memory has a range of generic addresses that
//! no host uses. The PTX ISA calls this range the window of the state space.

use crate::isa::Space;

const SHARED: u64 = 0xfe5a_0000_0000_0000;
const LOCAL: u64 = 0xfe5b_0000_0000_0000;
const PARAM: u64 = 0xfe5c_0000_0000_0000;
const WINDOW_BITS: u32 = 40;

/// Returns the first generic address of a space.
pub(crate) fn base(space: Space) -> u64 {
    match space {
        Space::Shared => SHARED,
        Space::Local => LOCAL,
        Space::Param => PARAM,
        Space::Generic | Space::Global | Space::Const => 0,
    }
}

/// Returns the space of a generic address, and the address in that space.
#[inline]
pub(crate) fn of(address: u64) -> (Space, u64) {
    let start = address >> WINDOW_BITS << WINDOW_BITS;
    let space = match start {
        SHARED => Space::Shared,
        LOCAL => Space::Local,
        PARAM => Space::Param,
        _ => return (Space::Global, address),
    };
    (space, address - start)
}
