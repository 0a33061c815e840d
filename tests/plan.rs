//! What a plan decides: places, windows, reductions, limits, memory, and the words with which it refuses.

mod common;

use common::{evaluation, jpeg, training};
use feedwater::error::{Error, Reason};
use feedwater::footprint::Memory;
use feedwater::geometry::{Orientation, Roi, Size};
use feedwater::header::{Format, Header};
use feedwater::op::{Chain, Crop, Flip, Normalize, Placement, RandomResizedCrop, Resize};
use feedwater::plan::{
    Bounds, Count, DeviceFacts, Facts, Place, Plan, Route, SamplePlan, Settings,
};
use feedwater::random::SampleKey;
use feedwater::tensor::DType;

use Place::{Cpu, Gpu};

const ENGINES: [Route; 3] = [Route::Hardware, Route::Cuda, Route::Host];

fn no_gpu() -> Facts {
    Facts { device: DeviceFacts::None("no driver".into()), ..Facts::default() }
}

fn gpu() -> Facts {
    Facts { device: DeviceFacts::Gpu { nvjpeg: Ok(ENGINES.into()) }, ..Facts::default() }
}

fn gpu_without_nvjpeg() -> Facts {
    let nvjpeg = Err("libnvjpeg.so is not there".into());
    Facts { device: DeviceFacts::Gpu { nvjpeg }, ..Facts::default() }
}

/// Resize, flip and normalize at these places, decode at that one.
fn placed(decode: Placement, steps: [Placement; 3], facts: &Facts) -> Result<Plan, Error> {
    let chain = Chain::new()
        .then_on(steps[0], Resize::to(8, 6))
        .then_on(steps[1], Flip::default())
        .then_on(steps[2], Normalize::IMAGENET);
    let mut settings = Settings::default();
    settings.decode.placement = decode;
    Plan::new(&chain, &settings, facts)
}

fn places(plan: &Plan) -> (Place, Vec<Place>) {
    (plan.decode, plan.steps.iter().map(|step| step.place).collect())
}

fn plan(chain: &Chain, change: impl Fn(&mut Settings)) -> Plan {
    let mut settings = Settings::default();
    change(&mut settings);
    Plan::new(chain, &settings, &no_gpu()).unwrap()
}

fn refused(chain: &Chain, change: impl Fn(&mut Settings)) -> String {
    let mut settings = Settings::default();
    change(&mut settings);
    Plan::new(chain, &settings, &no_gpu()).unwrap_err().to_string()
}

fn header(size: Size, format: Format, exif: u16) -> Header {
    Header { format, size, orientation: Orientation::from_exif(exif), jpeg: None }
}

fn sample(plan: &Plan, header: &Header, index: u64) -> SamplePlan {
    let mut out = SamplePlan::default();
    plan.sample(SampleKey { seed: 1, epoch: 0, index }, header, &mut out).unwrap();
    out
}

const AUTO: Placement = Placement::Auto;

#[test]
fn auto_is_the_cpu_where_there_is_no_gpu() {
    let plan = placed(AUTO, [AUTO; 3], &no_gpu()).unwrap();
    assert_eq!(places(&plan), (Cpu, vec![Cpu; 3]));
    assert!(!plan.uses_gpu());
    assert_eq!(plan.cpu_steps(), 3);
}

#[test]
fn auto_is_the_gpu_where_there_is_one() {
    let plan = placed(AUTO, [AUTO; 3], &gpu()).unwrap();
    assert_eq!(places(&plan), (Gpu, vec![Gpu; 3]));
    assert!(plan.uses_gpu());
    assert_eq!(plan.cpu_steps(), 0);
}

#[test]
fn without_nvjpeg_decoding_alone_is_on_the_cpu() {
    let plan = placed(AUTO, [AUTO; 3], &gpu_without_nvjpeg()).unwrap();
    assert_eq!(places(&plan), (Cpu, vec![Gpu; 3]));
    assert!(plan.uses_gpu());
}

