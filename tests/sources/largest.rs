//! A source's table may list its largest samples. A plan inspects these samples, wherever they are
//! in the set.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common::{jpeg, training};
use feedwater::internals::source::Configured;
use feedwater::loader::{DeviceChoice, LoaderBuilder};
use feedwater::source::custom::Hints;
use feedwater::source::settings::{BetonSettings, CocoSettings, NpySettings};
use feedwater::source::{Beton, Coco, Concat, Mixture, Npy, Repeat, Source, Subset};
use serde_json::json;
use tempfile::TempDir;

const SMALL: (u32, u32) = (16, 12);
const HUGE: (u32, u32) = (1200, 900);
/// Number of images. A plan that inspects only 1024 or 256 evenly spaced images would miss the huge
/// image at index `PLACE`.
const IMAGES: u64 = 5000;
const PLACE: u64 = 2502;

/// Returns the largest image size that the plan expects.
fn planned(source: Arc<dyn Source>) -> String {
    for looks in [1024, 256] {
        let len = source.len();
        assert!((0..looks).all(|it| it * len / looks != PLACE), "{PLACE} is inspected anyway");
    }
    let plan = LoaderBuilder::new(source, training()).device(DeviceChoice::Cpu).plan().unwrap();
    let note = &plan.footprint.row("worker scratch").unwrap().note;
    let is_size = |word: &&str| {
        let sides = word.split_once('x').map(|(width, height)| [width, height]);
        sides.is_some_and(|sides| sides.iter().all(|side| side.parse::<u32>().is_ok()))
    };
    note.split_whitespace().find(is_size).unwrap_or_else(|| panic!("{plan}")).into()
}

fn files() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for (name, (width, height)) in [("small.jpg", SMALL), ("huge.jpg", HUGE)] {
        fs::write(root.path().join(name), jpeg(1, width, height)).unwrap();
    }
    root
}

/// Writes a COCO set of these files. `size` returns the size that the set records for an image.
fn coco(root: &Path, size: impl Fn(u64) -> Option<(u32, u32)>) -> Arc<dyn Source> {
    let images = (0..IMAGES).map(|id| {
        let name = if id == PLACE { "huge.jpg" } else { "small.jpg" };
        match size(id) {
            Some((width, height)) => {
                json!({ "id": id, "file_name": name, "width": width, "height": height })
            }
            None => json!({ "id": id, "file_name": name }),
        }
    });
    let all = json!({ "images": images.collect::<Vec<_>>(), "annotations": [], "categories": [] });
    let path = root.join("a.json");
    fs::write(&path, all.to_string()).unwrap();
    Arc::new(Coco::open(path, &CocoSettings::default()).unwrap())
}

fn true_size(id: u64) -> Option<(u32, u32)> {
    Some(if id == PLACE { HUGE } else { SMALL })
}

