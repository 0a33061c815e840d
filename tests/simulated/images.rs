//! Files for the simulated nvJPEG, and the pixels that it computes from them.

use feedwater::internals::geometry::{Roi, Size};

use super::Simulated;
#[allow(unused_imports, reason = "some tests need a pattern only")]
pub use super::libjpeg::libjpeg;

/// Returns a file with the frame header of a baseline JPEG with three components in 4:2:0, followed
/// by the byte `tag`. There are no pixels.
pub fn file(size: Size, tag: u8) -> Vec<u8> {
    file_with(size, 0xc0, &[0x22, 0x11, 0x11], tag)
}

/// Like [`file`], but with the given frame marker and components. `sampling` has one number for
/// each component: horizontal factor * 16 + vertical factor.
pub fn file_with(size: Size, frame: u8, sampling: &[u8], tag: u8) -> Vec<u8> {
    let (width, height) = ((size.width as u16).to_be_bytes(), (size.height as u16).to_be_bytes());
    let mut bytes = vec![0xff, 0xd8, 0xff, frame, 0, 8 + 3 * sampling.len() as u8, 8];
    bytes.extend(height);
    bytes.extend(width);
    bytes.push(sampling.len() as u8);
    for (number, sampling) in sampling.iter().enumerate() {
        bytes.extend([number as u8 + 1, *sampling, u8::from(number > 0)]);
    }
    bytes.push(tag);
    bytes
}

/// Returns the pixels that the simulated nvJPEG outputs if no decoder is set: a pattern that
/// depends on the file's bytes and the position.
pub fn pattern(bytes: &[u8], window: Roi) -> Vec<u8> {
    reduced_pattern(bytes, 1, window)
}

/// Like [`pattern`], for an image whose sides are divided by `reduction`.
pub fn reduced_pattern(bytes: &[u8], reduction: u32, window: Roi) -> Vec<u8> {
    let sum =
        bytes.iter().fold(0u32, |sum, byte| sum.wrapping_mul(31).wrapping_add((*byte).into()));
    let mut rgb = Vec::new();
    for y in window.y..window.bottom() {
        for x in window.x..window.right() {
            let place = reduction * (7 * x + 13 * y);
            rgb.extend((0..3).map(|c| sum.wrapping_add(place + 101 * c) as u8));
        }
    }
    rgb
}

/// Returns the pixels of the window `inner`, given those of the window `outer`.
pub fn cut(pixels: &[u8], outer: Roi, inner: Roi) -> Vec<u8> {
    let (x, y) = ((inner.x - outer.x) as usize, (inner.y - outer.y) as usize);
    let (pitch, row) = (3 * outer.width as usize, 3 * inner.width as usize);
    let rows = pixels.chunks(pitch).skip(y).take(inner.height as usize);
    rows.flat_map(|it| it[3 * x..][..row].to_vec()).collect()
}

/// Removes the padding between rows of pixels in device memory.
pub fn dense(bytes: &[u8], window: Roi) -> Vec<u8> {
    let rows = bytes.chunks_exact(window.pitch_bytes() as usize);
    rows.flat_map(|row| &row[..3 * window.width as usize]).copied().collect()
}

/// Checks that no object or allocation is left, and that no call was wrong. Callers must drop all
/// objects first.
pub fn assert_clean(machine: &Simulated, what: &str) {
    let counts = machine.counts();
    assert_eq!(counts.live(), 0, "{what}: leaked: {counts:?}");
    assert_eq!(counts.faults(), 0, "{what}: {counts:?}");
}