fn decode_with(placement: Placement, routes: &[Route], offered: &[Route]) -> Result<Plan, Error> {
    let facts = Facts { device: DeviceFacts::Gpu { nvjpeg: Ok(offered.into()) }, ..no_gpu() };
    let mut settings = Settings::default();
    settings.decode.placement = placement;
    settings.decode.routes = routes.into();
    Plan::new(&training(), &settings, &facts)
}

fn in_use(plan: &Plan) -> Vec<Route> {
    plan.device.as_ref().unwrap().routes.iter().map(|it| it.route).collect()
}

#[test]
fn the_routes_in_use_are_those_that_are_allowed_and_offered() {
    use Route::{Cuda, Hardware, Host};
    for (allowed, offered, used) in [
        (&Route::ALL[..], &ENGINES[..], &Route::ALL[..]),
        (&[Route::Cpu, Host, Hardware], &ENGINES, &[Hardware, Host, Route::Cpu]),
        (&Route::ALL, &[Host, Cuda], &[Cuda, Host, Route::Cpu]),
        (&[Hardware, Cuda], &ENGINES, &[Hardware, Cuda]),
    ] {
        let plan = decode_with(AUTO, allowed, offered).unwrap();
        assert_eq!((plan.decode, in_use(&plan)), (Gpu, used.to_vec()), "{allowed:?}");
    }
    for facts in [gpu(), gpu_without_nvjpeg()] {
        let plan = placed(Placement::Cpu, [AUTO; 3], &facts).unwrap();
        assert_eq!((plan.decode, in_use(&plan)), (Cpu, vec![Route::Cpu]));
    }
}

#[test]
fn decoding_is_on_the_cpu_where_no_route_that_is_allowed_is_offered() {
    for (allowed, offered) in [(&[Route::Cpu], &ENGINES[..]), (&[Route::Hardware], &[Route::Host])]
    {
        let plan = decode_with(AUTO, allowed, offered).unwrap();
        assert_eq!((plan.decode, in_use(&plan)), (Cpu, vec![Route::Cpu]), "{allowed:?}");
    }
    let refused = decode_with(Placement::Gpu, &[Route::Hardware], &[Route::Cuda, Route::Host]);
    assert_eq!(
        refused.unwrap_err().to_string(),
        "nvJPEG is not available: decode.routes allows hardware, the device offers cuda, host: allow one of \
         these; decode.placement asks for it: write cpu or auto"
    );
}

#[test]
fn threads_that_decode_on_the_cpu_can_be_few() {
    let with = |most| {
        let mut settings = Settings::default();
        settings.loader.workers = 6.into();
        settings.decode.max_cpu_threads = most;
        let device = Plan::new(&training(), &settings, &gpu()).unwrap().device.unwrap();
        let of = |route| device.routes.iter().find(|it| it.route == route).unwrap().decoders;
        (of(Route::Cuda), of(Route::Host), of(Route::Cpu), device.uploads)
    };
    assert_eq!(with(None), (4, 4, 6, 7));
    assert_eq!(with(Some(2)), (4, 2, 2, 3));
    assert_eq!(with(Some(9)), (4, 4, 6, 7));
}

#[test]
fn what_comes_before_an_operator_on_the_cpu_is_on_the_cpu_too() {
    let plan = placed(AUTO, [AUTO, Placement::Cpu, AUTO], &gpu()).unwrap();
    assert_eq!(places(&plan), (Cpu, vec![Cpu, Cpu, Gpu]));
    assert_eq!(plan.cpu_steps(), 2);
    let plan = placed(Placement::Cpu, [AUTO; 3], &gpu()).unwrap();
    assert_eq!(places(&plan), (Cpu, vec![Gpu; 3]));
    let plan = placed(AUTO, [AUTO, AUTO, Placement::Cpu], &gpu()).unwrap();
    assert_eq!(places(&plan), (Cpu, vec![Cpu; 3]));
    assert!(!plan.uses_gpu());
}

