//! Tests of the command `simulate`, with and without a report.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::words::{self, has_words};
use feedwater::model::{Consumer, Model, On, Resource, Service, Stage};
use serde_json::{Value, json};
use tempfile::TempDir;

fn feedwater(dir: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_feedwater"));
    command.arg("simulate").args(args).current_dir(dir).output().unwrap()
}

/// Runs a command that must succeed. Returns its standard output.
fn done(dir: &Path, args: &[&str]) -> String {
    let output = feedwater(dir, args);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && stderr.is_empty(), "{args:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

fn result(args: &[&str]) -> Value {
    let dir = TempDir::new().unwrap();
    let stdout = done(dir.path(), &[args, &["--json"]].concat());
    assert_eq!(stdout.lines().count(), 1);
    serde_json::from_str(&stdout).unwrap()
}

/// Runs a command with wrong arguments. Returns the error message.
fn refused(args: &[&str]) -> String {
    let dir = TempDir::new().unwrap();
    let output = feedwater(dir.path(), args);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
    assert!(output.stdout.is_empty());
    stderr
}

fn number(value: &Value, field: &str) -> f64 {
    value[field].as_f64().unwrap_or_else(|| panic!("{field} of {value}"))
}

/// Reproduces the figures of J. P. Park, "Visualizing data loaders to diagnose deep learning
/// pipelines", with 7 loaders, a step of 100 ms, and 30 s. The article reports 98 batches for
/// loading times of 2 s, 275 for 0.7 s, and 295 for 0.35 s.
#[test]
fn the_classic_figures_are_reproduced() {
    let args = "--loaders 7 --load-ms 2000 --step-ms 100 --seconds 30";
    let args: Vec<&str> = args.split(' ').collect();
    let slow = result(&args);
    assert_eq!(slow["batches"], 98);
    assert_eq!(result(&[])["batches"], 98, "the defaults must be those of the article");
    assert_eq!(number(&slow, "bound_batches_per_second"), 3.5);

    let balanced = number(&result(&["--load-ms", "700"]), "batches");
    assert!((270.0..=280.0).contains(&balanced), "{balanced}");
    let fast = number(&result(&["--load-ms", "350"]), "batches");
    assert!((292.0..=298.0).contains(&fast), "{fast}");

    // The mean number of batches over 20 seeds must match too, so that the results above are not
    // due to one seed.
    for (load, expected) in [("2000", 98.0), ("700", 275.0), ("350", 295.0)] {
        let batches = |seed: u32| {
            number(&result(&["--load-ms", load, "--seed", &seed.to_string()]), "batches")
        };
        let mean = (0..20).map(batches).sum::<f64>() / 20.0;
        assert!((mean - expected).abs() < 1.5, "{load}: {mean}");
    }
    // If the loaders are exactly as fast as the consumer, only variance reduces the throughput.
    // Without variance, the consumer waits only for the first 0.7 s.
    assert!(number(&result(&["--load-ms", "700", "--cv", "0"]), "batches") >= 292.0);
}

/// Without visible halts, a consumer may wait as long in total as with them.
#[test]
fn variance_and_desynchronization_remove_the_halts_but_not_the_loss() {
    for load in ["2000", "1400"] {
        let of = |args: &[&str]| result(&[&["--load-ms", load], args].concat());
        let halting = of(&["--cv", "0"]);
        // The consumer waits only for one batch of every seven.
        assert!(number(&halting, "halting_share") > 0.999, "{halting}");
        for args in
            [&["--cv", "0.3"][..], &["--cv", "0.3", "--queue", "20"], &["--cv", "0", "--desync"]]
        {
            let smooth = of(args);
            assert!(
                number(&smooth, "halting_share") < 0.3,
                "{args:?}: {}",
                smooth["halting_share"]
            );
            let (smooth, halting) =
                (number(&smooth, "consumer_waits"), number(&halting, "consumer_waits"));
            assert!(smooth > halting - 0.05, "{args:?}: {smooth}, {halting}");
        }
    }
}

#[test]
fn the_timeline_shows_loaders_queue_and_stalls() {
    let dir = TempDir::new().unwrap();
    let text = done(dir.path(), &["--cv", "0"]);
    let lines: Vec<&str> = text.lines().collect();
    let row = |name: &str| {
        let line = lines.iter().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("{name} in\n{text}"))
            .chars()
            .skip(11 - name.len())
            .collect::<Vec<_>>()
    };
    // The 96 columns show 30 s. So a loading time of 2 s has 6.4 columns.
    for loader in 1..=7 {
        let bars = row(&format!("loader {loader}"));
        assert_eq!(bars.len(), 96);
        // A loader waits for a slot at most once, before its first batch is taken.
        let (waits, bars): (Vec<char>, Vec<char>) = bars.iter().partition(|it| **it == '·');
        assert!(waits.len() <= 2, "{text}");
        let changes = bars.windows(2).filter(|pair| pair[0] != pair[1]).count();
        assert_eq!(changes, 14, "{text}");
    }
    // The legend must explain every shade.
    let legend = lines.iter().filter(|it| it.starts_with("           ") && !it.contains('|'));
    let legend: String = legend.copied().collect();
    assert!(['█', '▒', '·', '▁', '+'].iter().all(|it| legend.contains(*it)), "{text}");
    let consumer = row("consumer");
    assert!(consumer[..6].iter().all(|&it| it == ' '), "no batch must arrive for 2 s\n{text}");
    let starts = consumer.windows(2).filter(|pair| pair[0] == ' ' && pair[1] != ' ').count();
    assert_eq!(starts, 14, "there must be a burst every 2 s\n{text}");
    assert!(row("ready").contains(&'6'), "{text}");
    assert!(has_line(&text, &["98", "30", "3.27"]), "{text}");
    let bounds = words::row(&text, "bounds: ");
    assert!(has_words(bounds, &["3.50", "7", "2000", "10.00", "100"]), "{text}");

    // The last line contains the interval between the consumer's halts, or the share of time that
    // it waits, or neither.
    let last = |args: &[&str]| done(dir.path(), args).lines().last().unwrap().to_string();
    let waits = |args: &[&str]| {
        let (shown, found) = (last(args), result(args));
        (shown, number(&found, "consumer_waits"), found["halting_share"].as_f64())
    };
    let (halting, waited, share) = waits(&["--cv", "0"]);
    assert!(waited > 0.5 && share.is_some_and(|it| it > 0.99), "{waited} {share:?}");
    assert!(has_words(&halting, &["7", "100 %"]), "{halting}");
    let (smooth, waited, share) = waits(&["--cv", "0.3"]);
    assert!(waited > 0.5 && share.is_some_and(|it| it < 0.5), "{waited} {share:?}");
    let waited = format!("{:.0} %", 100.0 * waited);
    assert!(has_words(&smooth, &[&waited]) && !has_words(&smooth, &["7"]), "{smooth}");
    let (enough, waited, _) = waits(&["--load-ms", "100"]);
    assert!(waited < 0.02, "{waited}");
    assert!(!has_words(&enough, &["7"]) && enough != smooth, "{enough}");

    let args = ["--loaders", "100", "--seconds", "1"];
    let many = done(dir.path(), &args);
    assert_eq!(many.lines().filter(|it| it.starts_with("loader ")).count(), 24, "{many}");
    assert!(has_line(&many, &["76"]) && has_line(&many, &["0", "1"]), "{many}");
    assert_eq!(result(&args)["batches"], 0);
}

