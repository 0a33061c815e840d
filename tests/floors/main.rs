//! Checks the floors of ARCHITECTURE.md: a module imports only from lower floors, except for the
//! pairs in `NEIGHBOURS`. Also checks that the files of a module do not import each other in a
//! cycle, that only listed files use `unsafe`, and that no source file is too long.

mod imports;
mod mutations;
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use imports::{Modules, imports, module, reaches};
use text::{is_block, is_explained, is_generated, sources, without_comments, words};

/// Every module of the crate with its floor.
const FLOORS: [(u32, &[&str]); 8] = [
    (
        0,
        &[
            "error",
            "file",
            "footprint",
            "geometry",
            "measure",
            "numpy",
            "random",
            "tensor",
            "threads",
        ],
    ),
    (1, &["annotation", "field", "header", "image", "ring", "storage"]),
    (2, &["decode", "gpu", "op", "output"]),
    (3, &["plan"]),
    (4, &["source", "transform", "tune"]),
    (5, &["loader", "preprocessor"]),
    (6, &["config", "handoff", "testing"]),
    (7, &["internals"]),
];

/// Allowed imports within a floor, as (importer, imported). A comment gives the reason for each.
const NEIGHBOURS: [(&str, &str); 2] = [
    // `output` computes the last operators of a chain with its own look-up tables where possible.
    ("output", "op"),
    // `threads` returns the crate's error if the system does not start a thread.
    ("threads", "error"),
];

/// Modules on lower floors that a module must not import nonetheless, as (importer, forbidden
/// module).
const NEVER: [(&str, &str); 1] = [
    // `feedwater plan` must work on a machine without CUDA.
    ("plan", "gpu"),
];

/// Two limits for each of these modules: of the number of its direct children (files and folders,
/// called rooms), and of the number of their floors. Raise a limit only if the growth is intended.
const WINGS: [(&str, usize, usize); 4] =
    [("loader", 12, 8), ("op", 34, 9), ("plan", 28, 8), ("source", 36, 6)];

/// Source folders of all crates.
const SOURCES: [&str; 16] = [
    "src",
    "crates/cli/src",
    "crates/insight/src",
    "crates/nvjpeg-sys/src",
    "crates/ptx/src",
    "crates/quickstart/src",
    "crates/ring-loom/src",
    "crates/tools/src",
    "frameworks/arrow/src",
    "frameworks/burn/src",
    "frameworks/candle/src",
    "frameworks/common/src",
    "frameworks/ndarray/src",
    "frameworks/ort/src",
    "frameworks/tch/src",
    "python/src",
];

/// Files and folders that may use `unsafe`. Each entry has one purpose.
const UNSAFE: [&str; 17] = [
    "crates/nvjpeg-sys/",
    "crates/ptx/src/c_interface.rs",
    "crates/ptx/src/memory/host.rs",
    "frameworks/tch/src/import.rs",
    "python/src/capsule.rs",
    "python/src/thread_state.rs",
    "src/decode/jpeg/kernels/",
    "src/decode/libjpeg.rs",
    "src/decode/libwebp.rs",
    "src/error/reserve.rs",
    "src/gpu/",
    "src/handoff/dlpack.rs",
    "src/handoff/dlpack/exported.rs",
    "src/op/resample/avx2.rs",
    "src/op/resample/vnni/",
    "src/op/wide/",
    "src/storage/mapped/",
];

/// Returns the root of the repository.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