#[test]
fn cpu_after_gpu_is_refused_with_both_fixes() {
    let [cpu, gpu_] = [Placement::Cpu, Placement::Gpu];
    let error = placed(AUTO, [gpu_, AUTO, cpu], &gpu()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "chain: normalize (chain[2]) is on cpu after resize (chain[0]) on gpu; data goes to the gpu \
         once: put normalize on gpu or resize on cpu"
    );
    let error = placed(gpu_, [cpu, AUTO, AUTO], &gpu()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "chain: resize (chain[0]) is on cpu after decode (decode) on gpu; data goes to the gpu once: \
         put resize on gpu or decode on cpu"
    );
}

#[test]
fn a_gpu_that_is_asked_for_and_is_not_there_is_refused_with_the_key() {
    let error = placed(AUTO, [AUTO, Placement::Gpu, AUTO], &no_gpu()).unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }));
    let text = error.to_string();
    assert!(text.starts_with("a gpu is not available: no driver"), "{text}");
    assert!(text.contains("chain[1].placement asks for flip on it"), "{text}");
    assert!(text.ends_with("write cpu or auto"), "{text}");
    let text = placed(Placement::Gpu, [AUTO; 3], &no_gpu()).unwrap_err().to_string();
    assert!(text.contains("decode.placement asks for decode on it"), "{text}");
    let text = placed(Placement::Gpu, [AUTO; 3], &gpu_without_nvjpeg()).unwrap_err().to_string();
    assert!(text.starts_with("nvJPEG is not available: libnvjpeg.so is not there"), "{text}");
}

#[test]
fn refusals_name_the_key_and_the_way_out() {
    let zero = Normalize { std: [1.0, 0.0, 1.0], ..Normalize::IMAGENET };
    let chain = Chain::new().then(Resize::to(8, 8)).then(Flip::default()).then(zero);
    assert_eq!(refused(&chain, |_| ()), "chain[2].std[1]: must be a number over 0, is 0");
    let chain = training().then(Normalize::IMAGENET);
    let text = refused(&chain, |_| ());
    assert!(text.starts_with("chain[3]: normalize works on bytes"), "{text}");
    let text = refused(&Chain::new().then(Resize::shorter(8)), |_| ());
    assert!(text.starts_with("chain: samples leave with different sizes"), "{text}");
    assert!(text.contains("center_crop"), "{text}");
    let text = refused(&training(), |settings| settings.output.dtype = DType::U8);
    assert!(text.starts_with("output.dtype: is u8, but normalize makes floats"), "{text}");
    assert!(text.contains("f16"), "{text}");
    let text = refused(&training(), |settings| settings.loader.prefetch = 0.into());
    assert_eq!(text, "loader.prefetch: must be at least 1, is 0");
    let text = refused(&training(), |settings| settings.limits.max_pixels = 0);
    assert_eq!(text, "limits.max_pixels: must be at least 1, is 0");
}

#[test]
fn a_crop_at_the_head_is_all_that_is_decoded() {
    let chain = Chain::new().then(Crop { x: 100, y: 50, width: 64, height: 32 });
    let plan = plan(&chain, |_| ());
    let out = sample(&plan, &header(Size::new(500, 375), Format::Jpeg, 1), 0);
    assert_eq!(out.window, Roi::new(100, 50, 64, 32));
    assert_eq!(out.stored_window, out.window);
    assert_eq!(out.trace.roi, out.window);
}

#[test]
fn crops_and_flips_in_a_row_are_one_window() {
    let chain = Chain::new()
        .then(Crop { x: 100, y: 50, width: 64, height: 32 })
        .then(Flip { horizontal: 1.0, vertical: 1.0 })
        .then(Crop { x: 4, y: 5, width: 10, height: 6 });
    let plan = plan(&chain, |_| ());
    let out = sample(&plan, &header(Size::new(500, 375), Format::Jpeg, 1), 0);
    // Columns 4 to 13 from the right of the first crop, rows 5 to 10 from its bottom.
    assert_eq!(out.window, Roi::new(100 + 64 - 14, 50 + 32 - 11, 10, 6));
}

