//! Memory of columns that are made from fields of a list.

use std::fmt::Write;
use std::fs;

use feedwater::ElementType;
use feedwater::loader::Loader;
use feedwater::plan::{ColumnSettings, LastBatch, OnError, TooLong};
use feedwater::source::FileList;

use super::{Files, crop, run, small};

/// Texts and lists of random lengths up to the limits, in tables and in JSON lines. A few rows are
/// longer than `limits.max_field_bytes`, and their samples fail.
pub fn fields_of_any_length_stay_within_the_footprint() {
    const LIMIT: usize = 300_000;
    let files = Files::new(small(40));
    let (mut table, mut lines) = ("path,text,list\n".to_string(), String::new());
    for number in 0..40_usize {
        // Quotes are doubled in a table, and escaped in JSON.
        let len = [0, 10, 3000, 90_000, 140_000, LIMIT][number % 6];
        let text = "a\"é".repeat(len / 4);
        let list: Vec<usize> = (0..len / 8).collect();
        writeln!(table, "{number:05}.jpg,\"x{}\",\"{list:?}\"", text.replace('"', "\"\"")).unwrap();
        let text = serde_json::to_string(&text).unwrap();
        writeln!(lines, "{{\"path\": \"{number:05}.jpg\", \"text\": {text}, \"list\": {list:?}}}")
            .unwrap();
    }
    for (name, content) in [("list.csv", table), ("list.jsonl", lines)] {
        let path = files.0.path().join(name);
        fs::write(&path, content).unwrap();
        let loader = || {
            let builder = Loader::builder(FileList::open(&path).unwrap(), crop());
            let builder = builder.batch_size(8).num_workers(2).prefetch(1).on_error(OnError::Drop);
            let device = feedwater::loader::DeviceChoice::Cpu;
            builder.device(device).last_batch(LastBatch::Partial).configure(|it| {
                it.limits.max_field_bytes = LIMIT as u64;
                let most = |max_len, column| ColumnSettings {
                    max_len: Some(max_len),
                    too_long: TooLong::Truncate,
                    ..column
                };
                it.columns = vec![
                    most(50_000, ColumnSettings::text("text")),
                    most(9000, ColumnSettings::list("list", ElementType::F32, &[])),
                ];
            })
        };
        let seen = run(loader, 2);
        assert!(seen.problem.is_none(), "{:?}", seen.problem);
        assert!(seen.errors["oversized"] > 0, "{name}: {:?}", seen.errors);
        seen.check(name);
    }
}
