//! Memory limits: how much memory a plan needs without limits, and how a plan is reduced to fit
//! into limits.

mod hardware_group;

use std::ops::Range;

use crate::common::training;
use feedwater::error::Error;
use feedwater::footprint::{Footprint, Memory};
use feedwater::internals::geometry::Size;
use feedwater::internals::plan::{Bounds, DeviceFacts, DevicePlan, Facts, rows};
use feedwater::internals::tensor::DType;
use feedwater::op::{Chain, Flip, Normalize, Placement, RandomResizedCrop};
use feedwater::plan::{AutoCount, Plan, Route, Settings};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;

/// A typical training job: batches of 256 images of 224x224 in f16, 2 prefetched batches, and 16
/// workers.
fn job() -> (Chain, Settings) {
    let chain = Chain::new()
        .then(RandomResizedCrop::to(224, 224))
        .then(Flip { horizontal: 0.5, vertical: 0.0 })
        .then(Normalize::IMAGENET);
    let mut settings = Settings::default();
    settings.loader.batch_size = 256;
    settings.loader.num_workers = 16.into();
    settings.loader.prefetch = 2.into();
    settings.output.dtype = DType::F16;
    (chain, settings)
}

fn facts(image: Size, largest_bytes: u64) -> Facts {
    let routes = Ok(Route::all_on_device().collect());
    let device = DeviceFacts::gpu(routes);
    Facts { largest_bytes, image, device, ..Facts::default() }
}

fn limited(device: Option<u64>, pinned: Option<u64>) -> Result<Plan, Error> {
    let (chain, mut settings) = job();
    settings.limits.device_memory = device;
    settings.limits.pinned_memory = pinned;
    Plan::new(&chain, &settings, &facts(Size::new(500, 375), 120_000))
}

fn device(plan: &Plan) -> &DevicePlan {
    plan.device.as_ref().unwrap()
}

/// Returns the numbers of a plan that memory limits reduce: prefetched batches, samples per launch,
/// decode states, images per call of the engines, and pages that are being read. The number of
/// pages is reduced first.
fn kept(plan: &Plan) -> [usize; 5] {
    let device = device(plan);
    let of = |route| device.routes.iter().find(|it| it.route == route).map(|it| it.decoders);
    let states = of(Route::NvjpegGpu).or(of(Route::NvjpegHybrid)).unwrap_or(0);
    let reading = device.pages - device.group - 3 * device.hardware_group;
    [plan.prefetch, device.group, states, device.hardware_group, reading]
}

fn total(plan: &Plan, memory: Memory) -> u64 {
    plan.footprint.total_bytes(memory)
}

/// Returns two numbers of bytes that the message of an error states for the limit `key`, in
/// ascending order: the limit itself, and the smallest limit that would suffice.
fn numbers(error: &Error, key: &str) -> Option<Vec<u64>> {
    let text = error.to_string();
    let (_, rest) = text.split_once(key)?;
    let one = rest.split("limits.").next()?.lines().next()?;
    let words = one.split_whitespace().map(|word| word.trim_end_matches([',', ';', ':']));
    let mut numbers: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
    numbers.sort_unstable();
    Some(numbers)
}

/// Returns the smallest sufficient value of the limit `key`, which the message of an error states.
fn named(error: &Error, key: &str) -> Option<u64> {
    numbers(error, key)?.last().copied()
}

