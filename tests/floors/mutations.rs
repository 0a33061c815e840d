//! Checks that the mutations listed in `tests/mutations/` can be applied to the source files.

use std::collections::HashSet;
use std::fs;

use super::root;

/// Checks that each mutation's old text occurs exactly once in its file. Running the mutations
/// would report this too, but takes more than an hour.
#[test]
fn every_mutation_applies() {
    let root = root();
    let list = fs::read_to_string(root.join("tests/mutations/mutations.toml")).unwrap();
    let list: toml::Table = list.parse().unwrap();
    let (mut names, mut problems) = (HashSet::new(), Vec::new());
    for mutation in list["mutation"].as_array().unwrap() {
        let text = |key: &str| mutation[key].as_str().unwrap();
        let (name, file, old) = (text("name"), text("file"), text("old"));
        assert!(list["groups"].get(text("group")).is_some(), "{name} has no group");
        assert!(names.insert(name), "{name} is listed twice");
        let found = fs::read_to_string(root.join(file)).unwrap().matches(old).count();
        if found != 1 || old == text("new") {
            problems.push(format!("{name}: {found} times in {file}"));
        }
    }
    assert!(names.len() >= 30, "{}", names.len());
    assert!(
        problems.is_empty(),
        "change the texts in tests/mutations/mutations.toml with the code:\n{}",
        problems.join("\n")
    );
}
