//! Tests that a failed allocation is an error, and never aborts the process. The tests run in child
//! processes with a real limit of memory (`ulimit -v`).

use std::env;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use feedwater::error::{Error, Reason};
use feedwater::internals::decode::Decoders;
use feedwater::internals::geometry::Size;
use feedwater::internals::header::Header;
use feedwater::loader::{DeviceChoice, Loader};
use feedwater::source::Memory;
use feedwater_tests::common::{evaluation, jpeg, progressive};
use serde_json::Value;
use tempfile::TempDir;

/// Environment variable that marks the child process.
const CHILD: &str = "FEEDWATER_TEST_SMALL_MEMORY";

/// Returns a command that runs a program with a limited address space.
fn limited(mebibytes: u64, program: &Path, args: &[&str]) -> Command {
    let mut command = Command::new("sh");
    let script = format!("ulimit -v {} && exec \"$0\" \"$@\"", mebibytes << 10);
    command.args(["-c", &script]).arg(program).args(args);
    // Use a single heap for all threads, because each additional heap reserves 64 MiB of the
    // address space.
    command.env("MALLOC_ARENA_MAX", "1");
    command
}

/// Runs this test again in a child process with a limited address space. Returns true in the child
/// process.
fn is_child(test: &str, mebibytes: u64) -> bool {
    if env::var_os(CHILD).is_some() {
        return true;
    }
    let args = ["--exact", test, "--test-threads=1"];
    let output =
        limited(mebibytes, &env::current_exe().unwrap(), &args).env(CHILD, "1").output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&text));
    false
}

/// Returns the header of a lossless WebP with this size, without any pixels.
fn webp(width: u32, height: u32) -> Vec<u8> {
    let bits = (width - 1) | (height - 1) << 14;
    let mut bytes = b"RIFF\x1a\0\0\0WEBPVP8L\x0d\0\0\0\x2f".to_vec();
    bytes.extend(bits.to_le_bytes());
    bytes.resize(34, 0);
    bytes
}

/// Encodes a uniform grey PNG of this size, interlaced or not.
fn png(width: u32, height: u32, interlaced: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, 1, 1);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.write_header().unwrap().write_image_data(&[7]).unwrap();
    // Write the size into the header chunk IHDR. It begins at byte 8 with length, name, width,
    // height, depth, colour, compression, filter, interlacing and checksum.
    bytes[16..20].copy_from_slice(&width.to_be_bytes());
    bytes[20..24].copy_from_slice(&height.to_be_bytes());
    bytes[28] = u8::from(interlaced);
    let sum = crc32fast::hash(&bytes[12..29]).to_be_bytes();
    bytes[29..33].copy_from_slice(&sum);
    bytes
}

/// Returns a progressive JPEG whose header states this size. libjpeg allocates memory for all of
/// its coefficients.
fn jpeg_of(width: u16, height: u16) -> Vec<u8> {
    let mut bytes = progressive(1, 40, 30);
    // Write the size into the frame header: marker, length, precision, height, width.
    let frame = bytes.windows(2).position(|it| it == [0xff, 0xc2]).unwrap();
    bytes[frame + 5..][..2].copy_from_slice(&height.to_be_bytes());
    bytes[frame + 7..][..2].copy_from_slice(&width.to_be_bytes());
    bytes
}

#[test]
fn an_image_that_cannot_be_allocated_is_an_error_of_the_sample() {
    if !is_child("an_image_that_cannot_be_allocated_is_an_error_of_the_sample", 512) {
        return;
    }
    let mut decoder = Decoders::new();
    for bytes in [
        webp(16383, 10900),
        png(40_000, 40_000, true),
        png(1 << 26, 2, false),
        jpeg_of(30_000, 30_000),
    ] {
        let header = Header::parse(&bytes).unwrap();
        let window = header.size.window();
        let fault = decoder.decode(&bytes, &header, window, 1, &mut |_| ()).unwrap_err();
        assert_eq!(fault.reason, Reason::OutOfMemory, "{fault}");
    }
    // After the error, the same decoder must decode the next image normally.
    let small = jpeg(1, 40, 30);
    let header = Header::parse(&small).unwrap();
    let mut rows = 0;
    let window = Size::new(40, 30).window();
    decoder.decode(&small, &header, window, 1, &mut |it| rows += it.count).unwrap();
    assert_eq!(rows, 30);
}

#[test]
fn a_plan_beyond_the_limit_is_an_error_and_so_is_a_failed_allocation_with_overcommit() {
    let name = "a_plan_beyond_the_limit_is_an_error_and_so_is_a_failed_allocation_with_overcommit";
    if !is_child(name, 1024) {
        return;
    }
    let of = |batch: usize| {
        let samples = vec![(jpeg(1, 40, 30), 0); 4];
        let source = Memory::new(samples).unwrap();
        let builder =
            Loader::builder(source, evaluation()).device(DeviceChoice::Cpu).num_workers(1);
        builder.batch_size(batch).last_batch(feedwater::plan::LastBatch::Pad)
    };
    let refused = of(1_000_000).build().err().unwrap();
    let Error::Memory { needed, available: Some(available), problem } = refused else {
        panic!("{refused:?}")
    };
    assert!(needed > 3 * 1_000_000 * 3 * 22 * 22 * 4 && available < 1 << 30, "{problem}");
    assert!(problem.contains("ulimit -v") && problem.contains("output slots"), "{problem}");
    let failed = of(1_000_000).configure(|it| it.limits.overcommit = true).build().err().unwrap();
    assert!(matches!(failed, Error::Memory { available: None, .. }), "{failed:?}");
    let mut loader = of(2).build().unwrap();
    assert_eq!(loader.into_iter().filter(|batch| batch.is_ok()).count(), 2);
}

