//! One-hot masks that a kernel makes on the device.

use common::png_of_samples;
use common::with_fields::{Values, WithFields};
use feedwater::internals::random::{SampleKey, SampleRng};
use feedwater::loader::Batch;
use feedwater::plan::ColumnSettings;
use feedwater::{ElementType, Size};

use super::masks::{self, check};
use super::*;

/// Images of 40 samples, of which one is much larger than the others, and a mask of each with the
/// numbers 0 to 259.
fn source() -> SlowShuffled<WithFields> {
    let (mut images, mut masks) = (Vec::new(), Vec::new());
    for number in 0..40_u32 {
        let (width, height) = if number == 8 { (400, 330) } else { (20 + number, 31) };
        images.push((common::jpeg(number.into(), width, height), 0));
        let number = |at: u32| (at.wrapping_mul(2_654_435_761) ^ number) >> 7;
        let samples = (0..width * height).map(|at| (number(at) % 260) as u16);
        let samples: Vec<u8> = samples.flat_map(u16::to_be_bytes).collect();
        masks.push(png_of_samples(&samples, (width, height), 16, None));
    }
    let fields = vec![("mask", Values::Files(masks))];
    SlowShuffled(WithFields { images: Memory::new(images).unwrap(), fields })
}

/// With more than 255 classes, the number of a class has two bytes. The plan inspects only some
/// samples. The mask of the one large image does not fit into a page, and is moved on the CPU.
#[test]
fn masks_of_many_classes_and_large_masks_equal_those_of_the_cpu() {
    let Some(machine) = machine() else { return };
    machine.schedule(Schedule::Random(12));
    for (layout, dtype, classes) in [
        (Layout::Nchw, ElementType::U8, 260),
        (Layout::Nhwc, ElementType::F16, 260),
        (Layout::Nhwc, ElementType::F32, 300),
    ] {
        let make = |device| {
            let chain =
                Chain::new().then(op::Resize::to(7, 6)).then(op::RandomRotation::within(90.0));
            let builder = settled(Loader::builder(source(), chain)).device(device);
            let builder = builder.runtime(&runtime()).epochs(Some(1)).configure(|it| {
                it.output.layout = layout;
                it.columns = vec![ColumnSettings {
                    dtype: Some(dtype),
                    one_hot: Some(classes),
                    fill: Some(65535.0),
                    ..ColumnSettings::mask("mask")
                }];
            });
            builder.build().unwrap()
        };
        let (mut cpu, mut gpu) = (make(DeviceChoice::Cpu), make(DeviceChoice::Gpu(0)));
        let planned = &gpu.plan().device.as_ref().unwrap().masks[0];
        assert!(planned.bytes < 2 * Size::new(400, 330).pixels() as usize, "{planned:?}");
        let mut ones = 0;
        for (gpu, cpu) in gpu.epoch().zip(cpu.epoch()) {
            let (gpu, cpu): (Batch, Batch) = (gpu.unwrap(), cpu.unwrap());
            check(&gpu, &cpu, &format!("{layout} {dtype} {classes}"));
            let mask = gpu.column("mask").unwrap().to_host().unwrap();
            let is_one = |it: &&[u8]| it.iter().any(|&byte| byte != 0);
            ones += mask.chunks_exact(dtype.bytes()).filter(is_one).count();
        }
        // Rotations move some pixels out of the image.
        assert!((40 * 7 * 6 / 2..40 * 7 * 6).contains(&ones), "{ones}");
    }
    assert_eq!(machine.counts().live(), 0);
}

/// The results have more pixels than the largest image, and the kernel cannot follow the operator
/// [`Invert`], so the page must have memory for the numbers of all pixels.
#[test]
fn masks_of_small_images_and_large_results_equal_those_of_the_cpu() {
    let Some(machine) = machine() else { return };
    machine.schedule(Schedule::Random(14));
    let make = |device| {
        let chain = Chain::new().then(Invert).then(op::Resize::to(390, 410));
        let builder = settled(Loader::builder(masks::source(5), chain)).device(device);
        let builder = builder.runtime(&runtime()).epochs(Some(1)).batch_size(2).prefetch(1);
        let builder = builder.configure(|it| {
            let [classes, .., far] = &mut masks::one_hot_columns()[..] else { unreachable!() };
            it.columns = vec![std::mem::take(classes), std::mem::take(far)];
        });
        builder.build().unwrap()
    };
    let (mut cpu, mut gpu) = (make(DeviceChoice::Cpu), make(DeviceChoice::Gpu(0)));
    for (gpu, cpu) in gpu.epoch().zip(cpu.epoch()) {
        check(&gpu.unwrap(), &cpu.unwrap(), "large results");
    }
    drop((cpu, gpu));
    assert_eq!(machine.counts().live(), 0);
}

