//! Placement of decoding and operators on the CPU and the GPU.

use feedwater::op::RandomApply;

use super::*;

#[test]
fn auto_is_the_cpu_without_a_gpu() {
    let plan = placed(AUTO, [AUTO; 3], &no_gpu()).unwrap();
    assert_eq!(places(&plan), (Cpu, vec![Cpu; 3]));
    assert!(!plan.uses_gpu());
    assert_eq!(plan.cpu_steps(), 3);
}

#[test]
fn auto_is_the_gpu_if_there_is_one() {
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

fn in_use(plan: &Plan) -> Vec<Route> {
    plan.device.as_ref().unwrap().routes.iter().map(|it| it.route).collect()
}

#[test]
fn routes_in_use_are_allowed_and_offered() {
    use Route::{NvjpegGpu, NvjpegHardware, NvjpegHybrid};
    let default: Vec<_> = Route::ALL.to_vec();
    for (allowed, offered, used) in [
        (&Route::ALL[..], &ENGINES[..], &default[..]),
        (&[NvjpegGpu, Route::Feedwater], &Route::ALL, &[Route::Feedwater, NvjpegGpu]),
        (
            &[Route::Cpu, NvjpegHybrid, NvjpegHardware],
            &ENGINES,
            &[NvjpegHardware, NvjpegHybrid, Route::Cpu],
        ),
        (&Route::ALL, &[NvjpegHybrid, NvjpegGpu], &[NvjpegGpu, NvjpegHybrid, Route::Cpu]),
        (&[NvjpegHardware, NvjpegGpu], &ENGINES, &[NvjpegHardware, NvjpegGpu]),
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
fn decoding_is_on_the_cpu_if_no_allowed_route_is_offered() {
    for (allowed, offered) in
        [(&[Route::Cpu], &ENGINES[..]), (&[Route::NvjpegHardware], &[Route::NvjpegHybrid])]
    {
        let plan = decode_with(AUTO, allowed, offered).unwrap();
        assert_eq!((plan.decode, in_use(&plan)), (Cpu, vec![Route::Cpu]), "{allowed:?}");
    }
    let refused = decode_with(
        Placement::Gpu,
        &[Route::NvjpegHardware],
        &[Route::NvjpegGpu, Route::NvjpegHybrid],
    );
    let (what, reason, key) = unavailable(refused.unwrap_err());
    assert_eq!((what, key.as_str()), ("a decode route", "decode.placement"));
    for name in ["decode.routes", "nvjpeg-hardware", "nvjpeg-gpu", "nvjpeg-hybrid"] {
        assert!(reason.contains(name), "{name}: {reason}");
    }
}

/// Returns what is missing, the reason, and the key of the setting that requires it. Checks that
/// the reason contains the key.
fn unavailable(error: Error) -> (&'static str, String, String) {
    let Error::Unavailable { what, reason, asked: Some(asked) } = error else { panic!("{error}") };
    assert!(reason.contains(&asked.key), "{reason}");
    (what, reason, asked.key)
}

#[test]
fn threads_that_decode_on_the_cpu_can_be_limited() {
    let with = |most| {
        let mut settings = Settings::default();
        settings.loader.num_workers = 6.into();
        settings.decode.max_cpu_threads = most;
        let device = Plan::new(&training(), &settings, &gpu()).unwrap().device.unwrap();
        let of = |route| device.routes.iter().find(|it| it.route == route).unwrap().decoders;
        (of(Route::NvjpegGpu), of(Route::NvjpegHybrid), of(Route::Cpu), device.uploads)
    };
    assert_eq!(with(None), (4, 4, 6, 7));
    assert_eq!(with(Some(2)), (4, 2, 2, 3));
    assert_eq!(with(Some(9)), (4, 4, 6, 7));
}

#[test]
fn operators_before_one_on_the_cpu_are_on_the_cpu_too() {
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
fn cpu_after_gpu_is_an_error_that_names_both_fixes() {
    let [cpu, gpu_] = [Placement::Cpu, Placement::Gpu];
    let error = placed(AUTO, [gpu_, AUTO, cpu], &gpu()).unwrap_err();
    let has = |error: Error, steps: [(&str, &str); 2]| {
        let error = config(error);
        assert_eq!(error.key, "chain");
        for (name, key) in steps {
            assert!(error.problem.contains(key), "{error}");
            // Besides the key, the message names the operator twice: where it is, and in the fix
            // that moves it.
            assert!(error.problem.replacen(key, "", 1).matches(name).count() >= 2, "{error}");
        }
        for place in ["cpu", "gpu"] {
            assert!(error.problem.matches(place).count() >= 2, "{error}");
        }
    };
    has(error, [("normalize", "chain[2]"), ("resize", "chain[0]")]);
    let error = placed(gpu_, [cpu, AUTO, AUTO], &gpu()).unwrap_err();
    has(error, [("resize", "chain[0]"), ("decode", "decode")]);
}

#[test]
fn an_operator_without_cuda_text_is_on_the_cpu_with_all_before_it() {
    let plan = |place, before, facts: &Facts| {
        let chain = Chain::new()
            .then_on(before, Resize::to(8, 6))
            .then_on(place, Invert)
            .then(Normalize::IMAGENET);
        Plan::new(&chain, &Settings::default(), facts)
    };
    for place in [AUTO, Placement::Cpu] {
        let plan = plan(place, AUTO, &gpu()).unwrap();
        assert_eq!(places(&plan), (Cpu, vec![Cpu, Cpu, Gpu]));
        assert_eq!(plan.offloads.last().unwrap().operators, 1);
        let text = plan.to_string();
        let reason = text.lines().find(|line| line.starts_with("reason")).unwrap();
        for value in ["invert", "chain[1]", "CUDA", "cpu"] {
            assert!(reason.contains(value), "{reason}");
        }
    }
    // The error does not depend on whether the machine has a GPU.
    for facts in [gpu(), no_gpu()] {
        let Err(Error::Config(error)) = plan(Placement::Gpu, AUTO, &facts) else { panic!() };
        assert_eq!(error.key, "chain[1].placement");
        assert!(error.problem.contains("invert") && error.problem.contains("CUDA"), "{error}");
    }
    let Err(Error::Config(error)) = plan(AUTO, Placement::Gpu, &gpu()) else { panic!() };
    assert_eq!(error.key, "chain");
    assert!(error.problem.contains("invert") && error.problem.contains("resize"), "{error}");
}

/// Samples may have different actions, because the program kernel reads the actions of each sample
/// as data.
#[test]
fn an_operator_that_draws_other_actions_for_other_samples_is_on_the_gpu() {
    let apply = RandomApply::new(0.5).then(Flip { horizontal: 1.0, vertical: 0.0 });
    let chain = Chain::new().then(Resize::to(8, 6)).then(apply).then(Normalize::IMAGENET);
    let planned = Plan::new(&chain, &Settings::default(), &gpu()).unwrap();
    assert_eq!(places(&planned), (Gpu, vec![Gpu; 3]));
    let text = planned.to_string();
    let program = text.lines().find(|line| line.starts_with("program")).unwrap();
    assert!(program.contains("random_apply"), "{program}");
}

#[test]
fn a_required_but_missing_gpu_is_an_error_that_names_the_key() {
    let refused =
        |decode, steps, facts: &Facts| unavailable(placed(decode, steps, facts).unwrap_err());
    let (what, reason, key) = refused(AUTO, [AUTO, Placement::Gpu, AUTO], &no_gpu());
    assert!(what.contains("gpu"), "{what}");
    assert_eq!(key, "chain[1].placement");
    for value in [NO_DRIVER, "flip", "cpu", "auto"] {
        assert!(reason.contains(value), "{reason}");
    }
    let (what, reason, key) = refused(Placement::Gpu, [AUTO; 3], &no_gpu());
    assert!(what.contains("gpu") && reason.contains(NO_DRIVER), "{what}: {reason}");
    assert_eq!(key, "decode.placement");
    let (what, reason, key) = refused(Placement::Gpu, [AUTO; 3], &gpu_without_nvjpeg());
    assert_eq!((what, key.as_str()), ("a decode route", "decode.placement"));
    assert!(reason.contains(NO_NVJPEG), "{reason}");
}

#[test]
fn errors_name_the_key_and_the_fix() {
    let zero = Normalize { std: [1.0, 0.0, 1.0], ..Normalize::IMAGENET };
    let chain = Chain::new().then(Resize::to(8, 8)).then(Flip::default()).then(zero);
    let has = |error: ConfigError, key: &str, values: &[&str]| {
        assert_eq!(error.key, key, "{error}");
        assert!(values.iter().all(|value| error.problem.contains(value)), "{error}");
    };
    let error = refused(&chain, |_| ());
    has(error, "chain[2].std[1]", &["at least 5.877472e-39", "is 0"]);
    has(refused(&training().then(Normalize::IMAGENET), |_| ()), "chain[3]", &["normalize"]);
    has(refused(&Chain::new().then(Resize::shorter(8)), |_| ()), "chain", &["center_crop"]);
    let error = refused(&training(), |settings| settings.output.dtype = DType::U8);
    has(error, "output.dtype", &["u8", "f16", "normalize"]);
    for (error, key) in [
        (refused(&training(), |settings| settings.loader.prefetch = 0.into()), "loader.prefetch"),
        (refused(&training(), |settings| settings.limits.max_pixels = 0), "limits.max_pixels"),
    ] {
        assert_eq!(numbers(&error.problem), [0, 1], "{error}");
        has(error, key, &[]);
    }
}

/// Where the views of a plan are, in order.
fn places_of_views(plan: &Plan) -> Vec<Place> {
    plan.views.iter().map(|view| view.place).collect()
}

#[test]
fn views_are_on_the_gpu_with_the_whole_main_chain() {
    let crop = |place| Chain::new().then_on(place, Resize::to(8, 6));
    let views = |main: Chain, place| {
        main.view(View::new("auto", crop(AUTO)).count(3))
            .view(View::new("placed", crop(place)))
            .view(View::new("inverted", crop(AUTO).then(Invert)))
            .view(View::new("field", crop(AUTO)).field("right"))
    };
    let planned = |chain: &Chain, facts: &Facts| Plan::new(chain, &Settings::default(), facts);
    for facts in [gpu(), gpu_without_nvjpeg()] {
        for main in [training(), Chain::new()] {
            let plan = planned(&views(main.clone(), Placement::Gpu), &facts).unwrap();
            assert_eq!(places_of_views(&plan), [Gpu, Gpu, Cpu, Cpu]);
            assert!(plan.uses_gpu());
            let device = plan.device.as_ref().unwrap();
            let on_device = device.views.iter().map(|view| (view.number, view.outputs));
            assert_eq!(on_device.collect::<Vec<_>>(), [(0, 3), (1, 1)]);
            let plan = planned(&views(main, Placement::Cpu), &facts).unwrap();
            assert_eq!(places_of_views(&plan), [Gpu, Cpu, Cpu, Cpu]);
        }
        let plan = planned(&views(Chain::new().then(Invert).then(Resize::to(9, 9)), AUTO), &facts);
        assert_eq!(places_of_views(&plan.unwrap()), [Cpu; 4]);
    }
    let plan = planned(&views(training(), AUTO), &no_gpu()).unwrap();
    assert_eq!(places_of_views(&plan), [Cpu; 4]);
    assert!(!plan.uses_gpu());
}

/// A placement that is impossible is an error, which names the key and the reason.
#[test]
fn a_view_that_cannot_run_on_the_gpu_may_not_be_placed_there() {
    let crop = || Chain::new().then_on(Placement::Gpu, Resize::to(8, 6));
    let refused = |main: Chain, view: View, facts: &Facts, words: &[&str]| {
        let error = config(Plan::new(&main.view(view), &Settings::default(), facts).unwrap_err());
        assert_eq!(error.key, "view[0].chain[0].placement", "{error}");
        for word in words.iter().chain(&["write cpu or auto"]) {
            assert!(error.problem.contains(word), "{word}: {error}");
        }
    };
    for facts in [gpu(), no_gpu()] {
        let inverted = View::new("a", crop().then(Invert));
        refused(training(), inverted, &facts, &["invert (view[0].chain[1])", "CUDA"]);
        let field = View::new("a", crop()).field("right");
        refused(training(), field, &facts, &["images of fields"]);
        let mixed = View::new("a", crop().then_on(Placement::Cpu, Flip::default()));
        refused(training(), mixed, &facts, &["flip (view[0].chain[1]) is on cpu", "one place"]);
    }
    let main = Chain::new().then(Invert).then(Resize::to(9, 9));
    refused(main, View::new("a", crop()), &gpu(), &["invert (chain[0]) is on cpu"]);
    let chain = training().view(View::new("a", crop()));
    let (what, reason, key) =
        unavailable(Plan::new(&chain, &Settings::default(), &no_gpu()).unwrap_err());
    assert_eq!((what, key.as_str()), ("a gpu", "view[0].chain[0].placement"));
    assert!(reason.contains(NO_DRIVER) && reason.contains("resize"), "{reason}");
}

/// Views leave the GPU only together with the whole main chain.
#[test]
fn views_move_with_the_whole_main_chain() {
    let crop = |place| Chain::new().then_on(place, Resize::to(8, 6)).then(Normalize::IMAGENET);
    let offloads = |place| {
        let chain = training().view(View::new("a", crop(place)).count(4));
        let plan = Plan::new(&chain, &Settings::default(), &gpu()).unwrap();
        plan.offloads.iter().map(|it| (it.operators, it.decode)).collect::<Vec<_>>()
    };
    assert_eq!(offloads(AUTO), [(0, false), (5, false), (5, true)]);
    assert_eq!(offloads(Placement::Gpu), [(5, false), (5, true)]);
}
