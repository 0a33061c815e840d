//! Kernel times on the device, measured with CUDA events.
//!
//! Each operator runs as a kernel of its own, with the input that the CPU computed for it. The
//! output conversion is measured in the same way. The whole chain is measured as the kernel that a
//! loader launches. Every output must equal that of the CPU, bit for bit.

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use feedwater::footprint::{Footprint, Memory as Sort};
use feedwater::gpu::{self, Event, Stream};
use feedwater::internals::geometry::Size;
use feedwater::internals::gpu::{
    ALIGN_BYTES, DeviceBuffer, DevicePool, LaunchGoal, PinnedPool, Upload, fill, read_back,
};
use feedwater::internals::image::{HostImage, PixelType};
use feedwater::internals::op::device_chain::{Block, DeviceChain, Sample};
use feedwater::internals::op::kernel_text::Leaf;
use feedwater::internals::op::kind::crop;
use feedwater::internals::op::program::{Addresses, Extent};
use feedwater::internals::op::{Action, ActionParams, Actions};
use feedwater::internals::tensor::{DType, Layout, TensorShape};
use feedwater::internals::transform::ChainKernels;
use feedwater::op::Kind;
use feedwater::plan::Plan;
use feedwater::{Error, Result};

use super::super::selftest::by_hand::{leaf, on_device, values};
use super::made::{Made, megapixels, operator_name};
use super::table::WorkPart;

/// Samples are collected into a group before they are measured. A group is complete when it has
/// `GROUP` samples, or when their pixels take `GROUP_BYTES`.
const GROUP: usize = 32;
const GROUP_BYTES: usize = 256 << 20;

/// A group is measured at least `LAPS` times and for at least `LONG_ENOUGH`. The shortest time
/// counts, because the first launches on an idle device are slow.
const LAPS: u32 = 3;
const LONG_ENOUGH: Duration = Duration::from_millis(20);

/// Number of times that each measurement launches the group.
const ROUNDS: u32 = 10;

/// Size of the pinned staging memory in bytes.
const STAGING: usize = 4 << 20;

/// Measurements of one kernel.
#[derive(serde::Serialize)]
pub struct KernelRow {
    pub name: String,
    pub part: WorkPart,
    /// Number of images that were measured.
    pub images: u64,
    /// Number of launches that the measured images need: one for each group of images with the same
    /// output size. All passes of a kernel count as one launch.
    pub launches: u64,
    /// Number of all launches, including the repetitions for timing.
    pub launched: u64,
    /// Mean device time per image, in seconds.
    pub seconds: f64,
    /// Mean size of the input, in megapixels.
    pub megapixels: f64,
    pub seconds_per_megapixel: f64,
    /// Number of images whose output equals the CPU's in every byte.
    pub equal: u64,
}

/// Measures the kernels of a plan's chain, one group of samples at a time.
pub struct Kernels<'a> {
    plan: &'a Plan,
    device: Arc<gpu::Device>,
    stream: Stream,
    begin: Event,
    end: Event,
    staging: Upload,
    jobs: Vec<Job>,
    kernels: HashMap<(usize, bool), Loaded>,
    group: Vec<Made>,
    group_bytes: usize,
}

/// A kernel to measure, and its measurements so far. Seconds and megapixels are sums over all
/// images.
struct Job {
    what: What,
    row: KernelRow,
}

#[derive(Clone, Copy)]
enum What {
    Operator(usize),
    Output,
    Chain,
}

struct Loaded {
    kernels: ChainKernels,
    chain: DeviceChain,
}

/// One sample of a launch.
struct Piece<'m> {
    input: &'m HostImage,
    /// Size of the whole image. `input` may be only a part of it.
    whole: Size,
    actions: Actions,
    /// Index in `actions` of the first action to run.
    first: usize,
    leaves: Size,
    expected: &'m [u8],
}

impl<'a> Kernels<'a> {
    /// Creates a benchmark without measurements.
    pub fn new(device: &Arc<gpu::Device>, plan: &'a Plan) -> Result<Self> {
        let mut rows = Footprint::default();
        rows.add(Sort::Pinned, "staging", STAGING as u64, 1, "");
        let operators = plan.steps.iter().enumerate().map(|(place, step)| {
            let name = operator_name(place, step.operator.name());
            Job::new(What::Operator(place), name, WorkPart::Encode)
        });
        let rest = [
            Job::new(What::Output, "output".into(), WorkPart::Encode),
            Job::new(What::Chain, "chain, one kernel".into(), WorkPart::Comparison),
        ];
        Ok(Self {
            plan,
            stream: Stream::new(device)?,
            begin: Event::timed(device)?,
            end: Event::timed(device)?,
            staging: Upload::new(PinnedPool::take(device, &rows)?.buffer("staging", STAGING)?)?,
            device: device.clone(),
            jobs: operators.chain(rest).collect(),
            kernels: HashMap::new(),
            group: Vec::new(),
            group_bytes: 0,
        })
    }