/// Returns the reduction of prefetch that the plan prints: the number of batches, the number
/// without limits, and the keys of the limits.
fn reduced_prefetch(plan: &Plan) -> (usize, usize, &[&'static str]) {
    let reduction = plan.reductions.iter().find(|it| it.name == "prefetch").unwrap();
    assert!(plan.to_string().contains(&reduction.to_string()), "{plan}");
    (reduction.count, reduction.instead_of, &reduction.limits[..])
}

/// The plan of this job uses every decode route that is allowed by default.
#[test]
fn a_batch_of_256_needs_less_than_370_mib_of_device_memory() {
    let plan = limited(None, None).unwrap();
    let routes: Vec<Route> = device(&plan).routes.iter().map(|it| it.route).collect();
    assert_eq!(routes, Route::ALL);
    assert_eq!(plan.slots(), 3);
    let slots = plan.footprint.row(rows::OUTPUT_SLOTS).unwrap().total_bytes();
    assert_eq!(slots, 3 * 256 * 3 * 224 * 224 * 2);
    let all = total(&plan, Memory::Device);
    assert!(all < 370 * MIB, "{all} bytes\n{plan}");
    assert!(plan.reductions.is_empty());
}

/// The number of samples between decoder and kernel depends on the chain and the routes, not on the
/// batch size. Besides images, only the copies of labels grow with the batch.
#[test]
fn only_the_slots_grow_with_the_batch() {
    let (chain, settings) = job();
    let without_slots = |batch| {
        let mut settings = settings.clone();
        settings.loader.batch_size = batch;
        let plan = Plan::new(&chain, &settings, &facts(Size::new(500, 375), 120_000)).unwrap();
        let slots = plan.footprint.row(rows::OUTPUT_SLOTS).unwrap().total_bytes();
        let labels = plan.footprint.row(rows::COLUMN_COPIES).unwrap().total_bytes();
        (total(&plan, Memory::Device) - slots - labels, total(&plan, Memory::Pinned) - labels)
    };
    assert_eq!(without_slots(64), without_slots(1024));
}

#[test]
fn pages_suffice_for_all_threads() {
    let plan = limited(None, None).unwrap();
    let all = device(&plan);
    assert_eq!(all.pages, 16 + all.group + 3 * all.hardware_group);
    assert!(all.hardware_group > 0 && all.encoded_bytes >= 120_000);
    let (chain, mut settings) = job();
    settings.decode.routes = vec![Route::NvjpegHybrid, Route::Cpu];
    let facts = facts(Size::new(500, 375), 120_000);
    let plan = Plan::new(&chain, &settings, &facts).unwrap();
    let host = device(&plan);
    assert_eq!((host.pages, host.hardware_group), (16 + host.group, 0));
    assert!(plan.footprint.row(rows::decoder(Route::NvjpegHardware)).is_none());
    settings.decode.placement = Placement::Cpu;
    let plan = Plan::new(&chain, &settings, &facts).unwrap();
    assert_eq!(device(&plan).encoded_bytes, 0, "no encoded bytes are uploaded");
    let in_host = |row: &&feedwater::footprint::Row| row.memory == Memory::Host;
    let encoded = plan.footprint.rows.iter().filter(in_host).find(|row| row.name == rows::ENCODED);
    assert_eq!(encoded.unwrap().total_bytes(), 16 * 120_000);
}

/// An upload buffer always fits a finished sample. If the CPU may decode images, the buffer also
/// fits the pixels of a window.
#[test]
fn uploads_fit_the_output_of_the_cpu() {
    let (chain, mut settings) = job();
    settings.output.dtype = DType::F32;
    let small = facts(Size::new(40, 30), 1000);
    let large = facts(Size::new(1000, 1000), 1000);
    for (facts, cpu) in [(&small, true), (&large, true), (&large, false)] {
        if !cpu {
            settings.decode.routes = vec![Route::NvjpegHardware, Route::NvjpegHybrid];
        }
        let plan = Plan::new(&chain, &settings, facts).unwrap();
        let device = device(&plan);
        let sample = plan.shape.sample_bytes();
        let wanted = if cpu { sample.max(device.pixels_bytes) } else { sample };
        assert_eq!(device.upload_bytes, wanted.next_multiple_of(256));
        assert_eq!(device.uploads, if cpu { 17 } else { 2 });
    }
}

/// One enormous file does not enlarge the buffer for encoded bytes of every page.
#[test]
fn a_pages_file_buffer_is_proportional_to_its_pixels() {
    let (chain, settings) = job();
    let plan = Plan::new(&chain, &settings, &facts(Size::new(500, 375), 50 << 20)).unwrap();
    let page = device(&plan);
    assert_eq!(page.image_pixels, 500 * 375 * 5 / 4);
    assert_eq!(page.encoded_bytes, (2 * page.image_pixels).next_multiple_of(256));
    let beyond = plan.footprint.row("files beyond a page").unwrap();
    // The buffers belong to 16 workers and two gatherers, which decode refused images on the CPU.
    assert_eq!((beyond.memory, beyond.total_bytes()), (Memory::Host, 18 * (50 << 20)));
    assert!(limited(None, None).unwrap().footprint.row("files beyond a page").is_none());
}

#[test]
fn a_limit_that_is_not_reached_changes_nothing() {
    let free = limited(None, None).unwrap();
    let [on_device, pinned] = [Memory::Device, Memory::Pinned].map(|it| Some(total(&free, it)));
    let exact = limited(on_device, pinned).unwrap();
    assert_eq!(exact.footprint, free.footprint);
    assert!(exact.reductions.is_empty());
    let less = limited(on_device.map(|bytes| bytes - 1), None).unwrap();
    assert!(total(&less, Memory::Device) < total(&free, Memory::Device));
    assert!(!less.reductions.is_empty());
}

/// Checks in which order a plan reduces its numbers (pages, decode states and others) when the
/// limit gets smaller.
#[test]
fn pages_are_reduced_first_and_prefetch_before_the_minimum_of_everything() {
    let free = limited(None, None).unwrap();
    let full = kept(&free);
    let bytes = total(&free, Memory::Device);

    let plan = limited(Some(bytes - 1), None).unwrap();
    assert_eq!(kept(&plan), [full[0], full[1], full[2], full[3], full[4] - 1]);

    // The plan with the least memory that still prefetches 2 batches. The other four numbers of
    // `kept` are reduced, but not below their lean values 4, 2, 4 and 4.
    let plans = (0..).map(|step| limited(Some(bytes - step * MIB / 2), None).unwrap());
    let lean = plans.take_while(|plan| plan.prefetch == 2).last().unwrap();
    assert!(kept(&lean)[1..].iter().zip([4, 2, 4, 4]).all(|(have, lean)| *have >= lean));
    assert!(kept(&lean)[1..].iter().zip(&full[1..]).all(|(have, full)| have < full), "{lean}");

    // With only 1 prefetched batch, two of the other numbers are as large as without a limit. Only
    // the images per call and the number of pages are reduced.
    let plan = limited(Some(total(&lean, Memory::Device) - 2 * MIB), None).unwrap();
    assert_eq!(kept(&plan)[..3], [1, full[1], full[2]]);
    assert!((4..full[3]).contains(&kept(&plan)[3]), "{plan}");
    assert!((4..full[4]).contains(&kept(&plan)[4]), "{plan}");
    assert_eq!(plan.slots(), 2);
    assert_eq!(reduced_prefetch(&plan), (1, 2, &["limits.device_memory"][..]), "{plan}");
    assert_eq!(plan.reductions.len(), 3);
}

/// Automatic prefetch is reduced like a fixed one, and uses only the memory that is left.
#[test]
fn automatic_prefetch_stays_within_the_limit() {
    let auto = |limit| {
        let (chain, mut settings) = job();
        settings.loader.prefetch = AutoCount::Auto;
        settings.limits.device_memory = limit;
        Plan::new(&chain, &settings, &facts(Size::new(500, 375), 120_000)).unwrap()
    };
    let free = auto(None);
    assert_eq!(free.ahead_batches, Bounds { least: 1, start: 2, most: 8 });
    let slot = free.shape.bytes() as u64;
    for most in 2..8 {
        let plan = auto(Some(total(&free, Memory::Device) - (8 - most) as u64 * slot));
        assert_eq!(plan.ahead_batches, Bounds { least: 1, start: 2, most });
        assert_eq!(reduced_prefetch(&plan), (most, 8, &["limits.device_memory"][..]), "{plan}");
        assert_eq!(
            kept(&plan)[1..],
            kept(&free)[1..],
            "nothing else must be reduced before prefetch"
        );
    }
    // If the limit is too small for 2 prefetched batches, the plan equals that of a fixed prefetch
    // of 2 under the same limit.
    let limit = Some(total(&limited(None, None).unwrap(), Memory::Device) - 1);
    let plan = auto(limit);
    assert_eq!(kept(&plan), kept(&limited(limit, None).unwrap()));
    assert_eq!(reduced_prefetch(&plan), (2, 8, &["limits.device_memory"][..]), "{plan}");
    let one = auto(Some(total(&limited(None, None).unwrap(), Memory::Device) - slot * 3 / 2));
    assert_eq!(one.ahead_batches, Bounds { least: 1, start: 1, most: 1 }, "{one}");
    let set = limited(Some(total(&limited(None, None).unwrap(), Memory::Device) - slot), None);
    let plan = set.unwrap();
    let most = plan.prefetch;
    assert_eq!(plan.ahead_batches, Bounds { least: most, start: most, most });
}

/// Slots are in device memory, so a limit of pinned memory does not reduce prefetch, except by the
/// copies of labels.
#[test]
fn a_limit_of_pinned_memory_leaves_prefetch_alone() {
    let free = limited(None, None).unwrap();
    let error = limited(None, Some(1)).unwrap_err();
    let least = named(&error, "limits.pinned_memory").unwrap();
    let labels = free.footprint.row(rows::COLUMN_COPIES).unwrap().each_bytes;
    for limit in [least + labels, total(&free, Memory::Pinned) / 2] {
        let plan = limited(None, Some(limit)).unwrap();
        assert!(total(&plan, Memory::Pinned) <= limit);
        assert_eq!(plan.prefetch, 2, "{plan}");
        assert!(plan.reductions.iter().all(|it| it.limits == ["limits.pinned_memory"]));
    }
}

#[test]
fn too_small_a_limit_is_an_error_with_the_rows_and_the_smallest_limit() {
    let error = limited(Some(64 * MIB), None).unwrap_err();
    let least = named(&error, "limits.device_memory").unwrap();
    assert_eq!(numbers(&error, "limits.device_memory").unwrap(), [64 * MIB, least], "{error}");
    let Error::Config(error) = error else { panic!("{error}") };
    assert_eq!(error.key, "limits.device_memory");
    let text = error.to_string();
    for row in
        [rows::OUTPUT_SLOTS, rows::PIXELS, rows::LAUNCHES, rows::decoder(Route::NvjpegHardware)]
    {
        assert!(text.contains(row), "{row} is missing in {text}");
    }
    assert!(!text.contains(rows::UPLOADS), "rows of other memory must be left out: {text}");
    assert_eq!(total(&limited(Some(least), None).unwrap(), Memory::Device), least);
    assert!(limited(Some(least - 1), None).is_err());
    let both = limited(Some(64 * MIB), Some(1)).unwrap_err();
    assert_eq!(named(&both, "limits.device_memory"), Some(least), "{both}");
    let pinned = named(&both, "limits.pinned_memory").unwrap();
    assert_eq!(numbers(&both, "limits.pinned_memory").unwrap(), [1, pinned], "{both}");
    assert!(limited(Some(least), Some(pinned)).is_ok(), "{both}");
    assert!(limited(Some(least), Some(pinned - 1)).is_err(), "{both}");
    assert!(both.to_string().contains(rows::UPLOADS), "{both}");
}

/// A plan for the CPU uses no device memory, so a limit of device memory does not apply.
#[test]
fn a_plan_for_the_cpu_has_no_device_memory_to_limit() {
    let mut settings = Settings::default();
    settings.limits.device_memory = Some(0);
    settings.limits.pinned_memory = Some(0);
    let facts = Facts { device: DeviceFacts::None("none".into()), ..Facts::default() };
    assert!(Plan::new(&training(), &settings, &facts).unwrap().reductions.is_empty());
}

/// Returns a plan for the CPU under a limit of host memory in bytes.
fn on_host(limit: Option<u64>, workers: AutoCount, prefetch: AutoCount) -> Result<Plan, Error> {
    let (chain, mut settings) = job();
    settings.limits.host_memory = limit;
    (settings.loader.num_workers, settings.loader.prefetch) = (workers, prefetch);
    let device = DeviceFacts::None("none".into());
    let image = Size::new(500, 375);
    let facts = Facts { largest_bytes: 120_000, image, device, cores: 8, ..Facts::default() };
    Plan::new(&chain, &settings, &facts)
}

/// Tests limits from the unlimited need down to the smallest possible one. Prefetch is reduced
/// first, then automatic numbers of workers, then nothing else.
#[test]
fn host_limits_reduce_prefetch_and_then_automatic_workers() {
    let host = |plan: &Plan| total(plan, Memory::Host);
    for (workers, prefetch) in [
        (AutoCount::Auto, AutoCount::Auto),
        (AutoCount::Auto, AutoCount::Fixed(3)),
        (AutoCount::Fixed(6), AutoCount::Auto),
        (AutoCount::Fixed(6), AutoCount::Fixed(3)),
    ] {
        let plan = |limit| on_host(limit, workers, prefetch);
        let free = plan(None).unwrap();
        assert_eq!(plan(Some(host(&free))).unwrap().footprint, free.footprint);
        let mut limit = host(&free) - 1;
        let mut before = (free.prefetch, free.workers.most);
        let refused = loop {
            match plan(Some(limit)) {
                Ok(fitted) => {
                    assert!(host(&fitted) <= limit, "{limit}: {fitted}");
                    let now = (fitted.prefetch, fitted.workers.most);
                    assert!(now < before || now.0 > before.0 && now.1 < before.1, "{now:?}");
                    assert!(now.1 == free.workers.most || now.0 == 1 || workers == AutoCount::Auto);
                    assert_eq!(fitted.shape, free.shape);
                    assert_eq!(fitted.room, free.room, "which samples are oversized depends on it");
                    let limits = |it: &feedwater::internals::plan::Reduction| {
                        it.limits == ["limits.host_memory"]
                    };
                    assert!(!fitted.reductions.is_empty() && fitted.reductions.iter().all(limits));
                    before = now;
                    limit = host(&fitted) - 1;
                }
                Err(error) => break error,
            }
        };
        let smallest = named(&refused, "limits.host_memory").unwrap();
        assert_eq!(smallest, limit + 1, "{refused}");
        assert!(refused.to_string().contains("worker scratch"), "{refused}");
        let least = plan(Some(smallest)).unwrap();
        assert_eq!(least.prefetch, 1);
        assert_eq!(least.workers.most, if workers == AutoCount::Auto { 1 } else { 6 });
    }
}

/// With a device, host memory includes pinned memory, but not the memory of batches.
#[test]
fn host_limits_count_pinned_memory_and_not_batches_on_a_device() {
    let limited = |limit| {
        let (chain, mut settings) = job();
        settings.limits.host_memory = limit;
        Plan::new(&chain, &settings, &facts(Size::new(500, 375), 120_000))
    };
    let both = |plan: &Plan| total(plan, Memory::Host) + total(plan, Memory::Pinned);
    let free = limited(None).unwrap();
    let less = limited(Some(both(&free) - MIB)).unwrap();
    assert!(both(&less) <= both(&free) - MIB);
    assert_eq!(
        less.prefetch, free.prefetch,
        "batches are not in host memory, so prefetch must not change"
    );
    assert!(kept(&less)[1..] < kept(&free)[1..]);
    let error = limited(Some(MIB)).unwrap_err();
    let smallest = named(&error, "limits.host_memory").unwrap();
    assert!(both(&limited(Some(smallest)).unwrap()) == smallest, "{error}");
    assert!(limited(Some(smallest - 1)).is_err());
}

/// Whether two plans are equal in everything except the numbers of buffers, so that they give the
/// same bytes.
fn same_bytes_in_batches(a: &Plan, b: &Plan) -> bool {
    let (x, y) = (device(a), device(b));
    a.shape == b.shape
        && a.decode == b.decode
        && x.planned().chain.sources().eq(y.planned().chain.sources())
        && x.scratch_bytes == y.scratch_bytes
        && (x.pixels_bytes, x.encoded_bytes, x.table_bytes, x.image_pixels, x.upload_bytes)
            == (y.pixels_bytes, y.encoded_bytes, y.table_bytes, y.image_pixels, y.upload_bytes)
        && x.routes.iter().map(|it| it.route).eq(y.routes.iter().map(|it| it.route))
}

fn whole(rows: &Footprint) -> bool {
    let mut taken = rows.rows.iter().filter(|row| row.memory != Memory::Host);
    taken.all(|row| row.each_bytes % 256 == 0 && row.count > 0)
}

fn count(numbers: Range<usize>) -> impl Strategy<Value = AutoCount> {
    prop_oneof![1 => Just(AutoCount::Auto), 3 => numbers.prop_map(AutoCount::Fixed)]
}

fn settings() -> impl Strategy<Value = (Settings, Facts)> {
    let routes = prop::sample::subsequence(Route::ALL.to_vec(), 1..=4);
    let threads = prop::option::of(1usize..20);
    let offered = prop::sample::subsequence(Route::ALL[..3].to_vec(), 0..=3);
    (
        (1usize..300, count(1..20), count(1..6)),
        (routes, threads, offered, any::<bool>()),
        (1u32..2000, 1u32..2000, 0u64..1_000_000),
    )
        .prop_map(|(loader, decode, (width, height, largest))| {
            let mut settings = Settings::default();
            (settings.loader.batch_size, settings.loader.num_workers, settings.loader.prefetch) =
                loader;
            let (routes, threads, offered, on_cpu) = decode;
            settings.decode.routes = routes;
            settings.decode.max_cpu_threads = threads;
            if on_cpu {
                settings.decode.placement = Placement::Cpu;
            }
            let device = DeviceFacts::gpu(Ok(offered));
            let image = Size::new(width, height);
            (settings, Facts { image, largest_bytes: largest, device, ..Facts::default() })
        })
}

/// Returns a limit as a fraction of the memory without limits, or no limit.
fn share() -> impl Strategy<Value = Option<f64>> {
    prop::option::of(0.0..1.1)
}

proptest! {
    /// Either the footprint is within both limits, or the plan is an error that contains the
    /// smallest possible limits.
    #[test]
    fn a_plan_is_within_its_limits_or_an_error(
        (settings, facts) in settings(), on_device in share(), pinned in share(),
    ) {
        let plan = |device_memory, pinned_memory| {
            let mut settings = settings.clone();
            settings.limits.device_memory = device_memory;
            settings.limits.pinned_memory = pinned_memory;
            Plan::new(&training(), &settings, &facts)
        };
        let free = plan(None, None).unwrap();
        prop_assert!(whole(&free.footprint));
        let limit = |memory, share: Option<f64>| {
            share.map(|share| (share * total(&free, memory) as f64) as u64)
        };
        let limits = [(Memory::Device, on_device), (Memory::Pinned, pinned)]
            .map(|(memory, share)| (memory, limit(memory, share)));
        match plan(limits[0].1, limits[1].1) {
            Ok(fitted) => {
                for (memory, limit) in limits {
                    prop_assert!(limit.is_none_or(|limit| total(&fitted, memory) <= limit));
                }
                prop_assert!(same_bytes_in_batches(&fitted, &free));
                prop_assert!(whole(&fitted.footprint));
                let changed = kept(&fitted) != kept(&free);
                prop_assert_eq!(changed, fitted.footprint != free.footprint);
                for it in &fitted.reductions {
                    prop_assert!(it.count >= 1 && it.count < it.instead_of && !it.limits.is_empty());
                }
                prop_assert_eq!(changed, !fitted.reductions.is_empty());
                // Under a larger limit, the first number of `kept` that differs must be larger.
                let more = |limit: Option<u64>| limit.map(|bytes| bytes + bytes / 7);
                let larger = plan(more(limits[0].1), limits[1].1).unwrap();
                prop_assert!(kept(&larger) >= kept(&fitted));
                if limits[0].1.is_none() {
                    let larger = plan(None, more(limits[1].1)).unwrap();
                    prop_assert!(kept(&larger) >= kept(&fitted));
                }
            }
            Err(error) => {
                let keys = ["limits.device_memory", "limits.pinned_memory"];
                let mut would_do = [limits[0].1, limits[1].1];
                let named = keys.map(|key| named(&error, key));
                prop_assert!(named.iter().any(Option::is_some), "{}", error);
                for (limit, smallest) in would_do.iter_mut().zip(named) {
                    if let Some(smallest) = smallest {
                        prop_assert!(limit.unwrap() < smallest);
                        *limit = Some(smallest);
                    }
                }
                prop_assert!(plan(would_do[0], would_do[1]).is_ok(), "{}", error);
                for (place, smallest) in named.into_iter().enumerate() {
                    if let Some(smallest) = smallest {
                        let mut less = would_do;
                        less[place] = Some(smallest - 1);
                        prop_assert!(plan(less[0], less[1]).is_err(), "{}", error);
                    }
                }
            }
        }
    }
}
