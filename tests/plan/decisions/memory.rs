//! The predicted footprint, and the automatic numbers of workers and prefetched batches.

use feedwater::internals::decode::DecodeMemory;
use feedwater::internals::geometry::Orientation;
use feedwater::internals::header::{Format, Header};
use feedwater::internals::plan::ScannedSample;

use super::*;

#[test]
fn the_footprint_is_the_sum_of_its_rows_and_grows_by_whole_slots() {
    let with = |batch, prefetch| {
        plan(&training(), |settings| {
            settings.loader.batch_size = batch;
            settings.loader.prefetch = AutoCount::Fixed(prefetch);
        })
    };
    let base = with(64, 2);
    let rows = &base.footprint.rows;
    let sum: u64 = rows.iter().map(|row| row.each_bytes * row.count).sum();
    assert_eq!(base.footprint.total_bytes(Memory::Host), sum);
    let of_others =
        base.footprint.total_bytes(Memory::Pinned) + base.footprint.total_bytes(Memory::Device);
    assert_eq!(of_others, 0, "a plan for the cpu must need no device memory");
    let total = |plan: &Plan| plan.footprint.total_bytes(Memory::Host);
    assert_eq!(base.shape.bytes(), 64 * 3 * 20 * 24 * 4);
    assert_eq!(base.slots(), 3);
    let row = |name| base.footprint.row(name).unwrap().each_bytes;
    assert_eq!(row("labels"), 64 * 8);
    let slot = base.shape.bytes() as u64 + row("labels") + row("records");
    assert_eq!(total(&with(64, 5)) - total(&base), 3 * slot);
    assert_eq!(total(&with(128, 2)) - total(&base), 3 * slot);
}

#[test]
fn a_plan_prints_places_operators_output_and_every_row() {
    let plan = placed(AUTO, [AUTO, Placement::Cpu, AUTO], &gpu()).unwrap();
    let text = plan.to_string();
    let mut lines = text.lines();
    for (place, what) in [
        ("cpu", "decode"),
        ("cpu", "Resize"),
        ("cpu", "Flip"),
        ("gpu", "Normalize"),
        ("gpu", "output 64x3x6x8 f32 nchw"),
        ("kernel", "FloatTable<Roi> f32 nchw"),
    ] {
        let line = lines.next().unwrap();
        assert!(line.starts_with(&format!("{place:<8}{what}")), "{line}");
    }
    let decoding = decode_with(AUTO, &[Route::NvjpegHardware, Route::NvjpegGpu], &ENGINES).unwrap();
    let text_of_routes = decoding.to_string();
    let states = decoding.device.unwrap().routes[1].decoders;
    let wanted = match states {
        1 => "nvjpeg-hardware x2, nvjpeg-gpu".to_string(),
        _ => format!("nvjpeg-hardware x2, nvjpeg-gpu x{states}"),
    };
    let line = text_of_routes.lines().next().unwrap();
    assert!(line.starts_with("gpu     decode ") && line.ends_with(&wanted), "{line}");
    for row in &plan.footprint.rows {
        assert!(text.contains(&row.name), "{} is missing in\n{text}", row.name);
    }
}

/// Returns a plan of the chain `training` for a machine with `cores` cores.
fn of_cores(cores: usize, facts: Facts, change: impl FnOnce(&mut Settings)) -> Result<Plan, Error> {
    let mut settings = Settings::default();
    settings.loader.num_workers = AutoCount::Auto;
    change(&mut settings);
    Plan::new(&training(), &settings, &Facts { cores, ..facts })
}

fn bounds(least: usize, start: usize, most: usize) -> Bounds {
    Bounds { least, start, most }
}

#[test]
fn automatic_workers_are_one_to_two_per_core_and_more_for_remote_sources() {
    for (cores, local, remote) in [(1, 16, 64), (2, 16, 64), (12, 24, 64), (48, 96, 96)] {
        let plan = of_cores(cores, no_gpu(), |_| ()).unwrap();
        assert_eq!(plan.workers, bounds(1, cores, local));
        let facts = Facts { remote: true, largest_bytes: 100, ..no_gpu() };
        assert_eq!(of_cores(cores, facts, |_| ()).unwrap().workers, bounds(1, cores, remote));
    }
    let ask = of_cores(0, no_gpu(), |_| ()).unwrap().workers;
    assert_eq!(AutoCount::Fixed(ask.start), Settings::default().loader.num_workers);
    let fixed = of_cores(6, gpu(), |settings| settings.loader.num_workers = 5.into()).unwrap();
    assert_eq!(fixed.workers, bounds(5, 5, 5));
}

