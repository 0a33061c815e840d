//! Counts of a launch's instructions and memory accesses. The interpreter does not measure time.

use std::collections::BTreeMap;

use crate::isa::{Instruction, Op, Space};
use crate::module::Module;

/// Class of an instruction in [`Counts::classes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Integer arithmetic, logic, shifts and comparisons.
    Integer,
    /// Floating-point arithmetic.
    Float,
    /// Moves, selections, conversions.
    Move,
    /// Matrix products.
    Matrix,
    /// Loads, stores and atomics whose instruction names global memory.
    Global,
    /// Accesses to shared memory.
    Shared,
    /// Accesses to local memory, such as spilled registers.
    Local,
    /// Accesses with generic addresses.
    Generic,
    /// Accesses to parameters and constants.
    Param,
    /// Exchange and synchronization between lanes and warps.
    Sync,
    /// Branches and calls.
    Control,
}

/// Counts of a launch, summed over all blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Instructions, each counted once per warp.
    pub instructions: u64,
    /// Sum over all instructions of the number of lanes in which the instruction took effect, at
    /// most 32 each.
    pub lanes: u64,
    /// Instructions by class.
    pub classes: BTreeMap<Class, u64>,
    /// Instructions by opcode.
    pub opcodes: BTreeMap<String, u64>,
    /// Conditional branches, each counted once per warp.
    pub branches: u64,
    /// Branches after which lanes of a warp continue at different instructions.
    pub divergent_branches: u64,
    /// Number of passes through shared memory that all accesses needed. The memory has 32 banks of
    /// four bytes.
    pub shared_wavefronts: u64,
    /// Number of passes through shared memory that would be needed without bank conflicts.
    pub ideal_wavefronts: u64,
    /// Sectors of 32 bytes that were loaded from global memory. Each instruction counts a sector
    /// once.
    pub sectors_loaded: u64,
    /// Sectors of 32 bytes that were stored to global memory.
    pub sectors_stored: u64,
    /// Matrix products (`mma`).
    pub mma: u64,
    /// Block barriers, each counted once per warp.
    pub barriers: u64,
    /// Largest number of instructions that one block executed, each counted once per warp.
    pub longest_block: u64,
}

impl Counts {
    pub(crate) fn of(module: &Module, places: &[PlaceCounts], longest_block: u64) -> Self {
        let mut counts = Self { longest_block, ..Self::default() };
        for (i, place) in module.instructions.iter().zip(places).filter(|it| it.1.warps > 0) {
            counts.instructions += place.warps;
            counts.lanes += place.lanes;
            *counts.classes.entry(class(i)).or_default() += place.warps;
            let name = &module.names[i.name as usize];
            *counts.opcodes.entry(name.clone()).or_default() += place.warps;
            counts.shared_wavefronts += place.wavefronts;
            counts.ideal_wavefronts += place.ideal;
            match i.op {
                Op::Store { .. } | Op::Atom { .. } => counts.sectors_stored += place.sectors,
                _ => counts.sectors_loaded += place.sectors,
            }
            match i.op {
                Op::Mma { .. } => counts.mma += place.warps,
                Op::Bar { .. } => counts.barriers += place.warps,
                Op::Bra { .. } if i.guard.is_some() => {
                    counts.branches += place.warps;
                    counts.divergent_branches += place.divergent;
                }
                Op::Brx { .. } => {
                    counts.branches += place.warps;
                    counts.divergent_branches += place.divergent;
                }
                _ => {}
            }
        }
        counts
    }
}

/// Counts of one instruction of the source.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PlaceCounts {
    pub warps: u64,
    pub lanes: u64,
    pub divergent: u64,
    pub wavefronts: u64,
    pub ideal: u64,
    pub sectors: u64,
}

fn class(i: &Instruction) -> Class {
    let by_space = |space| match space {
        Space::Global => Class::Global,
        Space::Shared => Class::Shared,
        Space::Local => Class::Local,
        Space::Generic => Class::Generic,
        Space::Param | Space::Const => Class::Param,
    };
    match i.op {
        Op::Load { space, .. } | Op::Store { space, .. } | Op::Atom { space, .. } => {
            by_space(space)
        }
        Op::CopyAsync { .. } | Op::Matrix { .. } => Class::Shared,
        Op::Mma { .. } => Class::Matrix,
        Op::Bar { .. } | Op::BarWarp | Op::Shfl(_) | Op::Vote(_) | Op::Match { .. } => Class::Sync,
        Op::Redux(_) | Op::Elect | Op::ActiveMask | Op::MoveMatrix => Class::Sync,
        Op::CopyCommit | Op::CopyWait { .. } => Class::Sync,
        Op::Bra { .. } | Op::Brx { .. } | Op::Call { .. } | Op::Ret | Op::Exit => Class::Control,
        Op::Trap | Op::Nop | Op::Prefetch => Class::Control,
        Op::Selp | Op::Slct | Op::Mov | Op::Pack | Op::Unpack | Op::Cvt => Class::Move,
        Op::CvtPair | Op::CvtPack | Op::Cvta { .. } | Op::Isspacep(_) => Class::Move,
        _ if i.ty.is_float() => Class::Float,
        _ => Class::Integer,
    }
}

