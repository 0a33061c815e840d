//! The CUDA sources of the kernels `mix` and `mix_masks`, compiled for the host, compute the same
//! bits as the Rust functions.

use feedwater::internals::geometry::{Roi, Size};
use feedwater::internals::gpu::host_kernel::{Guarded, HostCompiler};
use feedwater::internals::op::batch::{
    MaskPairParams, PairParams, TargetCoding, mix_kernel_text, mix_masks_kernel_text, plain_row,
    target_rows,
};
use feedwater::internals::op::mask::MaskFormat;
use feedwater::internals::random::{SampleKey, SampleRng};
use feedwater::internals::tensor::{DType, ElementType, Layout, TensorShape};
use feedwater::internals::transform::blend_pair::{blend, blend_masks, reference};
use feedwater::op::{BatchOperator, Blends, PairDraw};

const CLASSES: u32 = 1003;

/// A batch operator that draws up to four blends. Their boxes are inside and outside of the image,
/// and some weights are at the ends of the range.
#[derive(Debug)]
struct Anything;

impl BatchOperator for Anything {
    fn name(&self) -> &'static str {
        "anything"
    }

    fn draw(&self, draw: &mut PairDraw<'_>) {
        let Size { width, height } = draw.size();
        for _ in 0..draw.rng().below(5) {
            let [x, y, w, h] = [width, height, width + 3, height + 3]
                .map(|most| draw.rng().below(u64::from(most) + 1) as u32);
            let window =
                if draw.rng().chance(0.3) { draw.size().window() } else { Roi::new(x, y, w, h) };
            let weight = match draw.rng().below(5) {
                0 => 0.0,
                1 => 1.0,
                2 => 1e-7,
                _ => draw.rng().uniform() as f32,
            };
            draw.blend(window, weight, 1.0 - weight);
        }
    }
}

/// Returns random finite elements of any magnitude. Most of them are far from values that images
/// have.
fn elements(shape: TensorShape, rng: &mut SampleRng) -> Vec<u8> {
    let element = |rng: &mut SampleRng| {
        let bits = rng.bits();
        match shape.dtype {
            DType::U8 => vec![bits as u8],
            // An element with the largest exponent is an infinity or NaN, so it is replaced by 0.
            DType::F16 if bits & 0x7c00 == 0x7c00 => vec![0; 2],
            DType::BF16 if bits & 0x7f80 == 0x7f80 => vec![0; 2],
            DType::F16 | DType::BF16 => (bits as u16).to_ne_bytes().to_vec(),
            _ if bits & 0x7f80_0000 == 0x7f80_0000 => vec![0; 4],
            _ => bits.to_ne_bytes().to_vec(),
        }
    };
    (0..shape.sample_len()).flat_map(|_| element(rng)).collect()
}

#[test]
fn the_kernel_equals_the_reference_and_the_fast_path() {
    let compiler = HostCompiler::of_process();
    let operators: [std::sync::Arc<dyn BatchOperator>; 1] = [std::sync::Arc::new(Anything)];
    let coding = TargetCoding::new(CLASSES, 0.1);
    let sizes = [Size::new(1, 1), Size::new(37, 11), Size::new(64, 40)];
    let layouts = [(Layout::Nchw, 3), (Layout::Nhwc, 3), (Layout::Nhwc, 1)];
    let kinds = DType::ALL.into_iter().flat_map(|it| layouts.map(|layout| (it, layout)));
    let mut most = 0;
    for (dtype, (layout, channels)) in kinds {
        let shape = TensorShape { batch: 2, width: 1, height: 1, channels, dtype, layout };
        let text = mix_kernel_text(shape);
        let kernel = compiler.compile("mix", &text).unwrap_or_else(|error| panic!("{error:?}"));
        for (number, size) in (0..24u64).zip(sizes.iter().cycle()) {
            let shape = TensorShape { width: size.width, height: size.height, ..shape };
            let key = SampleKey { seed: 3, epoch: 0, index: number };
            let rng = &mut SampleRng::new(key, 1);
            let blends = Blends::draw(&operators, *size, key);
            most = most.max(blends.len());
            let labels = [5, number as u32 % 7].map(|label| (label > 0).then_some(label));
            let rows = target_rows(labels, coding, &blends);
            let mut images = [(); 2].map(|()| {
                let mut memory = Guarded::new(shape.sample_bytes());
                memory.bytes_mut().copy_from_slice(&elements(shape, rng));
                memory
            });
            let mut targets = [(); 2].map(|()| Guarded::new(4 * CLASSES as usize));
            let [mut expected, mut fast] =
                [(); 2].map(|()| images.each_mut().map(|it| it.bytes_mut().to_vec()));
            for blend in blends.iter() {
                let [a, b] = &mut expected;
                reference(shape, blend, [a, b]);
            }
            let mut words = fast.map(|bytes| {
                let mut words = vec![0u32; bytes.len().div_ceil(4)];
                bytemuck::cast_slice_mut(&mut words)[..bytes.len()].copy_from_slice(&bytes);
                words
            });
            let bytes = shape.sample_bytes();
            let [a, b] = words.each_mut().map(|it| &mut bytemuck::cast_slice_mut(it)[..bytes]);
            blend(shape, &blends, [a, b]);
            fast = words.map(|it| bytemuck::cast_slice(&it)[..bytes].to_vec());

            let address = |it: &Guarded| it.as_ptr() as u64;
            let [images_at, targets_at] = [&images, &targets].map(|it| it.each_ref().map(address));
            let params = PairParams::new(images_at, targets_at, rows, CLASSES, &blends);
            kernel.launch_named("mix", bytemuck::bytes_of(&params), 1, *size, (32, 8));

            let what = format!("{dtype} {layout} {size} {:?}", &blends[..]);
            let made = images.each_mut().map(|it| it.bytes_mut().to_vec());
            assert!(made == expected, "{what}");
            assert!(fast == expected, "fast {what}");
            for (row, made) in rows.iter().zip(&mut targets) {
                let mut expected = vec![0f32; CLASSES as usize];
                row.write(&mut expected);
                assert_eq!(made.bytes_mut(), bytemuck::cast_slice::<f32, u8>(&expected), "{what}");
            }
        }
    }
    assert_eq!(most, Blends::MOST);
}

