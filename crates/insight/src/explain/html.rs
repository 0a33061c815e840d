//! Writes reports as self-contained HTML pages.
//!
//! * The page of a report is `page/report.html`. It is filled with the style, the script, the
//!   report as JSON, and a table of simulated changes.
//! * The page of several ranks is `page/ranks.html`. It has the same style and charts as the page
//!   of one report, and its own style and script in addition. It contains the merged reports as
//!   JSON.
//! * Both pages can be opened as local files and need no network. Their content security policy
//!   allows only their own script and style, which it identifies by hashes.
//! * Text of a report cannot become markup: `<` is written as `\u003c` in JSON and as `&lt;`
//!   elsewhere.
//! * Without JavaScript a page shows the report as text.

use sha2::{Digest, Sha256};

use super::what_if::{WhatIf, what_ifs};
use super::{Cause, Ranks, Report, percent};

const PAGE: &str = include_str!("page/report.html");
const STYLE: &str = include_str!("page/report.css");
const CHARTS: &str = include_str!("page/charts.js");
const SCRIPT: &str = include_str!("page/report.js");
const RANKS_PAGE: &str = include_str!("page/ranks.html");
const RANKS_STYLE: &str = include_str!("page/ranks.css");
const RANKS_SCRIPT: &str = include_str!("page/ranks.js");

/// Placeholder in a page for the rows of the table of simulated changes.
const WHAT_IFS: &str = "<!--what-ifs-->";

impl Report {
    /// Returns the report as one HTML file: the verdict, the settings to change, the timeline, the
    /// stages, and a table of simulated changes.
    pub fn to_html(&self) -> String {
        let json = serde_json::to_string(self)
            .expect("a report is valid JSON, because the keys of its maps are strings");
        let script = format!("{CHARTS}\n{SCRIPT}");
        let what_ifs: String = what_ifs(self).iter().map(row).collect();
        let template = PAGE.replacen(WHAT_IFS, &what_ifs.replace("{{", "&#123;&#123;"), 1);
        let named = self.knobs.iter().map(|knob| knob.then).chain([self.cause]).chain(self.next);
        page(&template, &self.verdict, &self.to_string(), &json, named, &script, STYLE)
    }
}

impl Ranks {
    /// Returns the merged reports as one HTML file: the verdict, the ranks side by side, their
    /// stages, the settings to change, and the report of each rank.
    pub fn to_html(&self) -> String {
        let json = serde_json::to_string(self)
            .expect("merged reports are valid JSON, because the keys of their maps are strings");
        let script = format!("{CHARTS}\n{RANKS_SCRIPT}");
        let style = format!("{STYLE}\n{RANKS_STYLE}");
        let named = self.ranks.iter().map(|it| it.cause).chain(self.knobs.iter().map(|it| it.then));
        page(RANKS_PAGE, &self.verdict, &self.to_string(), &json, named, &script, &style)
    }
}

/// Formats a row of the table of simulated changes.
fn row(it: &WhatIf) -> String {
    let gain = match it.gain {
        same if same.abs() < 5e-4 => "the same".into(),
        less if less < 0.0 => format!("\u{2212}{}", percent(-less)),
        more => format!("+{}", percent(more)),
    };
    let digits = usize::from(it.images_per_second < 100.0);
    let cells = [
        ("images/s", format!("{:.digits$}", it.images_per_second)),
        ("change", gain),
        ("the consumer waits", percent(it.consumer_waits)),
        ("smallest bound", escape(&it.limit)),
    ];
    let cells = cells.map(|(name, value)| format!("<td data-name=\"{name}\">{value}</td>"));
    format!("<tr><th scope=\"row\">{}</th>{}</tr>\n", escape(&it.change), cells.concat())
}

/// Fills in the placeholders of a page. `causes` are the causes that its script shows as text.
fn page(
    page: &str,
    verdict: &str,
    text: &str,
    json: &str,
    causes: impl Iterator<Item = Cause>,
    script: &str,
    style: &str,
) -> String {
    let mut named: Vec<(Cause, &str)> = Vec::new();
    for cause in causes {
        if named.iter().all(|it| it.0 != cause) {
            named.push((cause, cause.words()));
        }
    }
    let causes = serde_json::to_string(&named).expect("causes are names");
    fill(page, |name| match name {
        "policy" => policy(script, style),
        "verdict" => escape(verdict),
        "text" => escape(text),
        "style" => style.into(),
        "report" => json.replace('<', "\\u003c"),
        "causes" => causes.clone(),
        "script" => script.into(),
        _ => String::new(),
    })
}

/// Replaces each `{{name}}`. Placeholders in the inserted text are not replaced, so data cannot
/// insert anything.
fn fill(page: &str, text: impl Fn(&str) -> String) -> String {
    let mut parts = page.split("{{");
    let mut filled = String::from(parts.next().unwrap_or_default());
    for part in parts {
        let (name, rest) = part.split_once("}}").unwrap_or((part, ""));
        filled.push_str(&text(name));
        filled.push_str(rest);
    }
    filled
}

/// Escapes text for the content of elements and the values of attributes.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// Content security policy that allows only this script and this style.
fn policy(script: &str, style: &str) -> String {
    let hash = |text: &str| format!("'sha256-{}'", base64(&Sha256::digest(text)));
    format!(
        "default-src 'none'; script-src {}; style-src {}; base-uri 'none'; form-action 'none'",
        hash(script),
        hash(style)
    )
}

/// Base64 of RFC 4648, with padding.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let byte = |at: usize| u32::from(three.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            let value = (bits >> (18 - 6 * digit)) & 63;
            let known = digit <= three.len() as u32;
            text.push(if known { DIGITS[value as usize].into() } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected values are the examples of RFC 4648, section 10.
    #[test]
    fn base64_matches_rfc_4648() {
        let examples =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")];
        for (bytes, text) in examples {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        assert_eq!(base64(&[0xff, 0xef, 0xbe]), "/+++");
    }

    #[test]
    fn inserted_text_is_not_filled_again() {
        let filled = fill("<a>{{one}}</a>{{two}}", |name| match name {
            "one" => "{{two}}".into(),
            _ => "2".into(),
        });
        assert_eq!(filled, "<a>{{two}}</a>2");
    }

    #[test]
    fn every_placeholder_of_the_pages_is_known() {
        let known = ["policy", "verdict", "text", "style", "report", "causes", "script"];
        for page in [PAGE, RANKS_PAGE] {
            let names = page.split("{{").skip(1).map(|part| part.split_once("}}").unwrap().0);
            let names: Vec<&str> = names.collect();
            assert!(names.iter().all(|name| known.contains(name)), "{names:?}");
            assert!(known.iter().all(|name| names.contains(name)), "{names:?}");
        }
    }
}
