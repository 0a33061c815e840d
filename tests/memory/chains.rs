//! Chains with operators that leave some images unchanged or enlarge them. No intact photograph
//! that fits the limits may be refused for its memory, and the peak stays within the plan.

use std::sync::Arc;

use feedwater::Size;
use feedwater::internals::image::PixelType;
use feedwater::internals::random::SampleRng;
use feedwater::loader::LoaderBuilder;
use feedwater::op::{self, Chain, Crop, Operator, Placement, Resize, View};
use feedwater::plan::OnError;

use super::drawn::{are_seeds_fixed, numbers, seeds, size};
use super::{Files, common, run};

fn chained(operators: impl IntoIterator<Item = Arc<dyn Operator>>) -> Chain {
    let any = |chain: Chain, it| chain.then_any(Placement::Cpu, it);
    operators.into_iter().fold(Chain::new(), any)
}

/// Runs two epochs, and checks that every photograph was delivered.
fn check(case: &str, builder: impl FnOnce() -> LoaderBuilder) {
    let seen = run(builder, 2);
    assert!(seen.problem.is_none(), "{case}: {:?}", seen.problem);
    let refused: u64 = seen.errors.values().sum();
    assert_eq!(refused, 0, "{case}: {:?}\n{}", seen.errors, seen.plan);
    seen.check(case);
}

/// Tests an operator that leaves some samples unchanged, followed by an operator that enlarges. A
/// plan that bounds only the changed or only the unchanged samples refuses photographs.
pub fn photographs_are_not_refused_behind_operators_that_leave_some_alone() {
    let files = Files::new((0..30).map(|seed| common::jpeg(seed, 90 + 5 * seed as u32, 120)));
    let sometimes: [Arc<dyn Operator>; 9] = [
        Arc::new(op::PhotometricDistort::default()),
        Arc::new(op::RandAugment::default()),
        Arc::new(op::TrivialAugmentWide::default()),
        Arc::new(op::AutoAugment::default()),
        Arc::new(op::ThreeAugment {}),
        Arc::new(op::AugMix::default()),
        Arc::new(op::TimmRandAugment::of("rand-m9-mstd0.5-inc1")),
        Arc::new(op::RandomPerspective::default()),
        Arc::new(op::RandomApply::new(0.5).then(op::Sharpen { amount: [0.5, 2.0] })),
    ];
    let enlarges: [Arc<dyn Operator>; 5] = [
        Arc::new(op::RandomZoomOut::default()),
        Arc::new(op::Pad::constant([8; 4], [0.0; 3])),
        Arc::new(op::Letterbox::to(400, 400)),
        Arc::new(op::RandomRotation { expand: true, ..op::RandomRotation::within(45.0) }),
        Arc::new(op::CenterCrop::to(300, 300)),
    ];
    for (first, second) in sometimes.iter().flat_map(|a| enlarges.iter().map(move |b| (a, b))) {
        let chain = chained([first.clone(), second.clone()])
            .then(op::RandomIouCrop::default())
            .then(Resize::to(64, 64));
        let case = format!("{} and {}", first.name(), second.name());
        check(&case, || files.loader(chain).num_workers(1));
    }
}

/// A large image is refused only if the operators that were drawn for it need too much memory.
pub fn an_image_is_refused_only_for_what_was_drawn() {
    let small = (0..30).map(|seed| common::jpeg(seed, 20, 16));
    let files = Files::new(small.chain((30..36).map(|seed| common::jpeg(seed, 300, 200))));
    let grows = || Arc::new(op::RandomZoomOut { side_range: [1.0, 30.0], ..Default::default() });
    let chain = chained([grows() as Arc<dyn Operator>]).then(Resize::to(16, 16));
    let seen = run(
        || {
            let loader = files.loader(chain).num_workers(2).batch_size(1).on_error(OnError::Drop);
            loader.configure(|it| it.limits.large_image_memory = 20 << 20)
        },
        10,
    );
    let refused: u64 = seen.errors.values().sum();
    // Half of the images are not enlarged, and some of the others not by much.
    assert!((5..30).contains(&refused), "{refused} of 60 large images: {:?}", seen.errors);
    seen.check("large images");
}

