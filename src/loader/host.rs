//! Batches in host memory: every worker reads, decodes and transforms a sample straight into its cell.

use std::sync::Arc;
use std::time::Instant;

use bytes::BytesMut;

use crate::decode::HostDecoder;
use crate::error::{Error, Fault, Result, SampleError};
use crate::header::Header;
use crate::plan::{OnError, Plan, SamplePlan};
use crate::random::{SampleKey, replacement};
use crate::ring::Slot;
use crate::source::{HostPage, Source};
use crate::transform::HostTransform;

use super::batch::{BatchInfo, BatchSlot, Outcome, SampleRecord};
use super::feed::{Done, Feed, Job};
use super::stats::Counters;

/// Candidates that are tried in the place of a sample that cannot be used.
const MAX_REPLACEMENTS: u32 = 100;

/// A batch's memory on the host: one allocation that is split into a cell per sample while it is filled, so
/// that many threads write into it at once, and joined again, without a copy and without `unsafe`.
pub struct HostSlot {
    whole: BytesMut,
    cells: Vec<Option<BytesMut>>,
    sample_bytes: usize,
    info: BatchInfo,
}

impl HostSlot {
    /// Memory for `samples` of `sample_bytes` each, aligned to a cache line and touched, so that it is taken now
    /// and not while the loader runs.
    pub fn new(samples: usize, sample_bytes: usize) -> Self {
        const LINE: usize = 64;
        let mut whole = BytesMut::with_capacity(samples * sample_bytes + LINE);
        let offset = whole.as_ptr().align_offset(LINE).min(LINE);
        whole.resize(samples * sample_bytes + offset, 1);
        drop(whole.split_to(offset));
        let cells = (0..samples).map(|_| None).collect();
        Self { whole, cells, sample_bytes, info: BatchInfo::default() }
    }

    /// The whole memory; empty while it is being filled.
    pub fn tensor(&self) -> &[u8] {
        &self.whole
    }
}

impl Slot for HostSlot {
    fn begin_fill(&mut self) -> Result<()> {
        for cell in &mut self.cells {
            // A slot that was given up half filled comes back with its cells still split.
            if cell.is_none() {
                *cell = Some(self.whole.split_to(self.sample_bytes));
            }
        }
        Ok(())
    }

    fn end_fill(&mut self) -> Result<()> {
        for cell in &mut self.cells {
            let cell = cell.take().ok_or_else(|| Error::Internal {
                problem: "a cell of a finished batch is missing".into(),
            })?;
            // Neighbours in one allocation: `unsplit` joins them in constant time.
            if self.whole.is_empty() {
                self.whole = cell;
            } else {
                self.whole.unsplit(cell);
            }
        }
        Ok(())
    }

    fn begin_use(&mut self) -> Result<()> {
        Ok(())
    }

    fn end_use(&mut self) -> Result<()> {
        Ok(())
    }
}

impl BatchSlot for HostSlot {
    type Cell = BytesMut;
    const BEGIN_BEFORE_CELLS: bool = true;

    fn info(&self) -> &BatchInfo {
        &self.info
    }

    fn info_mut(&mut self) -> &mut BatchInfo {
        &mut self.info
    }

    fn take_cell(&mut self, place: usize) -> BytesMut {
        self.cells[place].take().unwrap_or_default()
    }

    fn return_cell(&mut self, place: usize, cell: BytesMut) {
        self.cells[place] = Some(cell);
    }
}

/// What a worker owns; its buffers only ever grow to what the largest sample needs.
pub(super) struct Worker {
    source: Arc<dyn Source>,
    plan: Arc<Plan>,
    counters: Arc<Counters>,
    page: HostPage,
    sample: SamplePlan,
    decoder: HostDecoder,
    transform: HostTransform,
}

impl Worker {
    pub fn new(source: Arc<dyn Source>, plan: Arc<Plan>, counters: Arc<Counters>) -> Self {
        let page = HostPage::default();
        let transform = HostTransform::new(&plan);
        Self {
            source,
            plan,
            counters,
            page,
            sample: SamplePlan::default(),
            decoder: HostDecoder::new(),
            transform,
        }
    }

    /// Fills places until there are none left.
    pub fn run(mut self, feed: &Feed<HostSlot>) {
        loop {
            let begin = Instant::now();
            let Some(job) = feed.take() else { return };
            self.counters.blocked.add(begin.elapsed());
            feed.complete(self.fill(job));
        }
    }

    fn fill(&mut self, job: Job<BytesMut>) -> Done<BytesMut> {
        let Job { batch, place, epoch, index, padding, mut cell } = job;
        let mut faults = Vec::new();
        let result = self.produce(epoch, index, &mut cell, &mut faults);
        let result = result.map(|record| SampleRecord { padding, ..record });
        Done { batch, place, cell, result, faults }
    }

    /// Fills a cell with a sample, or with what the policy puts in its place.
    fn produce(
        &mut self,
        epoch: u32,
        index: u64,
        cell: &mut [u8],
        faults: &mut Vec<SampleError>,
    ) -> Result<SampleRecord> {
        let seed = self.plan.settings.loader.seed;
        let wanted = SampleKey { seed, epoch, index };
        let mut key = wanted;
        for attempt in 0..=MAX_REPLACEMENTS {
            let fault = match self.sample(key, cell) {
                Ok(record) => {
                    let replaces = (key.index != index).then_some(index);
                    return Ok(SampleRecord { replaces, ..record });
                }
                Err(fault) => fault,
            };
            let Fault { reason, problem } = fault;
            let location = self.source.location(key.index);
            let error = SampleError { index: key.index, location, reason, problem };
            match self.plan.settings.loader.on_error {
                OnError::Stop => return Err(Error::Sample(error)),
                OnError::Substitute => {
                    cell.fill(0);
                    faults.push(error);
                    return Ok(SampleRecord {
                        index,
                        label: self.source.label(index),
                        size: Default::default(),
                        trace: Default::default(),
                        outcome: Outcome::Substituted,
                        replaces: None,
                        padding: false,
                    });
                }
                OnError::Skip => faults.push(error),
            }
            key.index = replacement(wanted, attempt, self.source.len());
        }
        Err(Error::Internal {
            problem: format!(
                "sample {index} cannot be used, and neither can the {MAX_REPLACEMENTS} samples that were tried \
                 in its place; the first fault: {}",
                faults[0]
            ),
        })
    }

    /// Reads, decodes and transforms one sample into its cell.
    fn sample(&mut self, key: SampleKey, cell: &mut [u8]) -> Result<SampleRecord, Fault> {
        let begin = Instant::now();
        let limit = self.plan.settings.limits.max_file_bytes;
        self.source.read(key.index, &mut self.page, limit)?;
        let read = Instant::now();
        self.counters.read.add(read - begin);
        let bytes = self.page.bytes();
        let header = Header::parse(bytes)?;
        self.plan.sample(key, &header, &mut self.sample)?;
        let result =
            self.transform.run(&self.plan, &self.sample, &mut self.decoder, bytes, &header, cell);
        let transform = self.transform.busy();
        self.counters.transform.add(transform);
        self.counters.decode.add(read.elapsed().saturating_sub(transform));
        result?;
        Ok(SampleRecord {
            index: key.index,
            label: self.source.label(key.index),
            size: self.sample.upright,
            trace: self.sample.trace,
            outcome: Outcome::Cpu,
            replaces: None,
            padding: false,
        })
    }
}