#[test]
fn automatic_workers_leave_threads_for_the_launcher_and_feeder_under_a_limit() {
    let cuda = Facts { device: DeviceFacts::gpu(Ok(vec![Route::NvjpegGpu])), ..gpu() };
    for (facts, others) in [(no_gpu(), 0), (cuda, 1), (gpu_without_nvjpeg(), 1), (gpu(), 3)] {
        for limit in others + 1..20 {
            let limited = |settings: &mut Settings| settings.limits.cpu_threads = Some(limit);
            let plan = of_cores(6, facts.clone(), limited).unwrap();
            let most = (limit - others).min(16);
            assert_eq!(plan.workers, bounds(1, most.min(6), most), "{limit} less {others}");
        }
    }
    let refused = |facts, limit: usize, workers: AutoCount| {
        let change = |settings: &mut Settings| {
            settings.limits.cpu_threads = Some(limit);
            settings.loader.num_workers = workers;
        };
        config(of_cores(6, facts, change).unwrap_err())
    };
    // The message contains the limit and the smallest sufficient limit. If the number of workers is
    // fixed, it contains the limit, the number of workers, and the number that the limit allows.
    for (error, values, has_workers) in [
        (refused(gpu(), 3, AutoCount::Auto), &[3, 4][..], false),
        (refused(gpu_without_nvjpeg(), 1, 1.into()), &[1, 2], false),
        (refused(no_gpu(), 3, 4.into()), &[3, 3, 4], true),
        (refused(gpu(), 6, 4.into()), &[3, 4, 6], true),
        (refused(no_gpu(), 0, AutoCount::Auto), &[0, 1], false),
    ] {
        assert_eq!(error.key, "limits.cpu_threads");
        assert_eq!(numbers(&error.problem), values, "{error}");
        assert!(!has_workers || error.problem.contains("loader.num_workers"), "{error}");
    }
    let exact = |settings: &mut Settings| {
        (settings.limits.cpu_threads, settings.loader.num_workers) = (Some(7), 4.into());
    };
    assert_eq!(of_cores(6, gpu(), exact).unwrap().workers, bounds(4, 4, 4));
}

#[test]
fn automatic_prefetch_is_one_to_a_gibibyte_of_batches() {
    let sample = 2 * 3 * 20 * 24;
    let fits = |batches: usize| (1 << 30) / (batches * sample);
    for (batch, most) in [(1, 8), (fits(8), 8), (fits(5), 5), (fits(5) + 1, 4), (fits(1), 2)] {
        let plan = plan(&training(), |settings| {
            (settings.loader.batch_size, settings.loader.prefetch) = (batch, AutoCount::Auto);
            settings.output.dtype = DType::F16;
        });
        assert_eq!((plan.prefetch, plan.slots()), (most, most + 1));
        assert_eq!(plan.ahead_batches, bounds(1, 2, most));
    }
    let fixed = plan(&training(), |settings| settings.loader.prefetch = 5.into());
    assert_eq!((fixed.prefetch, fixed.ahead_batches), (5, bounds(5, 5, 5)));
}

/// Memory is allocated for the maximum that an automatic number may reach. So the footprint equals
/// that of a fixed number of this size.
#[test]
fn the_footprint_of_automatic_numbers_is_that_of_their_maximum() {
    for facts in [no_gpu(), gpu(), Facts { remote: true, largest_bytes: 5000, ..no_gpu() }] {
        let auto = |settings: &mut Settings| settings.loader.prefetch = AutoCount::Auto;
        let chosen = of_cores(6, facts.clone(), auto).unwrap();
        let set = |settings: &mut Settings| {
            settings.loader.num_workers = chosen.workers.most.into();
            settings.loader.prefetch = chosen.prefetch.into();
        };
        let fixed = of_cores(6, facts, set).unwrap();
        assert_eq!(chosen.footprint, fixed.footprint);
        assert!(chosen.workers.most > 6 && chosen.prefetch > 2);
    }
}

#[test]
fn a_plan_prints_the_range_of_automatic_numbers() {
    let auto = |settings: &mut Settings| settings.loader.prefetch = AutoCount::Auto;
    let printed = |text: &str, name: &str| {
        let label = format!("{:<8}{name} ", "auto");
        text.lines().find_map(|line| line.strip_prefix(&label)).map(numbers)
    };
    let text = of_cores(2, no_gpu(), auto).unwrap().to_string();
    // For each automatic number, the plan prints the minimum, the number at the start, and the
    // maximum.
    assert_eq!(printed(&text, "workers"), Some(vec![1, 2, 16]), "{text}");
    assert_eq!(printed(&text, "prefetch"), Some(vec![1, 2, 8]), "{text}");
    let one = |settings: &mut Settings| settings.limits.cpu_threads = Some(1);
    let text = of_cores(2, no_gpu(), one).unwrap().to_string();
    assert_eq!(printed(&text, "workers"), Some(vec![1]), "{text}");
    assert!(!text.contains("prefetch"), "{text}");
    let fixed = of_cores(2, no_gpu(), |settings| settings.loader.num_workers = 2.into()).unwrap();
    assert!(!fixed.to_string().contains("auto"), "{fixed}");
}

