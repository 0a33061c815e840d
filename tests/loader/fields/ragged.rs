//! Columns of lists, from a source of the program's own.

use super::{batches, builder};
use crate::common::jpegs;
use crate::with_fields::{Values, WithFields};
use feedwater::ElementType;
use feedwater::plan::{ColumnSettings, DefaultValue, OnError};
use feedwater::source::Memory;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..Default::default() })]
    /// Lists of random lengths arrive whole, for any batch size, number of workers and place of
    /// failing images.
    #[test]
    fn ragged_columns_have_the_lists_of_their_samples(
        lists in prop::collection::vec(prop::collection::vec(-1e6_f32..1e6, 0..40), 1..24),
        failing in any::<u32>(),
        (batch_size, workers, seed) in (1_usize..9, 1_usize..4, any::<u8>()),
    ) {
        let mut samples = jpegs(lists.len() as u64);
        for (number, sample) in samples.iter_mut().enumerate() {
            if failing >> number & 7 == 7 {
                sample.0 = b"no image".to_vec();
            }
        }
        let letter = |number: usize| char::from(b'a' + number as u8 % 26).to_string();
        let texts = lists.iter().enumerate().map(|(number, list)| letter(number).repeat(list.len()));
        let fields = vec![
            ("list", Values::Lists(lists.clone())),
            ("text", Values::Texts(texts.collect())),
        ];
        let source = WithFields { images: Memory::new(samples).unwrap(), fields };
        let columns = vec![
            ColumnSettings { max_len: Some(40), ..ColumnSettings::list("list", ElementType::F32, &[]) },
            ColumnSettings { default: Some(DefaultValue::Text(String::new())), ..ColumnSettings::text("text") },
        ];
        let builder = builder(source, columns).batch_size(batch_size).num_workers(workers);
        let builder = builder.shuffle(true).seed(seed.into()).on_error(OnError::Drop).epochs(Some(2));
        let mut compared = 0;
        for batch in batches(builder).unwrap() {
            let [list, text] = ["list", "text"].map(|name| batch.column(name).unwrap());
            let mut end = 0;
            prop_assert_eq!(list.offsets().unwrap().first(), Some(&0));
            for (place, index) in batch.indices().enumerate() {
                let expected = &lists[index as usize];
                end += expected.len() as i64;
                prop_assert_eq!(list.sample::<f32>(place), Some(&expected[..]));
                prop_assert_eq!(list.offsets().unwrap()[place + 1], end);
                let letters = vec![b'a' + index as u8 % 26; expected.len()];
                prop_assert_eq!(text.sample::<u8>(place), Some(&letters[..]));
                compared += 1;
            }
            prop_assert_eq!(list.shape(), vec![end as usize]);
        }
        let failing = (0..lists.len()).filter(|number| failing >> number & 7 == 7).count();
        prop_assert_eq!(compared, 2 * (lists.len() - failing));
    }
}
