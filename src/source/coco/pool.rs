//! Compact byte encoding of annotations that keeps numbers exact.
//!
//! Whole numbers are stored as LEB128. Signed numbers are zigzag-encoded first. A coordinate with
//! at most two decimals is stored as its difference in hundredths to the previous coordinate on the
//! same axis, plus one. Any other coordinate is stored as a zero and the eight bytes of the f64.
//! Dividing hundredths by 100 gives the same f64 as parsing the decimal.

use crate::annotation::{Object, RunLengths, Segmentation};
use crate::geometry::{BoundingBox, Size};

/// Encoded annotations.
#[derive(Debug, Default)]
pub struct Pool {
    bytes: Vec<u8>,
}

/// Fields of an annotation that are checked after the whole file has been read.
pub struct Head {
    pub id: i64,
    pub category: i64,
    pub crowd: bool,
    /// Size of the mask, if the annotation has run lengths.
    pub size: Option<Size>,
}

const CROWD: u64 = 1;
const POLYGONS: u64 = 2;
const RUNS: u64 = 4;

impl Pool {
    /// Appends the annotation `object`, whose `category` must be the category's ID in the file.
    /// `bbox` is its box: x, y, width, height. Returns the start of the annotation in the pool.
    pub fn push(&mut self, object: &Object, bbox: [f64; 4]) -> u64 {
        let start = self.bytes.len() as u64;
        let kind = match &object.segmentation {
            None => 0,
            Some(Segmentation::Polygons(_)) => POLYGONS,
            Some(Segmentation::Runs(_)) => RUNS,
        };
        self.signed(object.id);
        self.signed(object.category);
        self.unsigned(kind | if object.crowd { CROWD } else { 0 });
        if let Some(Segmentation::Runs(runs)) = &object.segmentation {
            self.unsigned(runs.size().width.into());
            self.unsigned(runs.size().height.into());
        }
        for number in bbox.into_iter().chain([object.area]) {
            self.number(number, &mut 0);
        }
        match &object.segmentation {
            None => {}
            Some(Segmentation::Polygons(polygons)) => {
                self.unsigned(polygons.len() as u64);
                for polygon in polygons {
                    self.unsigned(polygon.len() as u64);
                    let (mut x, mut y) = (0, 0);
                    for point in polygon {
                        self.number(point[0], &mut x);
                        self.number(point[1], &mut y);
                    }
                }
            }
            Some(Segmentation::Runs(runs)) => {
                self.unsigned(runs.lengths().len() as u64);
                runs.lengths().for_each(|length| self.unsigned(length));
            }
        }
        start
    }

    /// Decodes the [`Head`] of the annotation at `start`.
    pub fn head(&self, start: u64) -> Head {
        Reader { bytes: &self.bytes[start as usize..] }.head().0
    }

    /// Decodes the annotation at `start`. Its `category` is the category's ID in the file.
    pub fn object(&self, start: u64) -> Object {
        let mut from = Reader { bytes: &self.bytes[start as usize..] };
        let (Head { id, category, crowd, size }, kind) = from.head();
        let [x, y, width, height, area] = from.shape();
        let segmentation = match size {
            Some(size) => Some(Segmentation::Runs(from.runs(size))),
            None if kind & POLYGONS != 0 => Some(Segmentation::Polygons(from.polygons())),
            None => None,
        };
        let bbox = BoundingBox::new(x, y, width, height);
        Object { id, category, bbox, area, crowd, segmentation }
    }

    /// Decodes x, y, width, height and area of the annotation at `start`.
    pub fn shape(&self, start: u64) -> [f64; 5] {
        let mut from = Reader { bytes: &self.bytes[start as usize..] };
        from.head();
        from.shape()
    }

    /// Appends keypoints: x, y and visibility of each point. Returns their start in the pool.
    pub fn push_points(&mut self, numbers: &[f64]) -> u64 {
        let start = self.bytes.len() as u64;
        self.unsigned(numbers.len() as u64);
        let mut last = [0; 3];
        for (at, &number) in numbers.iter().enumerate() {
            self.number(number, &mut last[at % 3]);
        }
        start
    }

    /// Decodes the count of numbers of the keypoints at `start`.
    pub fn points_len(&self, start: u64) -> usize {
        Reader { bytes: &self.bytes[start as usize..] }.unsigned() as usize
    }

    /// Decodes the keypoints at `start`, and appends them to `numbers`.
    pub fn points(&self, start: u64, numbers: &mut Vec<f64>) {
        let mut from = Reader { bytes: &self.bytes[start as usize..] };
        let len = from.unsigned() as usize;
        let mut last = [0; 3];
        numbers.extend((0..len).map(|at| from.number(&mut last[at % 3])));
    }

