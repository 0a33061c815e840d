//! Lanes of a warp, in groups that run together, and the points where groups join again.

use super::lane_memory::LaneMemory;
use super::registers::{Frame, Ids};
use crate::isa::NO_JOIN;
use crate::module::{Function, Module};

/// Number that means no join: the lanes run to the end of the kernel.
pub(super) const NONE: u32 = u32::MAX;

/// Up to 32 threads that execute instructions together.
#[derive(Debug)]
pub(crate) struct Warp {
    pub ids: Ids,
    /// Lanes that have not exited.
    pub live: u32,
    /// Groups of lanes. They may run in any order.
    pub splits: Vec<Split>,
    joins: Vec<Join>,
    free_joins: Vec<u32>,
    frames: Vec<Option<Frame>>,
    pub local: LaneMemory,
    /// Groups of issued asynchronous copies. The last group is not committed yet.
    pub copies: Vec<Vec<Copy>>,
    pub fill: u64,
}

/// Lanes that are at the same instruction.
#[derive(Clone, Debug)]
pub(crate) struct Split {
    pub pc: u32,
    pub lanes: u32,
    /// Join (see `Join`) at which the lanes wait for other lanes.
    pub join: u32,
    /// Instruction of the join at which the lanes wait, or [`NO_JOIN`] if that join is after a
    /// call.
    pub stop: u32,
    pub frame: u32,
    pub wait: Wait,
}

/// Reason why a split (a group of lanes) waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    No,
    Barrier(u8),
    /// Waits at a `bar.warp.sync` of these lanes.
    Lanes(u32),
}

/// Point where lanes join again: the instruction that post-dominates a branch, or the instruction
/// after a call.
#[derive(Clone, Debug)]
struct Join {
    /// Lanes that must arrive before the join is complete.
    lanes: u32,
    arrived: u32,
    pc: u32,
    frame: u32,
    outer: u32,
    /// If the join is after a call: the index of the call, and the index of the called frame.
    call: Option<(u32, u32)>,
}

/// Asynchronous copy of one lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copy {
    pub lane: u8,
    pub shared: u64,
    pub global: u64,
    pub bytes: u8,
    /// Number of bytes that are read from the source. The rest of the target is filled with zeros.
    pub from: u8,
    pub pc: u32,
}

impl Warp {
    pub fn new(ids: Ids, live: u32, function: (u32, &Function), fill: u64) -> Self {
        let frame = Frame::new(function.0, function.1, true, 0, fill);
        let pc = function.1.start;
        let split = Split { pc, lanes: live, join: NONE, stop: NO_JOIN, frame: 0, wait: Wait::No };
        Self {
            ids,
            live,
            splits: vec![split],
            joins: Vec::new(),
            free_joins: Vec::new(),
            frames: vec![Some(frame)],
            local: LaneMemory::new(function.1.local_bytes, fill),
            copies: vec![Vec::new()],
            fill,
        }
    }

    #[inline]
    pub fn frame(&mut self, at: u32) -> &mut Frame {
        self.frames[at as usize].as_mut().expect("a frame is kept as long as a split uses it")
    }

    /// Returns the frame and the special registers, which are separate parts of the warp.
    #[inline]
    pub fn frame_and_ids(&mut self, at: u32) -> (&mut Frame, &Ids) {
        let frame = self.frames[at as usize].as_mut();
        (frame.expect("a frame is kept as long as a split uses it"), &self.ids)
    }

    /// Splits the lanes at a branch. Each group is a mask of lanes with the index of their next
    /// instruction.
    pub fn diverge(&mut self, at: usize, groups: &[(u32, u32)], join_pc: u32) {
        let split = self.splits.remove(at);
        let (mut join, mut stop) = (split.join, split.stop);
        if join_pc != NO_JOIN && stop != join_pc {
            let (lanes, frame, outer) = (split.lanes, split.frame, split.join);
            let inner = Join { lanes, arrived: 0, pc: join_pc, frame, outer, call: None };
            (join, stop) = (self.add_join(inner), join_pc);
        }
        for (lanes, pc) in groups {
            self.splits.push(Split { pc: *pc, lanes: *lanes, join, stop, ..split.clone() });
        }
    }

    /// Records that the lanes of a split have reached their join.
    pub fn arrive(&mut self, at: usize) {
        let split = self.splits.remove(at);
        self.joins[split.join as usize].arrived |= split.lanes;
        self.complete(split.join);
    }

