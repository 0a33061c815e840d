use super::caption::Caption;
use super::object::Object;
use super::*;

const RED: Rgb = [230, 40, 40];
const GREEN: Rgb = [0, 255, 0];

fn caption(title: &str, file: &str) -> Caption {
    Caption { title: title.into(), file: file.into(), mark: None, objects: Vec::new() }
}

/// Returns all pixels of a sheet of images with a single colour, row by row.
fn drawn((width, height): (u32, u32), captions: Vec<Caption>) -> Vec<Vec<Rgb>> {
    let batch = captions.len();
    let shape =
        TensorShape { batch, width, height, dtype: DType::U8, layout: Layout::Nhwc, channels: 3 };
    let data: Vec<u8> =
        (1..=batch as u8).flat_map(|level| vec![100 + level; shape.sample_bytes()]).collect();
    let sheet = Sheet::of(shape, data.into(), None, captions);
    let (width, height) = sheet.size();
    let row = |y| {
        let mut rgb = vec![0; CHANNELS * width];
        sheet.draw_row(y, &mut rgb);
        rgb.as_chunks::<CHANNELS>().0.to_vec()
    };
    (0..height).map(row).collect()
}

/// Returns the first and last column, and the first and last row, in which this colour occurs.
fn extent(sheet: &[Vec<Rgb>], colour: Rgb) -> Option<[usize; 4]> {
    let mut found: Option<[usize; 4]> = None;
    for (y, row) in sheet.iter().enumerate() {
        for (x, _) in row.iter().enumerate().filter(|(_, it)| **it == colour) {
            let [left, right, top, bottom] = found.unwrap_or([x, x, y, y]);
            found = Some([left.min(x), right.max(x), top.min(y), bottom.max(y)]);
        }
    }
    found
}

/// The sheet has three images of 100x40 pixels in a 2x2 grid. Each image has two lines of text
/// below it.
#[test]
fn images_lie_in_rows_with_their_captions_below() {
    let captions = vec![caption("H", ""), caption("", "H"), caption("HH", "")];
    let sheet = drawn((100, 40), captions);
    let pitch = GAP + 40 + 25;
    assert_eq!((sheet[0].len(), sheet.len()), (2 * (100 + GAP) + GAP, 2 * pitch + GAP));
    let second = GAP + 100 + GAP;
    for (level, left, top) in [(101, GAP, GAP), (102, second, GAP), (103, GAP, GAP + pitch)] {
        assert_eq!(extent(&sheet, [level; 3]), Some([left, left + 99, top, top + 39]), "{level}");
    }
    // A title starts five rows below its image, and a file name one line below the title. The
    // letter H is seven pixel rows high.
    let title = GAP + 40 + 5;
    assert_eq!(extent(&sheet, TITLE), Some([GAP, GAP + 10, title, title + pitch + 6]));
    assert_eq!(
        sheet[title + 3][GAP..GAP + 6],
        [TITLE, TITLE, TITLE, TITLE, TITLE, [BACKGROUND; 3]]
    );
    let file = title + LINE;
    assert_eq!(extent(&sheet, FILE), Some([second, second + 4, file, file + 6]));
}

#[test]
fn a_caption_is_shortened_to_the_columns_of_its_image() {
    let long = "n".repeat(200);
    let sheet = drawn((10, 10), vec![caption(&long, &long), caption(&long, &long)]);
    // A caption of sixteen characters is wider than the image, so the next image moves to the
    // right.
    let column = 16 * font::ADVANCE - 1;
    assert_eq!(sheet[0].len(), 2 * (column + GAP) + GAP);
    let gap = GAP + column..GAP + column + GAP;
    assert!(sheet.iter().all(|row| row[gap.clone()].iter().all(|it| *it == [BACKGROUND; 3])));
    assert_eq!(extent(&sheet, TITLE).unwrap()[1], GAP + 2 * column + GAP - 1);
}

