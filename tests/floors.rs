//! Floors of ARCHITECTURE.md: a module imports only from lower floors, and from the neighbours listed here. Within a module,
//! files do not import each other in a cycle. `unsafe` is confined to listed files. Files stay short.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Every module of the crate with its floor.
const FLOORS: [(u32, &[&str]); 7] = [
    (0, &["error", "file", "footprint", "geometry", "measure", "random", "tensor"]),
    (1, &["annotation", "header", "image", "ring", "storage"]),
    (2, &["decode", "gpu", "op", "output"]),
    (3, &["plan"]),
    (4, &["source", "transform", "tune"]),
    (5, &["loader", "preprocessor"]),
    (6, &["config", "handoff", "testing"]),
];

/// Allowed imports within a floor: from, to, with the reason.
const NEIGHBOURS: [(&str, &str); 1] = [
    // The end of a chain stores the operators' output, and folds as much of them as possible into its tables.
    ("output", "op"),
];

/// Lower floors that a module must not import.
const NEVER: [(&str, &str); 1] = [
    // `feedwater plan` works on a machine without CUDA.
    ("plan", "gpu"),
];

/// Allowed imports that close a cycle within a folder: folder, from, to.
const CIRCLES: [(&str, &str, &str); 2] = [
    // The pool checks with the file's stamp whether a file changed while it was closed; the pool's files are opened through it.
    ("src/storage", "pool", "local"),
    // The retry policy is a part of the client in a separate file.
    ("src/storage/remote", "retry", "client"),
];

/// The sources of every crate.
const SOURCES: [&str; 6] = [
    "src",
    "crates/cli/src",
    "crates/insight/src",
    "crates/nvjpeg-sys/src",
    "crates/quickstart/src",
    "crates/tools/src",
];

/// Files and folders that may use `unsafe`: one for each thing that Rust cannot check.
const UNSAFE: [&str; 9] = [
    "crates/nvjpeg-sys/",
    "src/decode/libjpeg.rs",
    "src/decode/libwebp.rs",
    "src/gpu/",
    "src/handoff/dlpack.rs",
    "src/loader/large.rs",
    "src/op/resample/avx2.rs",
    "src/op/resample/vnni/",
    "src/storage/mapped/",
];

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

/// A neighbour that is no longer needed must be removed from the list.
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