/// The bound over all orders of operators that enlarge an image may be thousands of times what any
/// sample needs. The plan uses the maximum over draws instead.
pub fn operators_in_random_order_are_planned_for_what_they_draw() {
    let files = Files::new((0..24).map(|seed| common::png(seed, 120, 12 + seed as u32)));
    let resize: Arc<dyn Operator> = Arc::new(op::RandomResize::between(16, 100));
    let zoom: Arc<dyn Operator> =
        Arc::new(op::RandomZoomOut { side_range: [1.0, 3.0], ..Default::default() });
    let turn: Arc<dyn Operator> =
        Arc::new(op::RandomRotation { expand: true, ..op::RandomRotation::within(180.0) });
    let loader = |operators: Vec<Arc<dyn Operator>>| {
        let loader = files.loader(chained(operators).then(Resize::to(16, 16)));
        loader.configure(|it| it.limits.large_image_memory = 4 << 20)
    };
    let any = |all: &[&Arc<dyn Operator>]| -> Arc<dyn Operator> {
        let order = op::RandomOrder::new();
        Arc::new(all.iter().fold(order, |order, &it| order.and_any(it.clone())))
    };
    let (all, twice) = (any(&[&zoom, &turn, &resize]), any(&[&zoom, &turn]));
    for operators in [
        vec![any(&[&resize])],
        vec![any(&[&resize, &turn])],
        vec![all.clone()],
        vec![any(&[&twice, &resize]), twice.clone()],
        vec![any(&[&all, &any(&[&resize, &turn])])],
        vec![any(&[&all, &any(&[&resize, &turn])]), twice],
    ] {
        let case = format!("{operators:?}");
        let seen = run(|| loader(operators), 2);
        assert_eq!(seen.errors.values().sum::<u64>(), 0, "{case}: {:?}", seen.errors);
        seen.check(&case);
        assert!(seen.predicted < 10 * seen.peak, "{} of {}: {case}", seen.peak, seen.predicted);
    }
}

/// Each output of a view has its own tables. If outputs need large tables rarely, few of them may
/// be kept at the same time.
pub fn large_tables_of_outputs_are_not_kept() {
    let files = Files::new((0..32).map(|seed| common::jpeg(seed, 150, 100)));
    let rarely = op::RandomApply::new(0.01).then(op::Elastic::default());
    let chain = Chain::new().then(rarely).then(Resize::to(16, 16));
    let views = Chain::new().view(View::new("a", chain).count(64));
    let loader = || {
        let loader = files.loader(views).num_workers(1).on_error(OnError::Drop);
        loader.configure(|it| it.limits.large_image_memory = 1 << 20)
    };
    let seen = run(loader, 8);
    assert!(seen.problem.is_none(), "{:?}", seen.problem);
    seen.check("rarely elastic");
    assert_eq!(seen.errors["oversized"], 0, "{:?}", seen.errors);
}

/// Tables that an earlier sample left in a worker are not part of the next sample's need.
pub fn the_refused_images_do_not_depend_on_the_workers() {
    let size = |number| if number == 5 { (480, 400) } else { (160, 96) };
    let files = Files::new((0..32).map(|seed| common::jpeg(seed, size(seed).0, size(seed).1)));
    let turn = op::RandomRotation { expand: true, ..op::RandomRotation::within(45.0) };
    let chain = Chain::new()
        .then(
            op::OneOf::new()
                .or_any(1.0, Arc::new(op::Elastic::default()))
                .or_any(9.0, Arc::new(turn)),
        )
        .then(Resize::to(32, 32));
    for sixteenths in [12, 18, 19, 23] {
        let refused = |workers| {
            let loader = files.loader(chain.clone()).num_workers(workers).batch_size(4).seed(1);
            let pool = sixteenths << 16;
            let loader = || loader.configure(|it| it.limits.large_image_memory = pool);
            run(loader, 4).errors
        };
        assert_eq!(refused(1), refused(8), "{sixteenths}/16 MiB");
    }
}