    /// Adds a sample to the group, and measures the group if it is complete.
    pub fn add(&mut self, made: Made) -> Result<()> {
        self.group_bytes += made.images.iter().map(HostImage::bytes_on_device).sum::<usize>();
        self.group.push(made);
        match self.group.len() == GROUP || self.group_bytes >= GROUP_BYTES {
            true => self.measure(),
            false => Ok(()),
        }
    }

    /// Measures the last group, and returns the measurements of all kernels.
    pub fn rows(mut self) -> Result<Vec<KernelRow>> {
        self.measure()?;
        let rows = mem::take(&mut self.jobs).into_iter().map(|Job { mut row, .. }| {
            row.seconds_per_megapixel = row.seconds / row.megapixels;
            row.seconds /= row.images as f64;
            row.megapixels /= row.images as f64;
            row
        });
        Ok(rows.collect())
    }

    /// Measures every kernel with the samples of the group.
    fn measure(&mut self) -> Result<()> {
        let group = mem::take(&mut self.group);
        self.group_bytes = 0;
        if group.is_empty() {
            return Ok(());
        }
        for job in 0..self.jobs.len() {
            self.job(job, &group)?;
        }
        Ok(())
    }

    fn job(&mut self, job: usize, group: &[Made]) -> Result<()> {
        let what = self.jobs[job].what;
        // If a later crop needs only a part of this operator's output, fuse that crop with the
        // operator, so that the kernel computes only this part.
        let cut = match what {
            What::Operator(place) => {
                let whole = |made: &Made| {
                    let part = made.images[place + 1].window();
                    (part.x, part.y) == (0, 0)
                };
                !group.iter().all(whole)
            }
            What::Output | What::Chain => false,
        };
        let mut pieces: Vec<Piece> = group.iter().map(|made| self.piece(what, cut, made)).collect();
        pieces.sort_by_key(|piece| (piece.leaves.width, piece.leaves.height));
        let loaded = match self.kernels.remove(&(job, cut)) {
            Some(loaded) => loaded,
            None => self.load(what, cut)?,
        };

        let memory = Layouts::of(&pieces, &loaded.chain);
        let pool = DevicePool::take(&self.device, &memory.footprint())?;
        let input = pool.buffer("input", memory.input_bytes)?;
        let output = pool.buffer("output", memory.output_bytes)?;
        let block = pool.buffer("parameters", memory.block_bytes)?;
        let scratch = pool.buffer("scratch", memory.scratch_bytes)?;
        for (piece, &at) in pieces.iter().zip(&memory.inputs) {
            upload(&mut self.staging, &self.stream, &on_device(piece.input), &input, at)?;
        }
        let (described, extents) =
            memory.describe(&pieces, &loaded.chain, [&input, &output, &block, &scratch]);
        upload(&mut self.staging, &self.stream, &described, &block, 0)?;
        // Fill the output with bytes that differ from the expected ones. A kernel that writes
        // nothing is then detected.
        let nothing = pieces[0].expected.first().map_or(0, |byte| !byte);
        fill(&self.stream, &output, 0..output.len(), nothing)?;

        let launches: Vec<_> = pieces.chunk_by(|a, b| a.leaves == b.leaves).collect();
        let launch = || {
            let mut first = 0;
            for same in &launches {
                let at = memory.parameters(first, &loaded.chain);
                let (goal, count) = (LaunchGoal::Latency, same.len() as u32);
                let mut extent = Extent::default();
                extents[first..][..same.len()].iter().for_each(|it| extent.add(it));
                loaded.kernels.launch(goal, &self.stream, (&block, at), count, &extent)?;
                first += same.len();
            }
            Ok(())
        };
        launch()?;
        let (mut equal, mut entered) = (0, 0.0);
        for (piece, &at) in pieces.iter().zip(&memory.outputs) {
            let mut made = vec![0; piece.expected.len()];
            read_back(&self.stream, &output, at, &mut made)?;
            equal += u64::from(made == piece.expected);
            entered += megapixels(piece.input.window().size());
        }
        let (shortest, laps) = self.shortest(launch)?;
        let row = &mut self.jobs[job].row;
        row.seconds += shortest.as_secs_f64();
        row.launched += launches.len() as u64 * u64::from(1 + laps * ROUNDS);
        row.equal += equal;
        row.megapixels += entered;
        row.images += pieces.len() as u64;
        row.launches += launches.len() as u64;
        self.kernels.insert((job, cut), loaded);
        Ok(())
    }