/// Files and folders beside each other import each other without a cycle, in every folder of every crate:
///
/// * A folder counts as one node with all its contents, and so does a file with the folder of its name.
/// * An item that the parent file imports or reexports counts as the file that defines it: `use super::Feed` is an import of
///   `feed.rs` if `mod.rs` has `pub use feed::Feed`.
/// * An item defined in the parent file belongs to all files below it, as in Rust's privacy rules: using it does not count.
/// * Tests may import anything.
#[test]
fn sibling_files_import_each_other_without_a_cycle() {
    let mut problems = Vec::new();
    let mut needed = BTreeSet::new();
    for root in SOURCES {
        let modules = Modules::of(root, sources(root));
        for folder in modules.folders() {
            let mut imports = modules.imports_between(&folder);
            let place = folder.iter().fold(root.to_string(), |path, name| path + "/" + name);
            for (exempt, from, to) in CIRCLES.iter().filter(|it| it.0 == place) {
                let removed = imports.get_mut(*from).is_some_and(|it| it.remove(*to));
                if removed && reaches(&imports, to, from) {
                    needed.insert((*exempt, *from, *to));
                }
            }
            let circle: Vec<_> =
                imports.keys().filter(|name| reaches(&imports, name, name)).cloned().collect();
            if !circle.is_empty() {
                problems.push(format!("{place}: a cycle among {}", circle.join(", ")));
            }
        }
    }
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
    for circle in CIRCLES {
        assert!(needed.contains(&circle), "{circle:?} is not a cycle: remove it from CIRCLES");
    }
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

#[test]
fn files_have_at_most_500_lines() {
    for root in SOURCES.into_iter().chain(["kernels", "benches", "examples"]) {
        for (path, text) in sources(root) {
            let lines = text.lines().count();
            assert!(lines <= 500 || is_generated(&path), "{}: {lines} lines", path.display());
        }
    }
}

/// Path dependencies are published by name only. `nvjpeg-sys` on crates.io, for one, is another crate.
#[test]
fn every_package_of_the_workspace_has_our_prefix() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let crates = fs::read_dir(root.join("crates")).unwrap().map(|it| it.unwrap().path());
    let mut local = 0;
    for folder in crates.chain([root.to_path_buf()]) {
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

/// libjpeg's errors unwind, so a build with `panic = "abort"` must not compile.
#[test]
fn a_build_that_cannot_unwind_does_not_compile() {
    let out = tempfile::tempdir().unwrap();
    let told = |panic: &str| {
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        // Compile the file alone. Its imports cannot be resolved: only the message about unwinding counts.
        let output = Command::new(rustc)
            .args(["--edition", "2024", "--crate-type", "lib", "--emit", "metadata", "-C", panic])
            .arg("--out-dir")
            .arg(out.path())
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/decode/libjpeg.rs"))
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stderr).contains("feedwater cannot be built with panic")
    };
    assert!(told("panic=abort") && !told("panic=unwind"));
}

/// The checks of this file, on lines that must and must not match.
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

/// The cycle check, on files that import each other in every way.
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

/// Modules of a crate by path, without their tests.
struct Modules(BTreeMap<Vec<String>, Names>);

/// Names of its own crate in a module's file.
#[derive(Default)]
struct Names {
    /// Origin of each name in scope.
    known: BTreeMap<String, Vec<String>>,
    /// Paths that it uses, except exports.
    used: Vec<Vec<String>>,
}

impl Modules {
    /// Collects the modules of the files below `root`.
    fn of(root: &str, files: Vec<(PathBuf, String)>) -> Self {
        let module = |path: &Path| {
            let path = path.strip_prefix(root).unwrap().with_extension("");
            let mut names: Vec<String> =
                path.iter().map(|name| name.to_str().unwrap().to_string()).collect();
            names.pop_if(|name| ["mod", "lib", "main"].contains(&name.as_str()));
            names
        };
        let files = files.into_iter().filter(|(path, _)| path.extension().unwrap() == "rs");
        let files =
            files.map(|(path, text)| (module(&path), without_tests(&without_comments(&text))));
        let files = files.filter(|(module, _)| !module.contains(&"tests".to_string()));
        let files: BTreeMap<Vec<String>, String> = files.collect();
        let names = |(module, text): (&Vec<String>, &String)| {
            let is_module = |path: &[String]| files.contains_key(path);
            (module.clone(), Names::of(module, text, is_module))
        };
        Self(files.iter().map(names).collect())
    }

    /// Returns the modules that contain others.
    fn folders(&self) -> BTreeSet<Vec<String>> {
        self.0.keys().filter_map(|it| it.split_last()).map(|(_, above)| above.to_vec()).collect()
    }

    /// Returns for each direct child of `folder` its imported siblings, including imports of their contents.
    fn imports_between(&self, folder: &[String]) -> BTreeMap<String, BTreeSet<String>> {
        let mut imports: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (module, names) in &self.0 {
            let Some([from, ..]) = module.strip_prefix(folder) else { continue };
            let to = names.used.iter().map(|path| self.resolve(path, 0));
            let to = to.filter_map(|to| to.strip_prefix(folder)?.first().cloned());
            imports.entry(from.clone()).or_default().extend(to.filter(|to| to != from));
        }
        imports
    }

    /// Returns the module that defines the item of a path.
    fn resolve(&self, path: &[String], depth: usize) -> Vec<String> {
        let mut len = path.len();
        while len > 0 && !self.0.contains_key(&path[..len]) {
            len -= 1;
        }
        let known = path.get(len).and_then(|name| self.0.get(&path[..len])?.known.get(name));
        match known {
            Some(from) if depth < 8 => {
                self.resolve(&[&from[..], &path[len + 1..]].concat(), depth + 1)
            }
            _ => path[..len].to_vec(),
        }
    }
}

impl Names {
    fn of(module: &[String], text: &str, is_module: impl Fn(&[String]) -> bool) -> Self {
        let tokens = tokens(text);
        let token = |at: usize| tokens.get(at).copied().unwrap_or("");
        let mut names = Self::default();
        // Inline modules, each with the brace depth before it.
        let (mut inline, mut open): (Vec<(String, usize)>, usize) = (Vec::new(), 0);
        let mut at = 0;
        while at < tokens.len() {
            let here: Vec<String> =
                module.iter().cloned().chain(inline.iter().map(|it| it.0.clone())).collect();
            match tokens[at] {
                "{" => open += 1,
                "}" => {
                    open -= 1;
                    inline.pop_if(|(_, before)| *before == open);
                }
                "mod" if token(at + 2) == "{" => inline.push((token(at + 1).to_string(), open)),
                "use" if token(at + 1) != "<" => {
                    let exported =
                        token(at.wrapping_sub(1)) == "pub" || token(at.wrapping_sub(1)) == ")";
                    let end = at + tokens[at..].iter().position(|it| *it == ";").unwrap();
                    let mut found = Vec::new();
                    leaves(&tokens[at + 1..end], &mut Vec::new(), &mut found);
                    for (path, name) in found {
                        let path = in_crate(&here, &path, &names.known, &is_module);
                        let Some(path) = path else { continue };
                        if !exported {
                            names.used.push(path.clone());
                        }
                        names.known.insert(name, path);
                    }
                    at = end;
                }
                _ if token(at + 1) == "::" && token(at.wrapping_sub(1)) != "::" => {
                    let restricts =
                        token(at.wrapping_sub(1)) == "in" && token(at.wrapping_sub(2)) == "(";
                    let path = tokens[at..].chunks(2).take_while(|it| it[0].starts_with(is_word));
                    let mut words: Vec<String> = Vec::new();
                    for pair in path {
                        words.push(pair[0].to_string());
                        if pair.get(1) != Some(&"::") {
                            break;
                        }
                    }
                    let path = in_crate(&here, &words, &names.known, &is_module);
                    if let Some(path) = path.filter(|_| !restricts) {
                        // A macro may reexport its argument.
                        if path.len() == module.len() + 2 && is_module(&path[..path.len() - 1]) {
                            names
                                .known
                                .entry(words[words.len() - 1].clone())
                                .or_insert(path.clone());
                        }
                        names.used.push(path);
                    }
                }
                _ => {}
            }
            at += 1;
        }
        names
    }
}

/// Resolves a path from the crate's root, if it leads into the crate.
fn in_crate(
    here: &[String],
    path: &[String],
    known: &BTreeMap<String, Vec<String>>,
    is_module: impl Fn(&[String]) -> bool,
) -> Option<Vec<String>> {
    let (first, rest) = path.split_first()?;
    let supers = path.iter().take_while(|it| *it == "super").count();
    let beside = [here, &path[..1]].concat();
    match first.as_str() {
        "crate" => Some(rest.to_vec()),
        "self" => Some([here, rest].concat()),
        "super" => Some([here.get(..here.len().checked_sub(supers)?)?, &path[supers..]].concat()),
        _ if is_module(&beside) => Some([here, path].concat()),
        first => known.get(first).map(|from| [&from[..], rest].concat()),
    }
}

/// Returns the paths of a `use` item, each with the name that it introduces.
fn leaves(tokens: &[&str], above: &mut Vec<String>, found: &mut Vec<(Vec<String>, String)>) {
    let own = tokens.iter().take_while(|it| it.starts_with(is_word) || **it == "::");
    let own: Vec<&str> = own.filter(|it| **it != "::").copied().collect();
    let (path, name) = match own[..] {
        [ref path @ .., "as", name] => (path, Some(name)),
        ref path => (path, None),
    };
    let before = above.len();
    above.extend(path.iter().map(|name| name.to_string()));
    match tokens.iter().position(|it| *it == "{") {
        Some(begin) => {
            let (mut open, mut from) = (0, begin + 1);
            for (at, token) in tokens.iter().enumerate().skip(begin + 1) {
                match *token {
                    "{" => open += 1,
                    "}" if open > 0 => open -= 1,
                    "," | "}" if open == 0 => {
                        if at > from {
                            leaves(&tokens[from..at], above, found);
                        }
                        from = at + 1;
                    }
                    _ => {}
                }
            }
        }
        None => {
            above.pop_if(|last| last == "self");
            let name = name.or(above.last().map(String::as_str)).unwrap_or_default();
            found.push((above.clone(), name.to_string()));
        }
    }
    above.truncate(before);
}

/// Splits text into words, `::`, quoted characters, and all other non-whitespace characters.
fn tokens(text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let len = match first {
            _ if is_word(first) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            ':' if rest.starts_with("::") => 2,
            // A character, not a lifetime.
            '\'' if rest[1..].chars().nth(1) == Some('\'') => {
                2 + rest[1..].chars().next().map_or(0, char::len_utf8)
            }
            _ => first.len_utf8(),
        };
        tokens.push(&rest[..len]);
        rest = rest[len..].trim_start();
    }
    tokens
}

