//! Tests of the user documentation: its TOML is valid, its commands exist, and its links resolve.
//! Its Rust code is tested by doctests (`src/lib.rs`, `mod pages`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use feedwater::internals::config::Pipeline;
use feedwater::loader::DeviceChoice;
use feedwater_tools::synth;

/// Returns the root of the repository: the nearest parent folder with `docs/recipes.md`.
fn top() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let found = here.ancestors().find(|it| it.join("docs/recipes.md").is_file());
    found.expect("a folder with docs/recipes.md").to_path_buf()
}

/// Returns the pages for users. Maps the name of each page, relative to the repository, to its
/// text.
fn pages() -> BTreeMap<String, String> {
    let mut names = vec!["README.md".to_string()];
    for entry in fs::read_dir(top().join("docs")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.ends_with(".md") {
            names.push(format!("docs/{name}"));
        }
    }
    names.into_iter().map(|name| (name.clone(), read(&name))).collect()
}

fn read(name: &str) -> String {
    fs::read_to_string(top().join(name)).unwrap()
}

/// Returns the fenced code blocks of a page: the line of the opening fence, the language, and the
/// text.
fn blocks(page: &str) -> Vec<(usize, String, String)> {
    let mut found: Vec<(usize, String, String)> = Vec::new();
    let mut open = false;
    for (number, line) in page.lines().enumerate() {
        match (line.strip_prefix("```"), open) {
            (Some(language), false) => found.push((number + 1, language.into(), String::new())),
            (Some(_), true) => {}
            (None, true) => {
                let (_, _, text) = found.last_mut().unwrap();
                text.push_str(line);
                text.push('\n');
            }
            (None, false) => continue,
        }
        open ^= line.starts_with("```");
    }
    assert!(!open, "a block is not closed");
    found
}

