//! Execution of a launch: blocks, warps and their order.

mod access;
mod atomic;
mod barrier;
mod bits;
mod block;
mod copy;
mod exchange;
mod floats;
mod integer;
mod lane_memory;
mod matrix;
mod moves;
mod registers;
mod step;
mod warp;
pub(crate) mod window;

use std::collections::VecDeque;

use crate::check::Shadow;
use crate::counts::{Counts, PlaceCounts};
use crate::error::{Error, Result};
use crate::fault::{FaultKind, FaultLocation, Faults};
use crate::launch::{Launch, Options, Outcome, Schedule};
use crate::memory::{Access, Contents, Memory, Range};
use crate::module::{Function, Module};
use crate::random::Random;
use block::Block;

impl Module {
    /// Runs a kernel.
    ///
    /// Faults do not end the launch. A load that fails returns zeros, and a store that fails has no
    /// effect.
    ///
    /// # Errors
    /// [`Error::NoKernel`] and [`Error::Shape`] for a launch that a driver would refuse.
    pub fn run(&self, memory: &mut Memory, launch: &Launch, options: &Options) -> Result<Outcome> {
        let function = self.kernel(&launch.kernel)?;
        check_shape(launch)?;
        for variable in &self.variables {
            let access = if variable.constant { Access::ReadOnly } else { Access::ReadWrite };
            let host = variable.buffer.range();
            memory.insert(Range::new(&variable.name, host, None, access, Contents::Written))?;
        }
        let shadows = memory
            .ranges()
            .iter()
            .map(|it| (it.access == Access::ReadWrite).then(|| Shadow::new(it.host.bytes())));
        let at = self.functions.iter().position(|it| std::ptr::eq(it, function));
        let mut machine = Machine {
            module: self,
            function: (at.unwrap_or_default() as u32, function),
            launch,
            options,
            shadows: shadows.collect(),
            memory,
            faults: Faults::new(&launch.kernel, options.max_faults),
            places: vec![PlaceCounts::default(); self.instructions.len()],
            random: Random::new(match options.schedule {
                Schedule::Random(seed) => seed,
                _ => 0,
            }),
            remaining: options.max_instructions,
            last_range: 0,
            longest_block: 0,
        };
        machine.run();
        let Machine { faults, places, longest_block, .. } = machine;
        for variable in &self.variables {
            memory.remove(variable.buffer.address());
        }
        Ok(Outcome {
            dropped_faults: faults.dropped,
            faults: faults.into_list(),
            counts: Counts::of(self, &places, longest_block),
        })
    }
}

fn check_shape(launch: &Launch) -> Result<()> {
    let limits = [("grid", launch.grid, [i32::MAX as u32, 65535, 65535], 1 << 24)]
        .into_iter()
        .chain([("block", launch.block, [1024, 1024, 64], 1024)]);
    for (name, shape, most, product) in limits {
        let inside = shape.iter().zip(most).all(|(count, most)| (1..=most).contains(count));
        if !inside || shape.iter().map(|it| u64::from(*it)).product::<u64>() > product {
            return Err(Error::Shape(format!(
                "a {name} of {shape:?} cannot be launched: a dimension is 0 or too large"
            )));
        }
    }
    Ok(())
}

/// State of a launch.
struct Machine<'a> {
    module: &'a Module,
    function: (u32, &'a Function),
    launch: &'a Launch,
    options: &'a Options,
    memory: &'a mut Memory,
    /// The last accesses, for the detection of races. There is one entry for each range of global
    /// memory, and `None` for ranges to which kernels may not write.
    shadows: Vec<Option<Shadow>>,
    faults: Faults,
    places: Vec<PlaceCounts>,
    random: Random,
    /// Number of instructions that may still be executed before the launch is ended.
    remaining: u64,
    /// Most recently accessed range of global memory.
    last_range: usize,
    /// Largest number of instructions that one block has executed.
    longest_block: u64,
}

impl Machine<'_> {
    fn run(&mut self) {
        let (declared, given) = (self.function.1.parameter_bytes, self.launch.params.len() as u64);
        if declared != given {
            let place = FaultLocation { block: [0; 3], warp: 0, lane: None };
            let message = || {
                format!(
                    "the launch gives {given} bytes of parameters, but the kernel declares \
                     {declared} bytes"
                )
            };
            let start = self.function.1.start;
            self.faults.add(self.module, start, FaultKind::Parameter, place, message);
        }
        let count: u32 = self.launch.grid.iter().product();
        let mut waiting: VecDeque<u32> = (0..count).collect();
        if self.options.schedule == Schedule::Reverse {
            waiting = waiting.into_iter().rev().collect();
        }
        if let Schedule::Random(_) = self.options.schedule {
            for at in (1..waiting.len()).rev() {
                waiting.swap(at, self.random.below(at + 1));
            }
        }
        let resident = match self.options.schedule {
            Schedule::Switch | Schedule::Random(_) => 4,
            _ => 1,
        };
        let mut blocks: Vec<Block> = Vec::new();
        let mut turn = 0;
        while self.remaining > 0 {
            while blocks.len() < resident
                && let Some(number) = waiting.pop_front()
            {
                let fill = Random::new(self.options.fill ^ u64::from(number) << 32).next();
                blocks.push(Block::new(number, self.module, self.function, self.launch, fill));
            }
            if blocks.is_empty() {
                return;
            }
            turn = match self.options.schedule {
                Schedule::Random(_) => self.random.below(blocks.len()),
                _ => (turn + 1) % blocks.len(),
            };
            let block = &mut blocks[turn];
            match self.next_warp(block) {
                Some(warp) => {
                    block.last = warp;
                    self.run_warp(block, warp);
                    self.check_barriers(block);
                }
                None if block.live() == 0 => {
                    self.longest_block = self.longest_block.max(block.instructions());
                    blocks.remove(turn);
                }
                None => self.break_deadlock(block),
            }
        }
        let place = FaultLocation { block: [0; 3], warp: 0, lane: None };
        let most = self.options.max_instructions;
        let message = || format!("more than {most} instructions");
        self.faults.add(self.module, self.function.1.start, FaultKind::Timeout, place, message);
    }

    /// Returns the warp that runs next, or `None` if all wait or have exited.
    fn next_warp(&mut self, block: &Block) -> Option<usize> {
        let count = block.warps.len();
        let ready = |at: &usize| block.warps[*at].is_ready();
        match self.options.schedule {
            Schedule::InOrder => (0..count).find(ready),
            Schedule::Reverse => (0..count).rev().find(ready),
            Schedule::RunAhead => (block.last..count).chain(0..block.last).find(ready),
            Schedule::Switch => (1..=count).map(|next| (block.last + next) % count).find(ready),
            Schedule::Random(_) => {
                let start = self.random.below(count);
                (0..count).map(|next| (start + next) % count).find(ready)
            }
        }
    }
}