/// Loaders with random columns of masks, views with masks, and batch operators allocate the planned
/// memory at the start, and nothing later.
#[test]
fn memory_of_random_masks_equals_the_plan() {
    let Some(machine) = machine() else { return };
    machine.schedule(Schedule::Random(13));
    for seed in 0..10 {
        let rng = &mut SampleRng::new(SampleKey { seed, epoch: 0, index: 0 }, 1);
        let mut any = |below: usize| rng.below(below as u64) as usize;
        let has_views = any(2) == 0;
        let all = masks::columns();
        let mut columns: Vec<_> = (0..1 + any(5))
            .map(|number| {
                let column = &all[any(all.len())];
                let like = (has_views && any(2) == 0).then(|| "crops".to_string());
                let field = column.field.clone();
                ColumnSettings { name: format!("c{number}"), field, like, ..column.clone() }
            })
            .collect();
        // One column is always one-hot.
        columns.push(masks::one_hot_columns().swap_remove(any(5)));
        let size = [(25, 20), (1, 1), (33, 9)][any(3)];
        let (layout, batch, count) = (Layout::ALL[any(2)], 2 + 2 * any(4), 1 + any(3) as u32);
        let make = |device| {
            let chain = Chain::new().then(op::RandomResizedCrop::to(size.0, size.1));
            let chain = match has_views {
                true => {
                    let crop = Chain::new().then(op::RandomResizedCrop::to(9, 12));
                    chain.view(op::View::new("crops", crop).count(count))
                }
                false => chain.then_batch(op::CutMix::default()),
            };
            let builder = settled(Loader::builder(masks::source(seed), chain)).device(device);
            let builder = builder.runtime(&runtime()).batch_size(batch).epochs(Some(2));
            let builder = builder.configure(|it| {
                it.targets.classes = Some(2);
                it.output.layout = layout;
                it.columns = columns.clone();
            });
            builder.build().unwrap()
        };
        let case = format!("{seed} {layout} {size:?} {batch} {has_views} {columns:?}");
        let mut cpu = make(DeviceChoice::Cpu);
        let mut gpu = make(DeviceChoice::Gpu(0));
        let taken = machine.counts();
        for _ in 0..2 {
            for (gpu, cpu) in gpu.epoch().zip(cpu.epoch()) {
                let (gpu, cpu) = (gpu.unwrap(), cpu.unwrap());
                for (column, expected) in gpu.columns().zip(cpu.columns()) {
                    assert!(column.to_host().unwrap() == expected.to_host().unwrap(), "{case}");
                }
            }
        }
        let (after, memory) = (machine.counts(), gpu.stats().memory);
        assert_eq!(taken.device.peak_bytes, after.device.peak_bytes, "{case}");
        assert_eq!(taken.pinned.peak_bytes, after.pinned.peak_bytes, "{case}");
        assert_eq!(memory.device_bytes_predicted, after.device.bytes, "{case}");
        assert_eq!(memory.pinned_bytes_predicted, after.pinned.bytes, "{case}");
        // The plan names the masks of the device, which have no copy in host memory.
        let rows = gpu.footprint().rows.iter().filter(|row| row.name == "columns");
        let rows: Vec<_> = rows.map(|row| (row.memory, &row.note[..])).collect();
        let is_planned = |(row, column): (&(MemoryKind, &str), &ColumnSettings)| {
            row.0 == MemoryKind::Device && row.1.starts_with(&format!("{}: ", column.name))
        };
        assert_eq!(rows.len(), columns.len(), "{rows:?}");
        assert!(rows.iter().zip(&columns).all(is_planned), "{rows:?}");
    }
    assert_eq!(machine.counts().live(), 0);
}
