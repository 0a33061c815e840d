//! Execution of the instructions of a warp, one after another.

use super::block::Block;
use super::registers::{Lanes, Registers};
use super::warp::Wait;
use super::{Machine, bits, floats, integer, moves};
use crate::fault::{FaultKind, FaultLocation};
use crate::isa::{Guard, Instruction, Op, Operand, Register};
use crate::launch::Schedule;

/// Reason why a group of lanes stops.
enum Stop {
    /// The warp's groups of lanes have changed. Another group may run.
    Changed,
    /// Another warp must run.
    Yield,
}

/// Position of an executed instruction: the warp in its block, the group of lanes and its frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct At {
    pub warp: usize,
    pub split: usize,
    pub frame: u32,
    pub pc: u32,
    /// Lanes in which the instruction takes effect.
    pub on: u32,
}

impl Machine<'_> {
    /// Runs a warp until it waits, exits or must yield.
    pub(super) fn run_warp(&mut self, block: &mut Block, warp: usize) {
        while self.remaining > 0 {
            let splits = &block.warps[warp].splits;
            let ready = |at: &usize| splits[*at].wait == Wait::No;
            let next = match self.options.schedule {
                Schedule::Random(_) if splits.len() > 1 => {
                    let start = self.random.below(splits.len());
                    (start..splits.len()).chain(0..start).find(ready)
                }
                Schedule::Reverse => (0..splits.len()).find(ready),
                _ => (0..splits.len()).rev().find(ready),
            };
            let Some(next) = next else { return };
            if let Stop::Yield = self.run_split(block, warp, next) {
                return;
            }
            self.release_lanes(block, warp);
        }
    }

    fn run_split(&mut self, block: &mut Block, warp: usize, split: usize) -> Stop {
        let module = self.module;
        let state = &block.warps[warp].splits[split];
        let (mut pc, lanes, stop, frame) = (state.pc, state.lanes, state.stop, state.frame);
        loop {
            if pc == stop {
                block.warps[warp].arrive(split);
                return Stop::Changed;
            }
            let i = &module.instructions[pc as usize];
            if self.remaining == 0 {
                block.warps[warp].splits[split].pc = pc;
                return Stop::Yield;
            }
            self.remaining -= 1;
            if self.options.skip_line == Some(i.line) {
                pc += 1;
                continue;
            }
            let own = &mut block.warps[warp];
            own.ids.clock += 1;
            let on = match i.guard {
                None => lanes,
                Some(guard) => self.guard(block, At { warp, split, frame, pc, on: lanes }, guard),
            };
            let place = &mut self.places[pc as usize];
            place.warps += 1;
            place.lanes += u64::from(on.count_ones());
            if on == 0 {
                pc += 1;
                continue;
            }
            let at = At { warp, split, frame, pc, on };
            match i.op {
                Op::Bra { target } => {
                    if on == lanes {
                        pc = target;
                        continue;
                    }
                    place.divergent += 1;
                    let groups = [(lanes & !on, pc + 1), (on, target)];
                    block.warps[warp].diverge(split, &groups, i.join);
                    return Stop::Changed;
                }
                Op::Brx { table } => {
                    self.indexed_branch(block, at, i, table);
                    return Stop::Changed;
                }
                Op::Call { call } => {
                    let own = &mut block.warps[warp];
                    own.splits[split].pc = pc;
                    if on != lanes {
                        own.diverge(split, &[(lanes & !on, pc + 1), (on, pc)], pc + 1);
                    } else {
                        own.call(split, call, module);
                    }
                    return Stop::Changed;
                }
                Op::Ret | Op::Exit | Op::Trap => {
                    if i.op == Op::Trap {
                        self.fault(block, at, FaultKind::Trap, Some(on.trailing_zeros()), || {
                            format!("trap in lanes {on:#010x}")
                        });
                    }
                    let own = &mut block.warps[warp];
                    own.splits[split].pc = pc;
                    own.leave(split, on, i.op != Op::Ret, module);
                    return Stop::Changed;
                }
                Op::Bar { kind, aligned } => {
                    block.warps[warp].splits[split].pc = pc + 1;
                    if self.barrier(block, at, i, kind, aligned) {
                        return Stop::Changed;
                    }
                    pc += 1;
                    if self.switches() {
                        return Stop::Yield;
                    }
                    continue;
                }
                Op::BarWarp => {
                    block.warps[warp].splits[split].pc = pc + 1;
                    if self.lane_barrier(block, at, i) {
                        return Stop::Changed;
                    }
                }
                Op::Load { .. } | Op::Store { .. } | Op::Atom { .. } => {
                    match i.op {
                        Op::Load { .. } => self.load(block, at, i),
                        Op::Store { .. } => self.store(block, at, i),
                        _ => self.atomic(block, at, i),
                    }
                    if self.switches() {
                        block.warps[warp].splits[split].pc = pc + 1;
                        return Stop::Yield;
                    }
                }
                Op::CopyAsync { .. } | Op::CopyCommit | Op::CopyWait { .. } => {
                    self.copy(block, at, i);
                }
                Op::Mma { .. } | Op::Matrix { .. } | Op::MoveMatrix => self.matrix(block, at, i),
                Op::Shfl(_) | Op::Vote(_) | Op::Match { .. } | Op::Redux(_) | Op::Elect => {
                    self.exchange(block, at, i);
                }
                Op::Prefetch | Op::Nop => {}
                _ => self.compute(block, at, i, lanes),
            }
            pc += 1;
        }
    }

    /// Returns the lanes in which a guard is true.
    fn guard(&mut self, block: &mut Block, at: At, guard: Guard) -> u32 {
        let (mask, missing) = {
            let mut r = registers(block, at);
            let mask = r.get_mask(Operand::Register(Register::Pred(guard.register)));
            (mask, r.missing)
        };
        if missing != 0 {
            self.unwritten_register(block, at, missing);
        }
        at.on & if guard.negated { !mask } else { mask }
    }

    /// Executes instructions that access only registers.
    fn compute(&mut self, block: &mut Block, at: At, i: &Instruction, lanes: u32) {
        let mut r = registers(block, at);
        let mut zeros = 0;
        match i.op {
            Op::And | Op::Or | Op::Xor | Op::Not | Op::Cnot | Op::Shl | Op::Shr => {
                bits::execute(&mut r, i);
            }
            Op::Shf { .. } | Op::Prmt(_) | Op::Lop3 | Op::Bfe | Op::Bfi | Op::Bfind { .. } => {
                bits::execute(&mut r, i);
            }
            Op::Bmsk { .. } | Op::Szext { .. } | Op::Popc | Op::Clz | Op::Brev | Op::Dp4a => {
                bits::execute(&mut r, i);
            }
            Op::Dp2a { .. } => bits::execute(&mut r, i),
            Op::Setp { .. } | Op::Set { .. } | Op::Selp | Op::Slct | Op::Mov | Op::Pack => {
                moves::execute(&mut r, i);
            }
            Op::Unpack | Op::Cvt | Op::CvtPair | Op::CvtPack | Op::Cvta { .. } => {
                moves::execute(&mut r, i);
            }
            Op::Isspacep(_) => moves::execute(&mut r, i),
            Op::ActiveMask => r.set(i.dst, &[lanes; 32]),
            _ if i.ty.is_float() => floats::execute(&mut r, i),
            _ => zeros = integer::execute(&mut r, i),
        }
        let missing = r.missing;
        if missing != 0 {
            self.unwritten_register(block, at, missing);
        }
        if zeros != 0 {
            let lane = zeros.trailing_zeros();
            self.fault(block, at, FaultKind::DivisionByZero, Some(lane), || {
                format!("an integer is divided by zero in the lanes {zeros:#010x}")
            });
        }
    }

    /// Executes `brx.idx`: lanes continue at the targets that they select.
    fn indexed_branch(&mut self, block: &mut Block, at: At, i: &Instruction, table: u32) {
        let indices: Lanes<u32> = self.read(block, at, |r| r.get(i.src[0]));
        let targets = &self.module.tables[table as usize];
        let own = &mut block.warps[at.warp];
        let lanes = own.splits[at.split].lanes;
        let mut groups: Vec<(u32, u32)> = Vec::new();
        let mut add = |lane: usize, pc: u32| match groups.iter_mut().find(|it| it.1 == pc) {
            Some(group) => group.0 |= 1 << lane,
            None => groups.push((1 << lane, pc)),
        };
        let mut bad = None;
        for lane in (0..32).filter(|lane| lanes >> lane & 1 == 1) {
            if at.on >> lane & 1 == 0 {
                add(lane, at.pc + 1);
            } else if let Some(target) = targets.get(indices[lane] as usize) {
                add(lane, *target);
            } else {
                bad = Some((lane, indices[lane]));
                add(lane, targets.last().copied().unwrap_or(at.pc + 1));
            }
        }
        self.places[at.pc as usize].divergent += u64::from(groups.len() > 1);
        own.diverge(at.split, &groups, i.join);
        if let Some((lane, index)) = bad {
            self.fault(block, at, FaultKind::Operand, Some(lane as u32), || {
                format!("a branch has index {index}, but its table has {} targets", targets.len())
            });
        }
    }

    /// Reads registers, and reports registers that were never written.
    #[inline(always)]
    pub(super) fn read<T>(
        &mut self,
        block: &mut Block,
        at: At,
        f: impl FnOnce(&mut Registers<'_>) -> T,
    ) -> T {
        let mut r = registers(block, at);
        let value = f(&mut r);
        let missing = r.missing;
        if missing != 0 {
            self.unwritten_register(block, at, missing);
        }
        value
    }

    #[inline(never)]
    fn unwritten_register(&mut self, block: &mut Block, at: At, missing: u32) {
        if !self.options.check_registers {
            return;
        }
        let i = &self.module.instructions[at.pc as usize];
        let frame = block.warps[at.warp].frame(at.frame);
        let register = frame.unwritten(i, at.on);
        let function = &self.module.functions[frame.function as usize];
        let name = register.map_or(String::new(), |it| function.register_name(it));
        self.fault(block, at, FaultKind::UnwrittenRegister, Some(missing.trailing_zeros()), || {
            format!(
                "register {name} is read in the lanes {missing:#010x}, where it was never written"
            )
        });
    }

    /// Records a fault of the current instruction.
    #[inline(never)]
    pub(super) fn fault(
        &mut self,
        block: &Block,
        at: At,
        kind: FaultKind,
        lane: Option<u32>,
        message: impl FnOnce() -> String,
    ) {
        let place = FaultLocation { block: block.at, warp: at.warp as u32, lane };
        self.faults.add(self.module, at.pc, kind, place, message);
    }

    /// Whether another warp runs after an access.
    fn switches(&mut self) -> bool {
        match self.options.schedule {
            Schedule::Switch => true,
            Schedule::Random(_) => self.random.next() & 7 == 0,
            _ => false,
        }
    }
}

/// Returns the registers of the current instruction.
#[inline(always)]
pub(super) fn registers(block: &mut Block, at: At) -> Registers<'_> {
    let (frame, ids) = block.warps[at.warp].frame_and_ids(at.frame);
    Registers { frame, ids, on: at.on, missing: 0 }
}