/// Whether any single line of a text contains all of these values.
fn has_line(text: &str, values: &[&str]) -> bool {
    text.lines().any(|line| has_words(line, values))
}

#[test]
fn the_animation_is_one_self_contained_file() {
    let dir = TempDir::new().unwrap();
    let stdout = done(dir.path(), &["--html", "loop.html"]);
    assert!(stdout.lines().last().unwrap().ends_with("loop.html"), "{stdout}");
    let page = fs::read_to_string(dir.path().join("loop.html")).unwrap();
    for outside in ["http:", "https:", "src=", "href=", "url(", "import(", "fetch("] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert_eq!(page.matches("<script>").count(), 1);
    let data = page.split_once("verdict } = ").unwrap().1.split_once(";\n").unwrap().0;
    let data: Value = serde_json::from_str(data).unwrap();
    assert_eq!((&data["seconds"], &data["loaders"]), (&30.0.into(), &7.into()));
    assert!(has_words(data["verdict"].as_str().unwrap(), &["98", "30", "3.27", "3.50"]));
    let steps = data["events"].as_array().unwrap().iter();
    assert_eq!(steps.filter(|it| it["who"] == "consumer" && it["what"] == "ends").count(), 98);
    assert!(feedwater(dir.path(), &["--html", "no/such/folder.html"]).status.code() == Some(1));
}