    /// Frees excess capacity.
    pub fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
    }

    /// Returns the number of allocated bytes.
    pub fn bytes(&self) -> usize {
        self.bytes.capacity()
    }

    fn unsigned(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    fn signed(&mut self, value: i64) {
        self.unsigned(zigzag(value));
    }

    fn number(&mut self, value: f64, last: &mut i64) {
        const MOST: f64 = (1u64 << 52) as f64;
        let hundredths = (value * 100.0).round();
        if hundredths.abs() <= MOST && hundredths / 100.0 == value {
            let hundredths = hundredths as i64;
            self.unsigned(zigzag(hundredths - *last) + 1);
            *last = hundredths;
        } else {
            self.unsigned(0);
            self.bytes.extend(value.to_le_bytes());
        }
    }
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// Decoder for the encoding of this module.
struct Reader<'a> {
    bytes: &'a [u8],
}

impl Reader<'_> {
    fn head(&mut self) -> (Head, u64) {
        let (id, category) = (self.signed(), self.signed());
        let kind = self.unsigned();
        let size =
            (kind & RUNS != 0).then(|| Size::new(self.unsigned() as u32, self.unsigned() as u32));
        (Head { id, category, crowd: kind & CROWD != 0, size }, kind)
    }

    fn shape(&mut self) -> [f64; 5] {
        [(); 5].map(|()| self.number(&mut 0))
    }

    fn polygons(&mut self) -> Vec<Vec<[f64; 2]>> {
        let count = self.unsigned();
        let polygon = |_| {
            let (mut x, mut y) = (0, 0);
            let points = self.unsigned();
            (0..points).map(|_| [self.number(&mut x), self.number(&mut y)]).collect()
        };
        (0..count).map(polygon).collect()
    }

    fn runs(&mut self, size: Size) -> RunLengths {
        let count = self.unsigned();
        let lengths = (0..count).map(|_| self.unsigned());
        RunLengths::new(size, lengths).expect("run lengths beyond the image were rejected before")
    }

    fn unsigned(&mut self) -> u64 {
        let len = self.bytes.iter().take_while(|byte| **byte >= 0x80).count() + 1;
        let (number, rest) = self.bytes.split_at(len);
        self.bytes = rest;
        number.iter().rev().fold(0, |value, byte| value << 7 | u64::from(byte & 0x7f))
    }

    fn signed(&mut self) -> i64 {
        unzigzag(self.unsigned())
    }

    fn number(&mut self, last: &mut i64) -> f64 {
        match self.unsigned() {
            0 => {
                let (number, rest) = self.bytes.split_first_chunk().expect("8 bytes follow a zero");
                self.bytes = rest;
                f64::from_le_bytes(*number)
            }
            difference => {
                *last += unzigzag(difference - 1);
                *last as f64 / 100.0
            }
        }
    }
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn number() -> impl Strategy<Value = f64> {
        let hundredths = (-100_000_000i64..100_000_000).prop_map(|it| it as f64 / 100.0);
        prop_oneof![hundredths, any::<f64>().prop_filter("numbers only", |it| it.is_finite())]
    }

    proptest! {
        #[test]
        fn what_is_put_in_comes_out(
            id in any::<i64>(),
            category in any::<i64>(),
            crowd in any::<bool>(),
            bbox in prop::array::uniform4(number()),
            area in number(),
            polygons in prop::collection::vec(prop::collection::vec(prop::array::uniform2(number()), 0..6), 0..4),
            lengths in prop::collection::vec(0u64..1 << 40, 0..9),
            kind in 0..3,
        ) {
            let size = Size::new(u32::MAX, u32::MAX);
            let rest = size.pixels() - lengths.iter().sum::<u64>();
            let lengths = lengths.into_iter().chain([rest]);
            let segmentation = match kind {
                0 => None,
                1 => Some(Segmentation::Polygons(polygons)),
                _ => Some(Segmentation::Runs(RunLengths::new(size, lengths).unwrap())),
            };
            let [x, y, width, height] = bbox;
            let bounding = BoundingBox::new(x, y, width, height);
            let object = Object { id, category, bbox: bounding, area, crowd, segmentation };
            let mut pool = Pool::default();
            pool.push(&object, [1.0; 4]);
            let start = pool.push(&object, bbox);
            prop_assert_eq!(pool.object(start), object);
        }
    }

    proptest! {
        #[test]
        fn keypoints_are_decoded_exactly(
            points in prop::collection::vec(prop::collection::vec(number(), 0..9), 1..4),
        ) {
            let mut pool = Pool::default();
            let starts: Vec<u64> = points.iter().map(|numbers| pool.push_points(numbers)).collect();
            for (start, numbers) in starts.into_iter().zip(&points) {
                let mut decoded = vec![0.5];
                prop_assert_eq!(pool.points_len(start), numbers.len());
                pool.points(start, &mut decoded);
                prop_assert_eq!(&decoded[1..], &numbers[..]);
            }
        }
    }

    /// A difference of up to 0.32 pixels takes one byte, up to 81 pixels two bytes.
    #[test]
    fn a_coordinate_of_two_decimals_takes_a_byte_or_two() {
        let mut pool = Pool::default();
        let last = &mut 0;
        let bytes = [473.07, 473.3, 474.99, 420.0, 420.0 + 1.0 / 3.0].map(|value| {
            let before = pool.bytes.len();
            pool.number(value, last);
            pool.bytes.len() - before
        });
        assert_eq!(bytes, [3, 1, 2, 2, 9]);
    }
}
