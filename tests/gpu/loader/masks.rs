//! Masks that a kernel makes on the device. They have the bits of masks on the CPU.

use common::with_fields::{Values, WithFields};
use common::{png_of_samples, with_orientation};
use feedwater::internals::geometry::Orientation;
use feedwater::internals::plan::SamplePlan;
use feedwater::internals::random::SampleKey;
use feedwater::internals::transform::{DeviceMask, MaskOutputs, Masks, OneHot};
use feedwater::loader::{Batch, Pair, PairOutcome};
use feedwater::op::View;
use feedwater::plan::{ColumnSettings, DefaultValue, Plan};
use feedwater::source::NO_LABEL;
use feedwater::{ElementType, Pipeline, Size};

use super::*;

/// Operators that move pixels, each in the form of a table of TOML.
const MOVES: [&str; 21] = [
    "op = \"center_crop\"\nwidth = 41\nheight = 19",
    "op = \"random_crop\"\nwidth = 22\nheight = 18\npadding = 4\npad_if_needed = true",
    "op = \"random_crop\"\nwidth = 22\nheight = 18\npadding = 4\nmode = \"reflect\"\npad_if_needed = true",
    "op = \"flip\"\nhorizontal = 0.5\nvertical = 0.5",
    "op = \"random_resized_crop\"\nwidth = 23\nheight = 21",
    "op = \"resize\"\nshorter = 30",
    "op = \"resize\"\nwidth = 1\nheight = 33",
    "op = \"random_shortest_size\"\nmin_size = [20, 31]\nmax_size = 70",
    "op = \"random_rotation\"\ndegrees = 30",
    "op = \"random_rotation\"\ndegrees = 180\nexpand = true\ninterpolation = \"bilinear\"",
    "op = \"rotate\"\nangle = 90\nexpand = true",
    "op = \"random_affine\"\ndegrees = 20\ntranslate = [0.2, 0.1]\nscale = [0.6, 1.4]\nshear_x = [-10, 10]",
    "op = \"affine\"\nangle = 0\ntranslate = [2, -3]\nscale = 1.3\ninterpolation = \"bicubic\"",
    "op = \"random_perspective\"\nprobability = 1.0",
    "op = \"elastic\"\nalpha = 40\nsigma = 3",
    "op = \"elastic\"\nalpha = 900\nsigma = 0.1\ninterpolation = \"bilinear\"",
    "op = \"pad\"\npadding = [3, 5, 1, 2]\nmode = \"symmetric\"",
    "op = \"random_zoom_out\"\nprobability = 1.0",
    "op = \"letterbox\"\nwidth = 40\nheight = 33",
    "op = \"random_apply\"\n[[chain.operators]]\nop = \"flip\"\nhorizontal = 1.0",
    "op = \"gaussian_blur\"\nkernel_size = 5",
];

/// Chain of these operators on the CPU, and a last one that is placed on the GPU if possible.
fn chain_of(operators: &[&str], (width, height): (u32, u32)) -> Chain {
    let mut text = "[source]\ndirectory = \"d\"\n".to_string();
    for operator in operators {
        let (first, rest) = operator.split_once('\n').unwrap();
        text += &format!("[[chain]]\n{first}\nplacement = \"cpu\"\n{rest}\n");
    }
    text += &format!("[[chain]]\nop = \"resize\"\nwidth = {width}\nheight = {height}\n");
    Pipeline::from_toml(&text, "").unwrap().chain
}

