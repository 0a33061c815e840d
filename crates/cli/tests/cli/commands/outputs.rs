//! Tests that each output file is complete or absent, that inputs are limited in size, and that
//! printed text is grammatical.

use std::os::unix::fs::symlink;

use super::*;

/// Runs the program with a limit of a few KiB per file. To the program, this looks like a full
/// disk.
fn on_a_full_disk(dir: &Path, args: &[&str]) -> Output {
    // The unit of `ulimit -f` is 512 bytes in a POSIX shell, and 1024 bytes in bash.
    let script = "ulimit -f 4; exec \"$0\" \"$@\"";
    Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_feedwater")])
        .args(args)
        .current_dir(dir)
        .env("FEEDWATER_CACHE", dir.join("cache"))
        .output()
        .unwrap()
}

/// Returns the temporary files that a command left behind.
fn leftovers(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap().map(|it| it.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(".part")).collect()
}

const OLD: &str = "a good file of an earlier run";

/// The help names what decodes on each route. It must not name libjpeg, because the decoder of the
/// CPU depends on the format, the processor and `decode.jpeg`.
#[test]
fn help_of_bench_names_what_each_route_decodes_with() {
    let dir = tempfile::tempdir().unwrap();
    let help = done(dir.path(), &["bench", "--help"]);
    assert!(!help.to_lowercase().contains("libjpeg"), "{help}");
    for (route, values) in [
        ("nvjpeg-hardware", &["GPU's", "engines"][..]),
        ("nvjpeg-gpu", &["GPU", "kernels"]),
        ("nvjpeg-hybrid", &["CPU", "GPU"]),
        ("cpu", &["CPU's", "decoders"]),
    ] {
        let (_, about) =
            help.split_once(&format!("- {route}:")).unwrap_or_else(|| panic!("{help}"));
        assert!(has_words(about.lines().next().unwrap(), values), "{route}: {help}");
    }
}

#[test]
fn one_image_of_one_class_is_singular_in_every_text() {
    let dir = tempfile::tempdir().unwrap();
    let loader = "[loader]\nbatch_size = 1\nnum_workers = 1\n[cache]\ndecoded = \"1 MiB\"\n";
    write(&dir, "one.toml", &format!("[source]\ndirectory = \"data\"\n{loader}{TRAINING}"));
    let synth = ["synth", "data", "--images", "1", "--width", "80", "--height", "60"];
    for (args, expected) in [
        (&[&synth[..], &["--classes", "1"]].concat()[..], &["1 image", "1 class"][..]),
        (&["probe", "data"], &["1 file", "1 class", "1 sample"]),
        (&["plan", "one.toml", "--device", "cpu"], &[]),
        (&["run", "one.toml", "--device", "cpu"], &["1 sample"]),
        (&["pack", "data", "out"], &["1 file", "1 sample", "1 shard"]),
    ] {
        let text = done(dir.path(), args);
        assert!(has_words(&text, expected), "{expected:?}: {text}");
        for several in ["batches", "classes", "files", "images", "samples", "shards", "workers"] {
            assert!(!has_words(&text, &[&format!("1 {several}")]), "1 {several}: {text}");
        }
    }
}

#[test]
fn on_a_full_disk_the_old_files_stay_and_the_error_names_the_file() {
    let dir = workplace();
    let report = ["explain", "pipeline.toml", "--seconds", "0.1"];
    done(dir.path(), &[&report[..], &["--save", "report.json"]].concat());
    fs::create_dir(dir.path().join("out")).unwrap();
    for (args, file) in [
        (&["run", "pipeline.toml", "--trace", "a"][..], "a"),
        (&["run", "pipeline.toml", "--profile", "a"], "a"),
        (&["explain", "report.json", "--save", "a"], "a"),
        (&["explain", "report.json", "--html", "a"], "a"),
        (&["simulate", "--html", "a"], "a"),
        (&["dump", "pipeline.toml", "--out", "out"], "out/images.npy"),
    ] {
        write(&dir, file, OLD);
        let output = on_a_full_disk(dir.path(), args);
        let words = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {words}");
        // `dump` reports the sheet, because the sheet is the first file that it writes to the end.
        let named = if args[0] == "dump" { "out/sheet.png" } else { file };
        assert!(words.starts_with(&format!("feedwater: {named}: ")), "{args:?}: {words}");
        assert_eq!(fs::read_to_string(dir.path().join(file)).unwrap(), OLD, "{args:?}");
        assert_eq!(leftovers(dir.path()), [""; 0], "{args:?}");
        assert_eq!(leftovers(&dir.path().join("out")), [""; 0], "{args:?}");
    }
}