    /// Measures launches several times. Returns the shortest device time, and the number of
    /// measurements.
    fn shortest(&self, launch: impl Fn() -> Result<()>) -> Result<(Duration, u32)> {
        let (mut shortest, mut laps, since) = (Duration::MAX, 0, Instant::now());
        while laps < LAPS || since.elapsed() < LONG_ENOUGH {
            self.begin.record(&self.stream)?;
            (0..ROUNDS).try_for_each(|_| launch())?;
            self.end.record(&self.stream)?;
            self.stream.synchronize()?;
            let took = self.end.elapsed_since(&self.begin)?.ok_or_else(|| Error::Internal {
                problem: "a stream has finished, but its timing events have not".into(),
            })?;
            shortest = shortest.min(took / ROUNDS);
            laps += 1;
        }
        Ok((shortest, laps))
    }

    fn load(&self, what: What, cut: bool) -> Result<Loaded> {
        let steps = &self.plan.steps;
        let pixels = |place: usize| match place {
            0 => PixelType::U8,
            _ => self.plan.steps[place - 1].pixels,
        };
        let shape = self.plan.shape;
        let chain = match what {
            What::Operator(place) => {
                let dtype = match pixels(place + 1) {
                    PixelType::U8 => DType::U8,
                    PixelType::F32 => DType::F32,
                };
                let shape = TensorShape { dtype, layout: Layout::Nhwc, ..shape };
                let (leaf, kinds) = (Leaf::of(pixels(place)), &steps[place].kinds);
                if kinds.fuses() {
                    let mut alone = kinds.list().to_vec();
                    alone.extend(cut.then_some(Kind::Crop));
                    DeviceChain::fused(leaf, alone, shape)
                } else {
                    DeviceChain::program(leaf, &[kinds], pixels(place + 1), shape)
                }
            }
            What::Output => DeviceChain::fused(Leaf::of(pixels(steps.len())), Vec::new(), shape),
            What::Chain => {
                let kinds: Vec<_> = steps.iter().map(|step| &step.kinds).collect();
                DeviceChain::new(Leaf::Roi, &kinds, shape)
            }
        };
        Ok(Loaded { kernels: ChainKernels::load(&self.device, &chain)?, chain })
    }

    fn piece<'m>(&self, what: What, cut: bool, made: &'m Made) -> Piece<'m> {
        let Made { sample, images, tensor } = made;
        let mut actions = sample.actions.clone();
        let shape = &self.plan.shape;
        let whole = Size::new(shape.width, shape.height);
        let (input, first, leaves, expected) = match what {
            What::Operator(place) => {
                let wanted = images[place + 1].window();
                actions.list.truncate(actions.end(place + 1));
                if cut && self.plan.steps[place].kinds.fuses() {
                    let whole = wanted.size();
                    let end = Size::new(wanted.right(), wanted.bottom());
                    let at = (wanted.x.into(), wanted.y.into());
                    let params = ActionParams::Crop(crop::Params::new(at, whole, end, [0.0; 3]));
                    let output = whole.window();
                    actions.list.push(Action { params, table: 0..0, whole, input: wanted, output });
                }
                (&images[place], actions.end(place), wanted.size(), values(&images[place + 1]))
            }
            What::Output => {
                let last = actions.list.len();
                (&images[images.len() - 1], last, whole, &tensor[..])
            }
            What::Chain => (&images[0], 0, whole, &tensor[..]),
        };
        let whole = match first.checked_sub(1) {
            Some(last) => actions.list[last].whole,
            None => sample.upright,
        };
        Piece { input, whole, actions, first, leaves, expected }
    }
}

impl Job {
    fn new(what: What, name: String, part: WorkPart) -> Self {
        let row = KernelRow {
            name,
            part,
            images: 0,
            launches: 0,
            launched: 0,
            seconds: 0.0,
            megapixels: 0.0,
            seconds_per_megapixel: 0.0,
            equal: 0,
        };
        Self { what, row }
    }
}

/// Offsets of a launch's data in device memory, and sizes of its buffers.
struct Layouts {
    inputs: Vec<usize>,
    outputs: Vec<usize>,
    /// For each sample, the offset of its passes and tables in the parameter block.
    bodies: Vec<usize>,
    /// For each sample, the offsets of its two scratch images.
    scratches: Vec<usize>,
    /// Offset of the program kernel's parameters in the parameter block.
    programs: usize,
    input_bytes: usize,
    output_bytes: usize,
    block_bytes: usize,
    scratch_bytes: usize,
}

