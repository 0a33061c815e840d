//! Tests of merged reports of several ranks, and of their page. `tests/browser/` tests this page in
//! a browser.

mod slow_steps;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs};

use crate::common::pages::{HOSTILE, assert_loads_nothing, assert_no_markup, element};
use crate::words::has_words;
use feedwater::explain::{Knob, Options, Ranks, Report, SYNC, explain};
use feedwater::internals::measure::{Profile, SpanProfile, Stage};
use tempfile::TempDir;

/// Properties of a simulated rank.
#[derive(Clone, Copy)]
struct Like {
    /// Milliseconds that a read waits, in addition to its CPU time.
    read_ms: f64,
    workers: u32,
    /// Throughput of the rank in the training, in images/s.
    pace: f64,
    /// Share of the time in which the consumer waits.
    waits: f64,
}

/// A rank whose loader could deliver about 1000 images/s. The training needs less.
const USUAL: Like = Like { read_ms: 0.0, workers: 4, pace: 330.0, waits: 0.01 };
/// A rank whose reads wait for 8 ms. Its loader delivers about 330 images/s, which limits all
/// ranks.
const SLOW: Like = Like { read_ms: 8.0, workers: 4, pace: 330.0, waits: 0.4 };

fn report(rank: u64, world: u64, like: Like, price: Option<f64>) -> Report {
    explained(&profile(rank, world, like), price)
}

fn explained(profile: &Profile, price: Option<f64>) -> Report {
    explain(profile, &Options { price_per_hour: price, ..Options::default() }).unwrap()
}

/// Returns the profile of a rank. It is derived from the measurement of a real loader, which
/// `tests/insight/html.rs` has written.
fn profile(rank: u64, world: u64, like: Like) -> Profile {
    let golden = "tests/golden/explain/profile.json";
    let golden = fs::read_to_string(crate::repository().join(golden)).unwrap();
    let mut profile: Profile = serde_json::from_str(&golden).unwrap();
    (profile.setup.rank, profile.setup.world) = (rank, world);
    (profile.setup.workers, profile.setup.cores) = (like.workers, 16);
    let thread = profile.threads.iter().find(|it| it.name == "feedwater-0").unwrap().clone();
    profile.threads = (0..like.workers)
        .map(|at| feedwater::internals::measure::ThreadProfile {
            name: format!("feedwater-{at}"),
            ..thread.clone()
        })
        .collect();
    for stage in &mut profile.stages {
        stage.cpu_share = 1.0;
        if stage.stage == Stage::Read {
            let work = stage.latency.mean;
            stage.latency.mean += 1e-3 * like.read_ms;
            stage.busy = stage.latency.mean * stage.count as f64;
            stage.cpu_share = work / stage.latency.mean;
        }
    }
    // Concurrent reads do not slow each other down in this profile.
    profile.data.read_slowdown = Some(0.0);
    profile.seconds = profile.images as f64 / like.pace;
    let consumer = &mut profile.consumer;
    (consumer.waited, consumer.waiting_share) = (like.waits * profile.seconds, like.waits);
    consumer.stepped = (1.0 - like.waits) * profile.seconds;
    consumer.step.mean = consumer.stepped / profile.batches as f64;
    profile
}

/// Merges the reports of `count` ranks. The ranks whose numbers are in `slow` have slow loaders.
fn ranks(count: u64, slow: &[u64]) -> Ranks {
    Ranks::merge(&reports(count, slow)).unwrap()
}

fn reports(count: u64, slow: &[u64]) -> Vec<Report> {
    // Fit only one model for each kind of rank, because ranks of one kind differ only in their
    // number.
    let kinds: Vec<Report> = [USUAL, SLOW, Like { read_ms: 0.05, ..USUAL }]
        .into_iter()
        .map(|like| report(0, count, like, Some(2.5)))
        .collect();
    let of = |rank: u64| {
        let kind = if slow.contains(&rank) { 1 } else { 2 * (rank as usize % 2) };
        let mut report = kinds[kind].clone();
        report.profile.setup.rank = rank;
        report
    };
    (0..count).map(of).collect()
}

