//! Views that kernels make from the pixels that the main chain reads.

use feedwater::PixelFormat;
use feedwater::footprint::Memory as MemoryKind;
use feedwater::handoff::dlpack::{self, ConsumerStream};
use feedwater::internals::plan::Offload;
use feedwater::internals::tune::Choice;
use feedwater::loader::Epoch;
use feedwater::op::{
    CenterCrop, Equalize, FiveCrop, Flip, GaussianBlur, Normalize, RandomApply, RandomResizedCrop,
    RandomRotation, Resize, Solarize, TenCrop, View,
};

use super::*;

mod random;

/// The chain of a view of DINO: crop, flip, colours and blur for some samples, normalization.
fn augmented(side: u32) -> Chain {
    let blur = GaussianBlur { kernel_size: [5, 5], sigma: [0.1, 2.0] };
    Chain::new()
        .then(RandomResizedCrop::to(side, side))
        .then(Flip { horizontal: 0.5, vertical: 0.0 })
        .then(RandomApply::new(0.8).then(jitter()))
        .then(RandomApply::new(0.5).then(blur))
        .then(Normalize::IMAGENET)
}

/// Two large and eight small views of each image, as in DINO.
fn dino(main: Chain) -> Chain {
    main.view(View::new("large", augmented(32)).count(2))
        .view(View::new("small", augmented(14)).count(8))
}

/// Checks that all columns of two epochs equal those of a loader on the CPU, and that the views
/// with these names are only in device memory. Returns the loader on the device.
fn equal(make: impl Fn() -> LoaderBuilder, on_device: &[&str], what: &str) -> Loader {
    let make = || make().last_batch(LastBatch::Partial).epochs(Some(2));
    let mut cpu = on_cpu(make()).build().unwrap();
    let mut gpu = make().device(DeviceChoice::Gpu(0)).runtime(&runtime()).build().unwrap();
    compare((&mut cpu, &mut gpu), on_device, what, |_| ());
    gpu
}