/// Numbers from 0 to `below` - 1.
fn numbers(seed: u64, count: u32, below: u64) -> impl Iterator<Item = u64> {
    let mixed = move |at: u32| (seed ^ u64::from(at)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
    (0..count).map(move |at| mixed(at) % below)
}

fn png8(seed: u64, (width, height): (u32, u32)) -> Vec<u8> {
    let samples: Vec<u8> = numbers(seed, width * height, 256).map(|it| it as u8).collect();
    png_of_samples(&samples, (width, height), 8, None)
}

fn png16(seed: u64, (width, height): (u32, u32)) -> Vec<u8> {
    let samples = numbers(seed, width * height, 1 << 16);
    let samples: Vec<u8> = samples.flat_map(|it| (it as u16).to_be_bytes()).collect();
    png_of_samples(&samples, (width, height), 16, None)
}

/// Number of classes of one-hot masks.
const CLASSES: u32 = 7;

/// Classes, and `none` for pixels without a class. Stored with 8 bits if `none` allows it.
fn classes(seed: u64, (width, height): (u32, u32), none: u16) -> Vec<u8> {
    let class = |it: u64| if it == u64::from(CLASSES) { none } else { it as u16 };
    let samples = numbers(seed, width * height, u64::from(CLASSES) + 1).map(class);
    match none {
        0..256 => {
            let samples: Vec<u8> = samples.map(|it| it as u8).collect();
            png_of_samples(&samples, (width, height), 8, None)
        }
        _ => {
            let samples: Vec<u8> = samples.flat_map(u16::to_be_bytes).collect();
            png_of_samples(&samples, (width, height), 16, None)
        }
    }
}

/// Sides of images, some of them a single pixel long.
const SIZES: [(u32, u32); 11] = [
    (1, 1),
    (1, 37),
    (41, 1),
    (2, 3),
    (40, 31),
    (33, 64),
    (17, 90),
    (77, 20),
    (64, 64),
    (35, 36),
    (120, 50),
];

/// Images with every orientation, and the values of EXIF for the orientations.
fn images(seed: u64) -> impl Iterator<Item = (Vec<u8>, u16)> {
    (0..).zip(&SIZES).map(move |(number, &(width, height))| {
        let value = 1 + (number % 8) as u16;
        (with_orientation(&common::jpeg(seed * 100 + number, width, height), value), value)
    })
}

/// [`images`] with masks. Each has masks of the upright image: of 8 bits (`mask`), of 16
/// bits (`wide`) and of half the size (`half`), and one of the image as stored (`stored`). Two have
/// only classes, and 255 or 259 for none (`classes`, `far`).
pub fn source(seed: u64) -> WithFields {
    let [mut mask, mut wide, mut half, mut stored, mut near, mut far] = [const { Vec::new() }; 6];
    for ((_, value), (seed, &(width, height))) in images(seed).zip((seed * 100..).zip(&SIZES)) {
        let upright = Orientation::from_exif(value).upright_size(Size::new(width, height));
        let size = (upright.width, upright.height);
        mask.push(png8(seed, size));
        wide.push(png16(seed + 1, size));
        half.push(png8(seed + 2, (size.0.div_ceil(2), size.1.div_ceil(3))));
        stored.push(png8(seed + 3, (width, height)));
        near.push(classes(seed + 4, size, 255));
        far.push(classes(seed + 5, size, 259));
    }
    let fields = [
        ("mask", mask),
        ("wide", wide),
        ("half", half),
        ("stored", stored),
        ("classes", near),
        ("far", far),
    ];
    let fields = fields.map(|(name, files)| (name, Values::Files(files))).into();
    let images = images(seed).map(|(bytes, _)| (bytes, 0)).collect();
    WithFields { images: Memory::new(images).unwrap(), fields }
}

pub fn columns() -> Vec<ColumnSettings> {
    [columns_of_numbers(), one_hot_columns()].concat()
}

/// One-hot masks of every element type.
pub fn one_hot_columns() -> Vec<ColumnSettings> {
    let column = |name: &str, dtype, fill| ColumnSettings {
        field: name.split(' ').next().map(String::from),
        dtype: Some(dtype),
        one_hot: Some(CLASSES),
        fill,
        ..ColumnSettings::mask(name)
    };
    vec![
        column("classes", ElementType::F32, None),
        column("classes f16", ElementType::F16, None),
        column("classes bf16", ElementType::BF16, None),
        column("classes u8", ElementType::U8, None),
        // The lower byte of 259 is a class.
        column("far f16", ElementType::F16, Some(259.0)),
    ]
}

fn columns_of_numbers() -> Vec<ColumnSettings> {
    let column = |name: &str, dtype, fill| ColumnSettings {
        field: name.split(' ').next().map(String::from),
        dtype: Some(dtype),
        fill: Some(fill),
        ..ColumnSettings::mask(name)
    };
    vec![
        column("mask", ElementType::U8, 255.0),
        column("wide i64", ElementType::I64, -100.0),
        column("wide f32", ElementType::F32, -0.5),
        column("mask i64", ElementType::I64, 1e9),
        ColumnSettings { scale: true, ..column("half", ElementType::F32, f64::from(f32::MAX)) },
        ColumnSettings { turn: true, ..column("stored", ElementType::U8, 7.0) },
        ColumnSettings { turn: true, scale: true, ..column("stored f32", ElementType::F32, 0.0) },
    ]
}

/// Checks that a batch on the device has the bits of one on the CPU, and that its masks are on the
/// device only.
pub fn check(gpu: &Batch, cpu: &Batch, what: &str) {
    for (column, expected) in gpu.columns().zip(cpu.columns()) {
        assert_eq!(format!("{column:?}"), format!("{expected:?}"), "{what}");
        let [made, expected] = [column, expected].map(|it| it.to_host().unwrap());
        let differs = || made.iter().zip(&expected).position(|it| it.0 != it.1);
        assert!(made == expected, "{what} {}: byte {:?}", column.name(), differs());
        if !["image", "label"].contains(&column.name()) {
            assert_eq!((column.bytes(), column.device_ptr().is_some()), (None, true), "{what}");
        }
    }
}

#[test]
fn masks_of_random_chains_equal_those_of_the_cpu() {
    let Some(machine) = machine() else { return };
    machine.schedule(Schedule::Random(8));
    let mut choices = numbers(5, 1000, MOVES.len() as u64).map(|it| MOVES[it as usize]);
    // Each operator alone, then random chains.
    let alone = MOVES.map(|operator| vec![operator]);
    let random = (0..14).map(|number| choices.by_ref().take(number % 4).collect::<Vec<_>>());
    let chains: Vec<_> = alone.into_iter().chain(random).collect();
    for (number, operators) in chains.iter().enumerate() {
        let size = [(25, 20), (1, 1), (33, 9)][number % 3];
        let make = |device| {
            let builder = Loader::builder(source(number as u64), chain_of(operators, size));
            let builder = settled(builder).epochs(Some(1)).device(device).runtime(&runtime());
            builder.configure(|it| {
                it.loader.last_batch = LastBatch::Partial;
                it.output.layout = Layout::ALL[number % 2];
                it.columns = columns();
            })
        };
        let mut cpu = make(DeviceChoice::Cpu).build().unwrap();
        let mut gpu = make(DeviceChoice::Gpu(0)).build().unwrap();
        let mut compared = 0;
        for (gpu, cpu) in gpu.epoch().zip(cpu.epoch()) {
            let (gpu, cpu) = (gpu.unwrap(), cpu.unwrap());
            check(&gpu, &cpu, &format!("{operators:?}"));
            compared += gpu.len();
        }
        assert_eq!(compared, SIZES.len());
        fits_the_page(gpu.plan(), number as u64, operators);
    }
    assert_eq!(machine.counts().live(), 0);
    assert_clean(&machine, "end");
}

/// Checks that the planned memory suffices for all masks, so that the kernel makes them.
fn fits_the_page(plan: &Plan, seed: u64, operators: &[&str]) {
    let source = source(seed);
    let (mut masks, mut sample) = (Masks::default(), SamplePlan::default());
    for (index, (bytes, _)) in images(seed).enumerate() {
        let header = plan.header(&bytes).unwrap();
        let key = SampleKey { seed: 3, epoch: 0, index: index as u64 };
        plan.sample(key, &header, &mut sample).unwrap();
        let planned = &plan.device.as_ref().unwrap().masks;
        assert_eq!(planned.len(), plan.settings.columns.len());
        for (mask, settings) in planned.iter().zip(&plan.settings.columns) {
            let field = settings.field.as_deref().unwrap();
            let values = source.fields.iter().find(|it| it.0 == field).map(|it| &it.1);
            let Some(Values::Files(files)) = values else { panic!("{field}") };
            let image = (&header, plan, std::slice::from_ref(&sample));
            let one_hot = OneHot::of(settings, plan.shape, MemoryKind::Device);
            let outputs = MaskOutputs::new(settings, one_hot, image);
            masks.decode(&files[index], &outputs, &header).unwrap();
            let (mut bytes, mut used) = (vec![0; mask.bytes], 0);
            let memory = DeviceMask {
                bytes: &mut bytes,
                address: 0,
                used: &mut used,
                outputs: mask.outputs,
                format: mask.format,
            };
            assert!(masks.write_for_kernel(&outputs, memory), "{operators:?} {field}");
            // Less memory does not suffice, and the mask is then moved on the CPU.
            bytes.truncate(used - 1);
            let memory = DeviceMask {
                bytes: &mut bytes,
                address: 0,
                used: &mut used,
                outputs: mask.outputs,
                format: mask.format,
            };
            assert!(!masks.write_for_kernel(&outputs, memory), "{operators:?} {field}");
        }
    }
}

/// Masks of views with several outputs, missing and wrong masks, numbers beyond the element type,
/// and an operator that the kernel cannot follow.
#[test]
fn masks_that_fail_or_are_missing_equal_those_of_the_cpu() {
    let Some(machine) = machine() else { return };
    machine.schedule(Schedule::Random(9));
    let source = || {
        let mut source = source(3);
        for (_, values) in &mut source.fields {
            let Values::Files(files) = values else { continue };
            files[2].clear();
            files[5] = b"no mask".to_vec();
        }
        let Values::Files(masks) = &mut source.fields[0].1 else { unreachable!() };
        // The crop of the view, but not the image, shows one of the numbers above 255.
        let mut samples = vec![0; 2 * 64 * 64];
        samples[2 * (32 * 64 + 32)] = 1;
        masks[8] = png_of_samples(&samples, (64, 64), 16, None);
        // Only one pixel of many has a number that is no class.
        let Values::Files(classes) = &mut source.fields[4].1 else { unreachable!() };
        let mut samples = vec![1; 40 * 31];
        samples[0] = CLASSES as u8;
        classes[4] = png_of_samples(&samples, (40, 31), 8, None);
        source
    };
    let with_default = |column: ColumnSettings| ColumnSettings {
        name: format!("{} or 6", column.name),
        default: Some(DefaultValue::Integer(6)),
        ..column
    };
    let views = || {
        let crop = |side| Chain::new().then(op::RandomResizedCrop::to(side, side + 2));
        Chain::new()
            .then(Invert)
            .then(op::RandomResizedCrop::to(24, 20))
            .then(op::Normalize::IMAGENET)
            .view(View::new("crops", crop(9)).count(3))
            .view(View::new("same", crop(7)).like("image"))
    };
    for (policy, columns) in [
        (OnError::Drop, columns()),
        (OnError::Substitute, columns()),
        (OnError::Skip, columns()),
        (OnError::Substitute, columns().into_iter().map(with_default).collect()),
    ] {
        let mut columns = columns;
        for like in ["crops", "same"] {
            let of_view = |column: &ColumnSettings| ColumnSettings {
                name: format!("{} of {like}", column.name),
                field: column.field.clone().or(Some(column.name.clone())),
                like: Some(like.into()),
                ..column.clone()
            };
            let of_views = columns.iter().filter(|it| it.like.is_none()).skip(1).step_by(2);
            let more: Vec<_> = of_views.map(of_view).collect();
            columns.extend(more);
        }
        let make = |device| {
            let builder = settled(Loader::builder(source(), views()));
            let builder = builder.epochs(Some(2)).device(device).runtime(&runtime());
            builder.on_error(policy).configure(|it| {
                it.loader.last_batch = LastBatch::Partial;
                it.output.layout =
                    if policy == OnError::Drop { Layout::Nhwc } else { Layout::Nchw };
                it.columns = columns.clone();
            })
        };
        let mut cpu = make(DeviceChoice::Cpu).build().unwrap();
        let mut gpu = make(DeviceChoice::Gpu(0)).build().unwrap();
        for _ in 0..2 {
            let mut failed = 0;
            for (gpu, cpu) in gpu.epoch().zip(cpu.epoch()) {
                let (gpu, cpu) = (gpu.unwrap(), cpu.unwrap());
                let errors = |batch: &Batch| {
                    let mut errors: Vec<_> =
                        batch.errors().iter().map(ToString::to_string).collect();
                    errors.sort();
                    errors
                };
                assert_eq!(errors(&gpu), errors(&cpu));
                failed += gpu.errors().len();
                for (column, expected) in gpu.columns().zip(cpu.columns()) {
                    assert!(column.to_host().unwrap() == expected.to_host().unwrap(), "{column:?}");
                }
            }
            assert!(failed > 0, "{policy:?}");
        }
    }
    assert_eq!(machine.counts().live(), 0);
}

/// Without labels, kernels mix images and masks, and there are no soft targets.
#[test]
fn masks_are_mixed_without_labels() {
    let Some(machine) = machine() else { return };
    machine.schedule(Schedule::Random(10));
    let operators: [fn(Chain) -> Chain; 3] = [
        |chain| chain.then_batch(op::CutMix::default()),
        |chain| chain.then_batch(op::Mixup::default()),
        |chain| chain.then_batch(op::MixupOrCutMix::default()).then_batch(op::CutMix::alpha(1.0)),
    ];
    let sizes = [(25, 20), (1, 1), (33, 9), (40, 16)];
    let cases = Layout::ALL.into_iter().flat_map(|layout| sizes.map(|size| (layout, size)));
    for (number, operator) in operators.into_iter().enumerate() {
        let mut mixed = 0;
        for (layout, size) in cases.clone() {
            let make = |device| {
                let WithFields { fields, .. } = source(3);
                let images = images(3).map(|(bytes, _)| (bytes, NO_LABEL)).collect();
                let source = WithFields { images: Memory::new(images).unwrap(), fields };
                let chain = operator(chain_of(&[MOVES[0]], size));
                let builder = settled(Loader::builder(source, chain)).epochs(Some(3));
                let builder = builder.device(device).runtime(&runtime());
                builder.configure(|it| {
                    it.output.layout = layout;
                    it.columns = columns();
                    if number > 0 {
                        // The operator makes fractions.
                        it.columns
                            .retain(|it| it.one_hot.is_some() && it.dtype != Some(ElementType::U8));
                    }
                })
            };
            let [mut cpu, mut gpu] = [DeviceChoice::Cpu, DeviceChoice::Gpu(0)]
                .map(|device| make(device).build().unwrap());
            for _ in 0..3 {
                for (gpu, cpu) in gpu.epoch().zip(cpu.epoch()) {
                    let (gpu, cpu) = (gpu.unwrap(), cpu.unwrap());
                    check(&gpu, &cpu, &format!("{number} {layout} {size:?}"));
                    assert!(gpu.columns().all(|it| it.name() != "target") && gpu.classes() == 0);
                    let is_mixed = |it: &&Pair| it.outcome() == PairOutcome::Mixed;
                    mixed += gpu.pairs().iter().filter(is_mixed).count();
                }
            }
            let memory = gpu.stats().memory;
            assert_eq!(memory.device_bytes_predicted, machine.counts().device.bytes);
        }
        assert!(mixed > 30, "{number} {mixed}");
    }
    assert_clean(&machine, "end");
}

/// The memory of masks is in the plan, and nothing is allocated after the start.
#[test]
fn memory_of_masks_equals_the_plan() {
    let Some(machine) = machine() else { return };
    let chain = chain_of(&[MOVES[0], MOVES[14]], (25, 20)).then_batch(op::CutMix::default());
    let builder = settled(Loader::builder(source(1), chain)).configure(|it| {
        it.targets.classes = Some(2);
        it.columns = columns();
    });
    let mut loader = builder.device(DeviceChoice::Gpu(0)).runtime(&runtime()).build().unwrap();
    for memory in [MemoryKind::Device, MemoryKind::Pinned] {
        let of_memory = loader.footprint().rows.iter().filter(|row| row.memory == memory);
        let names: Vec<_> = of_memory.map(|row| &row.name[..]).collect();
        for name in ["masks", "mask parameters", "pair parameters"] {
            assert!(names.contains(&name), "{name} {names:?}");
        }
        let of_columns = names.iter().filter(|name| **name == "columns").count();
        assert_eq!(of_columns, if memory == MemoryKind::Device { columns().len() } else { 0 });
    }
    let taken = machine.counts();
    for batch in loader.epoch() {
        batch.unwrap();
    }
    let after = machine.counts();
    assert_eq!(taken.device.peak_bytes, after.device.peak_bytes);
    assert_eq!(taken.pinned.peak_bytes, after.pinned.peak_bytes);
    let memory = loader.stats().memory;
    assert_eq!(memory.device_bytes_predicted, after.device.bytes);
    assert_eq!(memory.pinned_bytes_predicted, after.pinned.bytes);
}