/// Removes modules that only tests use; comments must already be removed.
fn without_tests(text: &str) -> String {
    let mut lines = text.lines().peekable();
    let mut out = String::new();
    while let Some(line) = lines.next() {
        let tests = line.starts_with("#[cfg(") && words(line).any(|word| word == "test");
        let module = lines.peek().is_some_and(|next| words(next).any(|word| word == "mod"));
        if tests && !line.contains("not(") && module {
            if lines.next().is_some_and(|it| it.ends_with('{')) {
                lines.find(|it| it.starts_with('}'));
            }
            continue;
        }
        out += line;
        out.push('\n');
    }
    out
}

/// Whether one module imports another, directly or indirectly.
fn reaches(imports: &BTreeMap<String, BTreeSet<String>>, from: &str, to: &str) -> bool {
    let mut seen = BTreeSet::new();
    let mut next: Vec<&String> = imports.get(from).into_iter().flatten().collect();
    while let Some(module) = next.pop() {
        if module == to {
            return true;
        }
        if seen.insert(module) {
            next.extend(imports.get(module).into_iter().flatten());
        }
    }
    false
}

/// Returns the Rust and CUDA files below a folder, as paths from the repository's root, with their texts.
fn sources(folder: &str) -> Vec<(PathBuf, String)> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut folders, mut files) = (vec![top.join(folder)], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "rs" || it == "cu") {
                let text = fs::read_to_string(&path).unwrap();
                files.push((path.strip_prefix(top).unwrap().to_path_buf(), text));
            }
        }
    }
    assert!(!files.is_empty(), "{folder} has no sources");
    files.sort();
    files
}