#[test]
fn a_box_has_an_outline_and_its_category() {
    let object = |rectangle, crowd| Object { rectangle, name: "T".into(), colour: GREEN, crowd };
    let mut whole = caption("", "");
    whole.objects = vec![object([20, 30, 60, 70], false)];
    let sheet = drawn((100, 80), vec![whole]);
    let at = |x: usize, y: usize| sheet[GAP + y][GAP + x];
    // The outline is two pixels wide, inside the edges, with a dark line on both sides.
    for (x, y) in [(20, 50), (21, 50), (58, 50), (59, 50), (40, 30), (40, 31), (40, 68), (40, 69)] {
        assert_eq!(at(x, y), GREEN, "{x} {y}");
    }
    for (x, y) in [(19, 50), (22, 50), (57, 50), (60, 50), (40, 32), (40, 67), (40, 70)] {
        assert_eq!(at(x, y), [0; 3], "{x} {y}");
    }
    for (x, y) in [(18, 50), (23, 50), (40, 50), (61, 50), (40, 71)] {
        assert_eq!(at(x, y), [101; 3], "{x} {y}");
    }
    // The name of the object is the letter T. It is above the box, on a background of ten rows.
    assert_eq!(at(20, 20), GREEN);
    assert_eq!([22, 23, 24, 25, 26].map(|x| at(x, 22)), [[0; 3]; 5]);
    assert_eq!([23, 24, 25].map(|x| at(x, 25)), [GREEN, [0; 3], GREEN]);

    let mut crowd = caption("", "");
    crowd.objects = vec![object([20, 30, 60, 70], true)];
    let dashed = drawn((100, 80), vec![crowd]);
    let colours: Vec<bool> = (30..70).map(|y| dashed[GAP + y][GAP + 20] == GREEN).collect();
    assert!(colours.contains(&true) && colours.contains(&false), "a crowd's outline is dashed");
}

/// Boxes lie at and beyond every edge, in images that are smaller than the name of a box.
#[test]
fn boxes_and_names_never_leave_their_image() {
    for size in [(100, 80), (7, 5), (1, 1)] {
        let mut first = caption("", "");
        let whole = [0, 0, size.0 as i32, size.1 as i32];
        for rectangle in
            [whole, [-9, -9, 200, 200], [90, 70, 100, 80], [0, 79, 3, 80], [5, 5, 5, 5]]
        {
            let name = "a-long-category".into();
            first.objects.push(Object { rectangle, name, colour: GREEN, crowd: false });
        }
        let sheet = drawn(size, vec![first, caption("", "")]);
        let [left, right, top, bottom] = extent(&sheet, GREEN).unwrap();
        let (width, height) = (size.0 as usize, size.1 as usize);
        assert!(left >= GAP && right < GAP + width, "{size:?}: {left} to {right}");
        assert!(top >= GAP && bottom < GAP + height, "{size:?}: {top} to {bottom}");
    }
}

#[test]
fn unusual_images_have_a_frame_and_a_text() {
    let mut odd = caption("", "");
    odd.mark = Some(("substituted".into(), RED));
    let sheet = drawn((100, 40), vec![odd, caption("", "")]);
    assert_eq!(extent(&sheet, RED), Some([GAP - 4, GAP + 103, GAP - 4, GAP + 43]));
    let white = extent(&sheet, [255; 3]).unwrap();
    assert_eq!(white, [GAP + 2, GAP + 2 + 11 * 6 - 2, GAP + 32, GAP + 38]);
}

#[test]
fn captions_of_large_images_are_larger() {
    let sheet = drawn((640, 8), vec![caption("H", "")]);
    let title = GAP + 8 + 10;
    assert_eq!(extent(&sheet, TITLE), Some([GAP, GAP + 9, title, title + 13]));
}

#[test]
fn indices_have_a_colour_each() {
    let shape = TensorShape {
        batch: 1,
        width: 4,
        height: 1,
        dtype: DType::U8,
        layout: Layout::Nchw,
        channels: 1,
    };
    let ends = Some([[f32::INFINITY; 2]; CHANNELS]);
    let sheet = Sheet::of(shape, vec![0, 1, 2, 255].into(), ends, vec![caption("", "")]);
    let mut rgb = vec![0; CHANNELS * sheet.size().0];
    sheet.draw_row(GAP, &mut rgb);
    let pixels = &rgb.as_chunks::<CHANNELS>().0[GAP..GAP + 4];
    assert_eq!(pixels, [0, 1, 2, 255].map(object::of_index));
    assert_eq!((pixels[0], pixels[3]), ([0; 3], [128; 3]));
    assert_ne!(pixels[1], pixels[2]);
}