#[test]
fn a_module_imports_only_from_lower_floors() {
    let mut problems = Vec::new();
    for (path, text) in sources("src") {
        let Some(module) = module(&path) else { continue };
        let Some(floor) = floor(&module) else {
            problems.push(format!("{}: {module} is on no floor", path.display()));
            continue;
        };
        for (line, target) in imports(&path, &without_comments(&text)) {
            let place = format!("{}:{line}: {module}", path.display());
            let pair = (module.as_str(), target.as_str());
            match self::floor(&target) {
                _ if module == target => {}
                None => problems.push(format!("{place} imports {target}, which is on no floor")),
                Some(_) if NEVER.contains(&pair) => {
                    problems.push(format!("{place} must never import {target}"));
                }
                Some(other) if other < floor || NEIGHBOURS.contains(&pair) => {}
                Some(other) => problems
                    .push(format!("{place} (floor {floor}) imports {target} (floor {other})")),
            }
        }
    }
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

/// Checks that each import in `NEIGHBOURS` still exists. Unused entries must be removed from the
/// list.
#[test]
fn every_named_neighbour_is_imported() {
    let imported = |from: &str, to: &str| {
        sources("src").iter().any(|(path, text)| {
            module(path).is_some_and(|module| module == from)
                && imports(path, &without_comments(text)).iter().any(|(_, target)| target == to)
        })
    };
    for (from, to) in NEIGHBOURS {
        assert!(imported(from, to), "{from} does not import {to}: remove it from NEIGHBOURS");
    }
}

/// Checks, in every folder of every crate, that files and folders beside each other do not import
/// each other in a cycle. Rules:
///
/// * A folder counts as one node with all its contents. A file `name.rs` and the folder `name` also
///   count as one node.
/// * An item that the parent file imports or reexports counts as part of the file that defines it.
///   For example, `use super::Feed` is an import of `feed.rs` if `mod.rs` has `pub use feed::Feed`.
/// * Using an item that the parent file defines does not count as an import, because modules
///   may always use the items of their parent.
/// * Imports in test modules do not count.
#[test]
fn sibling_files_import_each_other_without_a_cycle() {
    let mut problems = Vec::new();
    for root in SOURCES {
        let modules = Modules::of(root, sources(root));
        for folder in modules.folders() {
            let imports = modules.imports_between(&folder);
            let place = folder.iter().fold(root.to_string(), |path, name| path + "/" + name);
            let circle: Vec<_> =
                imports.keys().filter(|name| reaches(&imports, name, name)).cloned().collect();
            if !circle.is_empty() {
                problems.push(format!("{place}: a cycle among {}", circle.join(", ")));
            }
        }
    }
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

#[test]
fn a_wing_has_few_rooms_and_floors() {
    let modules = Modules::of("src", sources("src"));
    for (wing, most_rooms, most_floors) in WINGS {
        let floors = floors_of_rooms(&modules.imports_between(&[wing.to_string()]));
        let count = floors.values().max().map_or(0, |top| top + 1);
        assert!(floors.len() <= most_rooms, "src/{wing} has {} rooms", floors.len());
        assert!(count <= most_floors, "src/{wing} has {count} floors: {floors:?}");
    }
}

/// Compares imports inside the loader with the floors that `src/loader/mod.rs` lists.
#[test]
fn a_room_of_the_loader_imports_only_from_lower_floors() {
    let text = fs::read_to_string(root().join("src/loader/mod.rs")).unwrap();
    let mut floors: BTreeMap<String, usize> = BTreeMap::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("//! | ")) {
        let mut cells = line.split(" | ");
        let Some(Ok(floor)) = cells.next().map(str::parse) else { continue };
        let rooms = cells.next().unwrap().split(", ");
        floors.extend(rooms.map(|room| (room.trim_matches('`').to_string(), floor)));
    }
    let imports = Modules::of("src", sources("src")).imports_between(&["loader".to_string()]);
    assert!(floors.keys().eq(imports.keys()), "{floors:?} are not all rooms: {imports:?}");
    for (room, imported) in &imports {
        for other in imported {
            assert!(floors[other] < floors[room], "{room} imports {other}, which is not below it");
        }
    }
}

/// Returns the floor of each room: 0 for a room without imports, otherwise one above the highest
/// room that it imports.
fn floors_of_rooms(imports: &BTreeMap<String, BTreeSet<String>>) -> BTreeMap<String, usize> {
    let mut floors: BTreeMap<String, usize> = imports.keys().map(|it| (it.clone(), 0)).collect();
    // Imports have no cycles, so a path of imports contains each room at most once. After one pass
    // per room, all floors are therefore final.
    for _ in imports {
        for (room, imported) in imports {
            let floor = imported.iter().map(|other| floors[other] + 1).max().unwrap_or(0);
            floors.insert(room.clone(), floor);
        }
    }
    floors
}

#[test]
fn unsafe_is_confined_and_explained() {
    let mut problems = Vec::new();
    for root in SOURCES {
        for (path, text) in sources(root) {
            let allowed = UNSAFE.iter().any(|address| path.starts_with(address));
            let lines: Vec<&str> = text.lines().collect();
            for (number, line) in without_comments(&text).lines().enumerate() {
                if !words(line).any(|word| word == "unsafe" || word == "unsafe_code") {
                    continue;
                }
                let place = format!("{}:{}", path.display(), number + 1);
                if !allowed {
                    problems.push(format!("{place}: unsafe outside of the allowed files"));
                } else if is_block(line) && !is_explained(&lines, number) && !is_generated(&path) {
                    problems.push(format!("{place}: unsafe without a SAFETY comment"));
                }
            }
        }
    }
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

/// Checks that comments in `src` and in the crates name tests by paths that exist. A path may be
/// relative to the repository or to the crate of the file.
#[test]
fn tests_that_comments_name_exist() {
    for folder in SOURCES {
        let home = root().join(folder).parent().unwrap().to_path_buf();
        for (path, text) in sources(folder) {
            let quoted = text.split('`').filter(|it| it.starts_with("tests/"));
            for name in quoted.filter(|it| !it.contains(|c: char| c.is_whitespace())) {
                let exists = root().join(name).exists() || home.join(name).exists();
                assert!(exists, "{} names {name}, which does not exist", path.display());
            }
        }
    }
}

#[test]
fn files_have_at_most_500_lines() {
    for root in SOURCES.into_iter().chain([
        "kernels",
        "benches",
        "examples",
        "tests",
        "crates/cli/tests",
        "crates/insight/tests",
        "crates/ptx/tests",
        "crates/ring-loom/tests",
    ]) {
        for (path, text) in sources(root) {
            let lines = text.lines().count();
            assert!(lines <= 500 || is_generated(&path), "{}: {lines} lines", path.display());
        }
    }
}

/// Checks the names of these packages. A published crate refers to its dependencies by name,
/// without the path. An unrelated `nvjpeg-sys` on crates.io would replace ours, so all names have
/// our prefix.
#[test]
fn every_package_of_the_workspace_has_our_prefix() {
    let root = root();
    let crates = fs::read_dir(root.join("crates")).unwrap().map(|it| it.unwrap().path());
    let mut local = 0;
    for folder in crates.chain([root.to_path_buf(), root.join("tests")]) {
        let file = folder.join("Cargo.toml");
        let manifest: toml::Table = fs::read_to_string(&file).unwrap().parse().unwrap();
        let name = manifest["package"]["name"].as_str().unwrap();
        assert!(is_ours(name), "{}: {name}", file.display());
        for table in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let dependencies = manifest.get(table).and_then(toml::Value::as_table);
            for (key, dependency) in dependencies.into_iter().flatten() {
                if dependency.get("path").is_none() {
                    continue;
                }
                let package = dependency.get("package").and_then(toml::Value::as_str);
                let package = package.unwrap_or(key);
                assert!(is_ours(package), "{}: {table} has {package}", file.display());
                local += 1;
            }
        }
    }
    assert!(local > 5, "{local}");
}

fn is_ours(package: &str) -> bool {
    package == "feedwater" || package.starts_with("feedwater-")
}

/// Checks that the manifests name every program of tests and benches, because Cargo does not search
/// these folders. Also checks that no test program requires features: without them, Cargo would
/// skip the program and print nothing.
#[test]
fn every_program_of_tests_and_benches_is_built() {
    let mut named = BTreeSet::new();
    for folder in ["", "tests"] {
        let manifest = fs::read_to_string(root().join(folder).join("Cargo.toml")).unwrap();
        let manifest: toml::Table = manifest.parse().unwrap();
        for kind in ["test", "bench"] {
            let targets = manifest.get(kind).and_then(toml::Value::as_array);
            for target in targets.into_iter().flatten() {
                let name = target["name"].as_str().unwrap();
                assert!(kind == "bench" || target.get("required-features").is_none(), "{name}");
                named.insert(format!("{kind} {name}"));
            }
        }
    }
    let mut found = BTreeSet::new();
    for (kind, folder) in [("test", "tests"), ("bench", "benches")] {
        for entry in fs::read_dir(root().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let is_program = path.extension().is_some_and(|it| it == "rs")
                && !path.ends_with("lib.rs")
                || path.join("main.rs").is_file();
            if is_program {
                found.insert(format!("{kind} {}", path.file_stem().unwrap().to_str().unwrap()));
            }
        }
    }
    let missing: Vec<_> = found.symmetric_difference(&named).collect();
    assert!(
        missing.is_empty(),
        "{missing:?}: a [[test]] or [[bench]] without file, or a file without it"
    );
}

/// Checks that every file below a folder of test programs belongs to one of them. Rust does not
/// compile a file without `mod` and prints nothing.
#[test]
fn every_file_of_test_programs_is_compiled() {
    let tops = ["tests", "crates/cli/tests", "crates/insight/tests", "crates/ptx/tests"];
    let mut files: Vec<_> = tops.into_iter().flat_map(sources).collect();
    files.retain(|(file, _)| file.extension().is_some_and(|it| it == "rs"));
    let root = root().canonicalize().unwrap();
    // A manifest names these files.
    let mut compiled: BTreeSet<_> =
        ["tests/simulated/decoder.rs", "tests/common/mod.rs"].map(PathBuf::from).into();
    for (file, text) in &files {
        let (folder, name) = (file.parent().unwrap(), file.file_stem().unwrap());
        let is_top = ["main", "mod", "lib"].iter().any(|top| name == *top);
        let below = if is_top { folder.to_path_buf() } else { folder.join(name) };
        for line in text.lines().map(str::trim) {
            if let Some((_, name)) = line.strip_suffix(';').and_then(|it| it.split_once("mod ")) {
                compiled.insert(below.join(name).with_extension("rs"));
                compiled.insert(below.join(name).join("mod.rs"));
            }
            let path = line.strip_prefix("#[path = \"").and_then(|it| it.strip_suffix("\"]"));
            let path = path.map(|path| root.join(folder).join(path).canonicalize().unwrap());
            compiled.extend(path.map(|path| path.strip_prefix(&root).unwrap().to_path_buf()));
        }
    }
    let is_program = |file: &Path| {
        file.ends_with("main.rs") || tops.iter().any(|top| file.parent() == Some(top.as_ref()))
    };
    for (file, _) in &files {
        let known = is_program(file) || compiled.contains(file);
        assert!(known, "{}: declare the file with `mod`, or remove it", file.display());
    }
}

/// Checks that `#[test]` is not used in `tests/memory`, which lists its tests in `main.rs`. Rust
/// ignores the attribute there and prints nothing.
#[test]
fn tests_of_memory_are_listed() {
    for (file, text) in sources("tests/memory") {
        let is_marked = text.lines().any(|line| line.trim() == "#[test]");
        assert!(!is_marked, "{}: list the test in tests/memory/main.rs", file.display());
    }
}

/// Checks that feedwater does not compile with `panic = "abort"`, because its error handler for
/// libjpeg unwinds the stack.
#[test]
fn a_build_that_cannot_unwind_does_not_compile() {
    let out = tempfile::tempdir().unwrap();
    let told = |panic: &str| {
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        // Compiles only this file, not the crate. Unresolved imports cause errors in both builds,
        // so the test searches for the message of the crate's `compile_error!`.
        let output = Command::new(rustc)
            .args(["--edition", "2024", "--crate-type", "lib", "--emit", "metadata", "-C", panic])
            .arg("--out-dir")
            .arg(out.path())
            .arg(root().join("src/decode/libjpeg.rs"))
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stderr).contains("compile_error!")
    };
    assert!(told("panic=abort") && !told("panic=unwind"));
}

