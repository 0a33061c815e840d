//! Compares pixels and errors with those of Pillow.

use super::*;

#[test]
fn pixels_equal_pillows() {
    let mut decoder = Decoders::new();
    let files = golden();
    assert!(files.len() >= 40, "{} files", files.len());
    for (path, bytes, expected) in files {
        let header =
            Header::parse(&bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let found = decode(&mut decoder, &bytes, header.size.window(), 1)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(found.len(), expected.len(), "{}", path.display());
        let differs = found.iter().zip(&expected).position(|(a, b)| a != b);
        assert_eq!(differs, None, "first differing byte of {}", path.display());
    }
}

/// Damaged files that Pillow accepts. The name of a file begins with the key under which feedwater
/// counts the damage.
#[test]
fn damage_that_pillow_accepts_is_an_error_or_tolerated_with_its_pixels() {
    let files = images("tolerated");
    assert!(files.len() >= 17, "{} files", files.len());
    let mut seen = HashSet::new();
    for (path, bytes, expected) in files {
        let name = path.file_name().unwrap().to_str().unwrap();
        let size = Header::parse_as(&bytes, false).unwrap().size;
        let mut strict = Decoders::new();
        let error = decode(&mut strict, &bytes, size.window(), 1).unwrap_err();
        assert!(matches!(error.reason, Reason::Corrupt | Reason::Truncated), "{name}: {error}");

        let mut decoder = Decoders::new().strict(false);
        let found = decode_as(&mut decoder, &bytes, false, size.window(), 1).unwrap();
        assert!(found == expected, "{name}");
        let damage = decoder.tolerated().unwrap_or_else(|| panic!("{name} is not damaged"));
        assert!(name.starts_with(damage.name()), "{name}: {damage:?}");
        seen.insert(damage);
        for window in windows(size).into_iter().step_by(7) {
            let found = decode_as(&mut decoder, &bytes, false, window, 1).unwrap();
            assert!(found == part(&expected, size.width, window), "{window} of {name}");
        }
    }
    assert_eq!(seen.len(), Tolerated::ALL.len(), "{seen:?}");
}

/// For intact files, a tolerant decoder reports no damage and returns the same pixels as a strict
/// decoder.
#[test]
fn sound_images_are_the_same_to_a_tolerant_decoder() {
    let mut decoder = Decoders::new().strict(false);
    for (path, bytes, expected) in golden() {
        let size = Header::parse(&bytes).unwrap().size;
        let found = decode_as(&mut decoder, &bytes, false, size.window(), 1).unwrap();
        assert!(found == expected, "{}", path.display());
        assert_eq!(decoder.tolerated(), None, "{}", path.display());
    }
}

#[test]
fn files_that_pillow_rejects_are_errors_strict_or_not() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/refused");
    let mut count = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let bytes = fs::read(&path).unwrap();
        for strict in [true, false] {
            let mut decoder = Decoders::new().strict(strict);
            let result = Header::parse_as(&bytes, strict).and_then(|header| {
                decode_as(&mut decoder, &bytes, strict, header.size.window(), 1)
            });
            let error = result.err().unwrap_or_else(|| panic!("{}, {strict}", path.display()));
            assert!(matches!(error.reason, Reason::Corrupt | Reason::Truncated), "{error}");
        }
        count += 1;
    }
    assert!(count >= 16, "{count} files");
}

/// ImageMagick and others write EXIF orientations into a text chunk of PNGs.
#[test]
fn an_orientation_in_the_text_of_a_png_is_read() {
    let profiles = golden();
    let profiles: Vec<_> =
        profiles.iter().filter(|it| it.0.to_str().unwrap().contains("png-profile-")).collect();
    assert_eq!(profiles.len(), 4);
    for (path, bytes, _) in profiles {
        let header = Header::parse(bytes).unwrap();
        assert_eq!(header.orientation, Orientation::from_exif(6), "{}", path.display());
    }
}

