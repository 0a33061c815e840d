//! Tests of the balancer with simulated engines of given speeds. The throughput is compared with
//! the best fixed shares.

use std::time::{Duration, Instant};

use super::{Balancer, ImageWork, RouteQueue, RouteReport};
use crate::plan::Route;
use simulation::{
    Balanced, Engine, Image, ROUTES, Surroundings, USUAL, best_fixed, images, mixes, simulate,
};

mod simulation;

#[test]
fn the_throughput_is_near_that_of_the_best_fixed_shares() {
    for (name, engines) in mixes() {
        let images = images(5000, 1);
        let (best, shares) = best_fixed(&engines, &images, USUAL);
        let reached = simulate(&engines, &images, &mut Balanced::new(&engines), USUAL);
        assert!(
            reached.rate >= 0.95 * best,
            "{name}: {:.0} images/s, but the best shares {shares:.3?} reach {best:.0} images/s",
            reached.rate
        );
    }
}

#[test]
fn no_engine_idles_while_another_has_a_queue() {
    for (name, engines) in mixes() {
        let idle = simulate(&engines, &images(6000, 2), &mut Balanced::new(&engines), USUAL).idle;
        assert!(idle < 0.01, "{name}: an engine idled for {idle:.4} of the time");
    }
}

/// Each engine's share of the largest images is between one third and twice its share of all
/// images.
#[test]
fn the_largest_images_are_spread() {
    for (name, engines) in mixes() {
        let images = images(6000, 3);
        let outcome = simulate(&engines, &images, &mut Balanced::new(&engines), USUAL);
        let mut order: Vec<usize> = (0..images.len()).collect();
        order.sort_by_key(|&it| std::cmp::Reverse(images[it].work.pixels));
        let largest = &order[..images.len() / 20];
        for queue in 0..engines.len() {
            let share = |of: &[usize]| {
                of.iter().filter(|&&it| outcome.queues[it] == queue).count() as f64
                    / of.len() as f64
            };
            let (all, large) = (share(&order), share(largest));
            assert!(
                large < 2.0 * all + 0.02 && large > all / 3.0 - 0.02,
                "{name}: the share of queue {queue} is {all:.3} of all images, but {large:.3} of \
                 the large images"
            );
        }
    }
}

/// Images of one size, so that the effect of a slow image on the others is visible.
fn equal_images(count: usize) -> Vec<Image> {
    let work = ImageWork { pixels: 187_500, window_pixels: 90_000, bytes: 105_000 };
    vec![Image { work, trouble: 1.0 }; count]
}

#[test]
fn an_image_a_hundred_times_slower_than_expected_does_not_delay_others() {
    // Queues are short, so few images wait behind the slow image before the balancer can notice
    // that it is slow.
    let around = Surroundings { pages: 28, ..USUAL };
    let engines = [
        Engine::new(1, 100e-6, 0.0, 3e-9),
        Engine::new(2, 200e-6, 0.0, 4e-9),
        Engine::new(4, 400e-6, 0.0, 6e-9),
    ];
    let well = equal_images(4000);
    let usual = simulate(&engines, &well, &mut Balanced::new(&engines), around);
    let slowest = usual.latencies.iter().copied().fold(0.0, f64::max);
    for queue in 0..3 {
        let at = (2000..).find(|&it| usual.queues[it] == queue).unwrap();
        let mut sick = well.clone();
        sick[at].trouble = 100.0;
        let outcome = simulate(&engines, &sick, &mut Balanced::new(&engines), around);
        assert_eq!(outcome.queues[..at], usual.queues[..at]);
        let held: Vec<usize> =
            (0..4000).filter(|&it| it != at && outcome.latencies[it] > 2.0 * slowest).collect();
        let own = engines[queue].seconds(&sick[at], 0.0);
        // Only those images are delayed that were queued behind the slow image before the balancer
        // could notice that it is slow.
        assert!(held.len() <= 8 && held.iter().all(|&it| it < at + 2 * around.pages), "{held:?}");
        assert!(held.iter().all(|&it| outcome.latencies[it] < own + 2.0 * slowest), "{held:?}");
        // At most the work of the blocked engine is lost.
        assert!(outcome.rate > 0.9 * usual.rate, "{} of {}", outcome.rate, usual.rate);
    }
}

#[test]
fn capacities_and_forbidden_routes_are_never_violated() {
    let (_, engines) = mixes()[0];
    let images = images(3000, 5);
    // `Balanced` asserts that each chosen queue is allowed and not full.
    for allowed in 1u32..8 {
        let mut balanced = Balanced::new(&engines);
        balanced.allowed = [0, 1, 2].map(|queue| allowed >> queue & 1 == 1);
        let outcome = simulate(&engines, &images, &mut balanced, USUAL);
        for queue in 0..3 {
            assert_eq!(outcome.queues.contains(&queue), balanced.allowed[queue], "{allowed:b}");
        }
    }
    let none = Balancer::new(&[RouteQueue { route: Route::Cpu, parallel: 1, capacity: 0 }]);
    assert!(none.choose(|_| true, images[0].work, Instant::now()).is_none());
    let one = Balancer::new(&[RouteQueue { route: Route::Cpu, parallel: 4, capacity: 1 }]);
    let now = Instant::now();
    assert!(one.choose(|_| false, images[0].work, now).is_none());
    let ticket = one.choose(|_| true, images[0].work, now).unwrap();
    assert!(one.choose(|_| true, images[1].work, now).is_none(), "full");
    one.cancel(ticket);
    assert!(one.choose(|_| true, images[1].work, now).is_some(), "room again");
}