/// Tests random chains and views with so little memory that samples take from the pool, or are
/// refused.
pub fn random_chains_stay_within_a_footprint_that_is_too_small_for_them() {
    let (mut refused, mut delivered) = (0, 0);
    for seed in seeds(60) {
        let rng = &mut numbers(seed);
        let most = 20 + rng.below(180) as u32;
        let sizes: Vec<_> = (0..30).map(|_| size(rng, most)).collect();
        let mut chain = chained(drawn(rng, &sizes, most));
        for number in 0..rng.below(3) {
            let view = View::new(&format!("{number}"), chained(drawn(rng, &sizes, most)));
            chain = chain.view(view.count(1 + rng.below(3) as u32));
        }
        let images = 2 * sizes.len() as u64;
        let files = photographs(sizes);
        let (workers, pool) = (1 + rng.below(4) as usize, 1 << (12 + rng.below(10)));
        let presize = (rng.below(3) == 0).then(|| 20 + rng.below(60) as u32);
        let case = format!(
            "FEEDWATER_CHAIN_SEED={seed}: {workers} workers, {pool}, {presize:?}, {chain:?}"
        );
        let loader = |workers: usize, batch: usize| {
            let loader = files.loader(chain.clone()).num_workers(workers).batch_size(batch);
            loader.seed(seed).on_error(OnError::Drop).configure(|it| {
                it.limits.large_image_memory = pool;
                it.output.dtype = feedwater::DType::F32;
                it.cache.presize = presize;
                // Some of the images fit.
                it.cache.decoded = presize.map(|_| 30_000);
            })
        };
        let seen = run(|| loader(workers, 3), 2);
        assert!(seen.problem.is_none(), "{case}: {:?}", seen.problem);
        seen.check(&case);
        let oversized = seen.errors.get("oversized").copied().unwrap_or(0);
        assert_eq!(seen.errors.values().sum::<u64>(), oversized, "{case}: {:?}", seen.errors);
        // Which images the decoded cache holds may depend on the number of workers.
        if presize.is_none() {
            let other = run(|| loader(1 + workers % 4, 7), 2);
            assert_eq!(other.errors, seen.errors, "{case}");
        }
        (refused, delivered) = (refused + oversized, delivered + images - oversized);
    }
    eprintln!("{refused} refused, {delivered} delivered");
    assert!(delivered > 9 * refused);
    assert!(refused > 0 || !are_seeds_fixed());
}

/// Tests random chains of all operators on photographs of random sizes.
pub fn random_chains_refuse_no_photograph_and_stay_within_the_footprint() {
    let mut count = 0;
    for seed in seeds(60) {
        let rng = &mut numbers(seed);
        let most = 20 + rng.below(180) as u32;
        let sizes: Vec<_> = (0..30).map(|_| size(rng, most)).collect();
        let operators = drawn(rng, &sizes, most);
        let files = photographs(sizes);
        let (workers, batch) = (1 + rng.below(3) as usize, 1 + rng.below(8) as usize);
        let case = format!("FEEDWATER_CHAIN_SEED={seed}: {workers} workers, {operators:?}");
        let chain = chained(operators);
        check(&case, || files.loader(chain).num_workers(workers).batch_size(batch).seed(seed));
        count += 1;
    }
    eprintln!("{count} chains");
}

/// Tests several random chains on the same photographs: views, with and without a main chain.
pub fn random_views_refuse_no_photograph_and_stay_within_the_footprint() {
    let mut count = 0;
    for seed in seeds(30) {
        let rng = &mut numbers(seed);
        let most = 20 + rng.below(180) as u32;
        let sizes: Vec<_> = (0..30).map(|_| size(rng, most)).collect();
        let mut chain = match rng.below(2) {
            0 => Chain::new(),
            _ => chained(drawn(rng, &sizes, most)),
        };
        for number in 0..1 + rng.below(3) {
            let view = View::new(&format!("{number}"), chained(drawn(rng, &sizes, most)));
            chain = chain.view(view.count(1 + rng.below(4) as u32));
        }
        let files = photographs(sizes);
        let (workers, batch) = (1 + rng.below(3) as usize, 1 + rng.below(8) as usize);
        let case = format!("FEEDWATER_CHAIN_SEED={seed}: {workers} workers, {chain:?}");
        check(&case, || {
            let loader = files.loader(chain).num_workers(workers).batch_size(batch).seed(seed);
            loader.configure(|it| it.output.dtype = feedwater::DType::F32)
        });
        count += 1;
    }
    eprintln!("{count} sets of views");
}

