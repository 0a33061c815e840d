//! Tests `Header::layout`, which finds the positions of the parts of a JPEG in bounded memory.

use feedwater::error::{DataError, Reason};
use feedwater::internals::header::{Header, JpegLayout};

use crate::jpeg::{Recipe, Scans};
use crate::verify::{find, good, insert, segment};

fn layout(bytes: &[u8]) -> Result<JpegLayout, DataError> {
    let mut layout = JpegLayout::default();
    Header::parse(bytes)?.layout(bytes, true, &mut layout)?;
    Ok(layout)
}

#[test]
fn offsets_point_to_tables_and_coded_data() {
    for (name, bytes) in good() {
        let header = Header::parse(bytes).unwrap();
        let jpeg = header.jpeg.as_ref().unwrap();
        let layout = layout(bytes).unwrap();
        let of_frame = jpeg.components().len();
        let coded: usize = layout.scans().iter().map(|scan| scan.components().len()).sum();
        assert!(coded >= of_frame, "{name}");
        assert_eq!(layout.scans()[0].components().len(), usize::from(jpeg.scan_components));
        assert_eq!(layout.end(), bytes.windows(2).rposition(|it| it == [0xFF, 0xD9]).unwrap() + 2);
        for scan in layout.scans() {
            assert_eq!(scan.restart_interval, jpeg.restart_interval, "{name}");
            let intervals = match u64::from(scan.restart_interval) {
                0 => 1,
                interval => scan.mcus.pixels().div_ceil(interval),
            };
            assert_eq!(layout.restarts(scan).len() as u64, intervals - 1, "{name}");
            for (number, &at) in layout.restarts(scan).iter().enumerate() {
                assert!(scan.data.contains(&at), "{name}");
                assert_eq!(bytes[at - 2..at], [0xFF, 0xD0 + number as u8 % 8], "{name}");
            }
            // A scan header ends with three bytes: the first and last coefficient of its band, and
            // its bit positions.
            let head = [scan.band[0], scan.band[1], scan.bits[0] << 4 | scan.bits[1]];
            assert_eq!(bytes[scan.data.start - 3..scan.data.start], head, "{name}");
            assert_eq!(bytes[scan.data.end], 0xFF, "{name}");
            for component in scan.components() {
                assert!(component.place < of_frame, "{name}");
                assert!(bytes[component.quantization..][..64].iter().all(|&step| step > 0));
                assert_eq!(component.dc.is_some(), scan.band[0] == 0 && scan.bits[0] == 0);
                assert_eq!(component.ac.is_some(), scan.band[1] > 0, "{name}");
                for (class, table) in [(0, component.dc), (1, component.ac)] {
                    let kind = table.map_or(class, |at| bytes[at - 1] >> 4);
                    assert_eq!(kind, class, "{name}");
                }
            }
        }
    }
}

/// A redefined table applies only to the following scans.
#[test]
fn a_scan_has_the_latest_tables() {
    let good = Recipe { scans: Scans::Separate, ..Recipe::new(40, 30, &[(1, 1); 3]) }.make();
    let first = layout(&good).unwrap().scans()[0].data.end;
    let file = insert(&good, first, &segment(0xDB, &[&[0u8][..], &[9; 64]].concat()));
    let layout = layout(&file).unwrap();
    let step = |scan: usize| file[layout.scans()[scan].components()[0].quantization];
    assert_eq!([step(0), step(1), step(2)], [8, 9, 9]);
}

#[test]
fn restart_markers_are_listed_only_on_request() {
    let file = Recipe { restart: 1, ..Recipe::new(40, 40, &[(1, 1)]) }.make();
    let mut layout = JpegLayout::default();
    for (asked, listed) in [(true, 24), (false, 0), (true, 24)] {
        Header::parse(&file).unwrap().layout(&file, asked, &mut layout).unwrap();
        assert_eq!(layout.restarts(&layout.scans()[0]).len(), listed);
    }
}

#[test]
fn a_failed_file_leaves_nothing_and_its_memory_is_reused() {
    let file = Recipe { restart: 1, ..Recipe::new(40, 40, &[(1, 1)]) }.make();
    let header = Header::parse(&file).unwrap();
    let mut layout = JpegLayout::default();
    header.layout(&file, true, &mut layout).unwrap();
    let held = layout.capacity_bytes();
    let error = header.layout(&file[..file.len() - 2], true, &mut layout).unwrap_err();
    assert_eq!((error.reason, layout.scans().len(), layout.end()), (Reason::Truncated, 0, 0));
    header.layout(&file, true, &mut layout).unwrap();
    assert_eq!((layout.scans().len(), layout.capacity_bytes()), (1, held));
}

#[test]
fn a_million_segments_need_no_memory() {
    let good = Recipe::new(16, 16, &[(1, 1)]).make();
    let table = segment(0xDB, &[&[1u8][..], &[9; 64]].concat());
    let ones = |part: &[u8], count| insert(&good, 2, &part.repeat(count));
    let held = layout(&good).unwrap().capacity_bytes();
    for file in [ones(&[0xFF, 0xFE, 0, 2], 1_000_000), ones(&table, 100_000)] {
        assert_eq!(layout(&file).unwrap().capacity_bytes(), held);
    }
}

/// A JPEG may have a separate scan for every bit of every coefficient: 896 scans of one block. The
/// parser and the check accept this, but the layout refuses so many scans.
#[test]
fn endless_scans_are_errors_of_the_layout_alone() {
    let good = Recipe { scans: Scans::OnlyDc, ..Recipe::new(8, 8, &[(1, 1)]) }.make();
    let mut file = good[..find(&good, 0xDA)].to_vec();
    for coefficient in 0..64u8 {
        for low in (0..14u8).rev() {
            let before = if low == 13 { 0 } else { low + 1 };
            let head = [1, 1, 0, coefficient, coefficient, before << 4 | low];
            file.extend(segment(0xDA, &head));
            file.push(0x55);
        }
    }
    file.extend([0xFF, 0xD9]);
    let header = Header::parse(&file).unwrap();
    header.verify(&file).unwrap();
    let mut layout = JpegLayout::default();
    let error = header.layout(&file, true, &mut layout).unwrap_err();
    assert_eq!(error.reason, Reason::Unsupported, "{error}");
    assert!(layout.capacity_bytes() <= JpegLayout::MOST_BYTES);
}

/// The file has 262,144 MCUs, each with two bytes and a restart marker.
#[test]
fn restart_markers_beyond_the_maximum_are_not_listed() {
    let good = Recipe { restart: 1, ..Recipe::new(4096, 4096, &[(1, 1)]) };
    let small = Recipe { width: 8, height: 8, ..good.clone() }.make();
    let mut file = small.clone();
    let frame = find(&file, 0xC0);
    file[frame + 5..frame + 9].copy_from_slice(&[0x10, 0, 0x10, 0]);
    file.truncate(find(&small, 0xDA) + 10);
    for mcu in 0..512 * 512 {
        file.extend([0x55; 2]);
        if mcu + 1 < 512 * 512 {
            file.extend([0xFF, 0xD0 + (mcu % 8) as u8]);
        }
    }
    file.extend([0xFF, 0xD9]);
    let layout = layout(&file).unwrap();
    let scan = &layout.scans()[0];
    assert_eq!((scan.mcus.pixels(), layout.restarts(scan).len()), (512 * 512, 0));
    assert!(layout.capacity_bytes() <= JpegLayout::MOST_BYTES, "{}", layout.capacity_bytes());
}