/// Tests how this program recognizes imports and `unsafe`, with lines that must be found and lines
/// that must not.
#[test]
fn imports_and_unsafe_are_recognized() {
    let text = "use crate::{loader::{Loader, Batch}, op,\n    gpu::Device};\n\
                // use crate::handoff;\nlet a = \"use crate::config\"; let b = crate::plan::Plan::new();\n\
                mod tests {\n    use super::super::ring;\n}\nuse super::image;\nuse crate::Result;";
    let found = imports(Path::new("src/decode/mod.rs"), &without_comments(text));
    let found: Vec<(usize, &str)> = found.iter().map(|(line, it)| (*line, it.as_str())).collect();
    let expected = [
        (1, "loader"),
        (1, "op"),
        (1, "gpu"),
        (4, "plan"),
        (6, "ring"),
        (8, "image"),
        (9, "error"),
    ];
    assert_eq!(found, expected);
    let found =
        imports(Path::new("src/decode/png.rs"), "use super::image;\nuse super::super::ring;");
    assert_eq!(found, [(2, "ring".to_string())]);
    assert!(is_block("let a = unsafe {") && is_block("unsafe impl Send for A {}"));
    assert!(!is_block("pub unsafe fn open() {"));
    assert!(is_explained(&["// SAFETY: it is.", "// Really.", "unsafe {}"], 2));
    assert!(!is_explained(&["// SAFETY: it is.", "let a = 1;", "", "unsafe {}"], 3));
    assert_eq!(words("#![allow(unsafe_code)]").collect::<Vec<_>>(), ["allow", "unsafe_code"]);
    assert_eq!(without_comments("a('\"') /* b\n */ c // d\nr#\"e\"#"), "a( ) \n c \nr#\"\"#");
}