#[test]
fn a_failed_run_keeps_the_old_files() {
    let dir = workplace();
    write(&dir, "broken.toml", &format!("[source]\ndirectory = \"none\"\n{TRAINING}"));
    for option in ["--trace", "--profile"] {
        write(&dir, "a", OLD);
        assert_ne!(
            feedwater(dir.path(), &["run", "broken.toml", option, "a"]).status.code(),
            Some(0)
        );
        assert_eq!(fs::read_to_string(dir.path().join("a")).unwrap(), OLD);
    }
    assert_eq!(leftovers(dir.path()), [""; 0]);
}

#[test]
fn an_unwritable_target_is_an_error_before_the_run() {
    let dir = workplace();
    fs::create_dir(dir.path().join("folder")).unwrap();
    for args in [
        &["run", "pipeline.toml", "--trace", "none/a"][..],
        &["run", "pipeline.toml", "--profile", "folder"],
        &["explain", "pipeline.toml", "--seconds", "1000", "--save", "none/a"],
        &["explain", "pipeline.toml", "--seconds", "1000", "--html", "folder"],
    ] {
        let words = refused(dir.path(), args, 1);
        assert!(words.contains(args[args.len() - 1]), "{words}");
    }
}

#[test]
fn devices_are_written_through_and_links_are_replaced() {
    let dir = workplace();
    let run = ["run", "pipeline.toml", "--profile"];
    let stdout = done(dir.path(), &[&run[..], &["/dev/stdout", "--json"]].concat());
    let lines: Vec<Value> = stdout.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    assert_eq!(lines.len(), 2, "{stdout}");
    assert!(lines[0]["setup"].is_object() && lines[1]["images"].is_u64());

    // If standard output is a file, the profile must not replace this file: the file must contain
    // both the line of the profile and the line of the result.
    let file = fs::File::create(dir.path().join("all")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_feedwater"));
    command.args(run).args(["/dev/stdout", "--json"]).current_dir(dir.path()).stdout(file);
    assert!(command.status().unwrap().success());
    assert_eq!(fs::read_to_string(dir.path().join("all")).unwrap().lines().count(), 2);

    done(dir.path(), &[&run[..], &["/dev/null"]].concat());
    let words = refused(dir.path(), &[&run[..], &["/dev/full"]].concat(), 1);
    assert!(words.starts_with("feedwater: /dev/full: "), "{words}");

    write(&dir, "target", OLD);
    symlink("target", dir.path().join("link")).unwrap();
    done(dir.path(), &[&run[..], &["link"]].concat());
    assert!(fs::symlink_metadata(dir.path().join("link")).unwrap().is_file());
    let written = fs::read(dir.path().join("link")).unwrap();
    assert!(serde_json::from_slice::<Value>(&written).is_ok());
    assert_eq!(fs::read_to_string(dir.path().join("target")).unwrap(), OLD);
}

/// Endless devices, such as `/dev/zero`, are read only up to a limit, and do not fill the memory.
#[test]
fn endless_inputs_are_errors() {
    let dir = workplace();
    symlink("/dev/zero", dir.path().join("zero.json")).unwrap();
    for args in [
        &["explain", "zero.json"][..],
        &["simulate", "--from", "zero.json"],
        &["plan", "/dev/zero"],
    ] {
        let words = refused(dir.path(), args, 1);
        let file = args[args.len() - 1];
        assert!(words.starts_with(&format!("feedwater: {file}: ")), "{args:?}: {words}");
    }
}

/// `--shorter` stores JPEGs, which have neither 16 bits nor alpha.
#[test]
fn pack_refuses_to_lose_what_the_pipeline_reads() {
    let dir = workplace();
    for (line, key) in [
        ("pixels = \"u16\"", "decode.pixels: is u16"),
        ("pixels = \"u8x4\"", "decode.pixels: is u8x4"),
        ("background = [255, 255, 255]", "decode.background: is set"),
    ] {
        write(
            &dir,
            "alpha.toml",
            &format!(
                "{PIPELINE}[decode]\n{line}\n[[chain]]\nop = \"resize\"\nwidth = 8\nheight = 8\n"
            ),
        );
        let told = refused(dir.path(), &["pack", "alpha.toml", "packed", "--shorter", "20"], 2);
        assert!(told.contains(key) && told.contains("leave --shorter out"), "{told}");
        assert!(!dir.path().join("packed").exists());
    }
}
