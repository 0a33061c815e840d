//! The reference implementation, the CPU transform and the kernels give the same bits. The tests
//! cover every operator, chains, element types, layouts, orientations, and images that are random,
//! extreme, odd-sized or tiny.
//!
//! Kernels are normally compiled for the host. If the environment variables of
//! `simulated::device_code` are set, NVRTC compiles them, and the interpreter executes them as
//! device code. Successive launches then use different schedules of warps and blocks.

use std::sync::{Arc, LazyLock};

use crate::common::{some_of, tests_all_cases};
use crate::simulated::device_code::executes_device_code;
use crate::simulated::{in_process, runtime};
use feedwater::gpu::Device;
use feedwater::internals::geometry::{Orientation, Size};
use feedwater::internals::gpu::host_kernel::HostCompiler;
use feedwater::internals::image::{Image, PixelType};
use feedwater::internals::op::resample::{self, Filter};
use feedwater::internals::output;
use feedwater::internals::random::{SampleKey, SampleRng};
use feedwater::internals::tensor::{DType, Layout};
use feedwater::internals::testing::{Case, Kernels, extreme_images, random_image};
use feedwater::op::custom::Wanted;
use feedwater::op::{self, CenterCrop, Flip, Grayscale, Kind, Normalize, Operator, RandomCrop};
use feedwater::op::{RandomResizedCrop, Resize};

mod planes;

type Operators = Vec<Arc<dyn Operator>>;

/// Image sizes: one pixel, one column, one row, primes, and ordinary sizes.
const SIZES: [(u32, u32); 7] = [(1, 1), (1, 37), (41, 1), (13, 17), (31, 29), (50, 37), (127, 64)];

/// How kernels are compiled and executed in this run.
static KERNELS: LazyLock<Kernels<'static>> = LazyLock::new(|| {
    if executes_device_code() {
        let machine = in_process();
        let device = Device::open_with(0, &runtime()).expect("the simulated device opens");
        // All tests of this program share the simulated machine. No other test may reserve it until
        // the process ends.
        std::mem::forget(machine);
        return Kernels::Device(Box::leak(Box::new(device)));
    }
    // There are hundreds of kernels to compile, so the compiler keeps them in a folder for later
    // runs.
    let folder = concat!(env!("CARGO_TARGET_TMPDIR"), "/feedwater-host-kernels");
    let compiler = HostCompiler::keeping_in(folder).expect("the target directory can be written");
    Kernels::Host(Box::leak(Box::new(compiler)))
});

/// Kinds of the actions of all built-in operators. If the CUDA source of the program kernel
/// supports all of them, one compiled kernel serves all chains.
static KNOWN: LazyLock<Vec<Kind>> = LazyLock::new(|| {
    feedwater::internals::op::examples()
        .iter()
        .flat_map(|op| op.kinds().list().to_vec())
        .filter(|kind| kind.cuda().is_some())
        .collect()
});

/// Compares the implementations for a case. Fails if they differ, or if the comparison cannot run.
fn check(case: Case<'_>) {
    case.check().unwrap_or_else(|error| panic!("{error}"));
}

fn case<'a>(operators: &'a [Arc<dyn Operator>], stored: &'a Image<u8>) -> Case<'a> {
    Case {
        operators,
        on_host: 0,
        stored,
        orientation: Orientation::UPRIGHT,
        reduction: 1,
        dtype: if last_pixels(operators) == PixelType::U8 { DType::U8 } else { DType::F32 },
        layout: Layout::Nchw,
        key: SampleKey { seed: 11, epoch: 1, index: 3 },
        kernels: *KERNELS,
        planes: None,
        known: &KNOWN,
    }
}

fn last_pixels(operators: &[Arc<dyn Operator>]) -> PixelType {
    let pixels = |before, op: &Arc<dyn Operator>| op.pixels(before).expect("a valid chain");
    operators.iter().fold(PixelType::U8, pixels)
}

fn training() -> Operators {
    vec![
        Arc::new(RandomResizedCrop::to(32, 24)),
        Arc::new(Flip { horizontal: 0.5, vertical: 0.5 }),
        Arc::new(Normalize::IMAGENET),
    ]
}

fn evaluation() -> Operators {
    vec![
        Arc::new(Resize::shorter(24)),
        Arc::new(CenterCrop::to(21, 20)),
        Arc::new(Normalize::IMAGENET),
    ]
}

