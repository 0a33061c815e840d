//! HTML of the gallery's page.

/// File name of the unchanged image.
pub const PHOTO: &str = "image.jpg";

/// Description of one image of an operator.
pub struct Picture<'a> {
    pub file: String,
    /// Settings as in a pipeline file.
    pub settings: &'a str,
    /// Number of the sample whose random numbers were drawn.
    pub draw: u64,
}

/// Section of the page with the images of one operator.
pub struct Section {
    pub name: &'static str,
    pub text: String,
    pub pictures: usize,
}

const HEAD: &str = r#"<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>feedwater: operators</title>
<style>
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { background: Canvas; color: CanvasText; margin: 0 auto; max-width: 75rem; padding: 1.5rem; }
nav { columns: 13rem; }
nav a { display: block; }
h2 { border-top: 1px solid #8888; font-family: ui-monospace, monospace; margin-top: 2.5rem; padding-top: 1rem; }
section > div { display: flex; flex-wrap: wrap; gap: 1.25rem; }
figure { margin: 0; max-width: 100%; }
img { display: block; max-width: 100%; }
figcaption pre { font-size: 0.8rem; margin: 0.4rem 0 0; max-width: 15rem; white-space: pre-wrap; }
</style>
"#;

/// Returns the HTML of the page.
pub fn page(sections: &[Section]) -> String {
    let mut page = String::from(HEAD);
    page += "<h1>Operators</h1>\n<p>Every operator of feedwater, applied to this image. ";
    page += "Operators that draw random numbers are shown for several samples.\n";
    page += &figure(PHOTO, "the image", "the image");
    page += "<nav>\n";
    for Section { name, .. } in sections {
        page += &format!("<a href=\"#{name}\">{name}</a>\n");
    }
    page += "</nav>\n";
    sections.iter().for_each(|section| page += &section.text);
    page + "</html>\n"
}

/// Returns the HTML of an operator's section.
pub fn section(name: &str, pictures: &[Picture<'_>]) -> String {
    let mut text = format!("<section id=\"{name}\">\n<h2>{name}</h2>\n<div>\n");
    for Picture { file, settings, draw } in pictures {
        let sample = if *draw > 0 { format!(", sample {draw}") } else { String::new() };
        let caption = if *draw > 0 { format!("sample {draw}") } else { settings.to_string() };
        text += &figure(file, &format!("{name}{sample}"), &caption);
    }
    text + "</div>\n</section>\n"
}

fn figure(file: &str, alt: &str, caption: &str) -> String {
    let caption = caption.replace('&', "&amp;").replace('<', "&lt;");
    format!(
        "<figure><img src=\"{file}\" alt=\"{alt}\"><figcaption><pre>{caption}</pre></figcaption></figure>\n"
    )
}
