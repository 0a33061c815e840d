//! Tests of hashes that are equal for different keys, which a test needs short hashes for.

use std::collections::HashMap;

use super::*;
use crate::field::{FieldKind, FieldValue};
use crate::source::PutField;

/// Source with the fields `key` and `value`. A sample without a key has none.
struct Table {
    rows: Vec<(Option<String>, String)>,
}

impl Source for Table {
    fn len(&self) -> u64 {
        self.rows.len() as u64
    }

    fn label(&self, _: u64) -> i64 {
        -1
    }

    fn location(&self, index: u64) -> String {
        format!("table[{index}]")
    }

    fn read(&self, _: u64, _: &mut dyn Page, _: u64) -> Result<(), DataError> {
        unreachable!("a join reads no image")
    }

    fn fields(&self) -> Option<&dyn Fields> {
        Some(self)
    }
}

impl Fields for Table {
    fn schema(&self) -> Vec<Field> {
        let field = |name: &str| Field { name: name.into(), kind: FieldKind::Text };
        vec![field("key"), field("value")]
    }

    fn read_fields(
        &self,
        index: u64,
        wanted: &[&str],
        _: &mut Vec<u8>,
        _: u64,
        put: &mut PutField<'_>,
    ) -> Result<(), DataError> {
        let (key, value) = &self.rows[index as usize];
        for (number, name) in wanted.iter().enumerate() {
            match (*name, key) {
                ("key", Some(key)) => put(number, FieldValue::Text(key))?,
                ("value", _) => put(number, FieldValue::Text(value))?,
                _ => {}
            }
        }
        Ok(())
    }
}

fn table(keys: impl IntoIterator<Item = Option<String>>) -> Arc<dyn Source> {
    let row = |(number, key): (usize, Option<String>)| (key, format!("value {number}"));
    Arc::new(Table { rows: keys.into_iter().enumerate().map(row).collect() })
}

fn joined(
    first: &Arc<dyn Source>,
    second: &Arc<dyn Source>,
    missing: MissingPartner,
    bits: u32,
) -> Result<Joined> {
    let settings = JoinSettings {
        key: Some("key".into()),
        prefix: "b.".into(),
        missing,
        ..JoinSettings::default()
    };
    Joined::with_bits(first.clone(), second.clone(), &settings, bits)
}

/// The values of the fields `value` and `b.value`.
fn values(source: &Joined, index: u64) -> [Option<String>; 2] {
    let mut found = [None, None];
    let wanted = ["b.value", "value"];
    source
        .read_fields(index, &wanted, &mut Vec::new(), 1000, &mut |number, value| {
            let FieldValue::Text(text) = value else { panic!("{value:?}") };
            assert_eq!(found[1 - number].replace(text.to_string()), None);
            Ok(())
        })
        .unwrap();
    found
}

/// Pseudo-random numbers (Steele, Lea, Flood, "Fast splittable pseudorandom number generators",
/// OOPSLA 2014).
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[test]
fn random_keys_have_the_partners_of_a_hash_map() {
    let mut state = 1;
    for (samples, range, bits) in
        [(1, 1, 64), (7, 5, 64), (300, 200, 64), (300, 200, 3), (300, 200, 1), (2000, 4000, 64)]
    {
        let mut random = |below: u64| next(&mut state) % below;
        let first: Vec<Option<String>> = (0..samples)
            .map(|_| (random(10) > 0).then(|| format!("key {}", random(range))))
            .chain([Some("key 0".into())])
            .collect();
        // Every second key, in a random order.
        let mut keys: Vec<u64> = (0..range).step_by(2).collect();
        (1..keys.len()).rev().for_each(|last| keys.swap(last, random(last as u64 + 1) as usize));
        let second: Vec<Option<String>> =
            keys.iter().map(|key| Some(format!("key {key}"))).collect();
        let partners: HashMap<&String, usize> = second
            .iter()
            .enumerate()
            .map(|(number, key)| (key.as_ref().unwrap(), number))
            .collect();
        let partner = |key: &Option<String>| partners.get(key.as_ref()?).copied();
        let [source, other] = [table(first.clone()), table(second.clone())];

        let all = joined(&source, &other, MissingPartner::Keep, bits).unwrap();
        assert_eq!(all.len(), first.len() as u64);
        for (index, key) in first.iter().enumerate() {
            let expected = partner(key).map(|number| format!("value {number}"));
            assert_eq!(values(&all, index as u64), [Some(format!("value {index}")), expected]);
        }

        let some = joined(&source, &other, MissingPartner::Drop, bits).unwrap();
        let kept: Vec<usize> =
            (0..first.len()).filter(|&index| partner(&first[index]).is_some()).collect();
        assert_eq!(some.len(), kept.len() as u64);
        for (number, &index) in kept.iter().enumerate() {
            let expected = partner(&first[index]).map(|number| format!("value {number}"));
            let own = Some(format!("value {index}"));
            assert_eq!(values(&some, number as u64), [own, expected]);
        }
        let dropped: u64 = Notes::excluded(&some).iter().map(|it| it.count).sum();
        assert_eq!(dropped, (first.len() - kept.len()) as u64);
    }
}

#[test]
fn equal_hashes_are_not_taken_for_duplicates_and_duplicates_are_found_among_them() {
    let key = |number: u64| Some(format!("{number}"));
    let first = table([key(0)]);
    for bits in [1, 64] {
        let unique = table((0..50).map(key));
        assert!(joined(&first, &unique, MissingPartner::Keep, bits).is_ok());
        let twice = table((0..50).map(key).chain([key(7)]));
        let error = joined(&first, &twice, MissingPartner::Keep, bits).err().unwrap().to_string();
        for word in ["table[7]", "table[50]", "\"7\""] {
            assert!(error.contains(word), "{error}");
        }
    }
}

#[test]
fn memory_is_sixteen_bytes_per_sample_of_the_second_source() {
    let keys = |count: u64| (0..count).map(|number| Some(number.to_string()));
    let first = table(keys(5));
    let memory = |count| {
        let joined = joined(&first, &table(keys(count)), MissingPartner::Keep, 64).unwrap();
        Hints::memory_bytes(&joined)
    };
    assert_eq!(memory(100_000) - memory(50_000), 50_000 * 16);
}
