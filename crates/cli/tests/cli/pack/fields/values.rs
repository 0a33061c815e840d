//! Round trips of values of every type.

use super::*;

/// A source with values of every type.
struct Values(Memory, Vec<&'static str>);

impl Source for Values {
    common::wraps!(self.0);
    fn read(&self, index: u64, page: &mut dyn Page, limit: u64) -> Result<(), DataError> {
        self.0.read(index, page, limit)
    }
    fn fields(&self) -> Option<&dyn custom::Fields> {
        Some(self)
    }
}

impl custom::Fields for Values {
    fn schema(&self) -> Vec<Field> {
        let field = |name: &&str| Field { name: (*name).into(), kind: FieldKind::Bytes };
        self.1.iter().map(field).collect()
    }

    fn read_fields(
        &self,
        index: u64,
        wanted: &[&str],
        _: &mut Vec<u8>,
        _: u64,
        put: &mut custom::PutField<'_>,
    ) -> Result<(), DataError> {
        let nan = f64::from_bits(0x7ff8_0000_0000_0001 | 1 << 63);
        let array = npy("|u1", "(2,)", &[1, 2]);
        let png = png(1, 9, 5);
        for (number, name) in wanted.iter().enumerate() {
            // Every sample has another type.
            let value = match (self.1.iter().position(|it| it == name).unwrap() + index as usize)
                % 26
            {
                0 => FieldValue::Integer(-5),
                1 => FieldValue::Integer(u64::MAX.into()),
                2 => FieldValue::Integer(i128::MIN),
                3 => FieldValue::Float(0.1),
                4 => FieldValue::Float(0.5),
                5 => FieldValue::Float(nan),
                6 => FieldValue::Float(f64::NEG_INFINITY),
                7 => FieldValue::Text("a\n\"\u{0}é"),
                8 => FieldValue::Text(""),
                9 => FieldValue::Bytes(&[0, 255]),
                10 => FieldValue::Bytes(b"{}"),
                11 => FieldValue::Bytes(&png),
                12 => FieldValue::Npy(&array),
                13 => FieldValue::Json(b" [1, {\"b\": [2]}] "),
                14 => FieldValue::JsonMember(b"{\"a\": {\"a\": [0, {\"b\": 3}]}, \"b\": 1}", "a"),
                15 => FieldValue::Integers(&[i64::MIN, i64::MAX, 0, -1]),
                16 => FieldValue::Floats(&[0.1, f32::NAN]),
                17 => FieldValue::Doubles(&[0.1, 0.2, 0.3, 0.4]),
                18 => FieldValue::Doubles(&[0.5, -0.0]),
                19 => FieldValue::Doubles(&[]),
                20 => FieldValue::Tensor(Flat::Bytes(&[1, 2, 3, 4]), &[2, 2]),
                21 => FieldValue::Tensor(Flat::Doubles(&[0.1]), &[]),
                22 => FieldValue::Entries(Flat::Doubles(&[0.1, 0.2, 0.3, 0.4]), &[2]),
                23 => FieldValue::Entries(Flat::Integers(&[1, 2]), &[]),
                24 => FieldValue::Entries(Flat::Floats(&[]), &[4]),
                _ => continue,
            };
            put(number, value)?;
        }
        Ok(())
    }
}

/// Names that are difficult for archives: reserved, long, equal in lower case, with slashes.
const NAMES: [&str; 12] = [
    "cls",
    "jpg",
    "A",
    "a",
    "a.flat",
    "a.txt",
    "x/../y",
    "image/encoded",
    "image/format",
    "é ü",
    "__feedwater_fields__",
    "json",
];

#[test]
fn every_value_is_packed_under_every_name() {
    let source = Arc::new(Values(common::memory(26), NAMES.into()));
    round_trip(source.clone(), &[]);
    let (root, _) = packed(&*source, &settings(ShardFormat::WebDataset));
    let names = members(root.path());
    assert!(names.iter().all(|name| name.len() < 100 && !name.contains('/')), "{names:?}");
}
