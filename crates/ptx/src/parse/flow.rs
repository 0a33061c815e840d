//! Reconvergence points: immediate post-dominators of branches.

use crate::isa::{NO_JOIN, Op};
use crate::module::Module;

/// Sets the joins of the branches of a function. The function starts at instruction `start` and is
/// the last one of the module.
///
/// Post-dominators are found by iteration over the reversed graph of basic blocks (Cooper, Harvey
/// and Kennedy, "A Simple, Fast Dominance Algorithm", 2001).
pub(super) fn find_joins(module: &mut Module, start: usize) {
    let graph = Graph::of(module, start);
    let dominators = graph.post_dominators();
    for (at, instruction) in module.instructions[start..].iter_mut().enumerate() {
        let branches = matches!(instruction.op, Op::Bra { .. } | Op::Brx { .. });
        if branches && (instruction.guard.is_some() || matches!(instruction.op, Op::Brx { .. })) {
            let join = dominators[graph.block_of[at]];
            instruction.join = match join {
                Some(block) if block < graph.exit() => (start + graph.starts[block]) as u32,
                _ => NO_JOIN,
            };
        }
    }
}

/// Graph of basic blocks. The last node is the function's end.
struct Graph {
    /// First instruction of each block, relative to the function.
    starts: Vec<usize>,
    /// Block of each instruction.
    block_of: Vec<usize>,
    successors: Vec<Vec<usize>>,
}

impl Graph {
    fn of(module: &Module, start: usize) -> Self {
        let code = &module.instructions[start..];
        let targets = |op: Op| -> Vec<usize> {
            match op {
                Op::Bra { target } => vec![target as usize - start],
                Op::Brx { table } => {
                    module.tables[table as usize].iter().map(|it| *it as usize - start).collect()
                }
                _ => Vec::new(),
            }
        };
        let ends =
            |op: Op| matches!(op, Op::Bra { .. } | Op::Brx { .. } | Op::Ret | Op::Exit | Op::Trap);
        let mut leads = vec![false; code.len() + 1];
        leads[0] = true;
        for (at, instruction) in code.iter().enumerate() {
            for target in targets(instruction.op) {
                leads[target] = true;
            }
            leads[at + 1] |= ends(instruction.op);
        }
        let starts: Vec<usize> = (0..code.len()).filter(|at| leads[*at]).collect();
        let mut block_of = Vec::with_capacity(code.len());
        for leads in &leads[..code.len()] {
            block_of.push(block_of.last().map_or(0, |last| last + usize::from(*leads)));
        }
        let exit = starts.len();
        let successors = (0..exit).map(|block| {
            let end = starts.get(block + 1).copied().unwrap_or(code.len());
            let last = &code[end - 1];
            let mut next: Vec<usize> =
                targets(last.op).into_iter().map(|target| block_of[target]).collect();
            if matches!(last.op, Op::Ret | Op::Exit | Op::Trap) {
                next.push(exit);
            }
            let goes_on = last.guard.is_some() || !ends(last.op);
            if goes_on {
                next.push(if end < code.len() { block_of[end] } else { exit });
            }
            next
        });
        let successors = successors.collect();
        Self { starts, block_of, successors }
    }

    fn exit(&self) -> usize {
        self.starts.len()
    }

    /// Returns the immediate post-dominator of each block, or `None` if the block never reaches the
    /// function's end.
    fn post_dominators(&self) -> Vec<Option<usize>> {
        let exit = self.exit();
        let mut predecessors = vec![Vec::new(); exit + 1];
        for (block, successors) in self.successors.iter().enumerate() {
            for successor in successors {
                predecessors[*successor].push(block);
            }
        }
        // Number the nodes in postorder of the reversed graph, starting at the exit. The exit has
        // the highest number.
        let mut number = vec![usize::MAX; exit + 1];
        let mut order = Vec::new();
        let mut seen = vec![false; exit + 1];
        let mut stack = vec![(exit, 0)];
        seen[exit] = true;
        while let Some((block, next)) = stack.last_mut() {
            if let Some(before) = predecessors[*block].get(*next) {
                *next += 1;
                if !seen[*before] {
                    seen[*before] = true;
                    stack.push((*before, 0));
                }
            } else {
                number[*block] = order.len();
                order.push(*block);
                stack.pop();
            }
        }
        let mut dominators: Vec<Option<usize>> = vec![None; exit + 1];
        dominators[exit] = Some(exit);
        let mut changed = true;
        while changed {
            changed = false;
            for block in order.iter().rev().copied().filter(|it| *it != exit) {
                let mut found: Option<usize> = None;
                for successor in &self.successors[block] {
                    if dominators[*successor].is_none() {
                        continue;
                    }
                    found = Some(match found {
                        None => *successor,
                        Some(other) => {
                            let (mut a, mut b) = (*successor, other);
                            while a != b {
                                while number[a] < number[b] {
                                    a = dominators[a].unwrap_or(exit);
                                }
                                while number[b] < number[a] {
                                    b = dominators[b].unwrap_or(exit);
                                }
                            }
                            a
                        }
                    });
                }
                if found.is_some() && dominators[block] != found {
                    dominators[block] = found;
                    changed = true;
                }
            }
        }
        dominators.truncate(exit);
        dominators
    }
}
