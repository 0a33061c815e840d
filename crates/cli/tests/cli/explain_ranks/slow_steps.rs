//! Ranks whose own steps are slow.

use super::*;

/// Merges eight ranks, of which rank 5 has slow steps.
pub fn example() -> Ranks {
    merged(&together(&slow_steps(8, 5), Told::Named))
}

/// How a simulated rank reports the part of its step in which it waits for other ranks.
#[derive(Clone, Copy, PartialEq)]
enum Told {
    /// The rank ends its step before the wait (`step_end`).
    Ends,
    /// The rank reports the wait as a named part of the step.
    Named,
    /// The rank does not report the wait.
    Not,
}

/// Returns profiles of ranks that run together, at the pace of the slowest one. `steps` contains
/// the milliseconds per sample of each rank's own steps.
fn together(steps: &[f64], told: Told) -> Vec<Profile> {
    let all = steps.iter().copied().fold(0.0, f64::max);
    let rank = |(rank, &own): (usize, &f64)| {
        let like = Like { pace: 1e3 / all, waits: 0.0, ..USUAL };
        let mut profile = profile(rank as u64, steps.len() as u64, like);
        let waits = 1e-3 * (all - own) * profile.images as f64;
        let consumer = &mut profile.consumer;
        consumer.step.cv = 0.05;
        match told {
            Told::Ends => {
                consumer.stepped -= waits;
                consumer.step.mean = consumer.stepped / profile.batches as f64;
            }
            Told::Named => consumer.spans.push(span(SYNC, profile.batches, waits)),
            Told::Not => {}
        }
        for thread in &mut profile.threads {
            // A fast loader spends the rest of the time waiting for free slots.
            thread.waited_for_room =
                (profile.seconds - thread.busy - thread.waited_for_input).max(0.0);
        }
        profile
    };
    steps.iter().enumerate().map(rank).collect()
}

fn span(name: &str, count: u64, seconds: f64) -> SpanProfile {
    SpanProfile { name: name.into(), count, seconds, share: 0.0 }
}

/// Merges ranks that differ only in their number. To save time, only one model is fitted.
fn merged(profiles: &[Profile]) -> Ranks {
    let mut reports: Vec<Report> = Vec::new();
    for profile in profiles {
        let same = reports.iter().find(|it| it.profile.consumer == profile.consumer).cloned();
        let mut report = same.unwrap_or_else(|| explained(profile, Some(2.5)));
        report.profile.setup.rank = profile.setup.rank;
        reports.push(report);
    }
    Ranks::merge(&reports).unwrap()
}

/// Returns milliseconds per sample of each rank's steps: 5 for one slow GPU, and about 3 for the
/// others.
fn slow_steps(count: usize, slow: usize) -> Vec<f64> {
    (0..count).map(|rank| if rank == slow { 5.0 } else { 3.0 + 0.02 * (rank % 5) as f64 }).collect()
}

#[test]
fn a_rank_with_slow_steps_and_a_fast_loader_is_named() {
    for told in [Told::Ends, Told::Named] {
        for (count, slow) in [(2, 0), (2, 1), (8, 5), (64, 17)] {
            let ranks = merged(&together(&slow_steps(count, slow), told));
            let first = &ranks.ranks[0];
            assert_eq!((ranks.slowest, first.rank), (Some(slow as u64), slow as u64), "{ranks}");
            assert!(first.slow && first.slow_steps);
            assert!(
                (first.loader_images_per_second / ranks.usual_images_per_second - 1.0).abs() < 0.01
            );
            assert!(ranks.ranks[1..].iter().all(|it| !it.slow && !it.slow_steps), "{ranks}");
            assert!((first.consumer_images_per_second - 200.0).abs() < 1.0, "{first:?}");
            // The verdict contains the rank, the milliseconds of its steps, and the throughput of
            // each rank.
            let verdict = &ranks.verdict;
            assert!(has_words(verdict, &[&slow.to_string(), "5.00", "200"]), "{verdict}");
            // The slowest of the other ranks takes up to 3.08 ms, depending on the number of ranks.
            let others = 3.0 + 0.02 * [0.0, 4.0][usize::from(count > 5)];
            let others = if (count, slow) == (2, 0) { 3.02 } else { others };
            let cost = ranks.cost.unwrap();
            assert!((cost.without / (1e3 / others) - 1.0).abs() < 0.02, "{cost:?} {others}");
            assert!(cost.lost_per_epoch.unwrap() > 0.0);
            // The line of the slow rank names its steps as the reason. The line of every other rank
            // ends with the bottleneck of that rank.
            let text = ranks.to_string();
            let mut lines = text.lines().skip(3).zip(&ranks.ranks);
            let (line, first) = lines.next().unwrap();
            assert!(!line.ends_with(first.cause.words()), "{text}");
            assert!(lines.all(|(line, rank)| line.ends_with(rank.cause.words())), "{text}");
        }
    }
}