/// Tests the check for cycles with files that import each other in every way that the check
/// supports.
#[test]
fn imports_between_files_are_recognized() {
    let files = [
        (
            "mod.rs",
            "mod a;\nmod b;\nmod c;\nmod d;\npub use b::{B, sub::Deep};\nuse c::C as Sea;\nstruct Own;",
        ),
        ("a.rs", "use super::{B, Own};\nfn f() { crate::m::c::g(super::d::D) }"),
        (
            "b/mod.rs",
            "use std::fmt;\nuse super::Sea;\n#[cfg(test)]\nmod tests {\n    use super::super::a::A;\n}",
        ),
        ("b/sub.rs", "use super::super::d;\npub(in crate::m) struct Deep;"),
        ("c.rs", "use super::Own;\nmod inner {\n    use super::super::d::D;\n}"),
        ("d.rs", "// use super::a;\nuse crate::m::Deep;"),
        ("tests.rs", "use super::a;"),
    ];
    let file = |(path, text): &(&str, &str)| (Path::new("src/m").join(path), text.to_string());
    let modules = Modules::of("src", files.iter().map(file).collect());
    let imports = modules.imports_between(&["m".to_string()]);
    let of = |name: &str| imports[name].iter().map(String::as_str).collect::<Vec<_>>().join(" ");
    assert_eq!(["a", "b", "c", "d"].map(of), ["b c d", "c d", "d", "b"]);
    let reach = |from: &str| reaches(&imports, from, from);
    assert_eq!(["a", "b", "c", "d"].map(reach), [false, true, true, true]);
}

fn floor(module: &str) -> Option<u32> {
    FLOORS.iter().find(|(_, modules)| modules.contains(&module)).map(|(floor, _)| *floor)
}