/// Writes a `.beton` file of these JPEGs, with the same fields as a file that ffcv wrote.
fn beton(root: &Path) -> Arc<dyn Source> {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/beton/jpg.beton");
    let golden = fs::read(golden).unwrap();
    // The header describes two fields, an image and a number. Each sample is a row of 24 bytes.
    let table = 24 + 2 * (1 + 16 + 1024);
    let [small, huge] = ["small.jpg", "huge.jpg"].map(|name| fs::read(root.join(name)).unwrap());
    let first = table as u64 + 24 * IMAGES;
    let second = first + small.len() as u64;
    let allocations = second + huge.len() as u64;
    let mut bytes = golden[..table].to_vec();
    bytes[4..8].copy_from_slice(&(1u32 << 21).to_le_bytes());
    bytes[8..16].copy_from_slice(&IMAGES.to_le_bytes());
    bytes[16..24].copy_from_slice(&allocations.to_le_bytes());
    let of = |number| match number == PLACE {
        true => (HUGE, second, huge.len() as u64),
        false => (SMALL, first, small.len() as u64),
    };
    for number in 0..IMAGES {
        let ((width, height), pointer, _) = of(number);
        bytes.push(0);
        bytes.extend((width as u16).to_le_bytes());
        bytes.extend((height as u16).to_le_bytes());
        bytes.extend(pointer.to_le_bytes());
        bytes.extend([0; 3]);
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend(&small);
    bytes.extend(&huge);
    for number in 0..IMAGES {
        let (_, pointer, len) = of(number);
        bytes.extend([number, pointer, len].iter().flat_map(|it| it.to_le_bytes()));
    }
    let path = root.join("a.beton");
    fs::write(&path, bytes).unwrap();
    Arc::new(Beton::open(&[path], &BetonSettings::default()).unwrap())
}

#[test]
fn a_huge_image_listed_in_the_table_is_planned_for() {
    let root = files();
    assert_eq!(planned(coco(root.path(), true_size)), "1200x900");
    // Opens the file twice: the sizes come from the file first, then from the index beside it.
    assert_eq!(planned(beton(root.path())), "1200x900");
    assert_eq!(planned(beton(root.path())), "1200x900");
}

/// A wrong table only affects which headers the plan reads. The plan uses the real sizes in these
/// headers.
#[test]
fn a_missing_or_wrong_table_does_no_harm() {
    let root = files();
    assert_eq!(planned(coco(root.path(), |_| None)), "16x12");
    let lies = |id| Some(if id % 7 == 0 { (30_000, 30_000) } else { SMALL });
    assert_eq!(planned(coco(root.path(), lies)), "16x12");
}

#[test]
fn the_largest_come_first_with_their_pixels() {
    let root = files();
    let sizes = |id| match id {
        PLACE => Some(HUGE),
        7 | 4000 => Some((100, 50)),
        8 => None,
        _ => Some(SMALL),
    };
    let source = coco(root.path(), sizes);
    let expected = [(PLACE, 1_080_000), (7, 5000), (4000, 5000), (0, 192), (1, 192)];
    assert_eq!(source.largest_samples(5), expected);
    assert_eq!(source.largest_samples(IMAGES as usize + 5).len(), IMAGES as usize - 1);
    let source = beton(root.path());
    let [(first, pixels), (second, 192)] = source.largest_samples(2)[..] else { panic!() };
    assert_eq!((first, second), (PLACE, 0));
    assert!((1_079_000..=1_080_000).contains(&pixels), "{pixels}");
}

#[test]
fn one_image_represents_a_stack() {
    let root = tempfile::tempdir().unwrap();
    for (name, count, side) in [("a.npy", 3usize, 8usize), ("b.npy", 2, 20), ("c.npy", 4, 9)] {
        let shape = format!(
            "{{'descr': '|u1', 'fortran_order': False, 'shape': ({count}, {side}, {side}, 3), }}"
        );
        let head = format!("{shape:<117}\n");
        let mut bytes = b"\x93NUMPY\x01\0".to_vec();
        bytes.extend((head.len() as u16).to_le_bytes());
        bytes.extend(head.as_bytes());
        bytes.extend(vec![0; count * side * side * 3]);
        fs::write(root.path().join(name), bytes).unwrap();
    }
    let paths: [PathBuf; 1] = [root.path().into()];
    let source = <Npy as Configured>::open(&paths, &NpySettings::default()).unwrap();
    assert_eq!(source.largest_samples(5), [(3, 400), (5, 81), (0, 64)]);
}

#[test]
fn combined_sources_forward_it_with_their_own_indices() {
    let root = files();
    let source = coco(root.path(), true_size);
    let elsewhere = files();
    let other = coco(elsewhere.path(), |_| Some(SMALL));
    let huge = source.location(PLACE);
    let twice = Concat::new(vec![other.clone(), source.clone()]).unwrap();
    assert_eq!(twice.largest_samples(1), [(IMAGES + PLACE, 1_080_000)]);
    let repeated = Repeat::new(source.clone(), 3).unwrap();
    assert_eq!(repeated.largest_samples(1), [(PLACE, 1_080_000)]);
    let range = Subset::range(source.clone(), 2000..4000).unwrap();
    assert_eq!(range.largest_samples(1), [(PLACE - 2000, 1_080_000)]);
    let few = Subset::of(source.clone(), &[9, 4, PLACE, 0]).unwrap();
    assert_eq!(few.largest_samples(3), [(2, 1_080_000), (1, 192), (3, 192)]);
    let without = Subset::range(source.clone(), 3000..4000).unwrap();
    assert_eq!(without.largest_samples(1), []);
    let parts = || vec![(other.clone(), 2.0), (source.clone(), 1.0)];
    // The first two mixtures draw every sample at least once. The third one draws fewer than half
    // of them.
    for samples in [None, Some(60_000), Some(9_000)] {
        let mixed = Mixture::new(parts(), samples).unwrap();
        for (index, pixels) in mixed.largest_samples(4) {
            let expected = if mixed.location(index) == huge { 1_080_000 } else { 192 };
            assert_eq!(pixels, expected, "{samples:?}");
        }
        if samples != Some(9_000) {
            let (index, pixels) = mixed.largest_samples(1)[0];
            assert_eq!(pixels, 1_080_000, "{samples:?}");
            let before = (0..index).any(|it| mixed.location(it) == huge);
            assert!(!before, "the index must be the first one of this sample");
        }
    }
}