#[test]
fn random_resized_crop_reads_its_own_box_and_nothing_else() {
    let plan = plan(&training(), |_| ());
    let header = header(Size::new(500, 375), Format::Jpeg, 1);
    let mut smaller = 0;
    for index in 0..200 {
        let out = sample(&plan, &header, index);
        assert_eq!(out.window, out.trace.roi, "sample {index}");
        assert!(header.size.window().contains(out.window), "sample {index}");
        smaller += u32::from(out.window.size().pixels() < header.size.pixels() / 2);
    }
    assert!(smaller > 40, "{smaller} of 200 crops are less than half of the picture");
}

#[test]
fn resize_and_center_crop_read_less_than_the_picture() {
    let chain =
        Chain::new().then(Resize::shorter(256)).then(feedwater::op::CenterCrop::to(224, 224));
    let plan = plan(&chain, |_| ());
    let out = sample(&plan, &header(Size::new(500, 375), Format::Jpeg, 1), 0);
    // 256 output rows are 375 input rows, of which 224 are wanted: 328 and the filter's reach on both sides.
    for (first, len, whole) in
        [(out.window.x, out.window.width, 500), (out.window.y, out.window.height, 375)]
    {
        assert!((328..=334).contains(&len), "{}", out.window);
        let after = whole - first - len;
        assert!(first.abs_diff(after) <= 3, "{} is in the middle", out.window);
    }
}

#[test]
fn prescale_takes_the_largest_reduction_that_leaves_the_wanted_size() {
    let chain = Chain::new().then(RandomResizedCrop::to(224, 224));
    let with = plan(&chain, |settings| settings.decode.prescale = true);
    let without = plan(&chain, |_| ());
    let mut seen = std::collections::BTreeSet::new();
    for (width, height) in [(500, 375), (2047, 1535), (4096, 3072)] {
        let header = header(Size::new(width, height), Format::Jpeg, 1);
        for index in 0..200 {
            let out = sample(&with, &header, index);
            let roi = out.trace.roi;
            let leaves = |by: u32| roi.width / by >= 224 && roi.height / by >= 224;
            assert!(out.reduction == 1 || leaves(out.reduction), "sample {index}");
            assert!(out.reduction == 8 || !leaves(2 * out.reduction), "sample {index}");
            let stored = [width, height].map(|side| side.div_ceil(out.reduction));
            assert_eq!(out.stored, Size::new(stored[0], stored[1]));
            assert!(out.stored.window().contains(out.window));
            let full = sample(&without, &header, index);
            assert_eq!((full.reduction, full.trace), (1, out.trace));
            seen.insert(out.reduction);
        }
    }
    assert!(seen.into_iter().eq([1, 2, 4, 8]), "every reduction is taken");
}

#[test]
fn only_a_jpeg_whose_first_operator_resamples_is_reduced() {
    let prescale = |settings: &mut Settings| settings.decode.prescale = true;
    let size = Size::new(2048, 1536);
    let reduction = |chain: &Chain, format| {
        let plan = plan(chain, prescale);
        sample(&plan, &header(size, format, 1), 0).reduction
    };
    let resize = Chain::new().then(Resize::to(224, 224));
    assert_eq!(reduction(&resize, Format::Jpeg), 4);
    assert_eq!(reduction(&resize, Format::Png), 1);
    assert_eq!(reduction(&resize, Format::WebP), 1);
    let crop = Crop { x: 0, y: 0, width: 2000, height: 1500 };
    assert_eq!(reduction(&Chain::new().then(crop).then(Resize::to(8, 8)), Format::Jpeg), 1);
}

