//! Checks of the HTML pages that reports become.

/// Text that would run a script if a page did not escape it. It contains markup, and the closing
/// tags of the elements in which a page shows the text.
pub const HOSTILE: &str = "</script><script>window.broken = 1</script><!--<script><img src=x onerror=window.broken=2>\
    </title></noscript>\"'&amp;{{report}}\u{2028}";

/// Returns the text between `begin` and `end`.
pub fn element<'a>(page: &'a str, begin: &str, end: &str) -> &'a str {
    let (_, rest) = page.split_once(begin).unwrap();
    rest.split_once(end).unwrap().0
}

/// Checks that a page loads nothing, and that its policy forbids other scripts than its own.
#[track_caller]
pub fn assert_loads_nothing(page: &str) {
    let page = page.replace("http://www.w3.org/2000/svg", "the name of SVG, which is no address");
    for load in
        ["://", "src=", "href=", "url(", "@import", "import(", "<link", "<img", "<iframe", "fetch("]
    {
        assert!(!page.contains(load), "{load}");
    }
    let policy = element(&page, "http-equiv=\"Content-Security-Policy\" content=\"", "\"");
    assert!(policy.starts_with("default-src 'none'; script-src 'sha256-"), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
}

/// Checks that no text of a page became markup.
#[track_caller]
pub fn assert_no_markup(page: &str) {
    let lower = page.to_lowercase();
    // The page has three script elements: the report, the causes and the code.
    assert_eq!((lower.matches("<script").count(), lower.matches("</script").count()), (3, 3));
    for (tag, times) in [("</title", 1), ("</noscript", 1), ("<img", 0), ("<!--", 0)] {
        assert_eq!(lower.matches(tag).count(), times, "{tag}");
    }
}
