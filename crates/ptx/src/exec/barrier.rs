//! Barriers of a block and of a warp.

use super::Machine;
use super::block::{BarrierState, Block};
use super::registers::Lanes;
use super::step::{At, registers};
use super::warp::Wait;
use crate::fault::FaultKind;
use crate::isa::{Barrier, Instruction, Op, Operand};

impl Machine<'_> {
    /// Records that a group of lanes arrives at a block barrier. Returns whether the lanes wait.
    pub(super) fn barrier(
        &mut self,
        block: &mut Block,
        at: At,
        i: &Instruction,
        kind: Barrier,
        aligned: bool,
    ) -> bool {
        let (numbers, counts, holds) = self.read(block, at, |r| {
            let numbers: Lanes<u32> = r.get(i.src[0]);
            let counts: Lanes<u32> = r.get(i.src[1]);
            let holds = if i.src[2] == Operand::None { 0 } else { r.get_mask(i.src[2]) };
            (numbers, counts, holds & at.on)
        });
        let lane = at.on.trailing_zeros() as usize;
        let (number, count) = (numbers[lane], counts[lane]);
        if number >= 16 {
            self.fault(block, at, FaultKind::Operand, Some(lane as u32), || {
                format!("barrier {number} of 16")
            });
            return false;
        }
        let live = block.warps[at.warp].live;
        if aligned && at.on != live {
            self.fault(block, at, FaultKind::DivergentBarrier, None, || {
                format!(
                    "of the warp's lanes {live:#010x}, only the lanes {:#010x} are at barrier \
                     {number}",
                    at.on
                )
            });
        }
        let expected = (i.src[1] != Operand::None).then_some(count);
        let state = &mut block.barriers[number as usize];
        let (before, other) = (state.arrived, state.pc);
        if before == 0 {
            state.pc = at.pc;
            state.expected = expected;
        }
        // An aligned barrier with a count counts whole warps (PTX ISA, `barrier`).
        state.arrived += if aligned && expected.is_some() { 32 } else { at.on.count_ones() };
        state.holds += holds.count_ones();
        block.clocks.arrive(at.warp, &mut state.clock);
        let elsewhere =
            before > 0 && other != at.pc && (expected.is_none() || state.expected != expected);
        if elsewhere && !state.reported {
            state.reported = true;
            let line = self.module.instructions[other as usize].line;
            self.fault(block, at, FaultKind::DivergentBarrier, None, || {
                format!(
                    "threads wait for barrier {number} at two different instructions: at this one, \
                     and at the one in PTX line {line}"
                )
            });
        }
        if kind == Barrier::Arrive {
            block.clocks.pass(at.warp);
            return false;
        }
        wait(block, at, Wait::Barrier(number as u8));
        true
    }

    /// Opens each barrier that all its threads have reached.
    pub(super) fn check_barriers(&mut self, block: &mut Block) {
        if block.barriers.iter().all(|it| it.arrived == 0) {
            return;
        }
        let live = block.live();
        for number in 0..16 {
            let state = &block.barriers[number];
            if state.arrived == 0 || state.arrived < state.expected.unwrap_or(live) {
                continue;
            }
            if state.expected.is_none() && live < block.threads {
                let at = At { warp: 0, split: 0, frame: 0, pc: state.pc, on: 0 };
                let threads = block.threads;
                self.fault(block, at, FaultKind::DivergentBarrier, None, || {
                    format!(
                        "{live} of {threads} threads are at barrier {number}; the other threads \
                         have exited"
                    )
                });
            }
            self.open(block, number);
        }
    }

    fn open(&mut self, block: &mut Block, number: usize) {
        let state = std::mem::take(&mut block.barriers[number]);
        for warp in 0..block.warps.len() {
            let mut waited = false;
            for split in 0..block.warps[warp].splits.len() {
                let own = &mut block.warps[warp].splits[split];
                if own.wait != Wait::Barrier(number as u8) {
                    continue;
                }
                own.wait = Wait::No;
                waited = true;
                let at = At { warp, split, frame: own.frame, pc: own.pc - 1, on: own.lanes };
                self.give_result(block, at, &state);
            }
            if waited {
                block.clocks.leave(warp, &state.clock);
            }
        }
    }

    /// Writes the result of a barrier that combines a predicate of all its threads.
    fn give_result(&mut self, block: &mut Block, at: At, state: &BarrierState) {
        let i = &self.module.instructions[at.pc as usize];
        let Op::Bar { kind, .. } = i.op else { return };
        let mut r = registers(block, at);
        let mask = |holds: bool| if holds { u32::MAX } else { 0 };
        match kind {
            Barrier::Count => r.set(i.dst, &[state.holds; 32]),
            Barrier::All => r.set_mask(i.dst, mask(state.holds == state.arrived)),
            Barrier::Any => r.set_mask(i.dst, mask(state.holds > 0)),
            Barrier::Wait | Barrier::Arrive => {}
        }
    }

    /// Executes `bar.warp.sync`. Returns whether the lanes wait for other lanes.
    pub(super) fn lane_barrier(&mut self, block: &mut Block, at: At, i: &Instruction) -> bool {
        let masks: Lanes<u32> = self.read(block, at, |r| r.get(i.src[0]));
        let lane = at.on.trailing_zeros() as usize;
        let mask = masks[lane];
        if at.on & !mask != 0 {
            self.fault(block, at, FaultKind::IncompleteWarp, Some(lane as u32), || {
                format!(
                    "the lanes {:#010x} execute this instruction, but not all of these lanes are \
                     in the instruction's mask {mask:#010x}",
                    at.on
                )
            });
        }
        let live = block.warps[at.warp].live;
        if mask & live & !at.on == 0 {
            block.clocks.sync_lanes(at.warp, mask & live, mask & live == live);
            return false;
        }
        wait(block, at, Wait::Lanes(mask));
        true
    }

    /// If all lanes of a `bar.warp.sync` have arrived, lets these lanes continue.
    pub(super) fn release_lanes(&mut self, block: &mut Block, warp: usize) {
        if block.warps[warp].splits.iter().all(|it| !matches!(it.wait, Wait::Lanes(_))) {
            return;
        }
        for mask in block.warps[warp].release_lanes() {
            let live = block.warps[warp].live;
            block.clocks.sync_lanes(warp, mask & live, mask & live == live);
        }
    }

    /// Handles a deadlock, in which all threads wait. Reports what they wait for, and lets them
    /// continue.
    pub(super) fn break_deadlock(&mut self, block: &mut Block) {
        for warp in 0..block.warps.len() {
            for split in 0..block.warps[warp].splits.len() {
                let own = block.warps[warp].splits[split].clone();
                let at = At { warp, split, frame: own.frame, pc: own.pc - 1, on: own.lanes };
                let lanes = own.lanes;
                match own.wait {
                    Wait::No => continue,
                    Wait::Barrier(number) => {
                        let arrived = block.barriers[number as usize].arrived;
                        self.fault(block, at, FaultKind::DivergentBarrier, None, || {
                            format!("{arrived} threads wait forever at barrier {number}")
                        });
                        let state = block.barriers[number as usize].clone();
                        self.give_result(block, at, &state);
                    }
                    Wait::Lanes(mask) => {
                        self.fault(block, at, FaultKind::IncompleteWarp, None, || {
                            format!("lanes {lanes:#010x} wait forever for lanes {mask:#010x}")
                        });
                    }
                }
                block.warps[warp].splits[split].wait = Wait::No;
            }
        }
        for state in &mut block.barriers {
            *state = BarrierState::default();
        }
    }
}

/// Makes lanes wait. Lanes of the same group whose guard is false continue with the next
/// instruction.
fn wait(block: &mut Block, at: At, wait: Wait) {
    let own = &mut block.warps[at.warp];
    let split = &mut own.splits[at.split];
    let rest = split.lanes & !at.on;
    if rest == 0 {
        split.wait = wait;
        return;
    }
    let next = split.pc;
    own.diverge(at.split, &[(rest, next), (at.on, next)], next);
    own.splits.last_mut().expect("just added").wait = wait;
}
