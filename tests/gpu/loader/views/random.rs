//! Random chains for the main chain and for views.

use super::*;

/// Operators for random chains: of all executors, with random numbers and combinators.
fn operator(number: u64) -> Arc<dyn op::Operator> {
    match number % 12 {
        0 => Arc::new(CenterCrop::to(41, 19)),
        1 => Arc::new(Flip { horizontal: 0.5, vertical: 0.5 }),
        2 => Arc::new(RandomResizedCrop::to(23, 21)),
        3 => Arc::new(Resize::shorter(30)),
        4 => Arc::new(RandomRotation { expand: true, ..RandomRotation::within(180.0) }),
        5 => Arc::new(op::RandomZoomOut::default()),
        6 => Arc::new(GaussianBlur { kernel_size: [5, 3], sigma: [0.1, 2.0] }),
        7 => Arc::new(jitter()),
        8 => Arc::new(op::RandomErasing::default()),
        9 => Arc::new(op::TrivialAugmentWide::default()),
        10 => Arc::new(Equalize::default()),
        _ => Arc::new(RandomApply::new(0.5).then(op::RandAugment::default())),
    }
}

/// Random chains of one to four operators and a last one with a fixed size, on images of random
/// sizes down to one pixel, of several formats and orientations, and with caches.
#[test]
fn random_views_equal_the_cpu() {
    let Some(machine) = machine() else { return };
    let cases: u32 = if common::tests_all_cases() { 40 } else { 5 };
    for case in 0..cases {
        let mut state = u64::from(case).wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1;
        let mut draw = |below: u64| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (state >> 33) % below
        };
        let mut chain = |floats: bool| {
            let mut chain = Chain::new();
            for _ in 0..draw(4) {
                chain = chain.then_any(Placement::Auto, operator(draw(12)));
            }
            let side = |number: u64| number as u32 + 1;
            let (width, height) = (side(draw(40)), side(draw(40)));
            chain = match draw(3) {
                0 => chain.then(RandomResizedCrop::to(width, height)),
                1 => chain.then(Resize::to(width, height)),
                _ => chain.then(CenterCrop::to(width, height)),
            };
            if floats { chain.then(Normalize::IMAGENET) } else { chain }
        };
        let main = if case % 3 == 0 { Chain::new() } else { chain(true) };
        let all = main
            .view(View::new("a", chain(true)).count(1 + case % 4))
            .view(View::new("b", chain(false)).dtype(DType::U8))
            .view(View::new("c", chain(true)).count(2).dtype(DType::F32));
        let files = (0..13).map(|seed| {
            let (width, height) = (1 + draw(120) as u32, 1 + draw(90) as u32);
            let jpeg = common::jpeg(seed, width, height);
            let file = match seed {
                3 => common::jpeg(seed, 1, 1),
                5 => common::png(seed, width, height),
                7 => common::progressive(seed, width, height),
                9.. => with_orientation(&jpeg, seed as u8 - 7),
                _ => jpeg,
            };
            (file, seed as i64)
        });
        let files: Vec<_> = files.collect();
        machine.schedule(
            [Schedule::Lazy, Schedule::Random(case.into()), Schedule::Eager][case as usize % 3],
        );
        let make = || {
            builder(files.clone(), all.clone()).epochs(Some(2)).configure(|it| {
                match case % 4 {
                    1 => it.cache.decoded = Some(60_000),
                    2 => it.cache.encoded = Some(30_000),
                    _ => {}
                }
                it.output.layout = Layout::ALL[case as usize % 2];
            })
        };
        let loader = equal(make, &["a", "b", "c"], &format!("case {case}: {all:?}"));
        drop(loader);
        assert_clean(&machine, &format!("case {case}"));
    }
}