#[test]
fn the_same_calls_give_the_same_choices() {
    let (_, engines) = mixes()[4];
    let images = images(3000, 6);
    let run = || simulate(&engines, &images, &mut Balanced::new(&engines), USUAL).queues;
    assert_eq!(run(), run());
}

#[test]
fn the_learnt_speed_is_right_although_completions_are_observed_late() {
    let engines = [
        Engine::new(4, 100e-6, 0.0, 4e-9),
        Engine::new(2, 400e-6, 0.0, 16e-9),
        Engine::new(8, 50e-6, 8e-9, 0.5e-9),
    ];
    let images = images(6000, 7);
    for look in [20e-6, 400e-6, 3e-3] {
        let mut balanced = Balanced::new(&engines);
        simulate(&engines, &images, &mut balanced, Surroundings { look, ..USUAL });
        let state = balanced.balancer.state();
        for (queue, engine) in engines.iter().enumerate() {
            let [pixels, _, bytes] = state.mean.map(|mean| mean as u64);
            let work = ImageWork { pixels, window_pixels: pixels / 2, bytes };
            let real = engine.seconds(&Image { work, trouble: 1.0 }, 0.0);
            let learnt = state.queues[queue].mean_seconds(state.mean);
            assert!(
                (0.6..1.7).contains(&(learnt / real)),
                "queue {queue}: the learned time is {learnt} s per image, the real time is {real} s"
            );
        }
    }
}

#[test]
fn a_change_of_an_engines_speed_is_noticed() {
    let steady = Engine::new(4, 100e-6, 0.0, 4e-9);
    for factor in [0.05, 20.0] {
        let changing = Engine { later: (0.3, factor), ..Engine::new(4, 400e-6, 0.0, 16e-9) };
        let engines = [changing, steady, steady];
        let images = images(8000, 8);
        let outcome = simulate(&engines, &images, &mut Balanced::new(&engines), USUAL);
        let share = |part: &[usize]| {
            part.iter().filter(|&&queue| queue == 0).count() as f64 / part.len() as f64
        };
        let (before, after) = (share(&outcome.queues[200..800]), share(&outcome.queues[7000..]));
        if factor < 1.0 {
            assert!(before < 0.25 && after > 0.5, "{before:.3}, then {after:.3}");
        } else {
            assert!(before > 0.1 && after < 0.05, "{before:.3}, then {after:.3}");
        }
    }
}

#[test]
fn the_report_adds_up() {
    let (_, engines) = mixes()[1];
    let images = images(2000, 9);
    let mut balanced = Balanced::new(&engines);
    let outcome = simulate(&engines, &images, &mut balanced, USUAL);
    let report = balanced.balancer.report();
    assert_eq!(report.iter().map(|queue| queue.route).collect::<Vec<_>>(), ROUTES);
    assert_eq!(report.iter().map(|queue| queue.images).sum::<u64>(), 2000);
    assert!((report.iter().map(|queue| queue.share).sum::<f64>() - 1.0).abs() < 1e-9);
    let seconds = report[0].place_seconds / engines[0].queue(Route::Cpu).parallel as f64;
    assert!(seconds > 0.0);
    for (queue, report) in report.iter().enumerate() {
        let images = outcome.queues.iter().filter(|&&it| it == queue).count();
        assert_eq!(report.images, images as u64);
        assert!((0.5..=1.0).contains(&report.busy), "{report:?}");
        let places = engines[queue].queue(Route::Cpu).parallel as f64;
        assert!((report.place_seconds / places / seconds - 1.0).abs() < 1e-9, "{report:?}");
        assert!(report.queue_seconds > 0.0 && report.queue_seconds < 0.1, "{report:?}");
    }
}

#[test]
fn a_queue_counts_as_busy_up_to_the_moment_of_the_report() {
    let queue = |route| RouteQueue { route, parallel: 2, capacity: 4 };
    let balancer = Balancer::new(&[queue(Route::NvjpegHybrid), queue(Route::Cpu)]);
    let begin = Instant::now();
    let at = |seconds| begin + Duration::from_secs(seconds);
    let choose = |route, now| balancer.choose(|it| it == route, ImageWork::default(), now);
    let long = choose(Route::NvjpegHybrid, at(0)).unwrap();
    let other = choose(Route::Cpu, at(3)).unwrap();
    balancer.finish(other, at(4));
    // The report is made after 4 s, and each queue has two places. The image `long` has occupied
    // one place of the first queue for 4 s. The image `other` occupied one place of the second
    // queue for 1 s.
    let busy = |it: &RouteReport| (it.busy * it.place_seconds, it.place_seconds);
    assert_eq!(balancer.report().iter().map(busy).collect::<Vec<_>>(), [(4.0, 8.0), (1.0, 8.0)]);
    balancer.finish(long, at(4));
    assert_eq!(balancer.report().iter().map(busy).collect::<Vec<_>>(), [(4.0, 8.0), (1.0, 8.0)]);
}
