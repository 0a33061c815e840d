//! Passes of the program kernel, which executes any chain of operators in one or more launches.
//! Tests launches whose samples differ in the number and size of their passes, and chains in which
//! look-up tables follow each other. Also tests the number of launches.

use feedwater::internals::geometry::{Orientation, Size};
use feedwater::internals::op::Actions;
use feedwater::internals::op::device_chain::{Block, DeviceChain, Sample};
use feedwater::internals::op::kernel_text::{Leaf, RoiParams};
use feedwater::internals::op::program::{Addresses, Extent};
use feedwater::internals::random::SampleKey;
use feedwater::internals::tensor::TensorShape;
use feedwater::op::custom::Kinds;
use feedwater::op::{
    Autocontrast, CenterCrop, Draw, Equalize, NormalizeImage, Operator, RandAugment, RandomAffine,
    RandomRotation, Sharpness, TrivialAugmentWide,
};

use super::*;

/// Returns images of very different sizes: a few tiles, one pixel, one row, one column, and so many
/// pixels that histograms need more than two blocks.
fn mixed(samples: usize) -> Vec<(Vec<u8>, i64)> {
    const SIZES: [(u32, u32); 6] = [(149, 131), (1, 1), (37, 1), (1, 41), (33, 31), (64, 49)];
    let sizes = SIZES.into_iter().cycle().take(samples);
    sizes.zip(0..).map(|((w, h), seed)| (common::jpeg(seed, w, h), seed as i64)).collect()
}

fn scale() -> RandomAffine {
    RandomAffine {
        scale: Some([0.5, 1.5]),
        translate: Some([0.3, 0.3]),
        ..RandomAffine::within(0.0)
    }
}

/// An operator that sharpens some samples, sharpens some of those a second time, and applies a
/// look-up table. A sample has one to three passes.
#[derive(Debug)]
struct Sometimes;

impl Operator for Sometimes {
    fn name(&self) -> &'static str {
        "sometimes"
    }

    fn kinds(&self) -> Kinds {
        let kinds = [&Sharpness { factor: [2.0; 2] } as &dyn Operator, &Equalize::default()];
        Kinds::up_to(3, kinds.map(|op| op.kinds().list()[0]))
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        let sharpness: Arc<dyn Operator> = Arc::new(Sharpness { factor: [2.0; 2] });
        let equalize: Arc<dyn Operator> = Arc::new(Equalize::default());
        let chosen: &[usize] = match draw.rng().below(4) {
            0 => &[],
            1 => &[0],
            2 => &[1],
            _ => &[0, 1, 0],
        };
        draw.inner(&[sharpness, equalize], chosen.iter().copied());
    }
}

fn chains() -> Vec<(&'static str, Chain)> {
    let end = |chain: Chain| chain.then(CenterCrop::to(41, 29)).then(op::Normalize::IMAGENET);
    vec![
        (
            "one pass to several",
            end(Chain::new().then(Sometimes).then(RandomRotation::within(30.0))),
        ),
        (
            "tables behind tables",
            end(Chain::new()
                .then(Equalize::default())
                .then(scale())
                .then(Autocontrast::default())
                .then(jitter())
                .then(Equalize::default())),
        ),
        (
            "a table of floats",
            Chain::new()
                .then(RandomRotation::within(20.0))
                .then(NormalizeImage::default())
                .then(CenterCrop::to(41, 29)),
        ),
        (
            "policies",
            end(Chain::new().then(RandAugment::default()).then(TrivialAugmentWide::default())),
        ),
        ("sums of positions", end(Chain::new().then(scale()).then(scale()))),
    ]
}

