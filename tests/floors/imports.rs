//! Finds the imports of modules, and the imports between the files of a module.

use super::text::is_word;
use super::*;

/// All modules of a crate by path, each with its imports. Test modules are left out.
pub struct Modules(BTreeMap<Vec<String>, Names>);

/// What one module refers to: the names of its own crate that are in scope, and the paths of the
/// crate that it uses.
#[derive(Default)]
pub struct Names {
    /// For each name in scope, the module path of the item that it stands for.
    known: BTreeMap<String, Vec<String>>,
    /// Paths of the crate that the module uses. A path that the module only reexports is not in the
    /// list.
    used: Vec<Vec<String>>,
}

impl Modules {
    /// Collects the modules of the files below `root`.
    pub fn of(root: &str, files: Vec<(PathBuf, String)>) -> Self {
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

    /// Returns the modules that contain other modules. Each of them has a folder.
    pub fn folders(&self) -> BTreeSet<Vec<String>> {
        self.0.keys().filter_map(|it| it.split_last()).map(|(_, above)| above.to_vec()).collect()
    }

    /// Returns, for each direct child of `folder`, the siblings that it imports. An import of an
    /// item inside a sibling counts as an import of the sibling.
    pub fn imports_between(&self, folder: &[String]) -> BTreeMap<String, BTreeSet<String>> {
        let mut imports: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (module, names) in &self.0 {
            let Some([from, ..]) = module.strip_prefix(folder) else { continue };
            let to = names.used.iter().map(|path| self.resolve(path, 0));
            let to = to.filter_map(|to| to.strip_prefix(folder)?.first().cloned());
            imports.entry(from.clone()).or_default().extend(to.filter(|to| to != from));
        }
        imports
    }

    /// Returns the module that defines the item at `path`, following reexports.
    pub fn resolve(&self, path: &[String], depth: usize) -> Vec<String> {
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
    pub fn of(module: &[String], text: &str, is_module: impl Fn(&[String]) -> bool) -> Self {
        let tokens = tokens(text);
        let token = |at: usize| tokens.get(at).copied().unwrap_or("");
        let mut names = Self::default();
        // Inline modules (`mod name { ... }`) around the current token, each with the brace depth
        // at which it starts.
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
                        // A path inside a macro call may be reexported by the macro. The path's
                        // last name is therefore in scope.
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

/// Converts a path in the source text of module `here`, such as `super::ring`, to the path from the
/// root of the crate. Returns `None` if the path leads outside of the crate.
pub fn in_crate(
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

/// Collects every path that a `use` item imports, with the name that the path gets in the module.
pub fn leaves(tokens: &[&str], above: &mut Vec<String>, found: &mut Vec<(Vec<String>, String)>) {
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
pub fn tokens(text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let len = match first {
            _ if is_word(first) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            ':' if rest.starts_with("::") => 2,
            // A character literal, not a lifetime.
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

/// Removes modules that exist only for tests. `text` must not contain comments.
pub fn without_tests(text: &str) -> String {
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

/// Whether module `from` imports module `to`, directly or through other modules.
pub fn reaches(imports: &BTreeMap<String, BTreeSet<String>>, from: &str, to: &str) -> bool {
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

/// Returns the top-level module of a file; `None` for the crate's root.
pub fn module(path: &Path) -> Option<String> {
    let first = path.iter().nth(1)?.to_str()?;
    let module = first.strip_suffix(".rs").unwrap_or(first);
    (module != "lib").then(|| module.to_string())
}

/// Finds every path that starts with `crate::`, or with enough `super::` to reach the crate's root.
/// Returns the path's line and top-level module.
pub fn imports(path: &Path, text: &str) -> Vec<(usize, String)> {
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

/// Returns the first name of a path, or the first name of each path of a group in braces.
pub fn targets(text: &str) -> Vec<String> {
    let name = |text: &str| {
        let name: String = text.trim_start().chars().take_while(|c| is_word(*c)).collect();
        // The crate's root reexports these two types from module `error`.
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
