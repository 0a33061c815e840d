//! Templates for the paths of side files.

/// Path with placeholders for parts of the path of an image.
#[derive(Debug)]
pub struct Template {
    /// The template as written, for messages.
    pub written: String,
    pub parts: Vec<Part>,
}

/// Part of a template.
#[derive(Debug)]
pub enum Part {
    Text(String),
    /// Folder of the image. If a slash follows, it belongs to this part, because it must be left
    /// out for an image in the root folder.
    Folder {
        replace: Option<Replace>,
        slash: bool,
    },
    /// Name of the image without its last extension.
    Stem(Option<Replace>),
    /// Name of the image.
    Name(Option<Replace>),
}

/// Replacement of a text in a part of the path.
#[derive(Debug)]
pub struct Replace {
    pub from: String,
    pub to: String,
}

const PLACEHOLDERS: &str = "{folder}, {stem} and {name}";

impl Template {
    /// Parses a template. `rest` is its text without a part that was resolved before.
    ///
    /// # Errors
    ///
    /// The error is a predicate for a message, which begins with the template.
    pub fn parse(written: &str, rest: &str) -> Result<Self, String> {
        let parts = parts(rest).map_err(|problem| format!("is {written:?}, {problem}"))?;
        Ok(Self { written: written.into(), parts })
    }

    /// Extension of the files in lower case; empty if the template does not contain it.
    pub fn ending(&self) -> String {
        let Some(Part::Text(text)) = self.parts.last() else { return String::new() };
        let last = text.rsplit(['/', '.']).next().filter(|it| it.len() < text.len());
        last.unwrap_or_default().to_ascii_lowercase()
    }
}

fn parts(mut rest: &str) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    let mut text = String::new();
    while let Some(at) = rest.find(['{', '}']) {
        text += &rest[..at];
        let (brace, after) = rest[at..].split_at(1);
        if let Some(after) = after.strip_prefix(brace) {
            text += brace;
            rest = after;
            continue;
        }
        let end =
            after.find(['{', '}']).filter(|&end| brace == "{" && after[end..].starts_with('}'));
        let Some(end) = end else {
            let problem = "which has a single brace; write {{ or }} for a brace in a path";
            return Err(problem.into());
        };
        if !text.is_empty() {
            parts.push(Part::Text(std::mem::take(&mut text)));
        }
        rest = &after[end + 1..];
        let part = placeholder(&after[..end], rest.starts_with('/'))?;
        if let Part::Folder { slash: true, .. } = part {
            rest = &rest[1..];
        }
        parts.push(part);
    }
    text += rest;
    if parts.is_empty() {
        return Err(format!(
            "which is the same file for every image; the placeholders are {PLACEHOLDERS}, as in \
             \"{{folder}}/{{stem}}.txt\""
        ));
    }
    let ends = |part: &Part| matches!(part, Part::Folder { .. });
    if text.ends_with('/') || (text.is_empty() && parts.last().is_some_and(ends)) {
        return Err("which is a folder; add the name of a file, such as {stem}.txt".into());
    }
    if !text.is_empty() {
        parts.push(Part::Text(text));
    }
    Ok(parts)
}

/// Parses the text between two braces.
fn placeholder(text: &str, slash: bool) -> Result<Part, String> {
    let (name, replace) = match text.split_once(':') {
        None => (text, None),
        Some((name, replace)) => (name, Some(replace)),
    };
    let replace = match replace.map(|it| it.split_once('=')) {
        None => None,
        Some(Some((from, to))) if !from.is_empty() => {
            Some(Replace { from: from.into(), to: to.into() })
        }
        Some(_) => {
            return Err(format!(
                "which has {{{text}}}; a replacement has the form {{{name}:old=new}}"
            ));
        }
    };
    match name {
        "folder" => Ok(Part::Folder { replace, slash }),
        "stem" => Ok(Part::Stem(replace)),
        "name" => Ok(Part::Name(replace)),
        _ => Err(format!(
            "which has the unknown placeholder {{{name}}}; the placeholders are {PLACEHOLDERS}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_templates_are_refused() {
        for (text, words) in [
            ("", "same file"),
            ("a.txt", "same file"),
            ("{folder}/", "is a folder"),
            ("{folder}", "is a folder"),
            ("{stem}/", "is a folder"),
            ("{ext}.txt", "unknown placeholder {ext}"),
            ("{}.txt", "unknown placeholder {}"),
            ("{stem", "single brace"),
            ("stem}", "single brace"),
            ("{st{em}", "single brace"),
            ("{stem:a}", "{stem:old=new}"),
            ("{stem:=a}", "{stem:old=new}"),
        ] {
            let problem = Template::parse(text, text).unwrap_err();
            assert!(problem.contains(words), "{text}: {problem}");
        }
    }

    #[test]
    fn an_ending_is_the_extension_of_the_template() {
        for (text, ending) in [
            ("{folder}/{stem}.txt", "txt"),
            ("{stem}_a.b.JSON", "json"),
            ("{stem}", ""),
            ("{stem}_mask", ""),
            ("a.b/{stem}", ""),
            ("{{{stem}}}.png", "png"),
        ] {
            assert_eq!(Template::parse(text, text).unwrap().ending(), ending, "{text}");
        }
    }
}
