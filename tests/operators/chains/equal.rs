//! Compares the reference, the CPU transform and the kernels (compiled for the host), for all pairs
//! of operators and for random chains.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use feedwater::internals::geometry::{Orientation, Size};
use feedwater::internals::gpu::host_kernel::HostCompiler;
use feedwater::internals::image::{HostImage, Image, PixelType};
use feedwater::internals::op::Actions;
use feedwater::internals::random::SampleKey;
use feedwater::internals::tensor::{DType, Layout};
use feedwater::internals::testing::{Case, Kernels, extreme_images, random_image};
use feedwater::op::{Grayscale, Kind, Operator};

use super::drawn::{EXAMPLES, chain, numbers};
use crate::common::{some_of, tests_all_cases};

/// Compiler that builds kernels for the host. It keeps compiled kernels in a folder, because other
/// tests compile the same CUDA sources.
static COMPILER: LazyLock<HostCompiler> = LazyLock::new(|| {
    let folder = concat!(env!("CARGO_TARGET_TMPDIR"), "/feedwater-host-kernels");
    HostCompiler::keeping_in(folder).expect("the target directory can be written")
});

/// Kinds of the actions of all built-in operators. If the CUDA source of a kernel supports all of
/// them, only a few kernels must be compiled for all chains.
static KNOWN: LazyLock<Vec<Kind>> = LazyLock::new(|| {
    let kinds = EXAMPLES.iter().flat_map(|op| op.kinds().list().to_vec());
    kinds.filter(|kind| kind.cuda().is_some()).collect()
});

/// Compares the implementations of a chain on an image that is stored with an EXIF orientation.
/// `name` tells in messages how to repeat the case.
fn check(operators: &[Arc<dyn Operator>], stored: &Image<u8>, exif: u16, seed: u64, name: &str) {
    let pixels = |before, op: &Arc<dyn Operator>| op.pixels(before).expect("a valid chain");
    let is_bytes = operators.iter().fold(PixelType::U8, pixels) == PixelType::U8;
    let key = SampleKey { seed, epoch: 1, index: seed };
    let orientation = Orientation::from_exif(exif);
    let case = Case {
        operators,
        on_host: seed as usize % (operators.len() + 1),
        stored,
        orientation,
        reduction: 1,
        dtype: if is_bytes { DType::U8 } else { DType::F32 },
        layout: Layout::Nchw,
        key,
        kernels: Kernels::HostPrograms(&COMPILER),
        planes: None,
        known: &KNOWN,
    };
    case.check().unwrap_or_else(|error| panic!("{name}: {error}"));
    if !is_bytes {
        let size = orientation.upright_size(stored.window().size());
        let actions = Actions::of(operators.iter().map(|it| &**it), key, size);
        // No value may become NaN. Any pixels of the right size can show that, so the orientation
        // is ignored here.
        let image = HostImage::U8(Image::from_data(size.window(), stored.data().to_vec()));
        let HostImage::F32(result) = actions.reference(&image) else { panic!("{name}: floats") };
        assert!(result.data().iter().all(|value| !value.is_nan()), "{name}: NaN in {operators:?}");
    }
}

/// Calls `check` with each number below `count`, on two threads.
fn each(count: usize, check: impl Fn(usize) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let numbers = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
                numbers.take_while(|&number| number < count).for_each(&check);
            });
        }
    });
}

#[test]
fn chains_of_two_operators_equal_their_reference() {
    let sizes = [(13, 17), (31, 9), (7, 22), (1, 5), (19, 1)];
    let images = sizes.map(|(width, height)| random_image(Size::new(width, height), 1));
    let count = EXAMPLES.len();
    let pairs = (0..count).flat_map(|first| some_of(0..count, first).map(move |it| (first, it)));
    let pairs: Vec<_> = pairs.collect();
    each(pairs.len(), |number| {
        let (first, second) = pairs[number];
        let pair = [EXAMPLES[first].clone(), EXAMPLES[second].clone()];
        if pair[0].pixels(PixelType::U8).and_then(|it| pair[1].pixels(it)).is_ok()
            && pair[0].channels(3).and_then(|it| pair[1].channels(it)).is_ok()
        {
            let image = &images[(first + second) % images.len()];
            let seed = (first * count + second) as u64;
            check(&pair, image, 1, seed, &format!("examples {first} and {second}"));
        }
    });
}

