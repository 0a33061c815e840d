//! NVTX ranges. The tests use a library that records calls, as the library of a profiler does (NVTX
//! 3). Its numbers and layouts follow nvtxTypes.h. A process opens only one such library, so each
//! test runs in its own process.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, thread};

use crate::common;
use crate::in_own_process;
use feedwater::internals::gpu::nvtx::Nvtx;
use feedwater::internals::measure::Marker;
use feedwater::loader::{DeviceChoice, Loader};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use tempfile::TempDir;

/// A library that has none of the functions of a profiler's library.
const OTHER: &str = "extern \"C\" int nothing() { return 0; }";

/// A library like that of a profiler. It records ranges. It also records an error if a range begins
/// or ends at the wrong time. The environment variable PROFILER selects its behaviour: `refuses`,
/// `takes nothing` or `knows no domains`. By default it accepts everything.
const PROFILER: &str = r#"
#include <cstdint>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <cstring>

typedef void (*Function)();
typedef const void *(*ExportTable)(uint32_t);
struct Callbacks { size_t size; int (*functions)(int module, Function ***table, unsigned *count); };
struct Version { size_t size; uint32_t version, reserved; void (*set)(uint32_t); };
struct Attributes {
    uint16_t version, size; uint32_t category; int32_t color_type; uint32_t color; int32_t payload_type, reserved;
    union { uint64_t number; double real; } payload;
    int32_t message_type; union { const char *ascii; const wchar_t *wide; void *registered; } message;
};

static std::mutex mutex;
static std::string protocol_text, domain_name;
static std::map<int, std::string> told; // By thread, in order of their first call.
static int threads;
static thread_local int number;
static Function *places[8];

static void tell(const std::string &what) {
    std::lock_guard<std::mutex> guard(mutex);
    if (number == 0) number = ++threads;
    told[number] += what + " ";
}
static int push_plain(const char *name) { tell(std::string("+") + name); return 0; }
static int pop_plain() { tell("-"); return 0; }
static void *create(const char *name) { domain_name = name; return &domain_name; }
static int push(void *domain, const Attributes *it) {
    bool known = domain == &domain_name && it->version == 3 && it->size == sizeof(Attributes) && it->message_type == 1;
    bool plain = !it->category && !it->color_type && !it->color && !it->payload_type && !it->reserved && !it->payload.number;
    tell((known && plain ? domain_name + "+" : std::string("wrong+")) + it->message.ascii);
    return 0;
}
static int pop(void *domain) { tell(domain == &domain_name ? domain_name + "-" : "wrong-"); return 0; }

extern "C" int InitializeInjectionNvtx2(ExportTable table) {
    const char *how = getenv("PROFILER");
    protocol_text += "start ";
    if (how && !strcmp(how, "refuses")) return 0;
    auto *callbacks = (const Callbacks *)table(1);
    auto *version = (const Version *)table(3);
    for (uint32_t id : {0u, 2u, 4u, 0xffffffffu}) if (table(id)) protocol_text += "unknown table ";
    if (callbacks->size != sizeof(Callbacks) || version->size != sizeof(Version)) protocol_text += "sizes ";
    version->set(3);
    protocol_text += "version " + std::to_string(version->version) + " ";
    for (int module : {0, 7, 99, -1}) if (callbacks->functions(module, nullptr, nullptr)) protocol_text += "unknown module ";
    for (int module = 1; module < 7; module++) {
        Function **all = nullptr;
        unsigned count = 0;
        if (!callbacks->functions(module, nullptr, nullptr)) protocol_text += "no module ";
        if (!callbacks->functions(module, &all, &count)) protocol_text += "no module ";
        protocol_text += std::to_string(count) + " ";
        for (unsigned id = 1; id < count; id++) {
            if (!all[id]) { protocol_text += "no place "; continue; }
            *all[id] = (Function)abort; // What is not asked for must not be called.
        }
        if (all[0] || all[count]) protocol_text += "too many places ";
        bool nothing = how && !strcmp(how, "takes nothing"), core = how && !strcmp(how, "knows no domains");
        if (nothing || (core && module == 5)) for (unsigned id = 1; id < count; id++) *all[id] = nullptr;
        if (nothing) continue;
        if (module == 1) { *all[9] = (Function)push_plain; *all[11] = (Function)pop_plain; }
        if (module == 1) { places[0] = all[9]; places[1] = all[11]; }
        if (module != 5 || core) continue;
        *all[4] = (Function)push; *all[5] = (Function)pop; *all[12] = (Function)create;
        places[2] = all[4]; places[3] = all[5];
    }
    return 1;
}
extern "C" void leave() { for (Function *place : places) if (place) *place = nullptr; }
extern "C" const char *protocol() { return protocol_text.c_str(); }
extern "C" const char *ranges(int thread) { return told[thread].c_str(); }
"#;

