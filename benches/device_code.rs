//! Prints Markdown tables about the kernels. The PTX interpreter counts instructions and memory
//! accesses. NVIDIA's assembler reports registers and stack. Times are not measured. Needs no GPU:
//!
//! ```text
//! tests/device_code/run.sh cargo bench -p feedwater-tests --profile dev --bench device_code
//! ```

#[path = "common/assembler.rs"]
mod assembler;
#[path = "common/device_samples.rs"]
mod device_samples;

use std::sync::Arc;

use assembler::facts;
use device_samples::DeviceSamples;
use feedwater::gpu::{Device, compile};
use feedwater::internals::geometry::Size;
use feedwater::internals::gpu::LaunchGoal;
use feedwater::internals::tensor::{DType, Layout};
use feedwater::op::{
    Autocontrast, CenterCrop, ColorJitter, Equalize, Flip, GaussianBlur, Normalize, Operator,
    RandAugment, RandomAffine, RandomErasing, RandomResizedCrop, RandomRotation, Resize,
};
use feedwater_tests::simulated::device_code::executes_device_code;
use feedwater_tests::simulated::{SimTotals, in_process, runtime};

/// Number of samples per launch. By default, a loader also launches at most 16 samples together.
const SAMPLES: usize = 16;

/// GPU architectures (`sm_80` and so on) for which machine code is assembled.
const ARCHITECTURES: [u32; 3] = [80, 90, 100];

struct Job {
    name: &'static str,
    chain: Vec<Arc<dyn Operator>>,
    size: Size,
    output: (DType, Layout),
    /// Number of luma samples per chroma sample, if the kernels read planes of samples.
    ratio: Option<[usize; 2]>,
}

fn jobs() -> Vec<Job> {
    let flip = Flip { horizontal: 0.5, vertical: 0.0 };
    let training: Vec<Arc<dyn Operator>> = vec![
        Arc::new(RandomResizedCrop::to(224, 224)),
        Arc::new(flip),
        Arc::new(Normalize::IMAGENET),
    ];
    let bytes: Vec<Arc<dyn Operator>> =
        vec![Arc::new(RandomResizedCrop::to(224, 224)), Arc::new(flip)];
    let policy: Vec<Arc<dyn Operator>> = vec![
        Arc::new(RandomResizedCrop::to(224, 224)),
        Arc::new(flip),
        Arc::new(RandAugment::default()),
        Arc::new(Normalize::IMAGENET),
        Arc::new(RandomErasing::default()),
    ];
    let jitter: Vec<Arc<dyn Operator>> = vec![
        Arc::new(RandomResizedCrop::to(224, 224)),
        Arc::new(flip),
        Arc::new(ColorJitter {
            brightness: Some([0.6, 1.4]),
            contrast: Some([0.6, 1.4]),
            saturation: Some([0.6, 1.4]),
            hue: Some([-0.1, 0.1]),
        }),
        Arc::new(GaussianBlur { kernel_size: [23; 2], sigma: [0.1, 2.0] }),
        Arc::new(Normalize::IMAGENET),
    ];
    let evaluation: Vec<Arc<dyn Operator>> = vec![
        Arc::new(Resize::shorter(256)),
        Arc::new(CenterCrop::to(224, 224)),
        Arc::new(Normalize::IMAGENET),
    ];
    let pointwise: Vec<Arc<dyn Operator>> =
        vec![Arc::new(CenterCrop::to(224, 224)), Arc::new(Normalize::IMAGENET)];
    let whole: Vec<Arc<dyn Operator>> =
        vec![Arc::new(Resize::to(224, 224)), Arc::new(Normalize::IMAGENET)];
    let (usual, large) = (Size::new(500, 375), Size::new(2048, 1536));
    let job = |name, chain: &Vec<_>, size, dtype, layout| Job {
        name,
        chain: chain.clone(),
        size,
        output: (dtype, layout),
        ratio: None,
    };
    let of_planes = |name, chain: &Vec<_>, ratio| Job {
        ratio: Some(ratio),
        ..job(name, chain, usual, DType::F16, Layout::Nchw)
    };
    vec![
        job("training", &training, usual, DType::F16, Layout::Nchw),
        job("training", &training, usual, DType::F32, Layout::Nchw),
        job("training", &training, usual, DType::F16, Layout::Nhwc),
        job("training without normalize", &bytes, usual, DType::U8, Layout::Nhwc),
        job("training", &training, large, DType::F16, Layout::Nchw),
        job(
            "training with rand_augment and random_erasing",
            &policy,
            usual,
            DType::F16,
            Layout::Nchw,
        ),
        job(
            "training with color_jitter and gaussian_blur",
            &jitter,
            usual,
            DType::F16,
            Layout::Nchw,
        ),
        job("evaluation", &evaluation, usual, DType::F16, Layout::Nchw),
        job("crop and normalize", &pointwise, usual, DType::F16, Layout::Nchw),
        job("whole image", &whole, usual, DType::F16, Layout::Nchw),
        of_planes("whole image from 4:4:4 planes", &whole, [1, 1]),
        of_planes("whole image from 4:2:2 planes", &whole, [2, 1]),
        of_planes("whole image from 4:2:0 planes", &whole, [2, 2]),
        of_planes("training from 4:4:4 planes", &training, [1, 1]),
        of_planes("training from 4:2:0 planes", &training, [2, 2]),
        of_planes("crop and normalize from 4:2:0 planes", &pointwise, [2, 2]),
    ]
}