/// Returns the top-level module of a file; `None` for the crate's root.
fn module(path: &Path) -> Option<String> {
    let first = path.iter().nth(1)?.to_str()?;
    let module = first.strip_suffix(".rs").unwrap_or(first);
    (module != "lib").then(|| module.to_string())
}

fn floor(module: &str) -> Option<u32> {
    FLOORS.iter().find(|(_, modules)| modules.contains(&module)).map(|(floor, _)| *floor)
}

/// Returns line and top-level module of every path that starts with `crate::` or enough `super::`.
fn imports(path: &Path, text: &str) -> Vec<(usize, String)> {
    let depth = path.iter().count() - 1 - usize::from(path.ends_with("mod.rs"));
    let mut found = Vec::new();
    let mut inline = 0;
    let mut start = 0;
    for (number, line) in text.split_inclusive('\n').enumerate() {
        if line.trim_start_matches("pub ").starts_with("mod ") && line.trim_end().ends_with('{') {
            inline = 1;
        } else if line.starts_with('}') {
            inline = 0;
        }
        let mut at = 0;
        while let Some(place) = line[at..].find("crate::") {
            at += place + "crate::".len();
            let whole_word = !line[..at - "crate::".len()].ends_with(is_word);
            if whole_word {
                found.extend(targets(&text[start + at..]).into_iter().map(|it| (number + 1, it)));
            }
        }
        let mut at = 0;
        while let Some(place) = line[at..].find("super::") {
            at += place;
            let supers = line[at..].split("super::").take_while(|it| it.is_empty()).count();
            at += supers * "super::".len();
            if supers >= depth + inline {
                found.extend(targets(&text[start + at..]).into_iter().map(|it| (number + 1, it)));
            }
        }
        start += line.len();
    }
    found
}

