//! NVTX ranges, against a library that counts them.

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use feedwater::gpu::library::{self, Name};
use feedwater::loader::{DeviceChoice, Loader};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

/// Counts ranges of each name by its first letter, and what is wrong: a range within a range, an end without a begin.
const COUNTING: &str = r#"
#include <atomic>
static std::atomic<int> pushed[128], wrong;
static thread_local int depth;
extern "C" int nvtxRangePushA(const char *name) {
    if (depth++ != 0) wrong++;
    pushed[name[0] & 127]++;
    return 0;
}
extern "C" int nvtxRangePop() {
    if (--depth != 0) wrong++;
    return 0;
}
extern "C" int count(int letter) { return letter ? pushed[letter].load() : wrong.load(); }
"#;

fn build(dir: &Path) -> std::path::PathBuf {
    let (source, library) = (dir.join("nvtx.cpp"), dir.join("libnvtx.so"));
    fs::write(&source, COUNTING).unwrap();
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".into());
    let mut command = Command::new(compiler);
    command.args(["-std=c++17", "-shared", "-fPIC", "-o"]).arg(&library).arg(&source);
    assert!(command.status().unwrap().success());
    library
}

#[allow(unsafe_code)]
fn count(library: &Library, letter: u8) -> i32 {
    // SAFETY: `count` is the function of `COUNTING`.
    let count = unsafe { library.get::<extern "C" fn(i32) -> i32>(b"count") }.unwrap();
    count(letter.into())
}

fn run(nvtx: bool) -> Loader {
    let loader = Loader::builder(common::memory(20), common::training())
        .device(DeviceChoice::Cpu)
        .batch(4)
        .workers(2)
        .epochs(Some(1))
        .nvtx(nvtx)
        .build()
        .unwrap();
    for batch in &loader {
        batch.unwrap();
    }
    loader
}

/// One test, since a process opens the library once.
#[test]
#[allow(unsafe_code)]
fn stages_are_ranges_where_the_library_is_there_and_a_warning_where_it_is_not() {
    library::override_path(Name::Nvtx, "/nowhere/libnvToolsExt.so.1");
    assert!(run(false).warnings().is_empty());
    let warnings = run(true).warnings();
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].contains("NVTX") && warnings[0].contains("/nowhere/"), "{warnings:?}");

    let dir = tempfile::tempdir().unwrap();
    let path = build(dir.path());
    library::override_path(Name::Nvtx, &path);
    let loader = run(true);
    assert!(loader.warnings().is_empty());
    drop(loader);
    // SAFETY: the library has no initialisers but its own counters'.
    let library = unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL) }.unwrap();
    // Reading, the header's two parts (parsing, planning), decoding with transforming, handing over.
    assert_eq!([b'r', b'd'].map(|letter| count(&library, letter)), [20, 20]);
    assert_eq!(count(&library, b'h'), 60);
    assert_eq!(count(&library, 0), 0);

    run(false);
    assert_eq!(count(&library, b'r'), 20);
}
