//! Tests of sets of synthetic images, of their files and of the census.

use super::*;
use sha2::{Digest, Sha256};

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Each entry: (seed, index, width, height, progressive), SHA-256 of the pixels, SHA-256 of the
/// JPEG.
#[test]
fn bytes_are_equal_on_every_machine() {
    let golden = [
        (
            (0, 0, 500, 375, false),
            "e8bf55a2340b98c935c6dd5a9b3542a8ece7a55a8bf4ad7ab7cfa7d279af659c",
            "5c36444c91b70a9ab2df49309c4f12d2cbee3dea9529433c771344285dbdbd8f",
        ),
        (
            (1, 7, 131, 97, true),
            "f1f951d01e07b7c02cc678413b35c992d5c411bf204f852e53a77d545160a616",
            "37a03d2874f1fd31de8c6048c1b2883221bace7e3a144b802bc7080659242a47",
        ),
    ];
    for ((seed, index, width, height, progressive), pixels, jpeg) in golden {
        let rgb = image(seed, index, width, height);
        let file = encode(&rgb, width, height, 92, progressive).unwrap();
        let found = (sha256(&rgb), sha256(&file));
        assert_eq!(found, (pixels.into(), jpeg.into()), "seed {seed} index {index}");
    }
}

#[test]
fn every_scene_is_equal_on_every_machine() {
    let scenes: Vec<u8> = (20..30).flat_map(|index| image(5, index, 120, 90)).collect();
    assert_eq!(sha256(&scenes), "959165e9bf057f7285ccd4b1d716a2db7fb07e29871cee7d13d52d108955a6a8");
}

#[test]
fn an_image_depends_on_seed_and_index() {
    let base = image(0, 0, 40, 30);
    assert_eq!(base, image(0, 0, 40, 30));
    assert_ne!(base, image(0, 1, 40, 30));
    assert_ne!(base, image(1, 0, 40, 30));
}

#[test]
fn smallest_and_thinnest_images_can_be_made() {
    for (width, height) in [(1, 1), (1, 200), (300, 1), (2, 3)] {
        let rgb = image(3, 0, width, height);
        assert_eq!(rgb.len(), (3 * width * height) as usize);
        assert!(encode(&rgb, width, height, 90, false).is_ok(), "{width}x{height}");
    }
}

#[test]
fn a_jpeg_has_about_as_many_bytes_as_a_photograph_of_its_size() {
    let quality = Uniform::default().quality;
    for (width, height, count, expected) in
        [(500, 375, 10, 0.46..0.56), (2048, 1536, 2, 0.24..0.40)]
    {
        let bytes: usize = (0..u64::from(count))
            .map(|index| image(0, index, width, height))
            .map(|rgb| encode(&rgb, width, height, quality, false).unwrap().len())
            .sum();
        let per_pixel = bytes as f64 / f64::from(count * width * height);
        assert!(expected.contains(&per_pixel), "{width}x{height}: {per_pixel} bytes per pixel");
    }
}

#[test]
fn a_set_is_complete_only_for_its_own_settings() {
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings { classes: 3, ..Settings::uniform(7, 24, 16) };
    assert_eq!(complete(dir.path(), &settings), None);
    let most = AtomicU64::new(0);
    let summary =
        write(dir.path(), &settings, |done| _ = most.fetch_max(done, Ordering::Relaxed)).unwrap();
    assert_eq!(most.into_inner(), 7);
    assert_eq!(complete(dir.path(), &settings).as_ref(), Some(&summary));
    let others = Settings { files: Files::LikeImageNet, ..settings };
    assert_eq!(complete(dir.path(), &others), None);
    assert_eq!(complete(dir.path(), &Settings { seed: 1, ..settings }), None);
    let file = dir.path().join("class001/0000004.jpg");
    let jpeg = fs::read(&file).unwrap();
    let rgb = image(0, 4, 24, 16);
    assert_eq!(jpeg, encode(&rgb, 24, 16, 92, false).unwrap());
    let on_disk: u64 = (0..7)
        .map(|index| fs::metadata(dir.path().join(settings.file(index))).unwrap().len())
        .sum();
    assert_eq!(on_disk, summary.census.bytes);
    assert_eq!(Census::of_folder(dir.path()).unwrap(), summary.census);
}

