//! Damaged PNGs. If Pillow decodes a file, feedwater's tolerant mode decodes it to the same pixels.
//! If Pillow rejects a file, feedwater returns an error.
//!
//! `tests/golden/png_damage.py` writes Pillow's results to `tests/golden/png_damage.txt`.

mod coding;
mod files;

use std::fs;
use std::io::Write;
use std::path::Path;

use feedwater::error::{DataError, Tolerated};
use feedwater::internals::decode::Decoders;
use feedwater::internals::geometry::{Roi, Size};
use feedwater::internals::header::Header;
use files::Group;
use sha2::{Digest, Sha256};

const REFUSED: &str = "-";

/// Ends of the names of groups whose files Pillow decodes and feedwater refuses on purpose. Their
/// headers break the standard, so Pillow's pixels are a guess. The documentation of
/// [`Decoders::strict`] lists these groups.
const DECISIONS: [&str; 7] = [
    "/first",
    "/IHDR/long",
    "/IHDR/second",
    "/IHDR/compression",
    "/IHDR/interlacing",
    "animation-whose-image-is-a-part",
    "animation-without-image",
];

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes)[..6].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Files that Pillow rejects and feedwater accepts, as (group, number in the group). All pixels are
/// present. Only the zlib data after the pixels is damaged, in a way that neither the `png` crate
/// nor a chunk checksum detects.
const UNSEEN: [(&str, usize); 1] = [("rgba-interlaced-7x6/fixed/data-xor-ff", 192)];

/// The pixels with the damage that was tolerated, or the error.
type Outcome = Result<(Vec<u8>, Option<Tolerated>), DataError>;

fn decode(bytes: &[u8], strict: bool) -> Outcome {
    let header = Header::parse_as(bytes, strict)?;
    decode_window(bytes, strict, &header, header.size.window())
}

fn decode_window(bytes: &[u8], strict: bool, header: &Header, window: Roi) -> Outcome {
    let mut decoder = Decoders::new().strict(strict);
    let mut pixels = Vec::new();
    let mut next = window.y;
    decoder.decode(bytes, header, window, 1, &mut |rows| {
        for (y, row) in rows.iter() {
            assert_eq!(y, next, "rows must arrive in order, once");
            next += 1;
            pixels.extend_from_slice(row);
        }
    })?;
    assert_eq!(next, window.bottom(), "every row must arrive");
    Ok((pixels, decoder.tolerated()))
}

/// Whether windows at the upper left and at the lower right of a damaged image have the same pixels
/// as these parts of `pixels`, the whole image.
fn parts_are_the_same(bytes: &[u8], pixels: &[u8]) -> bool {
    let header = Header::parse_as(bytes, false).unwrap();
    let Size { width, height } = header.size;
    let (x, y) = (width / 3, height / 2);
    let (upper, lower) =
        (Roi::new(0, 0, width - x, height - y), Roi::new(x, y, width - x, height - y));
    [upper, lower].into_iter().all(|window| {
        let rows = pixels.chunks_exact(3 * width as usize);
        let rows = rows.skip(window.y as usize).take(window.height as usize);
        let columns = 3 * window.x as usize..3 * window.right() as usize;
        let expected: Vec<u8> = rows.flat_map(|row| &row[columns.clone()]).copied().collect();
        decode_window(bytes, false, &header, window).is_ok_and(|found| found.0 == expected)
    })
}

/// Returns an outcome as text for a message.
fn told(outcome: &Outcome) -> String {
    match outcome {
        Ok((pixels, tolerated)) => format!("{} ({tolerated:?})", digest(pixels)),
        Err(fault) => fault.to_string(),
    }
}