#[test]
fn the_stored_window_is_the_upright_window_turned_back() {
    let chain = Chain::new().then(Crop { x: 10, y: 20, width: 30, height: 40 });
    let upright = plan(&chain, |_| ());
    let size = Size::new(200, 100);
    // EXIF 6: the stored picture's left column is the upright picture's top row, read from below.
    let out = sample(&upright, &header(size, Format::Jpeg, 6), 0);
    assert_eq!((out.upright, out.stored), (Size::new(100, 200), size));
    assert_eq!(out.window, Roi::new(10, 20, 30, 40));
    assert_eq!(out.stored_window, Roi::new(20, 100 - 10 - 30, 40, 30));
    // EXIF 3: half a turn.
    let out = sample(&upright, &header(size, Format::Jpeg, 3), 0);
    assert_eq!(out.stored_window, Roi::new(200 - 40, 100 - 60, 30, 40));
    for exif in 1..=8 {
        let out = sample(&upright, &header(size, Format::Jpeg, exif), 0);
        assert_eq!(out.stored_window, out.orientation.stored_window(out.stored, out.window));
        assert!(size.window().contains(out.stored_window));
    }
    let as_stored = plan(&chain, |settings| settings.decode.orientation = false);
    let out = sample(&as_stored, &header(size, Format::Jpeg, 6), 0);
    assert_eq!((out.upright, out.stored_window), (size, Roi::new(10, 20, 30, 40)));
}

#[test]
fn a_reduced_picture_is_turned_after_the_reduction() {
    let chain = Chain::new().then(Resize::to(20, 30));
    let plan = plan(&chain, |settings| settings.decode.prescale = true);
    let out = sample(&plan, &header(Size::new(1001, 501), Format::Jpeg, 8), 0);
    assert_eq!((out.upright, out.reduction), (Size::new(501, 1001), 8));
    assert_eq!(out.stored, Size::new(126, 63));
    assert_eq!(out.stored_window, out.stored.window());
    assert_eq!(out.window, Roi::new(0, 0, 63, 126));
}

#[test]
fn a_picture_over_max_pixels_is_refused_and_one_at_the_limit_is_not() {
    let plan = plan(&training(), |settings| settings.limits.max_pixels = 10_000);
    let key = SampleKey::default();
    let mut out = SamplePlan::default();
    plan.sample(key, &header(Size::new(100, 100), Format::Png, 1), &mut out).unwrap();
    let fault =
        plan.sample(key, &header(Size::new(101, 100), Format::Png, 1), &mut out).unwrap_err();
    assert_eq!(fault.reason, Reason::Oversized);
    assert_eq!(fault.problem, "101x100 is 10100 pixels, limits.max_pixels is 10000");
}

/// Nothing of the sample before is left in the memory of the next.
#[test]
fn a_sample_plan_that_is_filled_again_is_as_good_as_new() {
    let plan = plan(&evaluation(), |settings| settings.decode.prescale = true);
    let headers = [(900, 700, 6), (31, 47, 1), (500, 375, 3)];
    let mut reused = SamplePlan::default();
    for (index, (width, height, exif)) in headers.into_iter().enumerate() {
        let header = header(Size::new(width, height), Format::Jpeg, exif);
        let key = SampleKey { seed: 1, epoch: 0, index: index as u64 };
        plan.sample(key, &header, &mut reused).unwrap();
        let new = sample(&plan, &header, index as u64);
        assert_eq!(reused.table, new.table);
        assert_eq!((reused.stored_window, reused.trace), (new.stored_window, new.trace));
        for (a, b) in reused.steps.iter().zip(&new.steps) {
            assert_eq!(a.params.as_bytes(), b.params.as_bytes());
            assert_eq!((&a.table, a.input, a.output), (&b.table, b.input, b.output));
        }
    }
}

#[test]
fn a_real_header_plans_as_well() {
    let plan = plan(&training(), |_| ());
    let header = Header::parse(&jpeg(3, 57, 43)).unwrap();
    assert_eq!(sample(&plan, &header, 3).upright, Size::new(57, 43));
}

