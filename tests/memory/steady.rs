//! Memory of random chains. It stays within the plan's bound, and later samples allocate nothing.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use feedwater::internals::decode::{DecodeMemory, Decoders};
use feedwater::internals::geometry::{BoundingBox, Roi, Size};
use feedwater::internals::header::{Header, PnmHead};
use feedwater::internals::image::{Image, PixelType};
use feedwater::internals::plan::{DeviceFacts, Facts, SampleMemory, SamplePlan, ScannedSample};
use feedwater::internals::random::{SampleKey, SampleRng};
use feedwater::internals::testing::random_image;
use feedwater::internals::transform::{HostTransform, PlannedImage};
use feedwater::op::custom::Draw;
use feedwater::op::{
    CenterCrop, Chain, Crop, Flip, Kind, Kinds, Letterbox, OneOf, Operator, Pad, Placement,
    RandomApply, RandomOrder, RandomResizedCrop, RandomRotation, Resize, SomeOf,
};
use feedwater::plan::{Plan, Settings};

use super::counted;
use super::drawn::{chain, numbers, seeds, size};

/// Size of the largest image of these tests.
const LARGE: Size = Size::new(61, 47);
/// Sizes of the images, starting with the largest.
const SIZES: [Size; 3] = [LARGE, Size::new(23, 40), Size::new(9, 5)];
/// Number of samples per size.
const SAMPLES: u64 = 4;

/// The plan, and the buffers that one worker of a loader reuses from sample to sample. There are no
/// threads.
struct Worker {
    plan: Plan,
    transform: HostTransform,
    decoder: Decoders,
    sample: SamplePlan,
    out: Vec<u32>,
}

/// An image file with its parsed header.
struct File {
    bytes: Vec<u8>,
    header: Header,
}

impl File {
    fn of(size: Size) -> Self {
        let bytes = [PnmHead::rgb(size).bytes(), random_image(size, 5).data()].concat();
        let header = Header::parse(&bytes).unwrap();
        Self { bytes, header }
    }
}

impl Worker {
    /// Plans the operators, followed by a crop, so that all samples have the same size.
    fn of(operators: &[Arc<dyn Operator>]) -> Self {
        let last = Arc::new(Crop { x: 0, y: 0, width: 37, height: 29 });
        Self::planned(operators.iter().cloned().chain([last as _]), &[])
    }

    /// Plans the operators for a source with these files, all of which the plan inspects.
    fn planned(operators: impl IntoIterator<Item = Arc<dyn Operator>>, files: &[File]) -> Self {
        let any = |chain: Chain, it: Arc<dyn Operator>| chain.then_any(Placement::Cpu, it);
        let chain = operators.into_iter().fold(Chain::new(), any);
        let scanned = files.iter().map(|file| {
            let file_bytes = file.bytes.len() as u64;
            ScannedSample {
                header: file.header.clone(),
                file_bytes,
                decode: DecodeMemory::default(),
            }
        });
        let facts = Facts {
            device: DeviceFacts::None("none".into()),
            scanned: scanned.collect(),
            scanned_all: true,
            ..Facts::default()
        };
        let mut settings = Settings::default();
        // The limit is so high that no sample counts as an outlier.
        settings.limits.large_image_memory = 1 << 40;
        let plan = Plan::new(&chain, &settings, &facts).unwrap();
        Self {
            transform: HostTransform::new(&plan),
            decoder: Decoders::new(),
            sample: SamplePlan::default(),
            out: vec![0; plan.shape.sample_bytes().div_ceil(4)],
            plan,
        }
    }

    /// Computes the tensor of sample `index` with the same steps as a worker of a loader.
    fn run(&mut self, file: &File, index: u64) -> Run {
        let Self { plan, transform, decoder, sample, out } = self;
        let key = SampleKey { seed: 3, epoch: 0, index };
        let before = counted::calls();
        let need = plan.sample_memory(&file.header, 0, DecodeMemory::default(), sample);
        plan.allocate_tables(sample, need.tables).unwrap();
        plan.sample(key, &file.header, sample).unwrap();
        let planned = counted::calls();
        let image = PlannedImage { bytes: &file.bytes, header: &file.header, plan, sample };
        let out = &mut bytemuck::cast_slice_mut(out)[..plan.shape.sample_bytes()];
        transform.run(image, decoder, out).unwrap();
        let allocations = [planned - before, counted::calls() - planned];
        let drawn = plan.drawn_memory(sample);
        check_drawn_tables(plan, key, &file.header);
        Run { allocations, need, drawn }
    }
}