fn main() -> feedwater::Result<()> {
    // `cargo test --workspace --benches` also runs this program, but without the PTX interpreter.
    if !executes_device_code() {
        println!(
            "skipped: run tests/device_code/run.sh cargo bench -p feedwater-tests --profile dev --bench device_code"
        );
        return Ok(());
    }
    executed()?;
    kernel_by_kernel()?;
    machine_code()
}

/// Returns chains that crop and resample to 224x224, apply one operator, and normalize. The first
/// chain has no operator in between and needs only the fused kernel. The other chains together
/// cover each kind of pass of the program kernel.
fn programs() -> Vec<(&'static str, Vec<Arc<dyn Operator>>)> {
    let behind_the_crop = |op: Option<Arc<dyn Operator>>| {
        let crop: Arc<dyn Operator> = Arc::new(RandomResizedCrop::to(224, 224));
        let normalize: Arc<dyn Operator> = Arc::new(Normalize::IMAGENET);
        [Some(crop), op, Some(normalize)].into_iter().flatten().collect::<Vec<_>>()
    };
    let jitter = ColorJitter {
        brightness: Some([0.6, 1.4]),
        contrast: Some([0.6, 1.4]),
        saturation: Some([0.6, 1.4]),
        hue: Some([-0.1, 0.1]),
    };
    let scale = RandomAffine { scale: Some([0.8, 1.2]), ..RandomAffine::within(0.0) };
    let operators: [(_, Option<Arc<dyn Operator>>); 8] = [
        ("nothing", None),
        ("color_jitter", Some(Arc::new(jitter))),
        ("rand_augment", Some(Arc::new(RandAugment::default()))),
        ("random_rotation", Some(Arc::new(RandomRotation::within(30.0)))),
        ("random_affine, scale only", Some(Arc::new(scale))),
        ("equalize", Some(Arc::new(Equalize::default()))),
        ("autocontrast", Some(Arc::new(Autocontrast::default()))),
        ("gaussian_blur", Some(Arc::new(GaussianBlur { kernel_size: [23; 2], sigma: [0.1, 2.0] }))),
    ];
    operators.into_iter().map(|(name, op)| (name, behind_the_crop(op))).collect()
}

/// Prints a table of the instructions and memory accesses of each kernel of each chain, summed over
/// the kernel's launches for one group of samples.
fn kernel_by_kernel() -> feedwater::Result<()> {
    let machine = in_process();
    println!("\nPer kernel, for groups of {SAMPLES} samples:\n");
    println!(
        "| between crop and normalize | kernel | tiles | launches | blocks | issue cycles of the longest blocks | issue cycles | \
         lanes | divergent branches | sectors loaded | sectors stored | barriers |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|");
    let (output, size) = ((DType::F16, Layout::Nchw), Size::new(500, 375));
    for (name, chain) in programs() {
        machine.restart();
        let device = Device::open_with(0, &runtime())?;
        let samples = DeviceSamples::new(&device, &chain, output, (size, None), SAMPLES)?;
        for (kernel, part) in samples.parts(&device)? {
            let goals = [(LaunchGoal::Throughput, "high"), (LaunchGoal::Latency, "low")];
            let goals = if kernel == "fused" { &goals[..] } else { &goals[..1] };
            for &(goal, tiles) in goals {
                let before = machine.totals();
                samples.launch_part(&part, goal)?;
                samples.stream.synchronize()?;
                let after = machine.totals();
                assert_eq!(machine.counts().faults(), 0);
                let count = |of: fn(&SimTotals) -> u64| of(&after) - of(&before);
                let share = |part: u64, whole: u64| 100.0 * part as f64 / whole.max(1) as f64;
                let instructions = count(|it| it.instructions);
                println!(
                    "| {name} | {kernel} | {} | {} | {} | {} | {} | {:.0} % | {:.1} % | {} | {} | {} |",
                    if kernel == "fused" { tiles } else { "none" },
                    count(|it| it.launches),
                    count(|it| it.blocks),
                    count(|it| it.longest_blocks) / 4,
                    instructions / 4,
                    share(count(|it| it.lanes), 32 * instructions),
                    share(count(|it| it.divergent_branches), count(|it| it.branches)),
                    count(|it| it.sectors_loaded),
                    count(|it| it.sectors_stored),
                    count(|it| it.barriers),
                );
            }
        }
    }
    Ok(())
}