/// Chain whose tensors have one channel. The tiled kernel executes it.
fn gray() -> Operators {
    vec![
        Arc::new(Resize::shorter(24)),
        Arc::new(Grayscale { channels: 1 }),
        Arc::new(CenterCrop::to(23, 20)),
        Arc::new(Normalize { mean: [0.4; 3], std: [0.3; 3] }),
    ]
}

/// Returns a random chain of example operators, in which each operator accepts the pixels of the
/// previous one.
fn drawn(seed: u64) -> Operators {
    let mut rng = SampleRng::new(SampleKey { seed, epoch: 0, index: 0 }, 9);
    let (mut chain, mut pixels, mut channels) = (Operators::new(), PixelType::U8, 3);
    while chain.len() < 5 {
        let examples = feedwater::internals::op::examples();
        let op = examples[rng.below(examples.len() as u64) as usize].clone();
        if let (Ok(after), Ok(left)) = (op.pixels(pixels), op.channels(channels)) {
            (pixels, channels) = (after, left);
            chain.push(op);
        }
    }
    chain
}

/// Yields the cases. If the slow interpreter executes them, yields only some.
fn some_if_interpreted<T>(all: Vec<T>, number: usize) -> Vec<T> {
    if executes_device_code() { some_of(all, number).collect() } else { all }
}

#[test]
fn every_operator_alone() {
    let draws = if tests_all_cases() { 4 } else { 1 };
    for (number, op) in feedwater::internals::op::examples().iter().enumerate() {
        for (width, height) in some_of(SIZES, number) {
            let image = random_image(Size::new(width, height), 1);
            // Some operators leave a part of the samples alone, so the index varies.
            for index in number as u64..number as u64 + draws {
                let key = SampleKey { seed: 2, epoch: 0, index };
                check(Case { key, ..case(std::slice::from_ref(op), &image) });
            }
        }
    }
}

#[test]
fn every_operator_on_extreme_images() {
    for (number, op) in feedwater::internals::op::examples().iter().enumerate() {
        for image in some_if_interpreted(extreme_images(Size::new(43, 30)), number) {
            check(case(std::slice::from_ref(op), &image));
        }
    }
}

#[test]
fn every_operator_and_chain_in_element_types_and_layouts() {
    let image = random_image(Size::new(50, 37), 3);
    let mut chains: Vec<Operators> =
        feedwater::internals::op::examples().into_iter().map(|op| vec![op]).collect();
    chains.extend([Operators::new(), training(), evaluation(), gray(), gray()[..3].to_vec()]);
    for (number, chain) in chains.iter().enumerate() {
        let pixels = last_pixels(chain);
        let dtypes = DType::ALL.into_iter().filter(|&dtype| output::check(pixels, dtype).is_ok());
        let all: Vec<_> = dtypes.flat_map(|dtype| Layout::ALL.map(|it| (dtype, it))).collect();
        // Every combination of element type and layout has its own kernels to compile and
        // interpret. The code that writes elements is the same after every operator, so a single
        // combination for each operator suffices.
        let some = if tests_all_cases() { all.len() } else { 1 };
        for &(dtype, layout) in all.iter().cycle().skip(number).take(some) {
            check(Case { dtype, layout, ..case(chain, &image) });
        }
    }
}

/// Tests floats that are difficult to round to the 16-bit types: ties, overflow, subnormal numbers
/// and zeros. They reach the tensor as the fill of a crop.
#[test]
fn floats_are_rounded_to_the_nearest_element() {
    let power = |exponent: i32| 2f32.powi(exponent);
    let values = [
        [1.0 + power(-11), 1.0 + 3.0 * power(-11), 1.0 + power(-11) + power(-23)],
        [1.0 + power(-8), 1.0 + 3.0 * power(-8), 1.0 + power(-8) + power(-23)],
        [65504.0, 65519.996, 65520.0],
        [65535.0, 65536.0, 1e6],
        [power(-24), power(-25), power(-25) + power(-48)],
        [3.0 * power(-25), 5.0 * power(-25), power(-14) - power(-25)],
        [power(-14), power(-14) + power(-25), 0.0],
        [f32::MAX, f32::from_bits(0x7f7f_7fff), f32::from_bits(0x7f7f_8000)],
        [f32::MIN_POSITIVE, f32::from_bits(1), f32::from_bits(0x8000)],
    ];
    let image = random_image(Size::new(5, 4), 16);
    for fill in values.into_iter().flat_map(|values| [values, values.map(|value| -value)]) {
        let crop = RandomCrop { padding: [3; 4], fill, ..RandomCrop::to(11, 10) };
        let chain: Operators = vec![Arc::new(Normalize::IMAGENET), Arc::new(crop)];
        for dtype in [DType::F16, DType::BF16] {
            check(Case { dtype, ..case(&chain, &image) });
        }
    }
}

