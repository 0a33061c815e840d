//! Tests of the command `plan`.

use super::*;

#[test]
fn plan_shows_places_and_memory() {
    let dir = workplace();
    let plan = done(dir.path(), &["plan", "pipeline.toml", "--device", "cpu"]);
    for words in ["RandomResizedCrop", "Normalize", "4x3x24x32 f32 nchw", "output slots"] {
        assert!(plan.contains(words), "{plan}");
    }
    let plan = json(dir.path(), &["plan", "pipeline.toml", "--device", "cpu", "--json"]);
    assert_eq!(plan["decode"], "cpu");
    assert_eq!(plan["output"]["shape"], serde_json::json!([4, 3, 24, 32]));
    assert_eq!(plan["output"]["bytes"], 4 * 3 * 24 * 32 * 4);
    let names: Vec<_> = plan["chain"].as_array().unwrap().iter().map(|step| &step["op"]).collect();
    assert_eq!(names, ["random_resized_crop", "flip", "normalize"]);
    let rows = plan["footprint"].as_array().unwrap();
    let total: u64 = rows
        .iter()
        .filter(|row| row["memory"] == "host")
        .map(|row| row["total_bytes"].as_u64().unwrap())
        .sum();
    assert_eq!(plan["host_bytes"], total);
    assert!(total > 0);
}

/// `plan` prints the weights of a mixture as whole numbers of draws.
#[test]
fn plan_shows_the_draws_of_a_mixture() {
    let dir = workplace();
    let part = |weight| format!("[[source.mixture]]\ndirectory = \"data\"\nweight = {weight}\n");
    let chain = "[[chain]]\nop = \"resize\"\nwidth = 8\nheight = 8\n";
    write(&dir, "mixed.toml", &format!("{}{}{chain}", part(1.0 / 3.0), part(2.0 / 3.0)));
    let words = ["mixed: 1 of 3 from data: 10 files", "; 2 of 3 from data: 10 files"];
    let plan = done(dir.path(), &["plan", "mixed.toml", "--device", "cpu"]);
    let line = plan.lines().find(|line| line.starts_with("source ")).expect(&plan);
    assert!(words.iter().all(|it| line.contains(it)), "{line}");
    let plan = json(dir.path(), &["plan", "mixed.toml", "--device", "cpu", "--json"]);
    let source = plan["source"].as_str().unwrap();
    assert!(words.iter().all(|it| source.contains(it)), "{source}");
}

#[test]
fn plan_writes_an_equivalent_pipeline_file() {
    let dir = workplace();
    let text = done(dir.path(), &["plan", "pipeline.toml", "--settings"]);
    assert!(text.contains("prefetch = 2"), "{text}");
    write(&dir, "whole.toml", &text);
    assert_eq!(done(dir.path(), &["plan", "whole.toml", "--settings"]), text);
}

#[test]
fn workers_may_be_auto_and_other_words_are_errors() {
    let place = workplace();
    let dir = place.path();
    let run = ["run", "pipeline.toml", "--device", "cpu", "--workers", "auto", "--json"];
    assert_eq!(json(dir, &run)["images"], 8);
    for command in ["run", "bench"] {
        for wrong in ["many", "0", "1025", "-1", "Auto", ""] {
            let words = refused(dir, &[command, "pipeline.toml", &format!("--workers={wrong}")], 2);
            assert!(has_words(&words, &["--workers", "1", "1024", "auto"]), "{words}");
        }
    }
    let file = format!("{PIPELINE}num_workers = \"auto\"\nprefetch = \"auto\"\n{TRAINING}");
    write(&place, "auto.toml", &file);
    let plan = done(dir, &["plan", "auto.toml", "--device", "cpu"]);
    for values in [&["workers", "1"][..], &["prefetch", "1", "8", "2"]] {
        let is_told = |line: &str| line.starts_with("auto ") && has_words(line, values);
        assert!(plan.lines().any(is_told), "{values:?}: {plan}");
    }
    let plan = json(dir, &["plan", "auto.toml", "--device", "cpu", "--json"]);
    assert_eq!(plan["ahead_batches"], serde_json::json!({ "least": 1, "start": 2, "most": 8 }));
    assert_eq!(plan["workers"]["least"], 1);
    let settings = done(dir, &["plan", "auto.toml", "--settings"]);
    for key in ["num_workers", "prefetch"] {
        assert!(settings.contains(&format!("\n{key} = \"auto\"\n")), "{settings}");
    }
    write(&place, "less.toml", &format!("{file}[limits]\ncpu_threads = 1\n"));
    let plan = json(dir, &["plan", "less.toml", "--device", "cpu", "--json"]);
    assert_eq!(plan["workers"], serde_json::json!({ "least": 1, "start": 1, "most": 1 }));
}