/// Merges ranks that have [`HOSTILE`] text in every field.
fn hostile() -> Ranks {
    let mut reports = reports(5, &[3]);
    for report in &mut reports {
        report.verdict.push_str(HOSTILE);
        report.evidence.push(HOSTILE.into());
        let Some(Knob { setting, cost, .. }) = report.knobs.first_mut() else { continue };
        setting.push_str(HOSTILE);
        cost.push_str(HOSTILE);
    }
    let mut ranks = Ranks::merge(&reports).unwrap();
    ranks.verdict.push_str(HOSTILE);
    ranks
}

#[test]
fn the_slow_rank_is_named_with_its_stage() {
    let ranks = ranks(5, &[3]);
    assert_eq!((ranks.slowest, ranks.ranks[0].rank), (Some(3), 3));
    let verdict = &ranks.verdict;
    // The verdict contains the rank, the stage with its milliseconds, and the number of ranks.
    assert!(has_words(verdict, &["3", Stage::Read.name(), "8.04", "5"]), "{verdict}");
    let two = self::ranks(2, &[1]);
    // The steps of rank 0 are longer than usual only because they include waits for rank 1,
    // which is slow. So the steps of rank 0 do not count as slow.
    assert!(two.ranks.iter().all(|it| !it.slow_steps && it.slow == (it.rank == 1)), "{two}");
    assert_eq!((two.slowest, two.ranks.len()), (Some(1), 2));
    assert!(has_words(&two.verdict, &["1", Stage::Read.name()]), "{}", two.verdict);
    assert_eq!(ranks.ranks[0].deviates, [Stage::Read]);
    assert!(ranks.ranks[1..].iter().all(|it| it.deviates.is_empty() && !it.slow));
    let order: Vec<f64> = ranks.ranks.iter().map(|it| it.loader_images_per_second).collect();
    assert!(order.is_sorted(), "{order:?}");
}

#[test]
fn missing_reports_are_listed() {
    let some = Ranks::merge(&reports(8, &[3])[2..6]).unwrap();
    assert_eq!((some.world, some.ranks.len(), some.slowest), (8, 4, Some(3)));
    // The verdict contains the number of reports, and not the world size.
    assert!(has_words(&some.verdict, &["3", "4"]), "{}", some.verdict);
    assert!(!has_words(&some.verdict, &["8"]), "{}", some.verdict);
}

#[test]
fn similar_ranks_are_not_slow() {
    let ranks = ranks(4, &[]);
    assert_eq!((ranks.slowest, ranks.cost), (None, None));
    let loader = format!("{:.0}", ranks.usual_images_per_second);
    assert!(has_words(&ranks.verdict, &["4", &loader]), "{}", ranks.verdict);
}

#[test]
fn a_rank_is_reported_once_and_there_is_at_least_one() {
    let twice = [report(1, 2, USUAL, None), report(1, 2, USUAL, None)];
    let twice = Ranks::merge(&twice).unwrap_err();
    assert!(twice.key == "reports" && has_words(&twice.problem, &["1"]), "{twice}");
    assert!(Ranks::merge(&[]).is_err());
}

/// The consumer of the slow rank spends 60 % of its time in steps, and waits for batches in the
/// other 40 %. Without this waiting, all ranks would have 1/0.6 times their throughput.
#[test]
fn the_cost_of_a_slow_rank_is_the_throughput_without_its_waiting() {
    let ranks = ranks(6, &[2]);
    let cost = ranks.cost.unwrap();
    assert!((cost.images_per_second / 330.0 - 1.0).abs() < 0.01, "{cost:?}");
    assert!((cost.without / (330.0 / 0.6) - 1.0).abs() < 0.05, "{cost:?}");
    // The loss is that of six GPUs with a price of 2.5 per hour, in an epoch of 48 samples.
    let lost = 6.0 * 2.5 / 3600.0 * 48.0 * (1.0 / cost.images_per_second - 1.0 / cost.without);
    assert!((cost.lost_per_epoch.unwrap() / lost - 1.0).abs() < 1e-9, "{cost:?} {lost}");
}

#[test]
fn all_slow_ranks_are_removed_together() {
    let (one, three) = (ranks(8, &[2]).cost.unwrap(), ranks(8, &[2, 5, 6]));
    assert!(has_words(&three.verdict, &["3"]), "{}", three.verdict);
    assert!((three.cost.unwrap().without / one.without - 1.0).abs() < 1e-9);
    assert_eq!(three.ranks.iter().filter(|it| it.slow).count(), 3);
}

