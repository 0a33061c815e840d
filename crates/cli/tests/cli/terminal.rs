//! Tests that names in data cannot control the terminal. Checks the output of every command for
//! malicious file names and reports.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use feedwater_tools::synth;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A name that clears the screen, rings the bell, sets colours with C0 and C1 codes, reverses the
/// direction of text, and begins a new line.
const NAME: &str = "cat\x1b[2J\x07\u{9b}31m\u{202e}\r\nwarning: fake";
/// The same name after escaping, in which form it may be printed.
const SHOWN: &str = "cat\\u{1b}[2J\\u{7}\\u{9b}31m\\u{202e}\\r\\nwarning: fake";

fn feedwater(dir: &Path, args: &[&OsStr]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_feedwater"));
    command.env("FEEDWATER_CACHE", dir.join("cache")).args(args).current_dir(dir).output().unwrap()
}

/// Runs a command and returns its output. The output must contain no control characters, and no
/// line that comes from data.
fn printed(dir: &Path, line: &str) -> String {
    let args: Vec<&OsStr> = line.split(' ').map(OsStr::new).collect();
    checked(line, &feedwater(dir, &args))
}

fn checked(what: &str, output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    let text = String::from_utf8(text).unwrap();
    let obeyed = |it: char| (it.is_control() && it != '\n') || it == '\u{202e}';
    assert!(!text.contains(obeyed), "{what}: {text:?}");
    assert!(!text.lines().any(|line| line.starts_with("warning: fake")), "{what}: {text}");
    text
}

/// Creates a folder with a class whose name is malicious. This class contains a damaged image, and
/// a file that is not an image.
fn folder() -> TempDir {
    let dir = TempDir::new().unwrap();
    let settings = synth::Settings { classes: 2, ..synth::Settings::uniform(6, 64, 48) };
    let data = dir.path().join("data");
    synth::write(&data, &settings, |_| ()).unwrap();
    let class = data.join(NAME);
    fs::create_dir(&class).unwrap();
    fs::write(class.join(format!("{NAME}.jpg")), "no image").unwrap();
    fs::write(class.join(format!("{NAME}.x{NAME}")), "no image").unwrap();
    let list = format!("data/class000/0.jpg\t0\n{}\t1\n", "none\x1b[1m\u{202e}.jpg");
    fs::write(dir.path().join("list.txt"), list).unwrap();
    let chain = "[loader]\nbatch_size = 2\nnum_workers = 1\n[[chain]]\nop = \"center_crop\"\nwidth = 32\nheight = 32\n";
    for (name, source) in [("p.toml", "directory = \"data\""), ("list.toml", "list = \"list.txt\"")]
    {
        fs::write(dir.path().join(name), format!("[source]\n{source}\n{chain}")).unwrap();
    }
    dir
}

#[test]
fn names_of_files_and_classes_are_escaped() {
    let dir = folder();
    let dir = dir.path();
    let text = printed(dir, "probe data");
    let row = |begin: &str| text.lines().find(|line| line.trim_start().starts_with(begin));
    assert!(text.lines().any(|line| line.ends_with(&format!("  {SHOWN}"))), "{text}");
    assert!(row("excluded").is_some_and(|line| line.contains(SHOWN)), "{text}");
    assert!(text.contains(&format!("{SHOWN}/{SHOWN}.jpg: unsupported: ")), "{text}");
    let text = printed(dir, "run p.toml --device cpu");
    assert!(text.starts_with("feedwater: ") && text.contains(SHOWN), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    for line in [
        "plan p.toml --device cpu",
        "plan p.toml --settings",
        "run list.toml --device cpu",
        "probe list.txt",
        "pack data shards",
        "pack data shards --skip",
        "explain p.toml --device cpu --seconds 0.1",
        "dump p.toml out",
    ] {
        printed(dir, line);
    }
    // JSON contains the name itself, in the escaped form of JSON.
    let text = printed(dir, "probe data --json");
    let report: Value = serde_json::from_str(text.trim_end()).unwrap();
    assert_eq!(report["report"]["classes"][0], NAME);
}

#[test]
fn arguments_from_file_names_are_escaped() {
    let dir = folder();
    for args in [&["probe", "data", NAME][..], &["probe", NAME], &["run", NAME], &[NAME]] {
        let args: Vec<&OsStr> = args.iter().map(OsStr::new).collect();
        let output = feedwater(dir.path(), &args);
        assert_ne!(output.status.code(), Some(0));
        assert!(!checked("arguments", &output).is_empty());
    }
}

#[test]
fn strings_of_saved_reports_are_escaped() {
    let folder = crate::repository().join("tests/golden/bottlenecks");
    let saved = fs::read_dir(folder).unwrap().next().unwrap().unwrap().path();
    let saved: Value = serde_json::from_str(&fs::read_to_string(saved).unwrap()).unwrap();
    let profile = serde_json::from_value(saved["profile"].clone()).unwrap();
    let report = feedwater::explain::explain(&profile, &Default::default()).unwrap();
    let dir = TempDir::new().unwrap();
    let save = |name: &str, change: &dyn Fn(&mut Value)| {
        let mut report = serde_json::to_value(&report).unwrap();
        let span = json!({ "name": NAME, "count": 9, "seconds": 1.0, "share": 0.9 });
        report["profile"]["consumer"]["spans"] = json!([span]);
        report["profile"]["setup"]["device"] = json!(NAME);
        report["verdict"] = json!(NAME);
        change(&mut report);
        fs::write(dir.path().join(name), report.to_string()).unwrap();
    };
    save("0.json", &|_| ());
    save("1.json", &|it| it["profile"]["setup"]["rank"] = json!(1));
    save("unknown.json", &|it| it["profile"][NAME] = json!(1));
    save("resource.json", &|it| {
        it["model"]["resources"] = json!([{ "name": NAME, "servers": 1 }]);
        it["model"]["stages"][0]["name"] = json!(NAME);
        it["model"]["stages"][0]["on"] = json!({ "resource": 0 });
        it["model"]["stages"][0]["service"]["mean"] = json!(1.0);
    });
    let text = printed(dir.path(), "explain 0.json");
    assert!(text.contains(&format!("{SHOWN}: 90 % of the step")), "{text}");
    for line in [
        "explain 0.json 1.json",
        "explain unknown.json",
        "simulate --from resource.json",
        "simulate --from resource.json --resource none=2",
    ] {
        printed(dir.path(), line);
    }
}
