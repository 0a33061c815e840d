//! The page that `gallery` writes.

use super::*;

use feedwater::internals::header::{Format, Header};

/// Returns the image files of a page.
fn pictures(page: &str) -> Vec<&str> {
    page.split("src=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect()
}

#[test]
fn the_gallery_shows_every_operator() {
    let dir = tempfile::tempdir().unwrap();
    let result = json(dir.path(), &["gallery", "pictures", "--json"]);
    assert_eq!(result["operators"], feedwater::internals::op::NAMES.len());
    assert_eq!(result["page"], "pictures/index.html");
    let page = fs::read_to_string(dir.path().join("pictures/index.html")).unwrap();
    for name in feedwater::internals::op::NAMES {
        assert!(page.contains(&format!("<section id=\"{name}\">")), "{name}");
    }
    let pictures = pictures(&page);
    // The unchanged image comes first and shows no operator.
    assert_eq!(result["pictures"], pictures.len() - 1);
    assert!(pictures.len() > 2 * feedwater::internals::op::NAMES.len(), "{}", pictures.len());
    let mut different = std::collections::BTreeSet::new();
    for picture in &pictures {
        let bytes = fs::read(dir.path().join("pictures").join(picture)).unwrap();
        let header = Header::parse(&bytes).unwrap_or_else(|error| panic!("{picture}: {error:?}"));
        assert_eq!(header.format, Format::Jpeg, "{picture}");
        different.insert(bytes);
    }
    // Some operators may leave a sample unchanged.
    assert!(4 * different.len() > 3 * pictures.len(), "only {} images differ", different.len());
}

#[test]
fn strips_show_the_image_and_up_to_three_results() {
    let dir = tempfile::tempdir().unwrap();
    let result = json(dir.path(), &["gallery", "strips", "--strips", "--json"]);
    let strips = result["strips"].as_array().unwrap();
    let listed: Vec<&str> = strips.iter().map(|it| it["op"].as_str().unwrap()).collect();
    // Without boxes, this operator changes nothing, so it is not shown.
    let shown: Vec<&str> = feedwater::internals::op::NAMES
        .iter()
        .copied()
        .filter(|name| *name != "random_iou_crop")
        .collect();
    assert_eq!(listed, shown);
    assert!(!dir.path().join("strips/index.html").exists());
    let mut bytes = 0;
    for strip in strips {
        let (file, alt) = (strip["file"].as_str().unwrap(), strip["alt"].as_str().unwrap());
        let jpeg = fs::read(dir.path().join(file)).unwrap();
        bytes += jpeg.len();
        let size = Header::parse(&jpeg).unwrap().size;
        let results = alt.matches("; ").count() as u32;
        assert!((1..=3).contains(&results), "{alt}");
        assert!(size.width > 96 && size.width <= (1 + results) * 100 - 4, "{file}: {size:?}");
        assert!((72..=96).contains(&size.height), "{file}: {size:?}");
    }
    assert!(bytes < 400_000, "{bytes} bytes");
}

#[test]
fn the_gallery_shows_an_image_of_the_user_upright() {
    let dir = tempfile::tempdir().unwrap();
    let jpeg = crate::common::jpeg(2, 500, 300);
    fs::write(dir.path().join("mine.jpg"), &jpeg).unwrap();
    done(dir.path(), &["gallery", "out", "--image", "mine.jpg"]);
    let shown = fs::read(dir.path().join("out/image.jpg")).unwrap();
    let size = Header::parse(&shown).unwrap().size;
    assert_eq!((size.width, size.height), (300, 180));
}

#[test]
fn the_gallery_says_what_is_wrong_with_an_image() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("text.jpg"), "no image").unwrap();
    for (file, word) in [("missing.jpg", "missing.jpg"), ("text.jpg", "unsupported")] {
        let error = refused(dir.path(), &["gallery", "out", "--image", file], 1);
        assert!(error.contains(file) && error.contains(word), "{error}");
        assert!(!dir.path().join("out").exists(), "nothing must be written");
    }
}

/// Writes the images of `docs/reference/`.
#[test]
#[ignore = "scripts/operator-reference runs it, with FEEDWATER_STRIPS"]
fn write_strips_for_the_reference() {
    let folder = std::env::var_os("FEEDWATER_STRIPS").expect("FEEDWATER_STRIPS names a folder");
    let folder = Path::new(&folder);
    let texts = json(folder, &["gallery", ".", "--strips", "--json"]);
    fs::write(folder.join("strips.json"), texts.to_string()).unwrap();
}

/// Writes the page that `tests/browser/` tests.
#[test]
#[ignore = "tests/browser/run.sh runs it, with FEEDWATER_PAGES"]
fn write_pages_for_the_browser() {
    let folder = std::env::var_os("FEEDWATER_PAGES").expect("FEEDWATER_PAGES names a folder");
    done(Path::new(&folder), &["gallery", "gallery"]);
}
