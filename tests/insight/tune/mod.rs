//! Autotuning on simulated machines. Compares the chosen settings with the best ones.

mod mixes;

use feedwater::explain::fit;
use feedwater::internals::measure::{
    ConsumerProfile, Data, DeviceTime, Latency, Profile, RingProfile, Setup, Stage as Measured,
    StageProfile, ThreadProfile,
};
use feedwater::internals::plan::{Bounds, Offload};
use feedwater::internals::tune::{Choice, Decision, Space, TRIALS, Tuner, WITHIN};
use feedwater::model::{Consumer, Forecast, Model, On, Options, Resource, Service, Stage};

use crate::common::some_of;
use mixes::{Mix, base, mixes};

/// Worker time of an upload in milliseconds. The index is the number of operators on the CPU. With
/// 0, a decoded window is uploaded, with 1 or 2 an intermediate image, and with 3 the tensor.
const UPLOAD: [f64; 4] = [0.05, 0.03, 0.03, 0.06];

const fn last(operators: usize) -> Offload {
    Offload { operators, decode: false }
}

const EVERYTHING: Offload = Offload { operators: 3, decode: true };
const ALL: [Offload; 5] = [last(0), last(1), last(2), last(3), EVERYTHING];

fn space(workers: usize, start: usize, offload: &[Offload]) -> Space {
    Space {
        workers: Bounds { least: 1, start, most: workers },
        prefetch: Bounds { least: 1, start: 2, most: 8 },
        offload: offload.to_vec(),
    }
}

/// Runs the tuner while the consumer takes batches `from` to `to`. Returns the tuner's decisions.
/// As in the loader, batches that were produced under an earlier choice are not measured.
fn tune(mix: &Mix, tuner: &mut Tuner, (from, to): (u64, u64), seed: u32) -> Vec<Decision> {
    let mut decisions = Vec::new();
    let mut had = from;
    let mut skip = 2;
    while had < to {
        let (before, window) = (tuner.choice(), tuner.window());
        let profile = mix.window(before, window, seed + had as u32);
        had += skip + window;
        decisions.extend(tuner.observe(&profile, had).unwrap());
        skip = match tuner.choice() == before {
            true => 1,
            // Number of batches to skip after a change: the batch that is being filled, and the
            // `prefetch` batches that are ready. If the consumer waited, no batch is ready.
            false if profile.consumer.waiting_share > 0.02 => 1,
            false => before.prefetch as u64 + 1,
        };
    }
    decisions
}