    /// Enters a function.
    pub fn call(&mut self, at: usize, call: u32, module: &Module) {
        let operands = &module.calls[call as usize];
        let function = &module.functions[operands.function as usize];
        let split = self.splits[at].clone();
        let caller = self.frames[split.frame as usize].as_ref().expect("the caller's frame");
        let above = &module.functions[caller.function as usize];
        let base = (caller.local_base + above.local_bytes).next_multiple_of(16);
        let mut frame = Frame::new(operands.function, function, false, base, self.fill);
        for (argument, parameter) in operands.arguments.iter().zip(&function.parameters) {
            let bytes = argument.bytes.min(parameter.bytes);
            for lane in (0..32).filter(|lane| split.lanes >> lane & 1 == 1) {
                frame.params.copy(lane, parameter.offset, &caller.params, argument.offset, bytes);
            }
        }
        self.local.grow(base + function.local_bytes, self.fill);
        self.local.forget(split.lanes, base, base + function.local_bytes);
        let free = self.frames.iter().position(Option::is_none).unwrap_or_else(|| {
            self.frames.push(None);
            self.frames.len() - 1
        });
        self.frames[free] = Some(frame);
        let join = self.add_join(Join {
            lanes: split.lanes,
            arrived: 0,
            pc: split.pc + 1,
            frame: split.frame,
            outer: split.join,
            call: Some((call, free as u32)),
        });
        self.splits[at] =
            Split { pc: function.start, join, stop: NO_JOIN, frame: free as u32, ..split };
    }

    /// Lets lanes of a split return from their function, or exit from the kernel. The other lanes
    /// continue.
    pub fn leave(&mut self, at: usize, lanes: u32, exits: bool, module: &Module) {
        let split = &mut self.splits[at];
        split.lanes &= !lanes;
        split.pc += 1;
        let mut join = split.join;
        let callee = split.frame;
        if split.lanes == 0 {
            self.splits.remove(at);
        }
        // The lanes leave the function, so the joins inside the function no longer expect them.
        let mut passed = Vec::new();
        while join != NONE && (exits || self.joins[join as usize].call.is_none()) {
            self.joins[join as usize].lanes &= !lanes;
            passed.push(join);
            join = self.joins[join as usize].outer;
        }
        if join == NONE {
            self.live &= !lanes;
        } else {
            let Join { frame, call, .. } = self.joins[join as usize];
            let (call, _) = call.expect("a join of a call");
            self.copy_results(callee, frame, call, lanes, module);
            self.joins[join as usize].arrived |= lanes;
            passed.push(join);
        }
        for join in passed {
            self.complete(join);
        }
    }

    fn copy_results(&mut self, callee: u32, caller: u32, call: u32, lanes: u32, module: &Module) {
        let operands = &module.calls[call as usize];
        let function = &module.functions[operands.function as usize];
        let Ok([Some(from), Some(to)]) =
            self.frames.get_disjoint_mut([callee as usize, caller as usize])
        else {
            unreachable!("a function and its caller have different frames");
        };
        for (result, slot) in function.results.iter().zip(&operands.results) {
            let bytes = result.bytes.min(slot.bytes);
            for lane in (0..32).filter(|lane| lanes >> lane & 1 == 1) {
                to.params.copy(lane, slot.offset, &from.params, result.offset, bytes);
            }
        }
    }

    /// Lets the lanes of a join continue if all have arrived.
    fn complete(&mut self, at: u32) {
        let join = &self.joins[at as usize];
        if join.arrived != join.lanes {
            return;
        }
        let join = join.clone();
        if let Some((_, callee)) = join.call {
            self.frames[callee as usize] = None;
        }
        self.free_joins.push(at);
        // A free join must not complete again, so `arrived` must differ from `lanes`.
        self.joins[at as usize].lanes = 0;
        self.joins[at as usize].arrived = u32::MAX;
        if join.lanes == 0 {
            return;
        }
        let outer = self.joins.get(join.outer as usize);
        let stop = outer.filter(|it| it.call.is_none()).map_or(NO_JOIN, |it| it.pc);
        self.splits.push(Split {
            pc: join.pc,
            lanes: join.lanes,
            join: join.outer,
            stop,
            frame: join.frame,
            wait: Wait::No,
        });
    }

    fn add_join(&mut self, join: Join) -> u32 {
        if let Some(free) = self.free_joins.pop() {
            self.joins[free as usize] = join;
            return free;
        }
        self.joins.push(join);
        self.joins.len() as u32 - 1
    }

    /// Lets lanes continue if all lanes of their `bar.warp.sync` have reached it. Returns the masks
    /// of these instructions.
    pub fn release_lanes(&mut self) -> Vec<u32> {
        let mut released = Vec::new();
        for at in 0..self.splits.len() {
            let Wait::Lanes(mask) = self.splits[at].wait else { continue };
            let same = |it: &&Split| it.wait == Wait::Lanes(mask);
            let waiting = self.splits.iter().filter(same).fold(0, |all, it| all | it.lanes);
            if waiting & mask == mask & self.live {
                for split in self.splits.iter_mut().filter(|it| it.wait == Wait::Lanes(mask)) {
                    split.wait = Wait::No;
                }
                released.push(mask);
            }
        }
        released
    }

    /// Whether some lanes can continue.
    pub fn is_ready(&self) -> bool {
        self.splits.iter().any(|it| it.wait == Wait::No)
    }
}