/// Returns the text of a page without its code blocks.
fn prose(page: &str) -> String {
    let mut open = false;
    let lines = page.lines().filter(|line| {
        let fence = line.starts_with("```");
        open ^= fence;
        !open && !fence
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the pipeline file that `docs/pipeline-file.md` shows.
fn documented_file() -> String {
    let page = read("docs/pipeline-file.md");
    blocks(&page).into_iter().find(|(_, language, _)| language == "toml").unwrap().2
}

#[test]
fn the_readme_is_short_and_begins_with_the_gpu_status() {
    let readme = read("README.md");
    assert!(readme.lines().count() <= 120, "README.md has {} lines", readme.lines().count());
    let first: Vec<&str> = readme.lines().take(10).collect();
    let first = first.join("\n");
    assert!(first.contains("**GPU status:**") && first.contains("(docs/gpu.md)"), "{first}");
}

#[test]
fn every_toml_block_is_a_valid_pipeline() {
    for (name, page) in pages() {
        for (line, language, text) in blocks(&page) {
            if language != "toml" {
                continue;
            }
            if text.starts_with("[dependencies]") {
                text.parse::<toml::Table>().unwrap_or_else(|it| panic!("{name}:{line}: {it}"));
                continue;
            }
            let has_source =
                text.lines().any(|it| it.starts_with("[source") || it.starts_with("[[source"));
            let source = if has_source { "" } else { "[source]\ndirectory = \"data\"\n" };
            let text = format!("{text}\n{source}");
            if let Err(error) = Pipeline::from_toml(&text, "") {
                panic!("{name}:{line}: {error}");
            }
            // Check the settings in comments too. A comment of the form `# name = value` counts as
            // a setting.
            let all: Vec<String> = text
                .lines()
                .map(|it| match it.strip_prefix("# ") {
                    Some(setting) if setting.contains(" = ") => setting.to_string(),
                    _ => it.to_string(),
                })
                .collect();
            if let Err(error) = Pipeline::from_toml(&all.join("\n"), "") {
                panic!("{name}:{line}, with settings in comments enabled: {error}");
            }
        }
    }
}

/// The reference of the pipeline file must contain every setting outside `[source]`.
#[test]
fn the_reference_of_the_pipeline_file_has_every_key() {
    let mut text = documented_file().replace("\n# ", "\n");
    text += "[cache]\nencoded = 1\ndecoded = 1\npresize = 1\n\
             [targets]\nclasses = 1\n[storage]\nca_file = \"a\"\ncache_directory = \"b\"\n";
    text = text.replace("shard = ", "rank = 0\nworld_size = 1\nshard = ");
    let written = Pipeline::from_toml(&text, "").unwrap().to_toml().unwrap();
    let written: toml::Table = written.parse().unwrap();
    let page = read("docs/pipeline-file.md");
    for section in ["loader", "decode", "output", "targets", "cache", "limits", "storage"] {
        let (_, part) = page.split_once(&format!("\n## [{section}]\n")).unwrap();
        let part = part.split("\n## ").next().unwrap();
        let keys = written[section].as_table().unwrap();
        assert!(!keys.is_empty());
        for key in keys.keys() {
            let first =
                |line: &str| line.split('|').nth(1).unwrap_or("").contains(&format!("`{key}`"));
            assert!(part.lines().any(first), "[{section}] of docs/pipeline-file.md lacks {key}");
        }
    }
}

/// Each source must have a row in the page of sources, with a valid example that names its
/// settings.
#[test]
fn the_keys_of_sources_and_operators_are_in_their_pages() {
    let page = read("docs/sources.md");
    for key in feedwater::internals::source::KEYS {
        let begin = format!("| `{key} = ");
        let row = page.lines().find(|line| line.starts_with(&begin));
        let row = row.unwrap_or_else(|| panic!("docs/sources.md lacks {key}"));
        let cells: Vec<&str> = row.split(" | ").collect();
        let example = cells[0].trim_start_matches("| ").trim_matches('`');
        let pipeline = Pipeline::from_toml(&format!("[source]\n{example}\n"), "").unwrap();
        for setting in pipeline.source.to_table().unwrap().keys().filter(|it| it != key) {
            let named = cells[2].contains(&format!("`{setting}`"))
                || cells[2].contains(&format!("`{setting} ="));
            assert!(named, "docs/sources.md: {key} lacks {setting}");
        }
    }
    let operators = read("docs/operators.md");
    for name in feedwater::internals::op::NAMES.iter().chain(feedwater::internals::op::batch::NAMES)
    {
        assert!(
            operators.contains(&format!("| `{name}` |")),
            "docs/operators.md lacks a row that begins with | `{name}` |; then run \
             scripts/operator-reference --write and scripts/python-api --write"
        );
    }
}

/// Every recipe must build a loader that delivers a batch.
#[test]
fn every_recipe_loads_a_batch() {
    let dir = tempfile::tempdir().unwrap();
    let settings = synth::Settings::uniform(4, 160, 120);
    synth::write(&dir.path().join("data/train"), &settings, |_| ()).unwrap();
    let mut names = Vec::new();
    for entry in fs::read_dir(top().join("examples/recipes")).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let pipeline = Pipeline::from_toml(&text, dir.path());
        let pipeline = pipeline.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let builder =
            pipeline.builder().unwrap().device(DeviceChoice::Cpu).batch_size(4).num_workers(2);
        let mut loader = builder.epochs(Some(1)).build().unwrap();
        let batch = loader.epoch().next().unwrap().unwrap();
        assert_eq!((batch.len(), batch.errors().len()), (4, 0), "{}", path.display());
        names.push(path.file_stem().unwrap().to_str().unwrap().to_string());
    }
    names.sort_unstable();
    assert_eq!(names, ["clip", "deit-iii", "torchvision-resnet", "yolo-detection"]);
}

/// The memory table in docs/memory.md must equal the output of `feedwater plan` for the documented
/// pipeline file.
#[test]
fn the_documented_memory_equals_the_plan() {
    let page = read("docs/memory.md");
    let (_, rest) = page.split_once("```text\nmemory ").unwrap();
    let (shown, _) = rest.split_once("```").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let settings = synth::Settings { images: 200, ..Default::default() };
    synth::write(&dir.path().join("data/train"), &settings, |_| ()).unwrap();
    let pipeline = Pipeline::from_toml(&documented_file(), dir.path()).unwrap();
    let plan = pipeline.builder().unwrap().device(DeviceChoice::Cpu).plan().unwrap();
    assert_eq!(plan.footprint.to_string().trim_end(), format!("memory {}", shown.trim_end()));
}

/// Returns the options of a command, read from its help. Returns `None` if the command does not
/// exist.
fn options(command: &str) -> Option<BTreeSet<String>> {
    let output =
        Command::new(env!("CARGO_BIN_EXE_feedwater")).args([command, "--help"]).output().unwrap();
    if !output.status.success() {
        return None;
    }
    let help = String::from_utf8(output.stdout).unwrap();
    let lines = help.lines().map(str::trim_start).filter(|line| line.starts_with('-'));
    let words = lines.flat_map(|line| line.split([' ', ',', '=']));
    Some(words.filter(|word| word.starts_with("--")).map(str::to_string).collect())
}

/// Returns all calls of the program in a text, as pairs of the command and its options.
fn calls(text: &str) -> Vec<(String, Vec<String>)> {
    let mut calls = Vec::new();
    for part in text.split("feedwater ").skip(1) {
        let mut words = part.split_whitespace();
        let Some(command) = words.next().filter(|it| *it != "=") else { continue };
        let until = words.take_while(|word| !["#", "|", "&&"].contains(word));
        let options = until.filter(|word| word.starts_with("--")).map(str::to_string);
        calls.push((command.to_string(), options.collect()));
    }
    calls
}

#[test]
fn every_command_that_a_page_names_exists_with_its_options() {
    let mut known = BTreeMap::new();
    let mut checked = 0;
    for (name, page) in pages() {
        let mut texts: Vec<String> = Vec::new();
        for (_, language, text) in blocks(&page) {
            if language == "sh" || language == "text" {
                texts.extend(text.lines().map(str::to_string));
            }
        }
        // Also check inline code that begins with the name of the program.
        let prose = prose(&page);
        texts.extend(prose.split('`').skip(1).step_by(2).map(str::to_string));
        for text in texts.iter().filter(|text| text.trim_start().starts_with("feedwater ")) {
            for (command, used) in calls(text) {
                let options = known.entry(command.clone()).or_insert_with(|| options(&command));
                let options = options
                    .as_ref()
                    .unwrap_or_else(|| panic!("{name}: `feedwater {command}` does not exist"));
                for option in used {
                    assert!(options.contains(&option), "{name}: {text}: {option} does not exist");
                }
                checked += 1;
            }
        }
    }
    assert!(checked > 30, "only {checked} calls were found");
}

/// Returns the anchor that GitHub generates for a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    let kept = kept.chars().filter(|it| it.is_alphanumeric() || " -_".contains(*it));
    kept.collect::<String>().replace(' ', "-")
}

/// Returns the targets of all links of a page, except those in code.
fn links(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    let prose = prose(page);
    let mut rest = prose.as_str();
    while let Some((_, after)) = rest.split_once("](") {
        let (target, after) = after.split_once(')').unwrap();
        found.push(target.to_string());
        rest = after;
    }
    found
}

#[test]
fn relative_links_resolve() {
    let mut pages = pages();
    for name in ["ARCHITECTURE.md", "CHANGELOG.md", "benches/peers/README.md"] {
        pages.insert(name.into(), read(name));
    }
    for entry in fs::read_dir(top().join("docs/decisions")).unwrap() {
        let name = format!("docs/decisions/{}", entry.unwrap().file_name().to_str().unwrap());
        pages.insert(name.clone(), read(&name));
    }
    let mut problems = Vec::new();
    for (name, page) in &pages {
        for link in links(page) {
            if link.contains("://") {
                continue;
            }
            let (file, fragment) = link.split_once('#').unwrap_or((&link, ""));
            let folder = Path::new(name).parent().unwrap();
            let target = match file {
                "" => top().join(name),
                _ => top().join(folder).join(file),
            };
            if !target.exists() {
                problems.push(format!("{name}: {link} does not exist"));
            } else if !fragment.is_empty() {
                let text = fs::read_to_string(&target).unwrap();
                let mut headings = prose(&text)
                    .lines()
                    .filter(|it| it.starts_with('#'))
                    .map(str::to_string)
                    .collect::<Vec<_>>();
                headings.retain(|it| anchor(it.trim_start_matches('#')) == fragment);
                if headings.is_empty() {
                    problems.push(format!("{name}: {link}: no such heading"));
                }
            }
        }
    }
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

#[test]
fn every_page_is_compiled_and_is_reached_from_the_readme() {
    let lib = read("src/lib.rs");
    let readme = links(&read("README.md"));
    for name in pages().into_keys() {
        assert!(lib.contains(&format!("include_str!(\"../{name}\")")), "src/lib.rs lacks {name}");
        assert!(name == "README.md" || readme.contains(&name), "README.md does not link {name}");
    }
}

/// If `main` returns an error, Rust prints its debug form. For [`feedwater::Error`], this form
/// would be a struct and not a message. So the programs of the documentation must return
/// `MainError`.
#[test]
fn programs_end_with_an_error_that_prints_itself() {
    let mut texts: BTreeMap<String, String> = pages();
    texts.insert("src/lib.rs".into(), read("src/lib.rs"));
    for folder in [
        "examples",
        "frameworks/burn/examples",
        "frameworks/candle/examples",
        "frameworks/tch/examples",
    ] {
        for entry in fs::read_dir(top().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|it| it == "rs") {
                texts.insert(path.display().to_string(), fs::read_to_string(&path).unwrap());
            }
        }
    }
    let mut programs = 0;
    for (name, text) in texts {
        for line in text.lines().filter(|it| it.contains("fn main() -> ")) {
            assert!(line.contains("MainError"), "{name}: {line}");
            programs += 1;
        }
    }
    assert!(programs > 20, "{programs}");
}

/// The programs of a new user must work with the images that the README tells users to create.
#[test]
fn the_first_programs_run_with_the_images_that_are_made_for_them() {
    let (readme, start, python) =
        (read("README.md"), read("docs/getting-started.md"), read("docs/python.md"));
    for page in [&readme, &start, &python] {
        assert!(page.contains("synth data/train --images 200"));
    }
    let first = |page: &str, kind: &str| {
        let all = blocks(page).into_iter();
        all.map(|it| it.2).find(|it| it.contains("data/train") && it.contains(kind)).unwrap()
    };
    for (text, key) in [
        (first(&readme, "Loader::builder"), ".batch_size("),
        (first(&readme, "fw.Loader"), "batch_size="),
        (first(&start, "[loader]"), "batch_size = "),
        (first(&python, "fw.Loader"), "batch_size="),
    ] {
        let (_, rest) = text.split_once(key).unwrap();
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        // The pages create 200 images. With a larger batch size, no batch would be full, and by
        // default an incomplete batch is dropped.
        assert!(digits.parse::<u32>().unwrap() <= 200, "{text}");
    }
    for needed in
        ["cargo install --locked --path", "nasm", "JPEG, PNG, WebP and PNM", "~/.cache/feedwater"]
    {
        assert!(readme.contains(needed), "README.md lacks {needed}");
    }
}