#[test]
fn absurd_input_is_an_error_that_names_it() {
    let cases: [(&[&str], &[&str]); 14] = [
        (&["--loaders", "0"], &["--loaders", "1", "10000", "0"]),
        (&["--loaders", "4000000000"], &["--loaders", "1", "10000", "4000000000"]),
        (&["--load-ms", "NaN"], &["--load-ms", "0", "1000000000", "NaN"]),
        (&["--load-ms=-1"], &["--load-ms", "0", "1000000000", "-1"]),
        (&["--step-ms", "inf"], &["--step-ms", "0", "1000000000", "inf"]),
        (&["--seconds", "0"], &["--seconds", "0.001", "1000000000", "0"]),
        (&["--cv", "9"], &["--cv", "0", "5", "9"]),
        (&["--queue", "1000000000"], &["--queue", "0", "100000", "1000000000"]),
        (&["--load-ms", "0", "--step-ms", "0"], &["--load-ms 0", "--step-ms 0", "--seconds 30"]),
        (&["--load-ms", "0.000001", "--step-ms", "0"], &["--load-ms", "--step-ms", "10000000"]),
        (&["--from", "a.json", "--loaders", "7"], &["--from", "--loaders"]),
        (&["--workers", "7"], &["--from"]),
        (&["--seed=-1"], &["--seed", "-1"]),
        (&["--load-ms", "fast"], &["--load-ms", "fast"]),
    ];
    for (args, words) in cases {
        let stderr = refused(args);
        assert!(has_words(&stderr, words), "{args:?}: {stderr}");
    }
}

/// Writes a report of a loader with 8 workers on 4 cores. An image of 100 KB takes 10 ms, so the
/// loader delivers 400 images/s. The consumer could use 1000.
fn report(dir: &Path) {
    let stage = |name: &str, on, mean, detached| Stage {
        name: name.into(),
        on,
        service: Service::lognormal(mean, 0.2),
        detached,
    };
    let model = Model {
        batch: 50,
        slots: 4,
        workers: vec![1.0; 8],
        starts: Vec::new(),
        cores: 4,
        contention: None,
        resources: vec![Resource { name: "engine".into(), servers: 1 }],
        stages: vec![
            stage("read", On::Wait, 0.002, false),
            stage("decode", On::Cpu, 0.01, false),
            stage("engine", On::Resource(0), 0.0005, true),
        ],
        pages: Some(100),
        per_batch: 0.0001,
        consumer: Consumer { step: Service::constant(0.05), holds: true, host_share: 0.0 },
    };
    let report = json!({ "verdict": "for others", "sample_bytes": 100_000, "model": model });
    fs::write(dir.join("report.json"), report.to_string()).unwrap();
}

fn on(args: &[&str]) -> Value {
    let dir = TempDir::new().unwrap();
    report(dir.path());
    let stdout = done(dir.path(), &[&["--from", "report.json", "--json"], args].concat());
    serde_json::from_str(&stdout).unwrap()
}

#[test]
fn a_measured_pipeline_is_simulated_on_other_hardware() {
    let changed = |args: &[&str]| number(&on(args)["changed"], "images_per_second");
    let close = |found: f64, expected: f64| {
        assert!((found / expected - 1.0).abs() < 0.03, "{found}, not {expected}");
    };
    let same = on(&[]);
    close(number(&same["measured"], "images_per_second"), 400.0);
    assert_eq!(same["measured"]["images_per_second"], same["changed"]["images_per_second"]);
    assert_eq!(number(&same, "gain"), 0.0);
    assert_eq!(same["measured"]["limits"][0]["limit"], "cores");
    assert_eq!(same["measured"]["limits"][1]["limit"], "workers");

    close(changed(&["--cores", "6"]), 600.0);
    close(changed(&["--cores", "8"]), 8.0 / 0.012);
    let fed = on(&["--cores", "32", "--workers", "32"]);
    close(number(&fed["changed"], "images_per_second"), 1000.0);
    assert_eq!(fed["changed"]["limits"][0]["limit"], "consumer");
    close(number(&fed, "gain"), 1.5);
    let quick = ["--cores", "32", "--workers", "32", "--step-ms", "10"];
    close(changed(&quick), 2000.0);
    close(changed(&[&quick[..], &["--resource", "engine=7"]].concat()), 32.0 / 0.012);
    close(changed(&["--scale-stage", "decode=0.5"]), 800.0);
    // Each of the sixteen loaders of a host gets a quarter of a core. Two hosts do not share cores.
    close(changed(&["--gpus-per-host", "16", "--hosts", "2"]), 800.0);
    let cluster = ["--hosts", "4", "--gpus-per-host", "8", "--cores", "96", "--workers", "24"];
    close(changed(&cluster), 32.0 * 1000.0);
    // The link of 1600 MB/s allows 16000 images/s for all hosts together. The disk of 300 MB/s
    // allows 3000 images/s per host.
    let bounded = on(&[&cluster[..], &["--link-MBps", "1600"]].concat());
    close(number(&bounded["changed"], "images_per_second"), 16_000.0);
    assert_eq!(bounded["changed"]["limits"][0]["limit"], "link");
    close(changed(&[&cluster[..], &["--disk-MBps", "300"]].concat()), 12_000.0);
    let small = ["--disk-MBps", "300", "--sample-bytes", "50000"];
    close(changed(&[&cluster[..], &small].concat()), 24_000.0);

    // Reports of `explain` have the bytes per sample in the field `profile.data.mean_bytes`.
    let dir = TempDir::new().unwrap();
    report(dir.path());
    let mut other: Value =
        serde_json::from_slice(&fs::read(dir.path().join("report.json")).unwrap()).unwrap();
    other["sample_bytes"] = Value::Null;
    other["profile"] = json!({ "data": { "mean_bytes": 1e6 }, "more": [] });
    fs::write(dir.path().join("explained.json"), other.to_string()).unwrap();
    let args = ["--from", "explained.json", "--disk-MBps", "300", "--json"];
    let explained: Value = serde_json::from_str(&done(dir.path(), &args)).unwrap();
    close(number(&explained["changed"], "images_per_second"), 300.0);
    // Two of three files were in device memory and were not read.
    other["profile"]["data"]["unread_share"] = json!(2.0 / 3.0);
    fs::write(dir.path().join("explained.json"), other.to_string()).unwrap();
    let explained: Value = serde_json::from_str(&done(dir.path(), &args)).unwrap();
    close(number(&explained["changed"], "images_per_second"), 400.0);

    let text = done(dir.path(), &["--from", "report.json", "--cores", "8", "--workers", "16"]);
    let head = text.lines().next().unwrap();
    assert!(has_words(head, &["measured", "changed"]), "{text}");
    // The text has a line for all GPUs together, and one for each GPU.
    assert_eq!(text.lines().filter(|it| it.starts_with("images/s")).count(), 2, "{text}");
    assert!(has_words(words::row(&text, "measured: "), &["cores", "400.0"]), "{text}");
    let changed = ["cores", "800.0", "consumer", "1000.0"];
    assert!(has_words(words::row(&text, "changed: "), &changed), "{text}");

    // The output of `simulate` can be used like a report of `explain`.
    fs::write(dir.path().join("loop.json"), result(&[]).to_string()).unwrap();
    let more =
        done(dir.path(), &["--from", "loop.json", "--workers", "14", "--prefetch", "14", "--json"]);
    let more: Value = serde_json::from_str(&more).unwrap();
    assert!(number(&more, "gain") > 0.9, "{more}");
}