/// Ranks that were measured separately have different throughputs. Each rank runs at its own limit,
/// so no rank waits for another one.
#[test]
fn ranks_faster_than_the_slowest_do_not_wait_for_it() {
    let alone = |rank, like| report(rank, 3, like, None);
    let fast = Like { pace: 400.0, ..USUAL };
    let reports = [alone(0, SLOW), alone(1, fast), alone(2, Like { pace: 900.0, ..USUAL })];
    let cost = Ranks::merge(&reports).unwrap().cost.unwrap();
    assert!((cost.without / 400.0 - 1.0).abs() < 0.01, "{cost:?}");
    // The consumer of rank 1 limits it to 310 images/s, a little less than the 330 images/s of the
    // slow loader of rank 0. A faster loader of rank 0 gives the same relative gain as with a usual
    // rank 1, but this gain starts from 310 images/s.
    let slower = Like { pace: 310.0, ..USUAL };
    let reports = [alone(0, SLOW), alone(1, slower), alone(2, USUAL)];
    let less = Ranks::merge(&reports).unwrap().cost.unwrap();
    let gain = ranks(3, &[0]).cost.unwrap().gain();
    assert!((less.gain() / gain - 1.0).abs() < 0.01 && gain > 0.5, "{less:?} {gain}");
    // If the consumer of rank 1 is much slower, rank 1 is the slowest rank. The field `without`
    // then assumes both a usual loader of rank 0 and usual steps of rank 1, so that rank 2 limits
    // the job.
    let reports = [alone(0, SLOW), alone(1, Like { pace: 200.0, ..USUAL }), alone(2, fast)];
    let ranks = Ranks::merge(&reports).unwrap();
    let cost = ranks.cost.unwrap();
    assert_eq!((ranks.slowest, ranks.ranks[1].rank, ranks.ranks[2].slow), (Some(1), 0, false));
    assert!((cost.images_per_second - 200.0).abs() < 1.0, "{cost:?}");
    assert!((cost.without / 400.0 - 1.0).abs() < 0.01, "{cost:?}");
    // Rank 1 is slow because of its steps, and rank 0 because of its loader.
    assert!(ranks.ranks[0].slow_steps && ranks.ranks[1].slow, "{ranks}");
    let steps = format!("{:.2}", 1e3 / ranks.ranks[0].consumer_images_per_second);
    assert!(has_words(&ranks.verdict, &["1", "2", &steps]), "{ranks}");
}

#[test]
fn fewer_workers_are_named_if_stages_are_equally_long() {
    let few = Like { workers: 1, pace: 240.0, waits: 0.3, ..USUAL };
    let all = Like { pace: 240.0, ..USUAL };
    let reports: Vec<_> =
        (0..3).map(|it| report(it, 3, if it == 1 { few } else { all }, None)).collect();
    let Ranks { slowest, ranks, verdict, .. } = Ranks::merge(&reports).unwrap();
    assert_eq!((slowest, ranks[0].workers), (Some(1), 1));
    assert!(ranks[0].deviates.is_empty(), "{:?}", ranks[0]);
    // The verdict contains the number of workers of this rank and of the median rank.
    assert!(verdict.contains("worker") && has_words(&verdict, &["1", "4"]), "{verdict}");
}

#[test]
fn settings_of_slow_ranks_come_first_and_list_their_ranks() {
    let mut reports = reports(6, &[4, 5]);
    let own = reports[5].knobs[0].clone();
    reports[0].knobs =
        vec![Knob { setting: "loader.prefetch = 9".into(), gain: 5.0, ..own.clone() }];
    reports[1].knobs = vec![Knob { gain: 9.0, ..own.clone() }];
    let ranks = Ranks::merge(&reports).unwrap();
    let first = &ranks.knobs[0];
    assert_eq!(first.setting, own.setting);
    assert_eq!(first.ranks, [(4, own.gain), (5, own.gain), (1, 9.0)]);
    assert_eq!(ranks.knobs.last().unwrap().ranks, [(0, 5.0)]);
    let text = ranks.to_string();
    // The row of a setting contains the first rank that gains from the setting, and the number of
    // the other ranks that gain from it.
    let row = text.lines().find_map(|it| it.trim_start().strip_prefix(&*own.setting)).unwrap();
    assert!(has_words(row, &["4", "2"]), "{text}");
    let lost = format!("{:.4}", ranks.cost.unwrap().lost_per_epoch.unwrap());
    assert!(text.lines().any(|it| it.starts_with("cost: ") && has_words(it, &[&lost])), "{text}");
}