#[test]
fn chains_on_every_size_and_orientation() {
    for chain in [training(), evaluation()] {
        for (width, height) in SIZES {
            let image = random_image(Size::new(width, height), 4);
            for exif in 1..=8 {
                let key = SampleKey { seed: 5, epoch: 0, index: exif.into() };
                let orientation = Orientation::from_exif(exif);
                check(Case { orientation, key, ..case(&chain, &image) });
            }
        }
    }
}

#[test]
fn random_chains() {
    for seed in 0..12 {
        let chain = drawn(seed);
        for (width, height) in [(31, 29), (7, 40)] {
            let image = random_image(Size::new(width, height), seed);
            check(Case { orientation: Orientation::from_exif(6), ..case(&chain, &image) });
        }
    }
}

#[test]
fn the_host_may_run_the_first_operators() {
    let image = random_image(Size::new(50, 37), 6);
    let chain: Operators = vec![
        Arc::new(RandomCrop { padding: [3; 4], ..RandomCrop::to(40, 30) }),
        Arc::new(Normalize::IMAGENET),
        Arc::new(Flip { horizontal: 1.0, vertical: 1.0 }),
        Arc::new(RandomCrop { fill: [0.5, -1.0, 2.0], padding: [9; 4], ..RandomCrop::to(20, 33) }),
    ];
    for on_host in 0..=chain.len() {
        check(Case { on_host, ..case(&chain, &image) });
    }
}

#[test]
fn resampling_up_and_down_by_large_factors() {
    let filters = ["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"];
    for (number, filter) in filters.into_iter().enumerate() {
        let filter: Filter = serde_json::from_value(filter.into()).expect("a filter's name");
        let sizes = vec![((997, 3), (5, 11)), ((2, 1009), (3, 4)), ((3, 2), (101, 89))];
        for (from, to) in some_if_interpreted(sizes, number) {
            let op: Operators = vec![Arc::new(Resize { filter, ..Resize::to(to.0, to.1) })];
            let size = Size::new(from.0, from.1);
            for image in extreme_images(size).iter().chain([&random_image(size, 8)]) {
                check(case(&op, image));
            }
        }
    }
}

#[test]
fn an_image_downscaled_by_the_decoder() {
    for reduction in [2, 4, 8] {
        let image = random_image(Size::new(47, 35), 9);
        for index in 0..20 {
            let key = SampleKey { seed: 10, epoch: 0, index };
            for chain in [training(), evaluation()] {
                check(Case { reduction, key, ..case(&chain, &image) });
            }
        }
    }
}

/// Tests the usual training chain in its real size. Windows differ in position and mirroring, so
/// their rows end at different memory addresses.
#[test]
fn training_in_its_real_size() {
    let chain: Operators = vec![
        Arc::new(RandomResizedCrop::to(224, 224)),
        Arc::new(Flip { horizontal: 0.5, vertical: 0.0 }),
        Arc::new(Normalize::IMAGENET),
    ];
    for (size, samples) in [(Size::new(500, 375), 2), (Size::new(1531, 1024), 1)] {
        let image = random_image(size, 12);
        for index in 0..samples {
            let key = SampleKey { seed: 13, epoch: 0, index };
            check(Case { dtype: DType::F16, key, ..case(&chain, &image) });
        }
    }
}

/// Crops resampled images inside and outside of every border, and mirrors them before and after the
/// crop.
#[test]
fn tiles_may_be_cropped_padded_and_mirrored() {
    let (width, height) = (29, 23);
    let image = random_image(Size::new(width, height), 14);
    let crops: [Arc<dyn Operator>; 6] = [
        Arc::new(op::Crop { x: 0, y: 0, width: 9, height: 30 }),
        Arc::new(op::Crop { x: 13, y: 11, width: 9, height: 9 }),
        Arc::new(op::Crop { x: 2, y: 50, width: 30, height: 9 }),
        Arc::new(CenterCrop::to(37, 14)),
        Arc::new(RandomCrop {
            padding: [5, 3, 2, 7],
            fill: [9.0, 1.0, 200.0],
            ..RandomCrop::to(24, 22)
        }),
        Arc::new(CenterCrop::to(5, 41)),
    ];
    for (place, crop) in crops.iter().enumerate() {
        for (horizontal, vertical) in [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0)] {
            let flip: Arc<dyn Operator> = Arc::new(Flip { horizontal, vertical });
            let chain: Operators = vec![
                Arc::new(Resize::to(21, 19)),
                flip.clone(),
                crop.clone(),
                flip,
                Arc::new(Normalize::IMAGENET),
                crops[(place + 1) % crops.len()].clone(),
            ];
            let layout = if place % 2 == 0 { Layout::Nchw } else { Layout::Nhwc };
            check(Case { dtype: DType::BF16, layout, ..case(&chain, &image) });
        }
    }
}

