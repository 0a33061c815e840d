//! Messages about wrong options.

use super::{PIPELINE, TRAINING, feedwater, refused, text, workplace, write};
use crate::words::has_words;

#[test]
fn wrong_options_are_named_as_written_with_a_way_out() {
    let dir = tempfile::tempdir().unwrap();
    for (args, words) in [
        ("run p.toml --workers -1", &["--workers", "-1", "1 to 1024, or auto"][..]),
        ("run p.toml --num-workers -1", &["--num-workers", "-1", "1 to 1024, or auto"]),
        ("run p.toml --num-workers=0", &["--num-workers", "1 to 1024, or auto"]),
        ("run p.toml --epochs -1", &["--epochs", "-1"]),
        ("run p.toml --batch-size 2", &["batch_size", "[loader]"]),
        ("run p.toml --batch 2", &["batch_size", "[loader]"]),
        ("run p.toml --threads 2", &["'--workers'"]),
        ("dump p.toml --num-workers 2", &["num_workers", "[loader]"]),
        ("probe data --threads 2", &["'--workers'"]),
        ("probe data --workers auto", &["1 to 1024", "one thread per core"]),
        ("pack data out --num-workers auto", &["--num-workers", "1 to 1024", "per core"]),
        ("pack data out --workers -1", &["--workers", "-1", "1 to 1024"]),
        ("bench --batch-size -1", &["--batch-size", "-1"]),
        ("simulate --num-workers 2", &["--from"]),
        ("simulate --batch-size 2", &["--from"]),
    ] {
        let args: Vec<_> = args.split(' ').collect();
        let stderr = refused(dir.path(), &args, 2);
        assert!(words.iter().all(|it| stderr.contains(it)), "{args:?}: {stderr}");
        let is_wrong = |it: &&str| stderr.contains(*it);
        assert!(![" -- -", "invalid digit"].iter().any(is_wrong), "{args:?}: {stderr}");
    }
}

#[test]
fn an_error_names_the_option_instead_of_the_key() {
    let dir = workplace();
    let limits = "[limits]\ncpu_threads = 2\n";
    write(&dir, "limited.toml", &format!("{PIPELINE}num_workers = 1\n{limits}{TRAINING}"));
    for option in ["--workers", "--num-workers"] {
        let args = ["run", "limited.toml", "--device", "cpu", option, "3"];
        let words = refused(dir.path(), &args, 2);
        let (_, problem) =
            words.split_once(": limits.cpu_threads: ").unwrap_or_else(|| panic!("{words}"));
        assert!(has_words(problem, &["2", option, "3"]), "{words}");
        assert!(!words.contains("loader.num_workers"), "{words}");
    }
    let args = ["bench", "pipeline.toml", "--device", "cpu", "--batch", "64", "--epochs", "1"];
    write(&dir, "drop.toml", &format!("{PIPELINE}last_batch = \"drop\"\n{TRAINING}"));
    let output = feedwater(dir.path(), &[&args[..1], &["drop.toml"], &args[2..]].concat());
    let words = text(&output.stdout) + &text(&output.stderr);
    let (_, problem) = words.split_once("--batch: ").unwrap_or_else(|| panic!("{words}"));
    assert!(has_words(problem, &["64", "10"]) && !words.contains("loader.batch_size"), "{words}");
}