fn build(dir: &Path, text: &str) -> PathBuf {
    let (source, library) = (dir.join("nvtx.cpp"), dir.join("libnvtx.so"));
    fs::write(&source, text).unwrap();
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".into());
    let mut command = Command::new(compiler);
    command.args(["-std=c++17", "-shared", "-fPIC", "-o"]).arg(&library).arg(&source);
    assert!(command.status().unwrap().success());
    library
}

#[allow(unsafe_code)]
fn open(path: &Path) -> Library {
    // SAFETY: initializing the library only sets its counters.
    unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.unwrap()
}

/// Returns what the profiler's library recorded on thread number `thread`. For 0, returns the
/// record of the library's initialization.
#[allow(unsafe_code)]
fn told(library: &Library, thread: i32) -> String {
    type Ranges = extern "C" fn(i32) -> *const std::ffi::c_char;
    let name: &[u8] = if thread == 0 { b"protocol" } else { b"ranges" };
    // SAFETY: `protocol` and `ranges` are functions of `PROFILER` with this signature. `protocol`
    // ignores the argument.
    let text = unsafe { library.get::<Ranges>(name) }.unwrap()(thread);
    // SAFETY: both functions return strings with a NUL byte. No other thread changes the strings
    // now.
    unsafe { CStr::from_ptr(text) }.to_str().unwrap().trim().to_string()
}

fn run(nvtx: bool) -> Loader {
    let mut loader = Loader::builder(common::memory(20), common::training())
        .device(DeviceChoice::Cpu)
        .batch_size(4)
        .num_workers(2)
        .epochs(Some(1))
        .nvtx(nvtx)
        .build()
        .unwrap();
    for batch in &mut loader {
        batch.unwrap();
    }
    loader
}

/// Runs the named test in a new process under a profiler with this library and behaviour. Returns
/// the output of the process.
fn under(name: &str, path: &Path, how: &str) -> String {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]);
    command.env("NVTX_CHILD", name).env("NVTX_INJECTION64_PATH", path).env("PROFILER", how);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let problem = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("the child is done"), "{text}{problem}");
    text
}

/// Returns the path of the profiler's library if [`under`] started this process, otherwise `None`.
fn child(name: &str) -> Option<PathBuf> {
    env::var("NVTX_CHILD").is_ok_and(|it| it == name).then(|| {
        let path = env::var_os("NVTX_INJECTION64_PATH").unwrap();
        path.into()
    })
}

fn profiler() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = build(dir.path(), PROFILER);
    (dir, path)
}

#[test]
fn without_a_profiler_ranges_are_a_warning() {
    if !in_own_process("nvtx::without_a_profiler_ranges_are_a_warning", "") {
        return;
    }
    assert!(run(false).warnings().is_empty());
    let warnings = run(true).warnings();
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].contains("NVTX_INJECTION64_PATH"), "{warnings:?}");
}

/// On several threads, ranges are recorded with their nesting. After the profiler removes its
/// functions, nothing more is recorded.
#[test]
#[allow(unsafe_code)]
fn a_profiler_gets_ranges_nested_and_paired_on_every_thread() {
    let name = "nvtx::a_profiler_gets_ranges_nested_and_paired_on_every_thread";
    let Some(path) = child(name) else {
        let (_dir, path) = profiler();
        under(name, &path, "");
        under(name, &path, "knows no domains");
        return;
    };
    let plain = env::var("PROFILER").unwrap() == "knows no domains";
    let (nvtx, again) = (Nvtx::open().unwrap(), Nvtx::open().unwrap());
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..100 {
                    nvtx.begin(c"outer");
                    again.begin(c"inner");
                    nvtx.end();
                    nvtx.begin(c"second");
                    nvtx.end();
                    again.end();
                }
            });
        }
    });
    let library = open(&path);
    // The profiler is initialized only once. The text lists the numbers of the functions that it
    // requested.
    assert_eq!(told(&library, 0), "start version 3 16 9 15 7 16 7");
    let domain = if plain { "" } else { "feedwater" };
    let once =
        ["+outer", "+inner", "-", "+second", "-", "-"].map(|it| format!("{domain}{it}")).join(" ");
    for thread in 1..=4 {
        assert_eq!(told(&library, thread), vec![once.as_str(); 100].join(" "));
    }
    // SAFETY: `leave` is a function of `PROFILER` without arguments.
    unsafe { library.get::<extern "C" fn()>(b"leave") }.unwrap()();
    nvtx.begin(c"late");
    nvtx.end();
    assert_eq!(told(&library, 5), "");
    println!("the child is done");
}