#[test]
fn the_footprint_is_the_sum_of_its_rows_and_grows_by_whole_slots() {
    let with = |batch, prefetch| {
        plan(&training(), |settings| {
            settings.loader.batch = batch;
            settings.loader.prefetch = Count::Fixed(prefetch);
        })
    };
    let base = with(64, 2);
    let rows = &base.footprint.rows;
    let sum: u64 = rows.iter().map(|row| row.each_bytes * row.count).sum();
    assert_eq!(base.footprint.total_bytes(Memory::Host), sum);
    let of_others =
        base.footprint.total_bytes(Memory::Pinned) + base.footprint.total_bytes(Memory::Device);
    assert_eq!(of_others, 0, "a plan for the cpu takes no device memory");
    let total = |plan: &Plan| plan.footprint.total_bytes(Memory::Host);
    let slot = base.shape.bytes() as u64;
    assert_eq!(slot, 64 * 3 * 20 * 24 * 4);
    assert_eq!(base.slots(), 3);
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
        ("kernel", "Normalize<Roi> f32 nchw"),
    ] {
        let line = lines.next().unwrap();
        assert!(line.starts_with(&format!("{place:<8}{what}")), "{line}");
    }
    let decoding = decode_with(AUTO, &[Route::Hardware, Route::Cuda], &ENGINES).unwrap();
    let text_of_routes = decoding.to_string();
    let states = decoding.device.unwrap().routes[1].decoders;
    let wanted = match states {
        1 => "gpu     decode by hardware x2, cuda\n".to_string(),
        _ => format!("gpu     decode by hardware x2, cuda x{states}\n"),
    };
    assert!(text_of_routes.starts_with(&wanted), "{text_of_routes}");
    for row in &plan.footprint.rows {
        assert!(text.contains(&row.name), "{} is missing in\n{text}", row.name);
    }
}

/// A plan of `training` for a machine of so many cores.
fn of_cores(cores: usize, facts: Facts, change: impl FnOnce(&mut Settings)) -> Result<Plan, Error> {
    let mut settings = Settings::default();
    settings.loader.workers = Count::Auto;
    change(&mut settings);
    Plan::new(&training(), &settings, &Facts { cores, ..facts })
}

fn bounds(least: usize, start: usize, most: usize) -> Bounds {
    Bounds { least, start, most }
}

#[test]
fn workers_that_are_chosen_are_from_one_to_two_a_core_and_wait_for_a_network_in_larger_numbers() {
    for (cores, local, remote) in [(1, 16, 64), (2, 16, 64), (12, 24, 64), (48, 96, 96)] {
        let plan = of_cores(cores, no_gpu(), |_| ()).unwrap();
        assert_eq!(plan.workers, bounds(1, cores, local));
        let facts = Facts { remote: true, largest_bytes: 100, ..no_gpu() };
        assert_eq!(of_cores(cores, facts, |_| ()).unwrap().workers, bounds(1, cores, remote));
    }
    let ask = of_cores(0, no_gpu(), |_| ()).unwrap().workers;
    assert_eq!(Count::Fixed(ask.start), Settings::default().loader.workers);
    let fixed = of_cores(6, gpu(), |settings| settings.loader.workers = 5.into()).unwrap();
    assert_eq!(fixed.workers, bounds(5, 5, 5));
}

