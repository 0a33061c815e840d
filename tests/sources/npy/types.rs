//! Stacks of images of 16 bits, of floats and with alpha.

use feedwater::PixelFormat;
use feedwater::internals::decode::FloatPart;

use super::*;

/// Decodes a sample to floats of this format.
fn floats(source: &Npy, index: u64, format: PixelFormat) -> Vec<f32> {
    let mut page = HostPage::default();
    source.read(index, &mut page, 1 << 30).unwrap();
    let header = Header::parse(page.bytes()).unwrap();
    let mut values = Vec::new();
    let sink = &mut |part: FloatPart<'_>| {
        part.pixels.iter().for_each(|pixel| values.extend(&pixel[..format.channels()]));
    };
    let window = header.size.window();
    Decoders::new().decode_floats(page.bytes(), &header, format, window, sink).unwrap();
    values
}

/// Images of 16 bits, of floats and with alpha, in both byte orders and both orders of axes.
#[test]
fn stacks_of_other_types_are_read() {
    // Values of a stack of two images with two rows, three columns and these channels.
    let value = |image: u32, y: u32, x: u32, channel: u32| {
        (image * 7919 + y * 991 + x * 211 + channel * 53) as u16 * 5
    };
    for (descr, big_endian) in [("<u2", false), (">u2", true), ("<f4", false), (">f4", true)] {
        for (channels, is_planar) in
            [(1, false), (1, true), (3, false), (3, true), (4, false), (4, true)]
        {
            let mut elements = Vec::new();
            let mut put = |value: u16| {
                let mut bytes = match descr.ends_with("u2") {
                    true => value.to_le_bytes().to_vec(),
                    false => (f32::from(value) / 8.0).to_le_bytes().to_vec(),
                };
                if big_endian {
                    bytes.reverse();
                }
                elements.extend(bytes);
            };
            for image in 0..2 {
                let (outer, inner) = if is_planar { (channels, 1) } else { (1, channels) };
                for plane in 0..outer {
                    for (y, x) in (0..2).flat_map(|y| (0..7).map(move |x| (y, x))) {
                        (0..inner).for_each(|channel| put(value(image, y, x, plane + channel)));
                    }
                }
            }
            let shape = match is_planar {
                true => format!("(2, {channels}, 2, 7)"),
                false => format!("(2, 2, 7, {channels})"),
            };
            let source = opened(&file(&header(descr, &shape), &elements)).unwrap();
            assert_eq!(source.len(), 2);
            let scale = if descr.ends_with("u2") { 1.0 } else { 8.0 };
            let format = if channels == 1 { PixelFormat::F32 } else { PixelFormat::F32x3 };
            for image in 0..2 {
                let places = (0..2).flat_map(|y| (0..7).map(move |x| (y, x)));
                let expected: Vec<f32> = places
                    .flat_map(|(y, x)| (0..channels.min(3)).map(move |channel| (y, x, channel)))
                    .map(|(y, x, channel)| f32::from(value(image, y, x, channel)) / scale)
                    .collect();
                let case = format!("{descr} {shape}");
                assert_eq!(floats(&source, image.into(), format), expected, "{case}");
                if descr.ends_with("u2") {
                    let format = if channels == 1 { PixelFormat::U16 } else { PixelFormat::U16x3 };
                    assert_eq!(floats(&source, image.into(), format), expected, "{case}");
                }
            }
        }
    }
    let pixels: Vec<u8> = (0..2 * 2 * 7 * 4).map(|at| at * 2).collect();
    for (shape, planar) in [("(2, 2, 7, 4)", false), ("(2, 4, 2, 7)", true)] {
        let source = opened(&file(&header("|u1", shape), &pixels)).unwrap();
        for (index, image) in pixels.chunks(56).enumerate() {
            let place = |pixel: usize, channel: usize| {
                if planar { 14 * channel + pixel } else { 4 * pixel + channel }
            };
            let rgb = (0..14).flat_map(|pixel| (0..3).map(move |channel| (pixel, channel)));
            let rgb: Vec<u8> = rgb.map(|(pixel, channel)| image[place(pixel, channel)]).collect();
            assert_eq!(read(&source, index as u64).unwrap(), (Size::new(7, 2), rgb), "{shape}");
        }
    }
}
