//! Exchange of values between the lanes of a warp.

use super::Machine;
use super::atomic::combine;
use super::block::Block;
use super::registers::Lanes;
use super::step::{At, registers};
use crate::fault::FaultKind;
use crate::isa::{Instruction, Op, Shuffle, Vote};

impl Machine<'_> {
    /// Executes `shfl`, `vote`, `match`, `redux` and `elect`.
    pub(super) fn exchange(&mut self, block: &mut Block, at: At, i: &Instruction) {
        let mask_operand = if let Op::Shfl(_) = i.op { i.src[3] } else { i.src[1] };
        let masks: Lanes<u32> = self.read(block, at, |r| r.get(mask_operand));
        let mask = masks[at.on.trailing_zeros() as usize];
        self.check_members(block, at, mask);
        match i.op {
            Op::Shfl(shuffle) => self.shuffle(block, at, i, shuffle, mask),
            Op::Vote(vote) => {
                let holds = self.read(block, at, |r| r.get_mask(i.src[0])) & at.on & mask;
                let members = at.on & mask;
                let (all, any) = (holds == members, holds != 0);
                let mut r = registers(block, at);
                let result = match vote {
                    Vote::Ballot => return r.set(i.dst, &[holds; 32]),
                    Vote::All => all,
                    Vote::Any => any,
                    Vote::Uniform => all || !any,
                };
                r.set_mask(i.dst, if result { u32::MAX } else { 0 });
            }
            Op::Match { all } => {
                let values: Lanes<u64> = self.read(block, at, |r| r.get(i.src[0]));
                let values = values.map(|it| i.ty.extend(it));
                let members = at.on & mask;
                let equal = |lane: usize| {
                    (0..32)
                        .filter(|other| members >> other & 1 == 1 && values[*other] == values[lane])
                        .fold(0u32, |found, other| found | 1 << other)
                };
                let mut r = registers(block, at);
                if all {
                    let same = equal(members.trailing_zeros() as usize % 32) == members;
                    r.set(i.dst, &[if same { members } else { 0 }; 32]);
                    r.set_mask(i.dst2, if same { u32::MAX } else { 0 });
                } else {
                    r.set(i.dst, &std::array::from_fn::<u32, 32, _>(equal));
                }
            }
            Op::Redux(reduce) => {
                let values: Lanes<u64> = self.read(block, at, |r| r.get(i.src[0]));
                let members = (0..32).filter(|lane| (at.on & mask) >> lane & 1 == 1);
                let values = members.map(|lane| values[lane]);
                let result = values.reduce(|a, b| combine(reduce, i.ty, a, b)).unwrap_or(0);
                registers(block, at).set(i.dst, &[result; 32]);
            }
            _ => {
                let leader = (at.on & mask).trailing_zeros() % 32;
                let mut r = registers(block, at);
                r.set(i.dst, &[leader; 32]);
                r.set_mask(i.dst2, 1 << leader);
            }
        }
    }

    /// Reports a fault unless the lanes that take part are exactly those lanes of the mask that
    /// have not exited.
    pub(super) fn check_members(&mut self, block: &Block, at: At, mask: u32) {
        let live = block.warps[at.warp].live;
        if at.on & !mask != 0 || mask & live & !at.on != 0 {
            self.fault(block, at, FaultKind::IncompleteWarp, None, || {
                format!(
                    "the lanes {:#010x} execute this instruction, but its mask is {mask:#010x}",
                    at.on
                )
            });
        }
    }

    /// Executes `shfl.sync`. One operand contains the clamp and the segment mask (PTX ISA,
    /// `shfl.sync`).
    fn shuffle(&mut self, block: &mut Block, at: At, i: &Instruction, kind: Shuffle, mask: u32) {
        let (values, steps, bounds) = self.read(block, at, |r| {
            let values: Lanes<u32> = r.get(i.src[0]);
            let steps: Lanes<u32> = r.get(i.src[1]);
            let bounds: Lanes<u32> = r.get(i.src[2]);
            (values, steps, bounds)
        });
        let mut inside = 0u32;
        let mut absent = None;
        let results: Lanes<u32> = std::array::from_fn(|lane| {
            let (own, step) = (lane as i32, (steps[lane] & 31) as i32);
            let (clamp, segment) = ((bounds[lane] & 31) as i32, (bounds[lane] >> 8 & 31) as i32);
            let last = own & segment | clamp & !segment;
            let first = own & segment;
            let (from, valid) = match kind {
                Shuffle::Up => (own - step, own - step >= last),
                Shuffle::Down => (own + step, own + step <= last),
                Shuffle::Butterfly => (own ^ step, own ^ step <= last),
                Shuffle::Index => (first | step & !segment, first | step & !segment <= last),
            };
            inside |= u32::from(valid) << lane;
            let from = if valid { from as usize } else { lane };
            let is_on = |lane: usize| at.on >> lane & 1 == 1;
            if is_on(lane) && (!is_on(from) || mask >> from & 1 == 0) {
                absent = absent.or(Some((lane, from)));
            }
            values[from]
        });
        let mut r = registers(block, at);
        r.set(i.dst, &results);
        r.set_mask(i.dst2, inside);
        if let Some((lane, from)) = absent {
            self.fault(block, at, FaultKind::IncompleteWarp, Some(lane as u32), || {
                format!("a lane reads from lane {from}, which does not execute this instruction")
            });
        }
    }
}