#[test]
fn chosen_workers_leave_room_for_the_other_threads_under_a_limit() {
    let cuda = Facts { device: DeviceFacts::Gpu { nvjpeg: Ok(vec![Route::Cuda]) }, ..gpu() };
    for (facts, others) in [(no_gpu(), 0), (cuda, 1), (gpu_without_nvjpeg(), 1), (gpu(), 2)] {
        for limit in others + 1..20 {
            let limited = |settings: &mut Settings| settings.limits.cpu_threads = Some(limit);
            let plan = of_cores(6, facts.clone(), limited).unwrap();
            let most = (limit - others).min(16);
            assert_eq!(plan.workers, bounds(1, most.min(6), most), "{limit} less {others}");
        }
    }
    let refused = |facts, limit: usize, workers: Count| {
        let change = |settings: &mut Settings| {
            settings.limits.cpu_threads = Some(limit);
            settings.loader.workers = workers;
        };
        of_cores(6, facts, change).unwrap_err().to_string()
    };
    assert_eq!(
        refused(gpu(), 2, Count::Auto),
        "limits.cpu_threads: is 2, and there must be a worker besides the launcher and the thread that feeds the JPEG \
         engines; write at least 3, or leave it out for no limit"
    );
    assert_eq!(
        refused(gpu_without_nvjpeg(), 1, 1.into()),
        "limits.cpu_threads: is 1, and there must be a worker besides the launcher; write at least 2, or leave it out for \
         no limit"
    );
    assert_eq!(
        refused(no_gpu(), 3, 4.into()),
        "limits.cpu_threads: is 3, and loader.workers is 4; lower loader.workers to 3 or write \"auto\" there"
    );
    assert_eq!(
        refused(gpu(), 5, 4.into()),
        "limits.cpu_threads: is 5, and loader.workers is 4 besides the launcher and the thread that feeds the JPEG \
         engines; lower loader.workers to 3 or write \"auto\" there"
    );
    assert_eq!(
        refused(no_gpu(), 0, Count::Auto),
        "limits.cpu_threads: must be at least 1, is 0; leave it out for no limit"
    );
    let exact = |settings: &mut Settings| {
        (settings.limits.cpu_threads, settings.loader.workers) = (Some(6), 4.into());
    };
    assert_eq!(of_cores(6, gpu(), exact).unwrap().workers, bounds(4, 4, 4));
}

#[test]
fn batches_ahead_that_are_chosen_are_from_one_to_what_a_gibibyte_has_room_for() {
    let sample = 2 * 3 * 20 * 24;
    let fits = |batches: usize| (1 << 30) / (batches * sample);
    for (batch, most) in [(1, 8), (fits(8), 8), (fits(5), 5), (fits(5) + 1, 4), (fits(1), 2)] {
        let plan = plan(&training(), |settings| {
            (settings.loader.batch, settings.loader.prefetch) = (batch, Count::Auto);
            settings.output.dtype = DType::F16;
        });
        assert_eq!((plan.prefetch, plan.slots()), (most, most + 1));
        assert_eq!(plan.ahead_batches, bounds(1, 2, most));
    }
    let fixed = plan(&training(), |settings| settings.loader.prefetch = 5.into());
    assert_eq!((fixed.prefetch, fixed.ahead_batches), (5, bounds(5, 5, 5)));
}

/// Memory is taken for the most of what is chosen: the footprint is that of the same numbers, set.
#[test]
fn the_footprint_of_what_is_chosen_is_that_of_its_most() {
    for facts in [no_gpu(), gpu(), Facts { remote: true, largest_bytes: 5000, ..no_gpu() }] {
        let auto = |settings: &mut Settings| settings.loader.prefetch = Count::Auto;
        let chosen = of_cores(6, facts.clone(), auto).unwrap();
        let set = |settings: &mut Settings| {
            settings.loader.workers = chosen.workers.most.into();
            settings.loader.prefetch = chosen.prefetch.into();
        };
        let fixed = of_cores(6, facts, set).unwrap();
        assert_eq!(chosen.footprint, fixed.footprint);
        assert!(chosen.workers.most > 6 && chosen.prefetch > 2);
    }
}

#[test]
fn a_plan_prints_between_what_chosen_numbers_are() {
    let auto = |settings: &mut Settings| settings.loader.prefetch = Count::Auto;
    let text = of_cores(2, no_gpu(), auto).unwrap().to_string();
    let wanted = "auto    workers 1 to 16, 2 at first\nauto    prefetch 1 to 8, 2 at first\n";
    assert!(text.contains(wanted), "{text}");
    let one = |settings: &mut Settings| settings.limits.cpu_threads = Some(1);
    let text = of_cores(2, no_gpu(), one).unwrap().to_string();
    assert!(text.contains("auto    workers 1\n"), "{text}");
    assert!(!text.contains("prefetch"), "{text}");
    let fixed = of_cores(2, no_gpu(), |settings| settings.loader.workers = 2.into()).unwrap();
    assert!(!fixed.to_string().contains("auto"), "{fixed}");
}