#[test]
fn errors_of_invalid_settings_name_the_field() {
    let default = Settings::default();
    let files = Files::Uniform(Uniform { quality: 101, ..Uniform::default() });
    let coarse = Settings { files, ..default };
    // Each entry: the settings, the invalid field, and the numbers in the message in ascending
    // order: the field's value and its bounds.
    for (settings, field, numbers) in [
        (Settings { images: 0, ..default }, "images", &[0, 1][..]),
        (Settings { classes: 0, ..default }, "classes", &[0, 1]),
        (Settings::uniform(1, 0, 1), "width", &[0, 1, 65_535]),
        (Settings::uniform(1, 1, 65_536), "height", &[1, 65_535, 65_536]),
        (coarse, "quality", &[1, 100, 101]),
    ] {
        let error = settings.check().unwrap_err();
        let Error::Config(error) = error else { panic!("{error}") };
        let digits = error.problem.split(|it: char| !it.is_ascii_digit());
        let mut found: Vec<u32> = digits.filter_map(|it| it.parse().ok()).collect();
        found.sort_unstable();
        assert_eq!((error.key.as_str(), &found[..]), (field, numbers), "{error}");
    }
}

/// Checks the bytes of 30 files of a set like ImageNet. The 30 files contain every kind of file, in
/// about the proportions of a large set.
#[test]
fn a_set_like_imagenet_is_equal_on_every_machine_and_mixed() {
    let settings = Settings::default();
    let files: Vec<Vec<u8>> = (100..130).map(|index| settings.jpeg(index).unwrap()).collect();
    assert_eq!(
        sha256(&files.concat()),
        "dc8c6edde1ec9683eb3bc0fb1bfa9e532d3d6e8fd863af3adf237d780ebd1618"
    );
    let facts: Vec<_> = files.iter().map(|file| FileFacts::of(file)).collect();
    let census = Census::of(&facts);
    assert_eq!((census.files, census.others), (30, 0));
    assert!((21..=25).contains(&census.samplings["4:4:4"]), "{census}");
    assert!((5..=8).contains(&census.samplings["4:2:0"]), "{census}");
    assert!(census.own_tables >= 27, "{census}");
    assert_eq!(census.restart_markers, 0);
    assert_eq!(census.qualities.map(|it| it[1..].to_vec()), Some(vec![96, 96]));
}

/// Checks that a set like ImageNet has the right number of bytes per pixel, on every thirteenth of
/// 400 files.
#[test]
fn a_set_like_imagenet_has_as_many_bytes_as_imagenet() {
    let settings = Settings::default();
    let indexes = (0..400).step_by(13);
    let facts = indexes.map(|index| FileFacts::of(&settings.jpeg(index).unwrap()));
    let census = Census::of(&facts.collect::<Vec<_>>());
    assert!((0.46..0.62).contains(&census.bytes_per_pixel()), "{census}");
}

#[test]
fn a_census_counts_tables_restart_markers_and_other_files() {
    let rgb = image(1, 2, 50, 40);
    let standard = encode(&rgb, 50, 40, 75, false).unwrap();
    let own = optimized(&standard).unwrap();
    let mut restarts = Vec::new();
    let mut encoder = Encoder::new(&mut restarts, 50);
    encoder.set_restart_interval(2);
    encoder.encode(&luma(&rgb), 50, 40, ColorType::Luma).unwrap();
    let progressive = encode(&image(1, 3, 60, 40), 60, 40, 100, true).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let files = [&standard[..], &own, &restarts, &progressive, b"GIF89a"];
    for (number, bytes) in files.into_iter().enumerate() {
        fs::write(dir.path().join(format!("{number}.JPEG")), bytes).unwrap();
    }
    fs::write(dir.path().join("notes.txt"), "no JPEG").unwrap();
    let census = Census::of_folder(dir.path()).unwrap();
    let samplings: Vec<_> = census.samplings.iter().map(|(name, &n)| (name.as_str(), n)).collect();
    assert_eq!(samplings, [("4:2:0", 3), ("gray", 1)]);
    assert_eq!((census.files, census.others, census.restart_markers), (4, 1, 1));
    assert_eq!((census.progressive, census.pixels), (1, 3 * 2000 + 2400));
    assert!((1..=2).contains(&census.own_tables), "{census}");
    assert_eq!(census.qualities, Some([50, 75, 100]));
    assert_eq!(census.sizes, Some([[50, 40], [50, 40], [60, 40]]));
}