/// Returns the first names of a path or of a group of paths.
fn targets(text: &str) -> Vec<String> {
    let name = |text: &str| {
        let name: String = text.trim_start().chars().take_while(|c| is_word(*c)).collect();
        // Reexported from the crate's root.
        if name == "Error" || name == "Result" { "error".to_string() } else { name }
    };
    let Some(group) = text.strip_prefix('{') else { return vec![name(text)] };
    let (mut depth, mut names, mut begin) = (0, Vec::new(), 0);
    for (at, c) in group.char_indices() {
        match c {
            ',' | '}' if depth == 0 => {
                names.push(name(&group[begin..at]));
                begin = at + 1;
                if c == '}' {
                    break;
                }
            }
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

/// Removes comments and the contents of strings, keeping the lines.
fn without_comments(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    let blank = |text: &str| text.matches('\n').collect::<String>();
    while let Some(c) = rest.chars().next() {
        let hashes =
            rest.strip_prefix('r').map_or(0, |it| it.len() - it.trim_start_matches('#').len());
        let raw_quote = rest.starts_with('r') && rest[1 + hashes..].starts_with('"');
        let len = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if raw_quote && !out.ends_with(is_word) {
            let (begin, end) = (2 + hashes, format!("\"{}", "#".repeat(hashes)));
            let len = rest[begin..].find(&end).map_or(rest.len(), |at| begin + at + end.len());
            out += &format!("r{0}\"{1}\"{0}", "#".repeat(hashes), blank(&rest[..len]));
            rest = &rest[len..];
            continue;
        } else if c == '"' {
            let mut escaped = false;
            let end = rest[1..].find(|c| {
                let end = c == '"' && !escaped;
                escaped = c == '\\' && !escaped;
                end
            });
            let len = end.map_or(rest.len(), |end| end + 2);
            out += &format!("\"{}\"", blank(&rest[..len]));
            rest = &rest[len..];
            continue;
        } else if rest.starts_with("'\"'") || rest.starts_with("'\\\"'") {
            out.push(' ');
            rest = &rest[rest[1..].find('\'').map_or(rest.len(), |end| end + 2)..];
            continue;
        } else {
            out.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        };
        out += &blank(&rest[..len]);
        rest = &rest[len..];
    }
    out
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c| !is_word(c)).filter(|word| !word.is_empty())
}

/// Whether the line opens an `unsafe` block or implementation, which must be explained.
fn is_block(line: &str) -> bool {
    line.contains("unsafe {") || line.contains("unsafe impl")
}

/// Whether the line has a SAFETY comment, or one above with only the same statement in between.
fn is_explained(lines: &[&str], number: usize) -> bool {
    let above = lines[..=number].iter().rev();
    above.take(12).take_while(|line| !line.trim().is_empty()).any(|line| line.contains("SAFETY:"))
}

/// Whether bindgen wrote the file.
fn is_generated(path: &Path) -> bool {
    path.ends_with("nvjpeg-sys/src/bindings.rs")
}