/// Returns the verdict that a page shows.
fn title(page: &str) -> String {
    element(page, "<h1 id=\"verdict\">", "</h1>").replace("&#39;", "'")
}

#[test]
fn the_page_contains_the_ranks_and_loads_nothing() {
    let ranks = ranks(5, &[3]);
    let page = ranks.to_html();
    let held = element(&page, "<script type=\"application/json\" id=\"report\">", "</script>");
    let held: Ranks = serde_json::from_str(held).unwrap();
    assert_eq!((held.verdict, held.ranks.len()), (ranks.verdict.clone(), 5));
    assert_eq!(title(&page), ranks.verdict);
    let text = element(&page, "<noscript><pre>", "</pre></noscript>");
    let setting = ranks.knobs[0].setting.replace('"', "&quot;");
    assert!(text.contains(&setting), "{text}");
    assert_loads_nothing(&page);
}

#[test]
fn text_of_a_rank_never_becomes_markup() {
    let page = hostile().to_html();
    assert_no_markup(&page);
    // Data that contains a placeholder of the page must stay unchanged.
    assert!(element(&page, "<h1 id=\"verdict\">", "</h1>").contains("&amp;amp;{{report}}"));
}

fn feedwater(dir: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_feedwater"));
    command.arg("explain").args(args).current_dir(dir).output().unwrap()
}

#[test]
fn the_command_writes_the_page_of_several_ranks() {
    let dir = TempDir::new().unwrap();
    for (rank, like) in [(0, USUAL), (1, SLOW), (2, USUAL)] {
        let json = serde_json::to_string(&report(rank, 3, like, None)).unwrap();
        fs::write(dir.path().join(format!("rank{rank}.json")), json).unwrap();
    }
    let files = ["rank0.json", "rank1.json", "rank2.json"];
    let out = feedwater(dir.path(), &[&files[..], &["--html", "ranks.html", "--json"]].concat());
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let said: Ranks = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(said.slowest, Some(1));
    let page = fs::read_to_string(dir.path().join("ranks.html")).unwrap();
    assert_eq!(title(&page), said.verdict);
    let out = feedwater(dir.path(), &[&files[..], &["--save", "r.json"]].concat());
    let words = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(2));
    assert!(has_words(&words, &["--save", "--json"]) && !words.contains("--html"), "{words}");
    let out = feedwater(dir.path(), &[&files[..], &["--html", "no/folder.html"]].concat());
    assert!(
        !out.status.success() && String::from_utf8_lossy(&out.stderr).contains("no/folder.html")
    );
}

/// Writes the pages that `tests/browser/` tests.
#[test]
#[ignore = "tests/browser/run.sh runs it, with FEEDWATER_PAGES"]
fn write_pages_for_the_browser() {
    let folder =
        PathBuf::from(env::var_os("FEEDWATER_PAGES").expect("FEEDWATER_PAGES names a folder"));
    let few = Like { workers: 1, pace: 240.0, waits: 0.3, ..USUAL };
    let many = ranks(512, &[137, 200, 201, 202, 203, 204, 205, 206, 207]);
    for (name, ranks) in [
        ("ranks-2", Ranks::merge(&[report(0, 2, few, None), report(1, 2, USUAL, None)]).unwrap()),
        // This page is about only half of the ranks.
        ("ranks-8", Ranks::merge(&reports(16, &[5])[..8]).unwrap()),
        ("ranks-512", many),
        ("ranks-alike", ranks(40, &[])),
        ("ranks-hostile", hostile()),
        ("ranks-steps", slow_steps::example()),
    ] {
        fs::write(folder.join(format!("{name}.html")), ranks.to_html()).unwrap();
    }
}