/// The image has more pixels than one thread block counts into its histogram. No tile size divides
/// its sides.
#[test]
fn tables_of_images_that_several_blocks_count() {
    let image = random_image(Size::new(131, 127), 17);
    let rotation: Arc<dyn Operator> = Arc::new(op::RandomRotation::within(30.0));
    let contrast: Arc<dyn Operator> = Arc::new(op::Contrast { factor: [0.5; 2] });
    let chains: [Operators; 4] = [
        vec![Arc::new(op::Equalize::default()), rotation.clone(), contrast.clone()],
        vec![rotation.clone(), Arc::new(op::Autocontrast::default()), contrast.clone(), contrast],
        vec![Arc::new(op::NormalizeImage { per_channel: true })],
        vec![rotation, Arc::new(op::NormalizeImage::default())],
    ];
    for (number, chain) in chains.iter().enumerate() {
        let layout = Layout::ALL[number % 2];
        check(Case { layout, ..case(chain, &image) });
    }
}

/// Tests affine maps whose positions are summed along rows, along columns, or along both. With
/// strong shears, the positions leave Pillow's range of integers.
#[test]
fn sums_of_positions() {
    let affine = |scale: f64, shear: [f64; 2], translate: [f64; 2]| -> Operators {
        let identity = op::Affine::default();
        vec![Arc::new(op::Affine { scale, shear, translate, ..identity })]
    };
    let chains = [
        affine(0.73, [0.0; 2], [0.0; 2]),
        affine(1.31, [0.0; 2], [5.0, -3.0]),
        affine(3.0, [0.0; 2], [0.0; 2]),
        affine(0.001, [40.0, 0.0], [0.0; 2]),
        affine(0.9, [88.9, 0.0], [0.0; 2]),
        affine(1.1, [88.7, 0.1], [-1.0, 0.0]),
    ];
    for (number, chain) in chains.iter().enumerate() {
        let sizes = vec![(127, 64), (64, 1201), (1, 1), (700, 3), (1201, 64), (1, 90)];
        for (width, height) in some_if_interpreted(sizes, number) {
            check(case(chain, &random_image(Size::new(width, height), 18)));
        }
    }
}

/// Tests images that shrink so much that no tile holds all taps (input pixels) of a column, and
/// images with almost no taps.
#[test]
fn extreme_reductions() {
    let filters = ["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"];
    for (number, filter) in filters.into_iter().enumerate() {
        let filter: Filter = serde_json::from_value(filter.into()).expect("a filter's name");
        let sizes = [((9000, 40), (7, 9)), ((37, 4000), (41, 7)), ((6001, 11), (300, 30))];
        for (from, to) in some_of(sizes, number) {
            let op: Operators = vec![
                Arc::new(Resize { filter, ..Resize::to(to.0, to.1) }),
                Arc::new(Normalize::IMAGENET),
            ];
            let image = random_image(Size::new(from.0, from.1), 15);
            check(Case { dtype: DType::F16, layout: Layout::Nhwc, ..case(&op, &image) });
        }
    }
}

/// The tiled kernel multiplies each of the three bytes of a coefficient separately, and the highest
/// byte is signed. So every coefficient must fit into three bytes.
#[test]
fn coefficients_fit_into_three_bytes() {
    let filters = ["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"];
    let mut largest = 0;
    for filter in filters {
        let filter: Filter = serde_json::from_value(filter.into()).expect("a filter's name");
        for (from, to) in (1..60).flat_map(|from| (1..60).map(move |to| (from, to))) {
            let input = Size::new(from, 1000 + from);
            let output = Size::new(to, 20 * to);
            let mut params = resample::Params::new(input.window(), output);
            let wanted =
                Wanted { input, reduction: 1, padding: Size::default(), output: output.window() };
            let mut table = Vec::new();
            resample::fill_table(&mut params, wanted, filter, &mut table);
            let axes = [params.columns(&table), params.rows(&table)];
            let coefs = axes.iter().flat_map(|axis| (0..axis.len()).map(|at| axis.output(at).1));
            largest = coefs.flatten().map(|k| k.abs()).fold(largest, i32::max);
        }
    }
    assert!((1 << 22..1 << 23).contains(&largest), "{largest}");
}
