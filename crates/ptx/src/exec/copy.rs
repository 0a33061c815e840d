//! Asynchronous copies from global to shared memory.
//!
//! A copy is executed when a thread waits for it, which is as late as a device may execute it.
//! Until then, every other access to the copy's target is a race.

use super::Machine;
use super::access::{LaneAccess, resolve};
use super::block::Block;
use super::registers::{Lanes, Registers};
use super::step::At;
use super::warp::Copy;
use crate::check::Stamp;
use crate::isa::{Instruction, Op, Operand, Register, Space};

impl Machine<'_> {
    pub(super) fn copy(&mut self, block: &mut Block, at: At, i: &Instruction) {
        match i.op {
            Op::CopyAsync { bytes } => self.start_copies(block, at, i, bytes),
            Op::CopyCommit => block.warps[at.warp].copies.push(Vec::new()),
            Op::CopyWait { pending } => {
                // The last group is still open (not committed), so only `wait_all` includes it.
                let groups = block.warps[at.warp].copies.len();
                let done = if pending == u32::MAX {
                    groups
                } else {
                    (groups - 1).saturating_sub(pending as usize)
                };
                for group in 0..done {
                    self.finish_copies(block, at, group);
                }
            }
            _ => unreachable!("called for copies"),
        }
    }

    fn start_copies(&mut self, block: &mut Block, at: At, i: &Instruction, bytes: u8) {
        let (to, from, sizes) = self.read(block, at, |r| {
            let to: Lanes<u64> = r.get(i.src[0]);
            let from: Lanes<u64> = r.get(i.src[1]);
            (to, from, source_bytes(r, i.src[2], bytes))
        });
        let to = to.map(|it| it.wrapping_add_signed(i.offset));
        let from = from.map(|it| it.wrapping_add_signed(i.offset2));
        for lane in (0..32).filter(|lane| at.on >> lane & 1 == 1) {
            let access = LaneAccess { lane, address: to[lane], bytes: bytes.into(), atomic: false };
            let size = block.shared.data.len() as u64;
            if !self.is_in_bounds(block, at, access, size, "shared") {
                continue;
            }
            // From now on until the copy is complete, no other access may write the target.
            self.shared_race(block, at, access, true);
            let me = block.clocks.stamp(at.warp, lane).pending();
            block.shared.shadow.access(to[lane], bytes.into(), me, true, |_| true);
            let copy = Copy {
                lane: lane as u8,
                shared: to[lane],
                global: from[lane],
                bytes,
                from: sizes[lane],
                pc: at.pc,
            };
            let groups = &mut block.warps[at.warp].copies;
            groups.last_mut().expect("an open group").push(copy);
        }
        self.count(at, Space::Global, &from, bytes.into());
    }

    /// Executes the copies of a group for the waiting lanes.
    fn finish_copies(&mut self, block: &mut Block, at: At, group: usize) {
        let copies = std::mem::take(&mut block.warps[at.warp].copies[group]);
        let (done, left): (Vec<Copy>, Vec<Copy>) =
            copies.into_iter().partition(|copy| at.on >> copy.lane & 1 == 1);
        block.warps[at.warp].copies[group] = left;
        for copy in done {
            let lane = copy.lane as usize;
            let mut data = [0; 16];
            let at = At { pc: copy.pc, ..at };
            if copy.from > 0 {
                let (space, address) = resolve(Space::Global, copy.global);
                let bytes = u64::from(copy.from);
                let access = LaneAccess { lane, address, bytes, atomic: false };
                self.load_lane(block, at, space, access, &mut data[..copy.from as usize]);
            }
            let bytes = copy.bytes as usize;
            let start = copy.shared as usize;
            block.shared.data[start..start + bytes].copy_from_slice(&data[..bytes]);
            block.shared.written.set(copy.shared, bytes as u64, true);
            let bytes = bytes as u64;
            let me: Stamp = block.clocks.stamp(at.warp, lane);
            block.shared.shadow.access(copy.shared, bytes, me, true, |_| true);
        }
    }
}

/// Returns the number of bytes that each lane reads from the source. `operand` is this number, or a
/// predicate that is true in lanes that read nothing.
fn source_bytes(r: &mut Registers<'_>, operand: Operand, bytes: u8) -> Lanes<u8> {
    if let Operand::Register(Register::Pred(_)) | Operand::Not(_) = operand {
        let ignored = r.get_mask(operand);
        return std::array::from_fn(|lane| if ignored >> lane & 1 == 1 { 0 } else { bytes });
    }
    let sizes: Lanes<u32> = r.get(operand);
    sizes.map(|it| it.min(bytes.into()) as u8)
}