/// Checks that tables allocated for the drawn actions do not grow while they are filled.
fn check_drawn_tables(plan: &Plan, key: SampleKey, header: &Header) {
    let mut sample = SamplePlan::default();
    plan.allocate_tables(&mut sample, 0).unwrap();
    plan.draw((key, header), &mut sample);
    let bytes = plan.drawn_table_bytes(&sample);
    plan.allocate_tables(&mut sample, bytes).unwrap();
    let reserved = sample.table_bytes();
    plan.demand(header, &mut sample).unwrap();
    assert_eq!(sample.table_bytes(), reserved, "{:?}", sample.actions.kinds());
}

/// Number of allocations and predicted memory of one sample.
struct Run {
    /// Number of allocations while the sample is planned, and while it is transformed.
    allocations: [i64; 2],
    /// Memory that the plan predicts from the image's header.
    need: SampleMemory,
    /// Memory that the sample's actions need after they are drawn.
    drawn: SampleMemory,
}

pub fn no_chain_allocates_once_its_buffers_have_grown() {
    let files = SIZES.map(File::of);
    let mut problems = String::new();
    for seed in 0..600 {
        let operators = chain(&mut numbers(seed), LARGE, 30_000);
        let mut worker = Worker::of(&operators);
        let samples = || files.iter().flat_map(|file| (0..SAMPLES).map(move |it| (file, it)));
        // Successive images alternate between two buffers. After two rounds, each sample has used
        // each of the buffers first.
        let mut first = 0;
        for (file, index) in samples().chain(samples()) {
            first += worker.run(file, index).allocations.iter().sum::<i64>();
        }
        assert!(first > 0, "the first samples must allocate buffers");
        let runs = samples().map(|(file, index)| worker.run(file, index).allocations);
        let [planned, transformed] = runs.fold([0, 0], |sum, it| [sum[0] + it[0], sum[1] + it[1]]);
        if planned + transformed > 0 {
            writeln!(problems, "seed {seed}: {planned}, {transformed} by {operators:?}").unwrap();
        }
    }
    assert!(problems.is_empty(), "{problems}");
}

/// Returns an operator with a fixed output size, for the end of a chain.
fn last(rng: &mut SampleRng) -> Arc<dyn Operator> {
    match rng.below(5) {
        0 => Arc::new(Crop { x: 0, y: 0, width: 37, height: 29 }),
        1 => Arc::new(CenterCrop::to(90, 80)),
        2 => Arc::new(Letterbox::to(40, 44)),
        3 => Arc::new(RandomResizedCrop::to(24, 32)),
        _ => Arc::new(Resize::to(32, 24)),
    }
}

/// Returns random objects. Some operators crop around objects.
fn boxes(rng: &mut SampleRng, size: Size) -> Vec<BoundingBox> {
    let [width, height] = [size.width, size.height].map(f64::from);
    let mut one = || {
        let [x, y] = [width, height].map(|side| rng.uniform() * side / 2.0);
        BoundingBox::new(x, y, 0.5 + x, 0.5 + y)
    };
    (0..3).map(|_| one()).collect()
}

/// A plan is computed from headers only. Its bound must be large enough for every branch that a
/// sample may draw. Whether an operator is applied also changes which buffer holds each image.
pub fn no_chain_needs_or_holds_more_than_its_headers_say() {
    let (mut certain, mut count, mut problems) = (0, 0, String::new());
    for seed in seeds(600) {
        let rng = &mut numbers(seed);
        let files: [File; 3] = std::array::from_fn(|_| File::of(size(rng, 100)));
        let most = files.iter().map(|file| file.header.size);
        let most = most.reduce(|a, b| Size::new(a.width.max(b.width), a.height.max(b.height)));
        let mut operators = chain(rng, most.unwrap(), 700_000);
        let end = last(rng);
        if operators.iter().try_fold(PixelType::U8, |it, op| op.pixels(it)) == Ok(PixelType::F32) {
            operators.push(Arc::new(Crop { x: 0, y: 0, width: 37, height: 29 }));
        } else {
            operators.push(end);
        }
        let mut worker = Worker::planned(operators.iter().cloned(), &files);
        count += 1;
        if worker.plan.room.large > 0 {
            continue;
        }
        certain += 1;
        let mut share = SampleMemory::default();
        for (file, index) in files.iter().flat_map(|file| (0..6).map(move |it| (file, it))) {
            worker.sample.actions.boxes = boxes(rng, file.header.size);
            let Run { need, drawn, .. } = worker.run(file, index);
            share = share.max(&need);
            let held = worker.transform.capacity_bytes() as u64;
            let tables = worker.sample.table_bytes();
            let most = share.resampling.0.iter().chain(&share.windows).sum::<u64>() + share.rows;
            // Compares the sums, because the bound may divide the memory differently between
            // buffers. After a rotation by 90 degrees, rows may need a few bytes more than
            // predicted.
            let exceeds = drawn.total() > need.total() || held > most + most / 50 + 64;
            if exceeds || tables > share.tables {
                let size = file.header.size;
                let found = format!("{held} of {most}, tables {tables} of {}", share.tables);
                let found = format!("{found}, drawn {drawn:?}, need {need:?}");
                writeln!(problems, "FEEDWATER_CHAIN_SEED={seed}: {size}, {found} by {operators:?}")
                    .unwrap();
                break;
            }
        }
        assert!(problems.len() < 20_000, "{problems}");
    }
    eprintln!("{count} chains, {certain} of them with an exact bound");
    assert!(problems.is_empty(), "{problems}");
    assert!(2 * certain >= count, "only {certain} of {count} bounds are exact");
}