/// Prints a table of the instructions and memory accesses of each chain's launch, per sample.
fn executed() -> feedwater::Result<()> {
    let machine = in_process();
    println!("Per sample, in launches of {SAMPLES} samples:\n");
    println!(
        "| chain | image | output | tiles | issue cycles | lanes | divergent branches | shared wavefronts | bank conflicts | \
         sectors loaded | sectors stored | mma | barriers |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|---|");
    for job in jobs() {
        for (goal, tiles) in [(LaunchGoal::Throughput, "high"), (LaunchGoal::Latency, "low")] {
            machine.restart();
            let device = Device::open_with(0, &runtime())?;
            let samples = DeviceSamples::new(
                &device,
                &job.chain,
                job.output,
                (job.size, job.ratio),
                SAMPLES,
            )?;
            samples.launch(goal, 0, SAMPLES)?;
            samples.stream.synchronize()?;
            let it = machine.totals();
            assert!(it.launches >= samples.sources.len() as u64 && machine.counts().faults() == 0);
            let share = |part: u64, whole: u64| 100.0 * part as f64 / whole.max(1) as f64;
            let each = |count: u64| count / SAMPLES as u64;
            // The launch goal selects high or low tiles. For a kernel without tiles, both goals
            // give the same launch.
            let tiles = if it.mma > 0 { tiles } else { "none" };
            println!(
                "| {} | {} | {} {} | {tiles} | {} | {:.0} % | {:.1} % | {} | {:.0} % | {} | {} | {} | {} |",
                job.name,
                job.size,
                job.output.0,
                job.output.1,
                each(it.instructions / 4),
                share(it.lanes, 32 * it.instructions),
                share(it.divergent_branches, it.branches),
                each(it.shared_wavefronts),
                share(it.shared_wavefronts - it.ideal_wavefronts, it.ideal_wavefronts),
                each(it.sectors_loaded),
                each(it.sectors_stored),
                each(it.mma),
                each(it.barriers),
            );
            if tiles == "none" {
                break;
            }
        }
    }
    Ok(())
}

/// Prints a table of the registers, stack and spills that the assembler reports for each kernel.
fn machine_code() -> feedwater::Result<()> {
    let machine = in_process();
    println!("\nMachine code:\n");
    println!(
        "| chain | output | kernel | architecture | registers | stack | spill stores | spill loads |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for job in jobs().into_iter().filter(|job| job.size.width == 500 && job.ratio.is_none()) {
        for architecture in ARCHITECTURES {
            machine.restart();
            machine.architecture(architecture, true);
            let cache = std::env::temp_dir().join(format!("feedwater-code-{}", std::process::id()));
            let device = Device::open_with(0, &runtime().with_cache_directory(&cache))?;
            let samples =
                DeviceSamples::new(&device, &job.chain, job.output, (Size::new(8, 8), None), 1)?;
            for source in &samples.sources {
                compile(&device, source)?;
            }
            for (kernel, [registers, stack, stores, loads]) in facts(&machine.compiler_log()) {
                println!(
                    "| {} | {} {} | {kernel} | sm_{architecture} | {registers} | {stack} B | {stores} B | {loads} B |",
                    job.name, job.output.0, job.output.1
                );
            }
            let _ = std::fs::remove_dir_all(cache);
        }
    }
    Ok(())
}