/// Creates a folder with one class of two small images, and a pipeline file that ends with `tail`.
fn workplace(tail: &str) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let class = dir.path().join("data/class");
    fs::create_dir_all(&class).unwrap();
    for seed in 0..2 {
        fs::write(class.join(format!("{seed}.jpg")), jpeg(seed, 40, 30)).unwrap();
    }
    let text = format!(
        "[source]\ndirectory = \"data\"\n[loader]\nbatch_size = 1000000\nlast_batch = \"pad\"\nnum_workers = 1\n\
         [[chain]]\nop = \"resize\"\nwidth = 224\nheight = 224\n{tail}"
    );
    fs::write(dir.path().join("pipeline.toml"), text).unwrap();
    dir
}

fn feedwater(dir: &TempDir, args: &[&str]) -> Output {
    let program = Path::new(env!("CARGO_BIN_EXE_feedwater"));
    limited(2048, program, args).current_dir(dir.path()).output().unwrap()
}

#[test]
fn a_pipeline_that_needs_too_much_memory_names_the_settings_to_change() {
    let dir = workplace("");
    let output = feedwater(&dir, &["run", "pipeline.toml"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    for words in ["ulimit -v", "limits.overcommit", "loader.batch_size", "output slots"] {
        assert!(stderr.contains(words), "{stderr}");
    }
    let output = feedwater(&dir, &["plan", "pipeline.toml", "--json"]);
    assert_eq!(
        output.status.code(),
        Some(0),
        "plan must succeed, because it does not run the pipeline"
    );
    let plan: Value = serde_json::from_slice(&output.stdout).unwrap();
    let needed = plan["host_bytes_to_take"].as_u64().unwrap();
    assert!(needed > plan["available"]["bytes"].as_u64().unwrap(), "{plan}");
    assert_eq!(plan["available"]["limit"], "ulimit -v");
    let dir = workplace("");
    let output = feedwater(&dir, &["run", "pipeline.toml"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("loader.batch_size"), "{stderr}");
}

/// Runs `demo`, which is usually the first command that a user runs, with its contact sheet.
#[test]
fn the_demo_uses_the_predicted_memory() {
    let dir = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_feedwater"))
        .args(["demo", "--images", "96", "--device", "cpu", "--json"])
        .env("FEEDWATER_CACHE", dir.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let stdout = String::from_utf8(output.stdout).unwrap();
    let told: Value = serde_json::from_str(stdout.lines().next_back().unwrap()).unwrap();
    let of = |key: &str| told[key].as_u64().unwrap();
    // Subtract the pages of the program itself. The system manages them, and their number depends
    // on how the program was compiled.
    let own = of("peak_rss_bytes") - of("file_rss_bytes");
    let predicted = of("host_bytes_predicted");
    // The memory of threads that the heap keeps depends on the load of the machine. The contract is
    // the prediction plus 2 %.
    let most = predicted * 102 / 100;
    assert!((predicted * 4 / 5..=most).contains(&own), "{own} of {predicted} bytes");
    assert_eq!(told["host_bytes_exceeded"], false);
    assert!(fs::metadata(dir.path().join("demo.png")).is_ok_and(|sheet| sheet.len() > 0));
}

/// Buffers that grow from sample to sample leave no gaps in the process: it holds no more memory
/// than predicted.
#[test]
fn growing_images_use_the_predicted_memory() {
    let dir = tempfile::tempdir().unwrap();
    let class = dir.path().join("data/a");
    fs::create_dir_all(&class).unwrap();
    for number in 0..16u32 {
        let image = jpeg(number.into(), 300 + 52 * number, 220 + 38 * number);
        fs::write(class.join(format!("{number:02}.jpg")), image).unwrap();
    }
    let pipeline = "device = \"cpu\"\n[source]\ndirectory = \"data\"\n\
        [loader]\nbatch_size = 4\nnum_workers = 2\nprefetch = 1\n\
        [[chain]]\nop = \"elastic\"\n[[chain]]\nop = \"resize\"\nwidth = 64\nheight = 64\n";
    fs::write(dir.path().join("pipeline.toml"), pipeline).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_feedwater"))
        .args(["run", "pipeline.toml", "--json"])
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let stdout = String::from_utf8(output.stdout).unwrap();
    let told: Value = serde_json::from_str(stdout.lines().next_back().unwrap()).unwrap();
    assert_eq!(told["host_bytes_exceeded"], false, "{told}");
}