/// `tests/golden/arithmetic.jpg` has the coefficients of `decode/jpeg-420.jpg` in arithmetic coding
/// (written by `jpegtran -arithmetic`). Pillow's libjpeg is built without arithmetic coding, so the
/// expected pixels are Pillow's pixels of `decode/jpeg-420.jpg`.
#[test]
fn arithmetic_coding_is_decoded() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
    let bytes = fs::read(folder.join("arithmetic.jpg")).unwrap();
    let header = Header::parse(&bytes).unwrap();
    assert!(header.jpeg.unwrap().arithmetic);
    let found = decode(&mut Decoders::new(), &bytes, header.size.window(), 1).unwrap();
    assert!(found == fs::read(folder.join("decode/jpeg-420.rgb")).unwrap());
}

/// Returns recipes of JPEGs with their names: every subsampling in every scan order, and every
/// colour space that Adobe's marker can select.
fn recipes() -> Vec<(String, Recipe)> {
    let mut recipes = Vec::new();
    for (index, sampling) in SAMPLINGS.iter().enumerate() {
        for scans in [Scans::Interleaved, Scans::Separate, Scans::Progressive, Scans::OnlyDc] {
            let recipe = Recipe { scans, ..Recipe::new(53, 45, sampling) };
            recipes.push((format!("sampling-{index}-{scans:?}"), recipe));
        }
    }
    for (components, adobe) in [(3, 0), (3, 1), (4, 0), (4, 2)] {
        let sampling = &SAMPLINGS[if components == 3 { 2 } else { 16 }];
        let recipe = Recipe { adobe: Some(adobe), ..Recipe::new(53, 45, sampling) };
        recipes.push((format!("adobe-{components}-{adobe}"), recipe));
    }
    recipes
}

/// Writes the files for `tests/golden/recipes.sha256`: `cargo test -p feedwater-tests --test images -- --ignored
/// write_recipes`, then `python tests/golden/decode.py recipes DIR` with the printed directory.
#[test]
#[ignore = "writes files for tests/golden/decode.py"]
fn write_recipes() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("recipes");
    fs::create_dir_all(&folder).unwrap();
    for (name, recipe) in recipes() {
        fs::write(folder.join(name + ".jpg"), recipe.make()).unwrap();
    }
    println!("{}", folder.display());
}

#[test]
fn pixels_of_every_sampling_equal_pillows() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/recipes.sha256");
    let listed = fs::read_to_string(path).unwrap();
    let mut decoder = Decoders::new();
    for (name, recipe) in recipes() {
        let bytes = recipe.make();
        let pixels = decode(&mut decoder, &bytes, Size::new(53, 45).window(), 1).unwrap();
        let digest =
            Sha256::digest(&pixels).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert!(listed.lines().any(|line| line == format!("{digest}  {name}")), "{name}");
    }
}

/// Compares PNM samples with Pillow's for every maximum value below 255.
#[test]
fn samples_are_scaled_as_in_pillow() {
    let bytes: Vec<u8> = (0..=255).collect();
    let mut tables = Sha256::new();
    for white in 1..=255 {
        let file = [format!("P5 256 1 {white}\n").as_bytes(), &bytes].concat();
        let pixels = decode(&mut Decoders::new(), &file, Size::new(256, 1).window(), 1).unwrap();
        tables.update(pixels.iter().step_by(3).copied().collect::<Vec<u8>>());
        // A P6 file with the same samples must give the same values.
        let file = [format!("P6 85 1 {white}\n").as_bytes(), &bytes].concat();
        let rgb = decode(&mut Decoders::new(), &file, Size::new(85, 1).window(), 1).unwrap();
        assert!(rgb.iter().eq(pixels.iter().step_by(3).take(255)), "{white}");
    }
    let digest: String = tables.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/pnm.sha256");
    assert_eq!(digest, fs::read_to_string(path).unwrap().trim());
}