/// Returns the number of passes through shared memory that an access of the lanes `on` needs, and
/// the number that it would need without bank conflicts.
///
/// Half-warps are served one after another for accesses of 8 bytes, and quarter-warps for accesses
/// of 16 bytes.
pub(crate) fn wavefronts(addresses: &[u64; 32], on: u32, bytes: u64) -> (u64, u64) {
    let group = match bytes {
        0..=4 => 32,
        5..=8 => 16,
        _ => 8,
    };
    let words = bytes.div_ceil(4);
    let (mut passes, mut ideal) = (0, 0);
    for start in (0..32).step_by(group) {
        // Counts the distinct words of each bank in `depth`. `first` has one word of each bank, and
        // `more` has the other words with their banks.
        let mut first = [u64::MAX; 32];
        let mut depth = [0u8; 32];
        let mut more: [(u64, u8); 256] = [(0, 0); 256];
        let mut more_len = 0;
        for lane in (start..start + group).filter(|lane| on >> lane & 1 == 1) {
            for word in addresses[lane] / 4..addresses[lane] / 4 + words {
                let bank = (word % 32) as usize;
                if first[bank] == word {
                    continue;
                }
                if first[bank] == u64::MAX {
                    first[bank] = word;
                    depth[bank] = 1;
                } else if more_len < more.len() && !more[..more_len].iter().any(|it| it.0 == word) {
                    more[more_len] = (word, bank as u8);
                    more_len += 1;
                    depth[bank] += 1;
                }
            }
        }
        let most = depth.iter().copied().max().unwrap_or(0);
        passes += u64::from(most);
        ideal += u64::from(most > 0);
    }
    (passes, ideal)
}

/// Returns the number of distinct 32-byte sectors that an access of some lanes touches.
pub(crate) fn sectors(addresses: &[u64; 32], on: u32, bytes: u64) -> u64 {
    let mut found = [u64::MAX; 64];
    let mut count = 0;
    let mut last = u64::MAX;
    for lane in (0..32).filter(|lane| on >> lane & 1 == 1) {
        for sector in [addresses[lane] / 32, (addresses[lane] + bytes - 1) / 32] {
            if sector != last && !found[..count].contains(&sector) {
                found[count] = sector;
                count += 1;
            }
            last = sector;
        }
    }
    count as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bank_conflicts_are_counted() {
        let lanes = |f: fn(u64) -> u64| std::array::from_fn(|lane| f(lane as u64));
        assert_eq!(wavefronts(&lanes(|lane| 4 * lane), u32::MAX, 4), (1, 1));
        assert_eq!(wavefronts(&lanes(|_| 64), u32::MAX, 4), (1, 1));
        assert_eq!(wavefronts(&lanes(|lane| 8 * lane), u32::MAX, 4), (2, 1));
        assert_eq!(wavefronts(&lanes(|lane| 128 * lane), u32::MAX, 4), (32, 1));
        assert_eq!(wavefronts(&lanes(|lane| 16 * lane), u32::MAX, 16), (4, 4));
        assert_eq!(wavefronts(&lanes(|lane| 128 * lane), 0b101, 4), (2, 1));
    }

    #[test]
    fn sectors_are_counted_once() {
        let lanes = |f: fn(u64) -> u64| std::array::from_fn(|lane| f(lane as u64));
        assert_eq!(sectors(&lanes(|lane| 4 * lane), u32::MAX, 4), 4);
        assert_eq!(sectors(&lanes(|lane| 4 * lane + 16), u32::MAX, 4), 5);
        assert_eq!(sectors(&lanes(|lane| 64 * (lane % 2)), u32::MAX, 4), 2);
        assert_eq!(sectors(&lanes(|lane| 32 * lane), 0, 4), 0);
    }
}