/// Returns for each group its name, the digest of its files, and for each file the digest of
/// Pillow's pixels or [`REFUSED`].
fn golden() -> Vec<(String, String, Vec<String>)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/png_damage.txt");
    let text = fs::read_to_string(path).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let outcomes = |run: &str| {
        let (outcome, count) = run.split_once('*').unwrap_or((run, "1"));
        vec![outcome.to_string(); count.parse().unwrap()]
    };
    let parsed = |line: &str| {
        let mut words = line.split(' ');
        let [name, files] = [(); 2].map(|()| words.next().unwrap().to_string());
        (name, files, words.flat_map(outcomes).collect())
    };
    lines.map(parsed).collect()
}

#[test]
fn outcomes_and_pixels_are_pillows() {
    let golden = golden();
    let groups = files::all();
    assert_eq!(groups.len(), golden.len(), "the table does not match these files: write it again");
    let mut wrong = Vec::new();
    let (mut taken, mut refused) = (0, 0);
    let mut decisions = DECISIONS.map(|_| 0);
    for (Group { name, files }, (expected_name, digest_of_files, expected)) in
        groups.iter().zip(&golden)
    {
        assert_eq!(name, expected_name);
        assert_eq!(
            digest(&files.concat()),
            *digest_of_files,
            "{name}: the files changed, write the table again"
        );
        assert_eq!(files.len(), expected.len(), "{name}");
        for (at, (bytes, expected)) in files.iter().zip(expected).enumerate() {
            let [strict, found] = [true, false].map(|strict| decode(bytes, strict));
            let shown = |result: &Outcome| match result {
                Ok((pixels, _)) => digest(pixels),
                Err(_) => REFUSED.to_string(),
            };
            let mut complain = |what: String| wrong.push(format!("{name} {at}: {what}"));
            *if expected == REFUSED { &mut refused } else { &mut taken } += 1;
            let decided = DECISIONS.iter().position(|ending| name.ends_with(ending));
            if let (Some(decided), Err(_), Err(_)) = (decided, &found, &strict)
                && expected != REFUSED
            {
                decisions[decided] += 1;
                continue;
            }
            if UNSEEN.contains(&(name, at)) {
                assert!(
                    expected == REFUSED && found.is_ok(),
                    "{name} {at} is now detected: remove it from UNSEEN"
                );
                continue;
            }
            if shown(&found) != *expected {
                complain(format!("Pillow {expected}, here {}", told(&found)));
                continue;
            }
            if let Ok((pixels, Some(_))) = &found
                && !parts_are_the_same(bytes, pixels)
            {
                complain("a part differs from the whole".into());
            }
            // Strict mode must accept exactly the files that tolerant mode decodes without damage.
            let sound = matches!(found, Ok((_, None)));
            if sound != strict.is_ok() || strict.is_ok() && shown(&strict) != *expected {
                complain(format!("strict {}, else {}", told(&strict), told(&found)));
            }
        }
    }
    let shown = wrong.iter().take(100).cloned().collect::<Vec<_>>().join("\n");
    assert!(wrong.is_empty(), "{} of {} differ:\n{shown}", wrong.len(), taken + refused);
    assert!(decisions.iter().all(|count| *count > 0), "{DECISIONS:?}: {decisions:?}");
    assert!(taken > 1000 && refused > 1000, "{taken} taken, {refused} refused");
}

/// Writes the files whose results are in `tests/golden/png_damage.txt`. To renew the results, run
/// `cargo test -p feedwater-tests --test images -- --ignored png_damage:: --nocapture`, then
/// `python tests/golden/png_damage.py FILE` with the printed path.
#[test]
#[ignore = "writes files for tests/golden/png_damage.py"]
fn write_files() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("png_damage.bin");
    let mut out = std::io::BufWriter::new(fs::File::create(&path).unwrap());
    let mut bytes = |bytes: &[u8]| {
        out.write_all(&(bytes.len() as u32).to_le_bytes()).unwrap();
        out.write_all(bytes).unwrap();
    };
    for Group { name, files } in files::all() {
        bytes(name.as_bytes());
        bytes(&(files.len() as u32).to_le_bytes());
        files.iter().for_each(|file| bytes(file));
    }
    println!("{}", path.display());
}
