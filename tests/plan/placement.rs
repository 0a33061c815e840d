//! Placement on the CPU and the GPU.

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
    for (allowed, offered, used) in [
        (&Route::ALL[..], &ENGINES[..], &Route::ALL[..]),
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
    let error = refused.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    let text = error.to_string();
    for name in ["nvJPEG", "decode.routes", "nvjpeg-hardware", "nvjpeg-gpu, nvjpeg-hybrid"] {
        assert!(text.contains(name), "{name}: {text}");
    }
    assert!(text.contains("decode.placement"), "{text}");
}

#[test]
fn threads_that_decode_on_the_cpu_can_be_limited() {
    let with = |most| {
        let mut settings = Settings::default();
        settings.loader.workers = 6.into();
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
    let has = |error: Error, values: [&str; 4]| {
        let text = error.to_string();
        assert!(text.starts_with("chain: "), "{text}");
        assert!(values.iter().all(|value| text.contains(value)), "{text}");
    };
    has(error, ["normalize (chain[2])", "resize (chain[0])", "normalize on gpu", "resize on cpu"]);
    let error = placed(gpu_, [cpu, AUTO, AUTO], &gpu()).unwrap_err();
    has(error, ["resize (chain[0])", "decode (decode)", "resize on gpu", "decode on cpu"]);
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
        let reason = "invert (chain[1]) has no CUDA text; decoding and the operators before it are on the cpu with it";
        assert!(plan.to_string().contains(reason), "{plan}");
    }
    // On any machine.
    for facts in [gpu(), no_gpu()] {
        let Err(Error::Config(error)) = plan(Placement::Gpu, AUTO, &facts) else { panic!() };
        assert_eq!(error.key, "chain[1].placement");
        assert!(error.problem.contains("invert has no CUDA text"), "{error}");
    }
    let Err(Error::Config(error)) = plan(AUTO, Placement::Gpu, &gpu()) else { panic!() };
    assert_eq!(error.key, "chain");
    assert!(error.problem.contains("invert") && error.problem.contains("resize"), "{error}");
}

#[test]
fn a_required_but_missing_gpu_is_an_error_that_names_the_key() {
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
fn errors_name_the_key_and_the_fix() {
    let zero = Normalize { std: [1.0, 0.0, 1.0], ..Normalize::IMAGENET };
    let chain = Chain::new().then(Resize::to(8, 8)).then(Flip::default()).then(zero);
    assert_eq!(
        refused(&chain, |_| ()),
        "chain[2].std[1]: must be a number over 0 and at most 4, is 0"
    );
    let chain = training().then(Normalize::IMAGENET);
    let text = refused(&chain, |_| ());
    assert!(text.starts_with("chain[3]: normalize "), "{text}");
    let text = refused(&Chain::new().then(Resize::shorter(8)), |_| ());
    assert!(text.starts_with("chain: "), "{text}");
    assert!(text.contains("center_crop"), "{text}");
    let text = refused(&training(), |settings| settings.output.dtype = DType::U8);
    assert!(text.starts_with("output.dtype: is u8"), "{text}");
    assert!(text.contains("f16"), "{text}");
    let text = refused(&training(), |settings| settings.loader.prefetch = 0.into());
    assert_eq!(text, "loader.prefetch: must be at least 1, is 0");
    let text = refused(&training(), |settings| settings.limits.max_pixels = 0);
    assert_eq!(text, "limits.max_pixels: must be at least 1, is 0");
}