/// The image that views share is most of a worker's memory if outputs are small. The prediction is
/// close to the peak, so it can neither lack the image nor count it for each output.
pub fn the_image_that_views_share_is_counted_once() {
    let files = Files::new((0..12).map(|seed| common::jpeg(seed, 1500, 1100)));
    let crop = || Chain::new().then(op::RandomResizedCrop::to(16, 16));
    let chain = Chain::new().view(View::new("a", crop()).count(5)).view(View::new("b", crop()));
    let seen = run(|| files.loader(chain).num_workers(2).batch_size(2), 2);
    seen.check("large images");
    let image = 2 * 1500 * 1100 * 3;
    assert!(seen.peak > image * 9 / 10, "{} of {}", seen.peak, seen.predicted);
    assert!(seen.predicted < seen.peak + image / 2, "{} of {}", seen.peak, seen.predicted);
}

/// With many outputs, their coefficient tables need more memory than the image.
pub fn the_tables_of_each_output_of_a_view_are_counted() {
    let files = Files::new((0..3).map(|seed| common::jpeg(seed, 900, 700)));
    let chain = Chain::new().then(op::RandomResizedCrop::to(8, 8));
    let views = Chain::new().view(View::new("a", chain).count(250));
    let seen = run(|| files.loader(views).num_workers(1).batch_size(1), 2);
    seen.check("many outputs");
    assert!(seen.peak > 2 * 900 * 700 * 3, "{}", seen.peak);
}

/// Draws a chain for images of these sizes, whose sides are at most `most`.
fn drawn(rng: &mut SampleRng, sizes: &[Size], most: u32) -> Vec<Arc<dyn Operator>> {
    // Operators that keep the aspect ratio may enlarge a thin image beyond
    // `limits.large_image_memory`. The loader refuses such images, so the test leaves them out. Two
    // float images of this many pixels fit.
    let within = |size: Size, it: &Arc<dyn Operator>| {
        Some(it.largest_output(size)).filter(|output| output.pixels() <= 6_000_000)
    };
    let mut operators = loop {
        let drawn = super::drawn::chain(rng, Size::new(most, most), 700_000);
        if sizes.iter().all(|&size| drawn.iter().try_fold(size, within).is_some()) {
            break drawn;
        }
    };
    let pixels = operators.iter().try_fold(PixelType::U8, |it, op| op.pixels(it)).unwrap();
    operators.push(match (pixels, rng.below(2)) {
        (PixelType::U8, 0) => Arc::new(Resize::to(32, 24)),
        _ => Arc::new(Crop { x: 0, y: 0, width: 37, height: 29 }),
    });
    operators
}

/// Files of these sizes, in three formats.
fn photographs(sizes: Vec<Size>) -> Files {
    let files = sizes.into_iter().zip(0..);
    Files::new(files.map(|(it, seed)| match seed % 6 {
        0 => common::progressive(seed, it.width, it.height),
        1 => common::png(seed, it.width, it.height),
        _ => common::jpeg(seed, it.width, it.height),
    }))
}

/// The plan has inspected every file. One file then grows, so it needs more memory than planned,
/// but no more than the limits permit.
pub fn a_photograph_that_grew_since_the_plan_was_made_takes_from_the_large_image_room() {
    let files = Files::new((0..64).map(|seed| common::jpeg(seed, 60, 40)));
    let chain = Chain::new().then(op::Invert {}).then(op::Elastic::default());
    let builder = || files.loader(chain.clone().then(Resize::to(32, 32))).on_error(OnError::Stop);
    let mut loader = builder().build().unwrap();
    let mut limited =
        builder().configure(|it| it.limits.large_image_memory = 1 << 20).build().unwrap();
    assert_eq!(loader.plan().room.large, 0);
    assert!(loader.warnings().is_empty(), "{:?}", loader.warnings());
    // The loader has not prefetched this sample yet.
    files.replace(60, &common::jpeg(9, 700, 500));
    assert!(loader.epoch().all(|batch| batch.is_ok()));
    let warnings = loader.warnings();
    assert!(warnings.len() == 1 && warnings[0].contains("more memory"), "{warnings:?}");
    let error = limited.epoch().find_map(Result::err).unwrap().to_string();
    assert!(error.contains("raise limits.large_image_memory or limits.host_memory"), "{error}");
}