#[test]
fn a_thousand_random_chains_equal_their_reference() {
    each(1000, |seed| {
        let rng = &mut numbers(seed as u64);
        let size = match rng.below(8) {
            0 => Size::new(1, 1),
            1 => Size::new(1, 1 + rng.below(60) as u32),
            2 => Size::new(1 + rng.below(60) as u32, 1),
            _ => Size::new(1 + rng.below(45) as u32, 1 + rng.below(45) as u32),
        };
        let image = match rng.below(4) {
            0 => extreme_images(size).swap_remove(rng.below(4) as usize),
            _ => random_image(size, seed as u64),
        };
        let exif = if rng.chance(0.3) { 1 + rng.below(8) as u16 } else { 1 };
        let chain = chain(rng, Orientation::from_exif(exif).upright_size(size), 20_000);
        check(&chain, &image, exif, seed as u64, &format!("seed {seed}"));
    });
}

#[test]
fn chains_of_every_operator_and_normalize_are_never_nan() {
    let normalize: [Arc<dyn Operator>; 3] = [
        Arc::new(feedwater::op::Normalize::IMAGENET),
        Arc::new(feedwater::op::NormalizeImage { per_channel: false }),
        Arc::new(feedwater::op::NormalizeImage { per_channel: true }),
    ];
    for size in [Size::new(1, 1), Size::new(1, 23), Size::new(29, 1), Size::new(6, 5)] {
        for (number, image) in extreme_images(size).iter().enumerate() {
            for (place, example) in some_of(EXAMPLES.iter().enumerate(), number) {
                let last = &normalize[(place + number) % normalize.len()];
                let name = format!("example {place}, {size}, image {number}");
                match example.pixels(PixelType::U8) {
                    Ok(PixelType::U8) if example.channels(3) == Ok(3) => {
                        check(&[example.clone(), last.clone()], image, 1, 1, &name);
                    }
                    _ => check(std::slice::from_ref(example), image, 1, 1, &name),
                }
            }
        }
    }
}

/// Operators that accept an image with one channel keep its three channels equal, so that the first
/// one is the image.
#[test]
fn chains_on_gray_images_keep_the_channels_equal() {
    let mut compared = 0;
    for seed in 0..if tests_all_cases() { 20_000 } else { 2000 } {
        let rng = &mut numbers(seed);
        let size = Size::new(1 + rng.below(40) as u32, 1 + rng.below(40) as u32);
        let mut operators = chain(rng, size, 20_000);
        let accepts = |op: &Arc<dyn Operator>| op.channels(1) == Ok(1);
        if !operators.iter().all(accepts) {
            continue;
        }
        operators.insert(0, Arc::new(Grayscale { channels: 1 }));
        let key = SampleKey { seed, epoch: 0, index: seed };
        let actions = Actions::of(operators.iter().map(|it| &**it), key, size);
        let unequal = match actions.reference(&HostImage::U8(random_image(size, seed))) {
            HostImage::U8(image) => unequal(image.data()),
            HostImage::F32(image) => unequal(image.data()),
        };
        assert_eq!(unequal, None, "seed {seed}: {operators:?}");
        compared += 1;
    }
    assert!(compared > 100, "{compared}");
}

/// First pixel whose channels differ.
fn unequal<T: PartialEq>(data: &[T]) -> Option<usize> {
    data.chunks_exact(3).position(|pixel| pixel[0] != pixel[1] || pixel[1] != pixel[2])
}