impl Layouts {
    fn of(pieces: &[Piece], chain: &DeviceChain) -> Self {
        let place = |first: usize, bytes: &mut dyn Iterator<Item = usize>| {
            let mut end = first.next_multiple_of(ALIGN_BYTES);
            let starts = bytes.map(|bytes| {
                let start = end;
                end += bytes.next_multiple_of(ALIGN_BYTES);
                start
            });
            (starts.collect::<Vec<_>>(), end.max(ALIGN_BYTES))
        };
        let (inputs, input_bytes) =
            place(0, &mut pieces.iter().map(|it| it.input.bytes_on_device()));
        let (outputs, output_bytes) = place(0, &mut pieces.iter().map(|it| it.expected.len()));
        let images = pieces.iter().flat_map(|it| [chain.scratch_bytes(&it.sample(&[])); 2]);
        let (scratches, scratch_bytes) = place(0, &mut images.map(|bytes| bytes as usize));
        let programs = (pieces.len() * chain.fused_bytes()).next_multiple_of(ALIGN_BYTES);
        let described = programs + pieces.len() * chain.program_bytes();
        let body = |piece: &Piece| chain.passes_bytes() + size_of_val(&piece.actions.table[..]);
        let (bodies, block_bytes) = place(described, &mut pieces.iter().map(body));
        Self {
            inputs,
            outputs,
            bodies,
            scratches,
            programs,
            input_bytes,
            output_bytes,
            block_bytes,
            scratch_bytes,
        }
    }

    fn footprint(&self) -> Footprint {
        let mut rows = Footprint::default();
        rows.add(Sort::Device, "input", self.input_bytes as u64, 1, "");
        rows.add(Sort::Device, "output", self.output_bytes as u64, 1, "");
        rows.add(Sort::Device, "parameters", self.block_bytes as u64, 1, "");
        rows.add(Sort::Device, "scratch", self.scratch_bytes as u64, 1, "");
        rows
    }

    /// Returns the offsets of a sample's parameters for the fused kernel and for the program
    /// kernel.
    fn parameters(&self, number: usize, chain: &DeviceChain) -> [usize; 2] {
        [number * chain.fused_bytes(), self.programs + number * chain.program_bytes()]
    }

    /// Returns the bytes of the parameter block. Also returns for each sample how many pixels its
    /// launches compute.
    fn describe(
        &self,
        pieces: &[Piece],
        chain: &DeviceChain,
        [input, output, block, scratch]: [&DeviceBuffer; 4],
    ) -> (Vec<u8>, Vec<Extent>) {
        let mut described = vec![0; self.block_bytes];
        let mut extents = Vec::new();
        for (number, piece) in pieces.iter().enumerate() {
            let passes_at = self.bodies[number];
            let tables_at = passes_at + chain.passes_bytes();
            let images = [2 * number, 2 * number + 1].map(|image| self.scratches[image]);
            let at = Addresses {
                out: output.address() + self.outputs[number] as u64,
                scratch: images.map(|image| scratch.address() + image as u64),
                tables: block.address() + tables_at as u64,
                passes: block.address() + passes_at as u64,
            };
            let [mut fused, mut program, mut passes] =
                [chain.fused_bytes(), chain.program_bytes(), chain.passes_bytes()]
                    .map(|bytes| vec![0; bytes]);
            let leaf = leaf(piece.input, input.address() + self.inputs[number] as u64);
            let parts = Block { fused: &mut fused, program: &mut program, passes: &mut passes };
            let mut extent = Extent::default();
            chain.write(&piece.sample(&leaf), &at, parts, &mut extent);
            extents.push(extent);
            let [fused_at, program_at] = self.parameters(number, chain);
            let tables = bytemuck::cast_slice(&piece.actions.table);
            let all = [
                (fused_at, &*fused),
                (program_at, &program),
                (passes_at, &passes),
                (tables_at, tables),
            ];
            for (at, bytes) in all {
                described[at..][..bytes.len()].copy_from_slice(bytes);
            }
        }
        (described, extents)
    }
}

impl Piece<'_> {
    fn sample<'s>(&'s self, leaf: &'s [u8]) -> Sample<'s> {
        let input = (self.input.window(), self.whole);
        Sample { actions: &self.actions, first: self.first, input, leaf }
    }
}

/// Copies bytes to the device in parts of at most [`STAGING`] bytes.
fn upload(
    staging: &mut Upload,
    stream: &Stream,
    bytes: &[u8],
    target: &DeviceBuffer,
    offset: usize,
) -> Result<()> {
    for (number, part) in bytes.chunks(STAGING).enumerate() {
        staging.bytes()?[..part.len()].copy_from_slice(part);
        staging.copy(stream, 0..part.len(), target, offset + number * STAGING)?;
    }
    Ok(())
}