/// Returns the plan for a machine with `bytes` bytes of available memory.
fn with_available(bytes: u64, change: impl Fn(&mut Settings)) -> Plan {
    let mut settings = Settings::default();
    change(&mut settings);
    let available = Some(Available { bytes, limit: "MemAvailable".into() });
    let facts = Facts { available, source_bytes: 1 << 30, ..no_gpu() };
    Plan::new(&training(), &settings, &facts).unwrap()
}

#[test]
fn a_plan_beyond_the_available_memory_is_an_error_with_its_rows() {
    let needed = with_available(0, |_| ()).host_bytes_to_take();
    let rows = with_available(0, |_| ()).footprint;
    assert_eq!(
        needed,
        rows.total_bytes(Memory::Host) - (1 << 30),
        "the memory of the open source must not count"
    );
    with_available(needed, |_| ()).check_memory().unwrap();
    let error = with_available(needed - 1, |_| ()).check_memory().unwrap_err();
    let Error::Memory { needed: told, available, problem } = error else { panic!("{error:?}") };
    assert_eq!((told, available), (needed, Some(needed - 1)));
    for row in &rows.rows {
        assert!(problem.contains(&row.name), "{} is missing in {problem}", row.name);
    }
    for words in ["MemAvailable", "limits.overcommit"] {
        assert!(problem.contains(words), "{problem}");
    }
    let unknown = Facts { available: None, ..no_gpu() };
    Plan::new(&training(), &Settings::default(), &unknown).unwrap().check_memory().unwrap();
}

#[test]
fn overcommit_continues_and_a_plan_prints_the_comparison() {
    let overcommit = |settings: &mut Settings| settings.limits.overcommit = true;
    with_available(0, overcommit).check_memory().unwrap();
    for (plan, available, fits, overcommitted) in [
        (with_available(0, |_| ()), " 0 B ", false, false),
        (with_available(0, overcommit), " 0 B ", false, true),
        (with_available(1 << 40, |_| ()), " 1.0 TiB ", true, false),
    ] {
        let text = plan.to_string();
        let line = text.lines().find(|line| line.contains("MemAvailable")).unwrap();
        let needed = feedwater::internals::footprint::bytes(plan.host_bytes_to_take());
        assert!(line.starts_with("host ") && line.contains(&needed), "{line}");
        assert!(line.contains(available), "{line}");
        // If the plan fits into the available memory, the line ends with `MemAvailable`, from which
        // this number was read.
        assert_eq!(line.ends_with("(MemAvailable)"), fits, "{line}");
        assert_eq!(line.contains("limits.overcommit"), overcommitted, "{line}");
    }
}

#[test]
fn page_locked_memory_is_host_memory_and_device_memory_is_not() {
    let available = Some(Available { bytes: u64::MAX, limit: String::new() });
    let facts = Facts { available, ..gpu() };
    let plan = Plan::new(&training(), &Settings::default(), &facts).unwrap();
    let rows = &plan.footprint;
    let host = rows.total_bytes(Memory::Host) + rows.total_bytes(Memory::Pinned);
    assert!(rows.total_bytes(Memory::Pinned) > 0 && rows.total_bytes(Memory::Device) > 0);
    assert_eq!(plan.host_bytes_to_take(), host);
}

/// Even with the largest value of every setting, no product overflows, on the CPU or on a device.
#[test]
fn the_largest_settings_are_errors_and_do_not_overflow() {
    let chain = Chain::new().then(Resize::to(32_767, 32_767)).then(Normalize::IMAGENET);
    let mut settings = Settings::default();
    settings.loader.batch_size = 1 << 20;
    (settings.loader.prefetch, settings.loader.num_workers) = (1024.into(), 1024.into());
    settings.limits.max_pixels = u64::MAX;
    settings.limits.max_file_bytes = u64::MAX;
    let (size, jpeg) = (Size::new(u32::MAX, u32::MAX), None);
    let header = Header { format: Format::WebP, size, orientation: Orientation::default(), jpeg };
    let decode = DecodeMemory { scratch: u64::MAX, rows: u64::MAX, library: u64::MAX };
    let largest = ScannedSample { header, file_bytes: u64::MAX, decode };
    for facts in [no_gpu(), gpu()] {
        let facts = Facts {
            largest_bytes: u64::MAX,
            image: Size::new(u32::MAX, u32::MAX),
            scanned: vec![largest.clone()],
            source_bytes: u64::MAX,
            available: Some(Available { bytes: 1 << 40, limit: String::new() }),
            ..facts
        };
        let plan = Plan::new(&chain, &settings, &facts).unwrap();
        assert!(plan.shape.bytes() > 1 << 50);
        assert!(!plan.to_string().is_empty());
        settings.cache.encoded = Some(1 << 60);
    }
    let facts =
        Facts { available: Some(Available { bytes: 1 << 40, limit: String::new() }), ..no_gpu() };
    let error = Plan::new(&chain, &settings, &facts).unwrap().check_memory().unwrap_err();
    assert!(matches!(error, Error::Memory { needed, .. } if needed > 1 << 50), "{error}");
}