/// An image of 2x20 is rotated to 20x2. Then its shorter side is enlarged to 16 pixels, which gives
/// 160x16. A plan that takes the rotated image for a square of 20x20 would expect only 16x16
/// pixels.
pub fn what_a_combinator_makes_of_a_thin_image_that_it_turned_is_bounded() {
    let files = [File::of(Size::new(2, 20))];
    let turn =
        || RandomRotation { expand: true, degrees: [90.0; 2], ..RandomRotation::within(0.0) };
    let enlarge = || Resize::shorter(16);
    let combinators: [Arc<dyn Operator>; 3] = [
        Arc::new(RandomApply::new(0.5).then(turn()).then(enlarge())),
        Arc::new(RandomOrder::new().and(enlarge()).and(turn())),
        Arc::new(RandomApply::new(0.9).then(turn()).then(OneOf::new().or(enlarge()))),
    ];
    for combinator in combinators {
        let case = format!("{combinator:?}");
        let mut worker = Worker::planned([combinator, Arc::new(Resize::to(8, 8)) as _], &files);
        let runs: Vec<_> = (0..20).map(|index| worker.run(&files[0], index)).collect();
        let most = runs.iter().map(|it| it.drawn.total()).max().unwrap();
        assert!(most > 3 * 150 * 16, "{case}: {most}, no image was turned and enlarged");
        let within = runs.iter().all(|it| it.drawn.total() <= it.need.total());
        assert!(within || worker.plan.room.large > 0, "{case}: {most} of {:?}", runs[0].need);
    }
}

/// An operator that counts the calls of its `largest_output`.
#[derive(Debug)]
struct Counted(Arc<AtomicUsize>);

impl Operator for Counted {
    fn name(&self) -> &'static str {
        "counted"
    }

    fn kinds(&self) -> Kinds {
        Kinds::exactly([Kind::Table])
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        draw.table(|_, byte| byte);
    }

    fn largest_output(&self, input: Size) -> Size {
        self.0.fetch_add(1, Ordering::Relaxed);
        input
    }
}

/// A function that wraps an operator in a combinator, such as one that applies it with a
/// probability.
type Wrap = fn(Arc<dyn Operator>) -> Arc<dyn Operator>;

pub fn nested_combinators_are_planned_in_linear_time() {
    const DEPTH: usize = 24;
    let files = [File::of(Size::new(30, 20))];
    let wrap: [Wrap; 4] = [
        |inner| Arc::new(RandomApply::new(0.5).then_any(inner)),
        |inner| Arc::new(OneOf::new().or(Flip::default()).or_any(1.0, inner)),
        |inner| Arc::new(SomeOf::new(1).or_any(inner).or(Pad::constant([1; 4], [0.0; 3]))),
        |inner| Arc::new(RandomOrder::new().and(Pad::constant([1; 4], [0.0; 3])).and_any(inner)),
    ];
    for (number, wrap) in wrap.into_iter().enumerate() {
        let calls = Arc::new(AtomicUsize::new(0));
        let counted: Arc<dyn Operator> = Arc::new(Counted(calls.clone()));
        let nested = (0..DEPTH).fold(counted, |inner, _| wrap(inner));
        let mut worker = Worker::planned([nested, Arc::new(Resize::to(8, 8))], &files);
        worker.run(&files[0], 1);
        let calls = calls.load(Ordering::Relaxed);
        assert!((1..20 * DEPTH).contains(&calls), "combinator {number}: {calls} calls");
    }
}

/// glibc takes large blocks from a thread's heap after larger ones were freed, and keeps the free
/// memory at the end of this heap.
pub fn the_memory_of_a_freed_image_is_returned() {
    fn resident() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap()
    }
    let image = |width| {
        let mut image = Image::<u8>::new(Roi::new(0, 0, width, 1024));
        image.data_mut().fill(1);
        image
    };
    let check = move || {
        drop(image(8192));
        let before = resident();
        let small = image(4096);
        assert!(resident() > before + 12_000);
        drop(small);
        assert!(resident() < before + 1000, "{} KiB of {before} before", resident());
    };
    std::thread::spawn(check).join().unwrap();
}