#[test]
fn choices_are_nearly_optimal() {
    let mut problems = Vec::new();
    assert!(mixes().len() >= 12);
    for mix in some_of(mixes(), 0) {
        let (best, most) = mix.best();
        for seed in some_of([1, 2, 3], 0) {
            let mut tuner = Tuner::new(mix.space.clone());
            let decisions = tune(&mix, &mut tuner, (0, WITHIN), 1000 * seed);
            let share = mix.rate(tuner.choice()) / most;
            println!("{:<52} {share:.3}  {}  (best: {best})", mix.name, tuner.choice());
            decisions.iter().for_each(|it| println!("    {it}"));
            if share < 0.95 {
                problems.push(format!("{}: {share:.3} of {best}", mix.name));
            }
            match decisions.last() {
                Some(last) if last.settled && last.batch <= WITHIN => {}
                last => problems.push(format!("{}: {last:?} has not settled in time", mix.name)),
            }
            let before = tuner.choice();
            if !tune(&mix, &mut tuner, (50, 650), 1000 * seed + 500).is_empty()
                || tuner.choice() != before
            {
                problems.push(format!("{}: a settled choice changed", mix.name));
            }
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
}

#[test]
fn a_fit_recovers_the_model_of_the_simulated_loader() {
    for mix in mixes() {
        let choice = Tuner::new(mix.space.clone()).choice();
        let fit = fit(&mix.window(choice, 100, 3), None).unwrap();
        assert!((fit.quality - 1.0).abs() < 0.12, "{}: {}", mix.name, fit.quality);
    }
}

#[test]
fn trials_are_limited_distinct_and_within_bounds() {
    for (number, mix) in mixes().into_iter().enumerate() {
        for seed in some_of(0..5, number) {
            let mut tuner = Tuner::new(mix.space.clone());
            let mut choices = vec![tuner.choice()];
            let decisions = tune(&mix, &mut tuner, (0, 80), 100 * seed);
            let (last, tried) = decisions.split_last().unwrap();
            assert!(last.settled && tried.iter().all(|it| !it.settled), "{decisions:#?}");
            choices.extend(tried.iter().map(|it| it.choice));
            assert!(choices.len() <= TRIALS, "{}: {}", mix.name, choices.len());
            // If the measured batches are not typical, the model may choose settings that were not
            // tried.
            assert!(choices.contains(&last.choice) || mix.varies(), "{}", mix.name);
            for (number, choice) in choices.iter().enumerate() {
                assert!(
                    !choices[..number].contains(choice),
                    "{}: {choice} was tried twice",
                    mix.name
                );
                let within = |bounds: Bounds, it: usize| (bounds.least..=bounds.most).contains(&it);
                assert!(within(mix.space.workers, choice.workers), "{}: {choice}", mix.name);
                assert!(within(mix.space.prefetch, choice.prefetch), "{}: {choice}", mix.name);
                assert!(mix.space.offload.contains(&choice.offload), "{}: {choice}", mix.name);
            }
        }
    }
}

#[test]
fn tuning_settles_in_time_for_any_ring_length() {
    let longest = Bounds { least: 8, start: 8, most: 8 };
    let mixes = mixes();
    let named = |name: &str| mixes.iter().find(|it| it.name == name).unwrap().clone();
    let mut mix = named("a device, and too few cores to decode");
    mix.space.prefetch = longest;
    let mut tuner = Tuner::new(mix.space.clone());
    let slow = tune(&mix, &mut tuner, (0, 100), 1);
    let last = slow.last().unwrap();
    assert!(last.settled && last.batch <= WITHIN, "{slow:#?}");
    assert!(mix.rate(tuner.choice()) >= 0.95 * mix.best().1, "{slow:#?}");

    // The batches are now so short that fifty of them take almost no time. All choices must be
    // tried nevertheless.
    let settles_at_once = |mix: &Mix| {
        let mut tuner = Tuner::new(mix.space.clone());
        let window = mix.window(tuner.choice(), tuner.window(), 1);
        tuner.observe(&window, WITHIN - 5).unwrap().unwrap().settled
    };
    assert!(settles_at_once(&mix));
    let times = [&mut mix.copy, &mut mix.decode.0, &mut mix.engine, &mut mix.step.0];
    for time in times.into_iter().chain(&mut mix.operators).chain(&mut mix.kernel) {
        *time /= 50.0;
    }
    assert!(!settles_at_once(&mix));
}

#[test]
fn a_changed_loop_is_tuned_again() {
    let slow = Mix { step: (60.0, 0.0), ..base() };
    let mut tuner = Tuner::new(slow.space.clone());
    tune(&slow, &mut tuner, (0, 50), 1);
    assert_eq!((tuner.choice().workers, tuner.is_settled()), (2, true));
    let decisions = tune(&base(), &mut tuner, (60, 260), 2);
    assert!(!decisions.is_empty(), "the faster consumer must cause decisions");
    let share = base().rate(tuner.choice()) / base().best().1;
    assert!(share >= 0.95, "{share}: {decisions:#?}");
    // The consumer is slow again. Tuning takes longer now, because it has already restarted once.
    let decisions = tune(&slow, &mut tuner, (300, 700), 3);
    assert_eq!(tuner.choice().workers, 2, "{decisions:#?}");
}

#[test]
fn a_choice_slower_than_in_its_trial_is_tuned_again() {
    let mix = base();
    let one = Bounds { least: 1, start: 1, most: 1 };
    let mut tuner = Tuner::new(Space { workers: one, ..mix.space.clone() });
    let mut lucky = mix.window(tuner.choice(), 5, 1);
    lucky.images *= 5;
    assert!(tuner.observe(&lucky, 5).unwrap().unwrap().settled);
    let again: Vec<bool> = (0..12)
        .map(|seed| {
            let window = mix.window(tuner.choice(), 20, seed);
            tuner.observe(&window, 25 + 20 * u64::from(seed)).unwrap().is_some()
        })
        .collect();
    // The tuner restarts after the first measurement that permits it. Then it does not restart
    // again, because the predictions hold.
    assert_eq!(again.iter().position(|it| *it), Some(3), "{again:?}");
    assert_eq!(again.iter().filter(|it| **it).count(), 1, "{again:?}");
}