/// Compares two epochs of a loader on the CPU and of one on the device. Calls `next` after each
/// batch.
fn compare(
    (cpu, gpu): (&mut Loader, &mut Loader),
    on_device: &[&str],
    what: &str,
    mut next: impl FnMut(&mut Epoch<'_>),
) {
    for _ in 0..2 {
        let mut gpu = gpu.epoch();
        for expected in cpu.epoch() {
            let (expected, batch) = (expected.unwrap(), gpu.next().unwrap().unwrap());
            assert!(expected.indices().eq(batch.indices()), "{what}");
            for (expected, column) in expected.columns().zip(batch.columns()) {
                let name = column.name();
                assert_eq!(format!("{column:?}"), format!("{expected:?}"), "{what}");
                let is_equal = column.to_host().unwrap() == expected.to_host().unwrap();
                assert!(is_equal, "{what}: {name}");
                let is_there = column.bytes().is_none() && column.device_ptr().is_some();
                assert!(is_there || !on_device.contains(&name), "{what}: {name} is on the host");
            }
            assert!(on_device.iter().all(|name| batch.column(name).is_some()), "{what}");
            next(&mut gpu);
        }
        assert!(gpu.next().is_none(), "{what}");
    }
}

/// All outputs of the views of a sample come from pixels that are decoded once, whatever the route.
#[test]
fn views_of_dino_equal_the_cpu_on_every_route() {
    let Some(machine) = machine() else { return };
    let schedules = [Schedule::Lazy, Schedule::Random(3), Schedule::Eager];
    for (number, routes) in routes().into_iter().enumerate() {
        let what = format!("{routes:?}");
        machine.restart();
        machine.set_decoder(Some(libjpeg));
        machine.schedule(schedules[number % 3]);
        let gpu = if routes == [Route::Cpu] { Placement::Cpu } else { Placement::Gpu };
        let make = || {
            let builder = builder(jpegs(22), dino(training())).epochs(Some(2));
            builder.num_workers(3).configure(|it| {
                it.decode.placement = gpu;
                it.decode.routes = routes.clone();
            })
        };
        let loader = equal(make, &["large", "small"], &what);
        let stats = loader.stats();
        assert_eq!(stats.cpu_fallback.len(), 0, "{what}: {stats:?}");
        let by_routes: u64 = routes.iter().map(|route| stats.outcomes[route.name()]).sum();
        assert_eq!(by_routes, 44, "{what}: {stats:?}");
        drop(loader);
        assert_clean(&machine, &what);
    }
}

/// Size of the copy of a batch's labels, in bytes.
const LABEL_COPY: u64 = 256;

/// The plan predicts exactly the memory that is allocated at the start, and no host copies.
#[test]
fn memory_of_views_equals_the_plan() {
    let Some(machine) = machine() else { return };
    for main in [training(), Chain::new()] {
        check_memory(&machine, main);
    }
}

fn check_memory(machine: &simulated::Simulated, main: Chain) {
    let on_gpu = builder(jpegs(24), dino(main)).device(DeviceChoice::Gpu(0));
    let mut loader = on_gpu.runtime(&runtime()).build().unwrap();
    let taken = machine.counts();
    for _ in 0..2 {
        loader.epoch().for_each(|batch| assert_eq!(batch.unwrap().columns().count(), 4));
    }
    let after = machine.counts();
    assert_eq!(taken.device.peak_bytes, after.device.peak_bytes);
    assert_eq!(taken.pinned.peak_bytes, after.pinned.peak_bytes);
    let stats = loader.stats();
    assert_eq!(stats.memory.device_bytes_predicted, after.device.bytes);
    assert_eq!(stats.memory.pinned_bytes_predicted, after.pinned.bytes);
    assert!(stats.cpu_fallback.is_empty(), "{stats:?}");
    let plan = loader.plan();
    let rows = |name: &str| plan.footprint.rows.iter().filter(|row| row.name == name).count();
    // Only the labels are copied.
    let copies = plan.footprint.row("column copies").unwrap();
    assert_eq!((copies.each_bytes, rows("views")), (LABEL_COPY, 2), "{plan}");
    let views = plan.footprint.rows.iter().filter(|row| row.name == "views");
    assert!(views.clone().all(|row| row.memory == MemoryKind::Device), "{plan}");
    let sides = views.zip([(2, 32), (8, 14)]);
    for (row, (count, side)) in sides {
        let bytes = 4 * count * 3 * side * side * plan.shape.dtype.bytes() as u64;
        assert_eq!(row.each_bytes, bytes.next_multiple_of(256), "{plan}");
    }
    let text = plan.to_string();
    for line in ["gpu     view large: ", "gpu     view small: ", "kernel  view small: "] {
        assert!(text.lines().any(|it| it.starts_with(line)), "{line}\n{text}");
    }
}

/// The views differ in element type, kernels and number of outputs. The launches of all chains
/// share one buffer for images between passes.
#[test]
fn views_of_every_kind_equal_the_cpu() {
    let Some(machine) = machine() else { return };
    let resized = || Chain::new().then(Resize::shorter(30));
    let rotated = Chain::new()
        .then(RandomRotation::within(40.0))
        .then(Equalize::default())
        .then(CenterCrop::to(33, 21));
    let chain = |main: Chain| {
        main.view(
            View::new("ten", resized().then(TenCrop::to(17, 13)).then(Normalize::IMAGENET))
                .count(20)
                .dtype(DType::F32),
        )
        .view(View::new("bytes", rotated.clone()).count(3).dtype(DType::U8))
        .view(
            View::new("five", resized().then(FiveCrop::to(9, 11)).then(Normalize::IMAGENET))
                .dtype(DType::BF16),
        )
        .view(
            View::new(
                "like",
                Chain::new().then(RandomResizedCrop::to(11, 12)).then(Normalize::IMAGENET),
            )
            .like("image"),
        )
        .view(
            View::new(
                "one",
                Chain::new().then(RandomResizedCrop::to(8, 8)).then(Solarize::default()),
            )
            .count(1)
            .dtype(DType::U8),
        )
    };
    let names = ["ten", "bytes", "five", "like", "one"];
    for (number, layout) in Layout::ALL.into_iter().enumerate() {
        machine.schedule([Schedule::Random(8), Schedule::Lazy][number % 2]);
        let mut files = jpegs(19);
        for (file, orientation) in files.iter_mut().zip(1..=8) {
            file.0 = with_orientation(&file.0, orientation);
        }
        let make =
            || builder(files.clone(), chain(training())).batch_size(6).output(DType::F16, layout);
        let loader = equal(make, &names, &format!("{layout}"));
        assert!(loader.stats().cpu_fallback.is_empty(), "{:?}", loader.stats());
        let device = loader.plan().device.as_ref().unwrap();
        let scratch = device.views.iter().map(|view| view.scratch_bytes);
        assert!(scratch.clone().any(|bytes| bytes > 0) && scratch.clone().any(|bytes| bytes == 0));
    }
    assert_eq!(machine.counts().faults(), 0);
}

/// Without a main chain, there are no images. The views are on the device, also if the CPU decodes.
#[test]
fn views_without_a_main_chain_are_on_the_device() {
    let Some(machine) = machine() else { return };
    machine.schedule(Schedule::Random(12));
    for placement in [Placement::Cpu, Placement::Gpu] {
        let make = || {
            let builder = builder(jpegs(14), dino(Chain::new())).epochs(Some(2));
            builder.configure(|it| it.decode.placement = placement)
        };
        let loader = equal(make, &["large", "small"], &format!("{placement:?}"));
        let (plan, stats) = (loader.plan(), loader.stats());
        assert!(plan.uses_gpu() && !plan.has_images() && stats.cpu_fallback.is_empty(), "{plan}");
        let on_cpu = if placement == Placement::Cpu { 28 } else { 0 };
        let decoded = stats.outcomes.get("cpu").copied().unwrap_or(0);
        assert!(if on_cpu > 0 { decoded == on_cpu } else { decoded < 28 }, "{stats:?}");
    }
}

/// Kernels read red, green and blue of 8 bits. Views of other formats stay on the CPU, also without
/// a main chain.
#[test]
fn views_of_gray_images_and_of_alpha_stay_on_the_cpu() {
    let Some(machine) = machine() else { return };
    machine.schedule(Schedule::Random(13));
    for format in [PixelFormat::U8, PixelFormat::U8x4] {
        let crop = || Chain::new().then(RandomResizedCrop::to(14, 12));
        let make = || {
            let views = Chain::new().view(View::new("small", crop()).count(2));
            builder(jpegs(9), views).configure(|it| it.decode.pixels = format)
        };
        let loader = equal(make, &[], format.name());
        let text = loader.plan().to_string();
        assert!(!text.contains("gpu     view small") && text.contains("decode.pixels"), "{text}");
    }
}

/// Number of images that the CPU decoded, from the loader's trace.
fn decodes(loader: &Loader) -> usize {
    let mut text = Vec::new();
    loader.trace_json(&mut text).unwrap();
    let trace: Value = serde_json::from_slice(&text).unwrap();
    let spans = trace["traceEvents"].as_array().unwrap().iter();
    let decodes = spans.filter(|it| it["name"] == "decode");
    decodes.filter(|it| it["dur"].as_f64().is_some_and(|took| took > 0.0)).count()
}

/// A view whose operator has no kernel is computed on the CPU, from the same decoded window, and
/// copied. Other views stay on the device.
#[test]
fn a_view_without_kernels_stays_on_the_cpu() {
    let Some(machine) = machine() else { return };
    machine.schedule(Schedule::Random(13));
    let crop = || Chain::new().then(RandomResizedCrop::to(10, 12));
    let chain = || {
        training()
            .view(View::new("inverted", crop().then(Invert)).count(2))
            .view(View::new("small", crop()).count(3))
    };
    for decode in [Placement::Cpu, Placement::Auto] {
        let make = || {
            let builder = builder(jpegs(14), chain()).epochs(Some(2)).trace(1000);
            builder.configure(|it| it.decode.placement = decode)
        };
        let loader = equal(make, &["small"], &format!("{decode:?}"));
        if decode == Placement::Cpu {
            // The CPU decodes each image once, for its own views and for the device.
            assert_eq!(decodes(&loader), 28);
        }
        let text = loader.plan().to_string();
        assert!(text.contains("cpu     view inverted: ") && text.contains("gpu     view small: "));
        let reason = text.lines().find(|line| line.starts_with("reason")).unwrap();
        for word in ["inverted", "view[0].chain[1]", "CUDA"] {
            assert!(reason.contains(word), "{reason}");
        }
        let row = loader.footprint().row("column copies").unwrap();
        let plan = loader.plan();
        let bytes = 4 * 2 * 3 * 10 * 12 * plan.shape.dtype.bytes() as u64;
        assert_eq!(row.each_bytes, bytes.next_multiple_of(256) + LABEL_COPY, "{plan}");
        assert!(loader.stats().cpu_fallback.is_empty());
    }
    // An operator of the main chain without kernels keeps all views on the CPU.
    let main = Chain::new().then(Invert).then(Resize::to(24, 16));
    let make = || builder(jpegs(10), dino(main.clone()));
    let loader = equal(make, &[], "main chain on the cpu");
    assert!(loader.plan().to_string().contains("view large is on the cpu: invert (chain[0])"));
}

/// Samples fail, and the device does not take others. All are processed on the CPU with the same
/// bits. Failed samples are dropped, or have zeros.
#[test]
fn failed_and_refused_samples_equal_the_cpu() {
    let Some(machine) = machine() else { return };
    let mut files = damaged();
    files.extend(jpegs(9));
    files[2].0 = common::png(7, 30, 40);
    files[20].0 = common::png(8, 41, 29);
    for (number, policy) in
        [OnError::Drop, OnError::Substitute, OnError::Skip].into_iter().enumerate()
    {
        use Route::{Cpu, NvjpegGpu, NvjpegHardware};
        for routes in [vec![NvjpegHardware], vec![NvjpegGpu], vec![NvjpegGpu, Cpu]] {
            machine.restart();
            machine.set_decoder(Some(|file, window, rgb| {
                if window.width % 3 == 1 { 3 } else { libjpeg(file, window, rgb) }
            }));
            machine.skipping(5);
            machine.schedule(Schedule::Random(80 + number as u64));
            let make = || {
                // The view of bytes has an odd number of them, and views of floats follow.
                let bytes = Chain::new().then(Resize::to(7, 5));
                let chain = training().view(View::new("bytes", bytes).dtype(DType::U8));
                builder(files.clone(), dino(chain)).on_error(policy).configure(|it| {
                    it.decode.routes = routes.clone();
                })
            };
            let views = ["bytes", "large", "small"];
            let loader = equal(make, &views, &format!("{policy:?} {routes:?}"));
            let stats = loader.stats();
            let on_cpu: u64 = stats.cpu_fallback.values().sum();
            if let [route] = routes[..] {
                assert!(on_cpu > 4 && stats.outcomes["cpu"] == on_cpu, "{stats:?}");
                assert!(stats.outcomes[route.name()] > 0, "{stats:?}");
            }
            if policy == OnError::Substitute {
                assert_eq!(stats.outcomes["substituted"], 4, "{stats:?}");
            }
        }
    }
    assert_eq!(machine.counts().faults(), 0);
}

/// The plan inspects only some samples. The one large image needs more tables, pixels or scratch
/// memory than planned.
#[test]
fn an_image_that_needs_more_memory_than_planned_is_made_on_the_cpu() {
    let Some(_machine) = machine() else { return };
    let mut files = jpegs(40);
    files[8].0 = common::jpeg(70, 230, 220);
    let crop = || Chain::new().then(CenterCrop::to(20, 24));
    let rotated =
        Chain::new().then(RandomRotation::within(30.0)).then(jitter()).then(CenterCrop::to(20, 24));
    let resized = Chain::new().then(Resize::shorter(28)).then(CenterCrop::to(20, 24));
    for (view, words) in [(rotated, "scratch memory"), (resized, "tables")] {
        let make = || {
            let source = SlowShuffled(Memory::new(files.clone()).unwrap());
            let chain = crop().view(View::new("view", view.clone()).count(2));
            settled(Loader::builder(source, chain))
        };
        let stats = equal(make, &["view"], words).stats();
        assert_eq!(stats.cpu_fallback.values().sum::<u64>(), 2, "{stats:?}");
        assert!(stats.cpu_fallback.keys().all(|why| why.contains(words)), "{stats:?}");
    }
}

/// The loader moves all operators to the CPU and back while it runs. With views, no other operators
/// stay on the device alone.
#[test]
fn moving_the_work_between_cpu_and_device_changes_no_byte() {
    let Some(machine) = machine() else { return };
    let make = || {
        let builder = builder(jpegs(30), dino(training())).last_batch(LastBatch::Partial);
        builder.epochs(Some(2)).configure(|it| it.loader.tune = true)
    };
    for schedule in [Schedule::Lazy, Schedule::Random(22)] {
        machine.schedule(schedule);
        let mut cpu = on_cpu(make()).build().unwrap();
        let mut loader = make().device(DeviceChoice::Gpu(0)).runtime(&runtime()).build().unwrap();
        let operators = 3 + 5 + 5;
        let offloads = [
            Offload::NOTHING,
            Offload { operators, decode: false },
            Offload { operators, decode: true },
        ];
        assert_eq!(loader.plan().offloads, offloads);
        let mut number = 0;
        let names = ["large", "small"];
        compare((&mut cpu, &mut loader), &names, &format!("{schedule:?}"), |epoch| {
            let offload = offloads[number % 3];
            epoch.choose(Choice { offload, ..epoch.choice() }).unwrap();
            number += 1;
        });
        let stats = loader.stats();
        assert!(stats.cpu_fallback["the CPU keeps up"] > 0, "{stats:?}");
        assert!(stats.outcomes["cpu"] > stats.cpu_fallback["the CPU keeps up"], "{stats:?}");
    }
    assert_eq!(machine.counts().faults(), 0);
}

/// All chains share one reduction, as on the CPU, if the engines reduce images.
#[test]
fn reduced_images_equal_the_cpu() {
    let Some(machine) = machine() else { return };
    machine.schedule(Schedule::Random(31));
    let files: Vec<_> = (0..12).map(|seed| (common::jpeg(seed, 210, 180), seed as i64)).collect();
    let resized = |side| Chain::new().then(Resize::to(side, side)).then(Normalize::IMAGENET);
    for main in [Chain::new(), resized(24)] {
        let chain = || {
            main.clone()
                .view(View::new("small", resized(11)).count(2))
                .view(View::new("large", resized(44)))
        };
        let make = || {
            builder(files.clone(), chain()).configure(|it| {
                it.decode.prescale = true;
                it.decode.routes = vec![Route::NvjpegHardware];
            })
        };
        let loader = equal(make, &["small", "large"], "reduced");
        let on_gpu = make().device(DeviceChoice::Gpu(0)).runtime(&runtime());
        let batch = on_gpu.build().unwrap().epoch().next().unwrap().unwrap();
        assert!(batch.samples().iter().all(|it| it.reduction == 4));
        assert_eq!(loader.stats().outcomes["nvjpeg-hardware"], 24);
    }
}

/// With less memory, launches have fewer pages, and there are fewer batches.
#[test]
fn a_memory_limit_changes_no_byte_of_views() {
    let Some(machine) = machine() else { return };
    machine.schedule(Schedule::Random(33));
    let predicted = |limit: Option<u64>| {
        let builder = builder(jpegs(18), dino(training())).prefetch(3);
        let builder = builder.configure(|it| it.limits.device_memory = limit);
        let loader = builder.device(DeviceChoice::Gpu(0)).runtime(&runtime()).build();
        loader.map(|it| it.stats().memory.device_bytes_predicted)
    };
    let mut limit = predicted(None).unwrap();
    while let Ok(less) = predicted(Some(limit * 9 / 10)) {
        limit = less;
    }
    let make = || {
        let builder = builder(jpegs(18), dino(training())).prefetch(3).epochs(Some(2));
        builder.configure(|it| it.limits.device_memory = Some(limit))
    };
    let loader = equal(make, &["large", "small"], "limit");
    let plan = loader.plan();
    assert!(plan.device.as_ref().unwrap().group < 16, "{plan}");
    assert!(plan.reductions.iter().any(|it| it.name == "launch group"), "{plan}");
}

/// A view on the device is exported without a copy, and a batch that was looked at has a copy.
#[test]
fn views_are_exported_from_the_device() {
    let Some(machine) = machine() else { return };
    let on_gpu = builder(jpegs(8), dino(training())).device(DeviceChoice::Gpu(0));
    let mut loader = on_gpu.runtime(&runtime()).build().unwrap();
    let look = loop {
        if let std::task::Poll::Ready(batch) = loader.peek_within(Duration::from_secs(1)) {
            break batch.unwrap().unwrap();
        }
    };
    let batch = Arc::new(loader.epoch().next().unwrap().unwrap());
    for (name, shape) in [("large", [4, 2, 3, 32, 32]), ("small", [4, 8, 3, 14, 14])] {
        let exported =
            dlpack::export_column(batch.clone(), name, &ConsumerStream::default()).unwrap();
        let (tensor, column) = (exported.tensor(), batch.column(name).unwrap());
        assert_eq!(tensor.data as u64, column.device_ptr().unwrap());
        assert_eq!((tensor.device.device_type, column.shape()), (2, shape.to_vec()));
        assert!(look.column(name).unwrap().bytes().unwrap() == column.to_host().unwrap());
    }
    drop((look, batch, loader));
    assert_eq!(machine.counts().live(), 0);
}