/// If steps contain unmarked waits, all ranks seem equally slow, and no rank is named.
#[test]
fn no_rank_is_named_if_steps_do_not_mark_their_waiting() {
    for count in [2, 8, 64] {
        let ranks = merged(&together(&slow_steps(count, 1), Told::Not));
        assert_eq!((ranks.slowest, ranks.cost), (None, None), "{ranks}");
    }
}

#[test]
fn steps_that_differ_by_chance_or_slightly_are_not_slow() {
    for count in [2, 8, 64] {
        let little: Vec<f64> = (0..count).map(|it| 3.0 + 0.25 * (it % 2) as f64).collect();
        let ranks = merged(&together(&little, Told::Ends));
        assert_eq!((ranks.slowest, ranks.cost), (None, None), "{ranks}");
    }
    // The steps of rank 3 take 1.67 times as long as those of the others. Whether the rank is named
    // depends on the variation and on the number of measured steps.
    let is_named = |variation: f64, batches: u64| {
        let mut profiles = together(&slow_steps(8, 3), Told::Ends);
        for it in &mut profiles {
            let part = batches as f64 / it.batches as f64;
            it.images = (it.images as f64 * part) as u64;
            (it.batches, it.seconds) = (batches, it.seconds * part);
            (it.consumer.stepped, it.consumer.waited) = (it.consumer.stepped * part, 0.0);
            it.consumer.step.cv = variation;
        }
        merged(&profiles).slowest == Some(3)
    };
    assert!(is_named(0.05, 12) && is_named(0.5, 12));
    assert!(!is_named(0.7, 12), "four standard errors of 12 steps are 0.81");
    assert!(is_named(0.7, 24));
    assert!(!is_named(0.0, 6), "six steps must be too few");
}

#[test]
fn the_part_that_makes_steps_long_is_named() {
    let mut profiles = together(&slow_steps(4, 0), Told::Ends);
    for profile in &mut profiles {
        let (images, batches) = (profile.images as f64, profile.batches);
        let (own, every) = if profile.setup.rank == 0 { (1.4, 0.1) } else { (0.0, 0.1) };
        profile.consumer.spans.push(span("checkpoint", 2, 1e-3 * own * images));
        profile.consumer.spans.push(span("logging", batches, 1e-3 * every * images));
    }
    let verdict = merged(&profiles).verdict;
    assert!(has_words(&verdict, &["checkpoint", "4"]), "{verdict}");
    let spans = &mut profiles[0].consumer.spans;
    spans.iter_mut().find(|it| it.name == "checkpoint").unwrap().seconds *= 0.5;
    let verdict = merged(&profiles).verdict;
    assert!(!verdict.contains("checkpoint"), "{verdict}");
}

/// One rank has a slow loader, and another one has slow steps. Both ranks count as slow. The
/// reported gain is the gain of all ranks if neither of the two were slow.
#[test]
fn a_slow_loader_and_slow_steps_are_removed_together() {
    let mut profiles = together(&slow_steps(6, 2), Told::Ends);
    let mut slow = profile(4, 6, Like { pace: 220.0, waits: 0.34, read_ms: 14.0, ..USUAL });
    slow.consumer.step.cv = 0.05;
    profiles[4] = slow;
    let ranks = merged(&profiles);
    let slow: Vec<_> = ranks.ranks.iter().filter(|it| it.slow).map(|it| it.rank).collect();
    assert_eq!(slow, [2, 4], "{ranks}");
    assert!(ranks.ranks[0].slow_steps && !ranks.ranks[1].slow_steps);
    let cost = ranks.cost.unwrap();
    assert!((cost.without / (1e3 / 3.08) - 1.0).abs() < 0.03, "{cost:?} {ranks}");
}