#[test]
fn a_profiler_gets_the_stages_of_a_loader() {
    let name = "nvtx::a_profiler_gets_the_stages_of_a_loader";
    let Some(path) = child(name) else {
        let (_dir, path) = profiler();
        under(name, &path, "");
        return;
    };
    let loader = run(true);
    assert!(loader.warnings().is_empty(), "{:?}", loader.warnings());
    drop(loader);
    run(false);
    let library = open(&path);
    let all: Vec<String> = (1..=8).map(|thread| told(&library, thread)).collect();
    let count =
        |it: &str| all.iter().flat_map(|it| it.split(' ')).filter(|word| *word == it).count();
    let begins = all.iter().flat_map(|it| it.split(' ')).filter(|it| it.starts_with("feedwater+"));
    assert_eq!(["feedwater+read", "feedwater+decode"].map(count), [20, 20], "{all:?}");
    assert_eq!(begins.count(), count("feedwater-"));
    for thread in &all {
        let inside = thread.split(' ').filter(|it| !it.is_empty());
        let pairs: Vec<bool> = inside.map(|it| it.starts_with("feedwater+")).collect();
        assert!(pairs.iter().step_by(2).all(|begin| *begin), "{thread}");
        assert!(pairs.iter().skip(1).step_by(2).all(|begin| !begin), "{thread}");
    }
    println!("the child is done");
}

/// Name of the function that starts the library of a profiler.
const ENTRY: &str = "InitializeInjectionNvtx2";

/// With a broken profiler, only the ranges are missing. A warning gives the reason and advice. The
/// loader works as before.
#[test]
fn a_broken_profiler_is_a_warning() {
    let name = "nvtx::a_broken_profiler_is_a_warning";
    let Some(_) = child(name) else {
        let (dir, path) = profiler();
        let warning = |path: &Path, how: &str| {
            let text = under(name, path, how);
            let line = text.lines().find(|it| it.starts_with("warning: ")).unwrap().to_string();
            let path = path.to_str().unwrap();
            for value in ["NVTX_INJECTION64_PATH", path] {
                assert!(line.contains(value), "{value}: {line}");
            }
            line.replace(path, "")
        };
        let missing = warning(Path::new("/nowhere/libprofiler.so"), "");
        assert!(missing.contains("No such file"), "{missing}");
        fs::write(dir.path().join("text.so"), "no library").unwrap();
        let text = warning(&dir.path().join("text.so"), "");
        assert!(text.contains("file too short") || text.contains("invalid ELF"), "{text}");
        // The path `./.` turns NVTX off, so nothing is opened.
        let off = warning(Path::new("./."), "");
        assert!(!off.contains("Is a directory"), "{off}");
        let refused = warning(&path, "refuses");
        assert!(refused.contains(ENTRY), "{refused}");
        let nothing = warning(&path, "takes nothing");
        assert!(!nothing.contains(ENTRY), "{nothing}");
        let other = build(dir.path(), OTHER);
        let entry = warning(&other, "");
        assert!(entry.contains(ENTRY), "{entry}");
        let reasons = BTreeSet::from([missing, text, off, refused, nothing, entry]);
        assert_eq!(reasons.len(), 6, "{reasons:#?}");
        return;
    };
    for _ in 0..2 {
        let loader = run(true);
        let warnings = loader.warnings();
        assert_eq!(warnings.len(), 1);
        println!("\nwarning: {}", warnings[0]);
        assert_eq!(loader.stats().images, 20);
    }
    println!("the child is done");
}