#[test]
fn an_unusable_report_is_an_error_that_names_it() {
    let dir = TempDir::new().unwrap();
    report(dir.path());
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    write("empty.json", "");
    write("other.json", "{\"verdict\": 3}");
    write("model.json", "{\"model\": {\"batch\": 3}}");
    let text = fs::read_to_string(dir.path().join("report.json")).unwrap();
    write("nothing.json", &text.replacen("\"cores\":4", "\"cores\":0", 1));
    write("unknown.json", &text.replacen("\"cores\":4", "\"cores\":4,\"turbo\":1", 1));
    write("bytes.json", &text.replacen("\"sample_bytes\":100000,", "", 1));
    write("cut.json", &text[..text.len() / 2]);
    let cases: [(&str, &[&str], i32, &[&str]); 15] = [
        ("absent.json", &[], 1, &["absent.json"]),
        ("empty.json", &[], 2, &["empty.json"]),
        ("other.json", &[], 2, &["other.json", "`model`"]),
        ("model.json", &[], 2, &["model.json", "model", "`slots`"]),
        ("nothing.json", &[], 2, &["nothing.json", "model.cores", "1", "1000000", "0"]),
        ("unknown.json", &[], 2, &["unknown.json", "model", "`turbo`"]),
        ("cut.json", &[], 2, &["cut.json"]),
        ("report.json", &["--hosts", "0"], 2, &["hosts", "1", "1000000", "0"]),
        ("report.json", &["--workers", "0"], 2, &["workers", "1", "1000000", "0"]),
        ("report.json", &["--resource", "disk=2"], 2, &["resource disk", "engine"]),
        ("report.json", &["--resource", "engine"], 2, &["--resource", "NAME=NUMBER", "engine"]),
        (
            "report.json",
            &["--scale-stage", "decode=x"],
            2,
            &["--scale-stage", "NAME=NUMBER", "decode=x"],
        ),
        ("report.json", &["--scale-stage", "decode=-1"], 2, &["report.json", "decode", "0", "-1"]),
        ("report.json", &["--disk-MBps", "0"], 2, &["--disk-MBps", "0.000001", "0"]),
        ("bytes.json", &["--disk-MBps", "100"], 2, &["--sample-bytes"]),
    ];
    for (file, args, code, words) in cases {
        let output = feedwater(dir.path(), &[&["--from", file], args].concat());
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{file} {args:?}: {stderr}");
        assert!(has_words(&stderr, words), "{file} {args:?}: {stderr}");
    }
}