/// The kernel `mix_masks` blends one-hot masks, and exchanges the elements of other masks, like the
/// function for the CPU and the reference, also in windows that overlap.
#[test]
fn the_kernel_blends_and_exchanges_masks() {
    let kernel = HostCompiler::of_process().compile("mix_masks", &mix_masks_kernel_text());
    let kernel = kernel.unwrap_or_else(|error| panic!("{error:?}"));
    let operators: [std::sync::Arc<dyn BatchOperator>; 1] = [std::sync::Arc::new(Anything)];
    let sizes = [Size::new(1, 1), Size::new(37, 11), Size::new(64, 40)];
    let numbers = [ElementType::U8, ElementType::I64, ElementType::F32].map(|it| (it, None));
    let one_hot = [ElementType::F32, ElementType::F16, ElementType::BF16, ElementType::U8];
    let one_hot = one_hot.into_iter().flat_map(|element| {
        let classes = [1, 2, 5].into_iter().flat_map(|it| Layout::ALL.map(|layout| (it, layout)));
        classes.map(move |it| (element, Some(it)))
    });
    let formats: Vec<_> = numbers.into_iter().chain(one_hot).collect();
    let (mut most, mut blended) = (0, 0);
    for (number, &size) in (0..24u64).zip(sizes.iter().cycle()) {
        let key = SampleKey { seed: 4, epoch: 0, index: number };
        let blends = Blends::draw(&operators, size, key);
        most = most.max(blends.len());
        for &(element, classes) in &formats {
            let format = MaskFormat { size, element, classes };
            let rng = &mut SampleRng::new(key, 1);
            let mut masks = [(); 2].map(|()| {
                let mut memory = Guarded::new(format.bytes());
                match format.one_hot_shape() {
                    Some(shape) => memory.bytes_mut().copy_from_slice(&elements(shape, rng)),
                    None => memory.bytes_mut().fill_with(|| rng.bits() as u8),
                }
                memory
            });
            let before = masks.each_mut().map(|it| it.bytes_mut().to_vec());
            let mut expected = before.clone();
            for mut blend in blends.iter().copied() {
                let numbers = TensorShape {
                    batch: 1,
                    width: size.width,
                    height: size.height,
                    // The reference moves the bytes of elements of 8 bytes in parts of one.
                    channels: element.bytes(),
                    dtype: DType::U8,
                    layout: Layout::Nhwc,
                };
                if classes.is_none() {
                    blend.weight = 0.0;
                }
                let [a, b] = &mut expected;
                reference(format.one_hot_shape().unwrap_or(numbers), &blend, [a, b]);
            }
            // Aligned for every element type.
            let mut words = before.each_ref().map(|it| vec![0u64; it.len().div_ceil(8)]);
            let mut fast = words.each_mut().map(|it| bytemuck::cast_slice_mut(it));
            for (fast, before) in fast.iter_mut().zip(&before) {
                *fast = &mut std::mem::take(fast)[..before.len()];
                fast.copy_from_slice(before);
            }
            blend_masks(&format, &blends, fast.each_mut().map(|it| &mut **it));
            let addresses = masks.each_ref().map(|it| it.as_ptr() as u64);
            let params = MaskPairParams::new(addresses, &format, &blends);
            let grid = Size::new(MaskPairParams::row_len(&format), size.height);
            kernel.launch_named("mix_masks", bytemuck::bytes_of(&params), 1, grid, (32, 8));
            let what = format!("{format:?} {:?}", &blends[..]);
            let made = masks.each_mut().map(|it| it.bytes_mut().to_vec());
            assert!(made == expected, "{what}");
            assert!(fast.iter().zip(&expected).all(|(fast, it)| *fast == it), "fast {what}");
            blended += usize::from(made != before);
        }
    }
    assert!(most == Blends::MOST && blended > 200, "{most} {blended}");
}

/// For a sample without a partner, the kernel writes the soft target and does not change the
/// pixels.
#[test]
fn the_kernel_writes_the_target_of_a_single_sample() {
    let compiler = HostCompiler::of_process();
    let (dtype, layout) = (DType::U8, Layout::Nchw);
    let shape = TensorShape { batch: 2, width: 1, height: 1, channels: 3, dtype, layout };
    let text = mix_kernel_text(shape);
    let kernel = compiler.compile("mix", &text).unwrap_or_else(|error| panic!("{error:?}"));
    for label in [Some(2), None] {
        let row = plain_row(label, TargetCoding::new(4, 0.0));
        let (mut image, mut target) = (Guarded::new(12), Guarded::new(16));
        let [images, targets] = [&image, &target].map(|it| [it.as_ptr() as u64, 0]);
        let params = PairParams::new(images, targets, [row; 2], 4, &Blends::NONE);
        kernel.launch_named("mix", bytemuck::bytes_of(&params), 1, Size::new(2, 2), (32, 8));
        assert_eq!(image.bytes_mut(), [0; 12]);
        let on = if label.is_some() { 1.0 } else { 0.0 };
        assert_eq!(
            bytemuck::pod_collect_to_vec::<u8, f32>(target.bytes_mut()),
            [0.0, 0.0, on, 0.0]
        );
    }
}
