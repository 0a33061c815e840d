//! Launches under several schedules and with several contents of uninitialized memory. The results
//! of all these launches must be equal.

use crate::error::Result;
use crate::launch::{Launch, Options, Outcome, Schedule};
use crate::memory::{Access, Bitmap, Memory};
use crate::module::Module;
use crate::random::Random;

/// Results of launches that differ only in [`Options`].
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Outcome of each run.
    pub outcomes: Vec<Outcome>,
    /// First byte of global memory whose value after the first run differs from its value after
    /// another run.
    pub difference: Option<Difference>,
}

/// Byte that depends on the schedule or on uninitialized memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Name of the range.
    pub range: String,
    /// Offset of the byte in the range.
    pub offset: u64,
    /// Value of the byte after the first run. `None` if the run did not write the byte.
    pub first: Option<u8>,
    /// Value of the byte after the other run. `None` if the run did not write the byte.
    pub other: Option<u8>,
    /// Options of the other run.
    pub options: Options,
}

impl Options {
    /// Returns options that together use every schedule. Each of them has a different fill (content
    /// of uninitialized memory).
    pub fn every_schedule(seed: u64) -> Vec<Self> {
        let mut random = Random::new(seed);
        let schedules = [
            Schedule::InOrder,
            Schedule::Reverse,
            Schedule::RunAhead,
            Schedule::Switch,
            Schedule::Random(random.next()),
        ];
        let options = |schedule| Self { schedule, fill: random.next(), ..Self::default() };
        schedules.map(options).to_vec()
    }
}

impl Module {
    /// Runs a kernel once with each of the options, always from the same contents of memory, and
    /// compares the contents afterwards. Before each run, bytes of global memory that were never
    /// written get random values from the run's seed. Memory keeps the contents of the last run.
    ///
    /// # Errors
    /// Returns the same errors as [`Module::run`].
    pub fn compare(
        &self,
        memory: &mut Memory,
        launch: &Launch,
        runs: &[Options],
    ) -> Result<Comparison> {
        let start = Snapshot::of(memory);
        let variables: Vec<Vec<u8>> = self.variables.iter().map(|it| it.contents()).collect();
        let mut comparison = Comparison { outcomes: Vec::new(), difference: None };
        let mut first: Option<Snapshot> = None;
        for options in runs {
            start.restore(memory);
            for (variable, contents) in self.variables.iter().zip(&variables) {
                variable.buffer.range().write(0, contents);
            }
            let mut random = Random::new(!options.fill);
            for range in memory.ranges_mut().iter_mut().filter(|it| it.access == Access::ReadWrite)
            {
                range.fill_unwritten(|_| random.next() as u8);
            }
            comparison.outcomes.push(self.run(memory, launch, options)?);
            let now = Snapshot::of(memory);
            match &first {
                None => first = Some(now),
                Some(first) if comparison.difference.is_none() => {
                    comparison.difference = first.difference(&now, options);
                }
                Some(_) => {}
            }
        }
        Ok(comparison)
    }
}

/// Contents of all ranges to which kernels may write.
struct Snapshot(Vec<Contents>);

struct Contents {
    /// Number of the range in the memory.
    at: usize,
    name: String,
    data: Vec<u8>,
    written: Option<Bitmap>,
}

impl Snapshot {
    fn of(memory: &Memory) -> Self {
        let ranges = memory.ranges().iter().enumerate();
        let writable = ranges.filter(|it| it.1.access == Access::ReadWrite);
        let contents = writable.map(|(at, range)| {
            let mut data = vec![0; range.host.bytes() as usize];
            range.host.read(0, &mut data);
            Contents { at, name: range.name.clone(), data, written: range.written() }
        });
        Self(contents.collect())
    }

    fn restore(&self, memory: &mut Memory) {
        for contents in &self.0 {
            let range = &mut memory.ranges_mut()[contents.at];
            range.host.write(0, &contents.data);
            range.restore_written(contents.written.clone());
        }
    }

    fn difference(&self, other: &Self, options: &Options) -> Option<Difference> {
        for (a, b) in self.0.iter().zip(&other.0) {
            for offset in 0..a.data.len() {
                let (first, other) = (a.byte(offset), b.byte(offset));
                if first != other {
                    let (range, offset) = (a.name.clone(), offset as u64);
                    return Some(Difference { range, offset, first, other, options: *options });
                }
            }
        }
        None
    }
}

impl Contents {
    fn byte(&self, offset: usize) -> Option<u8> {
        let written = self.written.as_ref().is_none_or(|it| it.has(offset as u64, 1));
        written.then(|| self.data[offset])
    }
}
