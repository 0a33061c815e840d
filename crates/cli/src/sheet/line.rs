//! Draws rectangles, outlines and text, one row of pixels at a time.

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

use super::font;

pub type Rgb = [u8; 3];

/// Left, top, right and bottom edge of a rectangle. The right edge is the first column after the
/// rectangle, and the bottom edge is the first row below it.
pub type Rectangle = [i32; 4];

/// One row of pixels. Parts of shapes and text beyond its ends are not drawn.
pub struct Line<'a> {
    pub rgb: &'a mut [u8],
    pub y: i32,
}

impl Line<'_> {
    /// Fills a rectangle.
    pub fn fill(&mut self, rectangle: Rectangle, colour: Rgb) {
        self.dots(rectangle, colour, |_| true);
    }

    /// Draws the outline of a rectangle, inside its edges. The outline of a crowd is dashed.
    pub fn outline(&mut self, rectangle: Rectangle, thick: i32, colour: Rgb, dashed: bool) {
        let [left, top, right, bottom] = rectangle;
        let y = self.y;
        let dash = |x: i32| !dashed || ((x - left + y - top) / (3 * thick)) % 2 == 0;
        for side in [
            [left, top, right, top + thick],
            [left, bottom - thick, right, bottom],
            [left, top, left + thick, bottom],
            [right - thick, top, right, bottom],
        ] {
            self.dots(side, colour, dash);
        }
    }

    /// Draws a line of text with its upper left corner at `x` and `top`.
    pub fn text(&mut self, [x, top]: [i32; 2], text: &str, scale: i32, colour: Rgb) {
        let row = (self.y - top).div_euclid(scale);
        let Some(row) = usize::try_from(row).ok().filter(|&row| row < font::ROWS) else { return };
        for (place, character) in text.chars().enumerate() {
            let bits = font::row(character, row);
            let left = x + (place * font::ADVANCE) as i32 * scale;
            for column in (0..5).filter(|column| bits & (16 >> column) != 0) {
                let left = left + column * scale;
                self.fill([left, self.y, left + scale, self.y + 1], colour);
            }
        }
    }

    fn dots(
        &mut self,
        [left, top, right, bottom]: Rectangle,
        colour: Rgb,
        dot: impl Fn(i32) -> bool,
    ) {
        if !(top..bottom).contains(&self.y) {
            return;
        }
        let (pixels, _) = self.rgb.as_chunks_mut::<3>();
        let end = right.clamp(0, pixels.len() as i32);
        for x in (left.max(0)..end).filter(|&x| dot(x)) {
            pixels[x as usize] = colour;
        }
    }
}

/// Width of a text with this number of characters in pixels, without the gap after the last
/// character.
pub fn text_width(characters: usize, scale: i32) -> i32 {
    ((characters * font::ADVANCE) as i32 - 1).max(0) * scale
}

/// Shortens text to at most `most` characters of the font. Keeps its beginning and its end, with
/// two dots between them.
pub fn shortened(text: &str, most: usize) -> String {
    let text = drawable(text);
    let count = text.chars().count();
    if count <= most {
        return text;
    }
    let kept = most.saturating_sub(2);
    // Keep the end of the text, because file names often differ only in a number before the
    // extension.
    let front = kept / 2;
    let begin = text.chars().take(front);
    begin.chain("..".chars()).chain(text.chars().skip(count - (kept - front))).take(most).collect()
}

/// Letters and signs that are drawn as others, because the font lacks them.
const ALIKE: &[(&str, &str)] = &[
    ("ßẞ", "ss"),
    ("łŁ", "l"),
    ("ı", "i"),
    ("øØ", "o"),
    ("đðĐÐ", "d"),
    ("œŒ", "oe"),
    ("æÆ", "ae"),
    ("þÞ", "th"),
    ("‐‑‒–—−", "-"),
    ("‘’‚′", "'"),
    ("“”„″«»", "\""),
];

/// Removes accents and replaces letters that the font lacks, and writes a space for line ends and
/// other white space.
fn drawable(text: &str) -> String {
    let mut drawn = String::new();
    for letter in text.nfkd().filter(|it| !is_combining_mark(*it)) {
        match ALIKE.iter().find(|(letters, _)| letters.contains(letter)) {
            Some((_, alike)) => drawn += alike,
            None => drawn.push(letter),
        }
    }
    drawn.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accents_and_line_ends_are_not_drawn() {
        assert_eq!(shortened("Café\u{301} à\tla\n\nﬁn\r\n", 99), "Cafe a la fin");
        assert_eq!(shortened("é\n", 1), "e");
        assert_eq!(shortened("Größe “naïve” – żółć", 99), "Grosse \"naive\" - zolc");
    }

    #[test]
    fn long_text_is_shortened_in_the_middle() {
        assert_eq!(shortened("0000012.jpg", 11), "0000012.jpg");
        assert_eq!(shortened("a-very-long-name-0000012.jpg", 12), "a-ver..2.jpg");
        assert_eq!(shortened("abc", 2), "..");
        assert_eq!(shortened("abc", 0), "");
    }

    #[test]
    fn text_and_outlines_are_drawn_row_by_row_and_clipped() {
        let draw = |paint: &dyn Fn(&mut Line)| -> Vec<String> {
            let row = |y| {
                let mut rgb = [0; 3 * 8];
                paint(&mut Line { rgb: &mut rgb, y });
                rgb.chunks(3).map(|it| if it[0] == 9 { '#' } else { '.' }).collect()
            };
            (0..9).map(row).collect()
        };
        let outline = draw(&|line| line.outline([-1, 1, 6, 5], 1, [9; 3], false));
        assert_eq!(
            outline[..6],
            ["........", "######..", ".....#..", ".....#..", "######..", "........"]
        );
        let text = draw(&|line| line.text([2, 1], "TT", 1, [9; 3]));
        let (bar, stem) = ("..#####.", "....#...");
        assert_eq!(text, ["........", bar, stem, stem, stem, stem, stem, stem, "........"]);
        let large = draw(&|line| line.text([0, 0], "-", 2, [9; 3]));
        assert_eq!((&*large[5], &*large[6], &*large[7]), ("........", "..######", "..######"));
    }
}