#[test]
fn samples_of_a_launch_may_have_any_number_and_size_of_passes() {
    let Some(machine) = machine() else { return };
    for (number, (what, chain)) in chains().into_iter().enumerate() {
        machine.schedule([Schedule::Eager, Schedule::Lazy, Schedule::Random(5)][number % 3]);
        let loader = same(|| builder(mixed(24), chain.clone()).batch_size(6), what);
        let (plan, stats) = (loader.plan(), loader.stats());
        assert!(plan.device.as_ref().unwrap().planned().chain.fused.is_none(), "{what}");
        assert!(stats.cpu_fallback.is_empty(), "{what}: {stats:?}");
        assert_eq!(stats.memory.device_bytes_predicted, machine.counts().device.bytes, "{what}");
    }
    assert_eq!(machine.counts().faults(), 0);
}

#[test]
fn every_element_type_and_layout_of_a_tensor_is_made_in_tiles() {
    let Some(machine) = machine() else { return };
    let bytes = || Chain::new().then(Sometimes).then(CenterCrop::to(47, 45));
    let floats = || bytes().then(op::Normalize::IMAGENET);
    for dtype in DType::ALL {
        for layout in Layout::ALL {
            let chain = if dtype == DType::U8 { bytes() } else { floats() };
            let make = || builder(mixed(12), chain.clone()).batch_size(6).output(dtype, layout);
            same(make, &format!("{dtype} {layout}"));
        }
    }
    assert_eq!(machine.counts().faults(), 0);
}

#[test]
fn a_pass_is_a_launch_and_a_table_two_more() {
    let Some(machine) = machine() else { return };
    // Building a loader also launches kernels: the same warm-up for every chain here, and perhaps
    // the first sample. So the test compares only differences.
    let launches = |chain: Chain| {
        let builder =
            builder(vec![(common::jpeg(0, 128, 80), 0)], chain).batch_size(1).epochs(Some(1));
        let before = machine.counts().launches;
        let mut loader = builder.device(DeviceChoice::Gpu(0)).runtime(&runtime()).build().unwrap();
        assert_eq!(loader.into_iter().map(|batch| batch.unwrap().len()).sum::<usize>(), 1);
        machine.counts().launches - before
    };
    let crop = || CenterCrop::to(32, 32);
    let one = launches(Chain::new().then(RandomRotation::within(9.0)).then(crop()));
    let three = launches(Chain::new().then(Equalize::default()).then(crop()));
    let two = launches(
        Chain::new()
            .then(RandomRotation::within(9.0))
            .then(Sharpness { factor: [2.0; 2] })
            .then(crop()),
    );
    assert_eq!((two - one, three - one), (1, 2));
}

/// The memory of launch parameters is reused. Histograms that a kernel counts in this memory must
/// begin with zeros.
#[test]
fn histograms_begin_with_zeros_whatever_the_memory_held() {
    let (equalize, size) = (Equalize::default(), Size::new(9, 7));
    let shape = TensorShape {
        batch: 1,
        width: 9,
        height: 7,
        dtype: DType::U8,
        layout: Layout::Nchw,
        channels: 3,
    };
    let chain = DeviceChain::new(Leaf::Roi, &[&equalize.kinds()], shape);
    let actions = Actions::of([&equalize as &dyn Operator], SampleKey::default(), size);
    let leaf = RoiParams::new(0, 27, size.window(), size, Orientation::UPRIGHT);
    let leaf = bytemuck::bytes_of(&leaf);
    let sample = Sample { actions: &actions, first: 0, input: (size.window(), size), leaf };
    let at = Addresses { out: 0, scratch: [0; 2], tables: 0, passes: 0 };
    let [mut program, mut passes] =
        [chain.program_bytes(), chain.passes_bytes()].map(|bytes| vec![0xaa; bytes]);
    let block = Block { fused: &mut [], program: &mut program, passes: &mut passes };
    chain.write(&sample, &at, block, &mut Extent::default());
    // The launch parameters end with the histograms of three channels and of gray, followed by a
    // table of floats.
    let end = passes.len() - 3 * 256 * size_of::<f32>();
    let histograms = &passes[end - 4 * 256 * size_of::<u32>()..end];
    assert!(histograms.iter().all(|byte| *byte == 0));
}
