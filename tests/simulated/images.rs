//! Files as far as the simulated nvJPEG looks at them, and what it decodes of them.

use feedwater::decode::Decoders;
use feedwater::geometry::{Roi, Size};
use feedwater::header::Header;

use super::Simulated;

/// The frame header of a baseline file with three components, 4:2:0, then `tag`.
pub fn file(size: Size, tag: u8) -> Vec<u8> {
    file_with(size, 0xc0, &[0x22, 0x11, 0x11], tag)
}

/// The same with another frame and with other components: of each how it is sampled, horizontal * 16 + vertical.
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

/// What the simulated nvJPEG decodes without a decoder set: a pattern of the file's bytes and the position.
pub fn pattern(bytes: &[u8], window: Roi) -> Vec<u8> {
    reduced_pattern(bytes, 1, window)
}

/// The same of an image whose sides are divided.
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

/// The rows of `inner` out of the pixels of `outer`.
pub fn cut(pixels: &[u8], outer: Roi, inner: Roi) -> Vec<u8> {
    let (x, y) = ((inner.x - outer.x) as usize, (inner.y - outer.y) as usize);
    let (pitch, row) = (3 * outer.width as usize, 3 * inner.width as usize);
    let rows = pixels.chunks(pitch).skip(y).take(inner.height as usize);
    rows.flat_map(|it| it[3 * x..][..row].to_vec()).collect()
}

/// Nothing is left, and nothing was done wrong.
pub fn assert_clean(machine: &Simulated, what: &str) {
    let counts = machine.counts();
    assert_eq!(counts.live(), 0, "{what}: something is left: {counts:?}");
    assert_eq!(counts.faults(), 0, "{what}: {counts:?}");
}

/// The mocked nvJPEG decodes as libjpeg-turbo does.
pub unsafe extern "C" fn libjpeg(
    bytes: *const u8,
    count: usize,
    reduction: i32,
    x: i32,
    y: i32,
    width: i32,
    height: i32,
    rgb: *mut u8,
) -> i32 {
    const BAD_JPEG: i32 = 3;
    // SAFETY: nvjpeg.cpp passes that many bytes, and room for that many pixels.
    let (bytes, rgb) = unsafe {
        let rgb = std::slice::from_raw_parts_mut(rgb, (3 * width * height) as usize);
        (std::slice::from_raw_parts(bytes, count), rgb)
    };
    let Ok(header) = Header::parse(bytes) else { return BAD_JPEG };
    let window = Roi::new(x as u32, y as u32, width as u32, height as u32);
    let mut rows = rgb.chunks_exact_mut(3 * width as usize);
    let decoded = Decoders::new().decode(bytes, &header, window, reduction as u32, &mut |group| {
        group.iter().for_each(|(_, row)| rows.next().unwrap().copy_from_slice(row));
    });
    if decoded.is_ok() { 0 } else { BAD_JPEG }
}
