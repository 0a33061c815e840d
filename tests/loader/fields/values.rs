//! Values that are missing, inexact or too long, and samples that fail.

use super::{F32, I64, batches, builder, listed, sample_error, with_field};
use feedwater::ElementType;
use feedwater::error::Reason;
use feedwater::plan::{ColumnKind, ColumnSettings, DefaultValue, OnError, TooLong};

/// Null, an empty text and a member that is not there are missing values, in tables as in JSON.
/// They have the default, and are counted.
#[test]
fn missing_values_have_the_default_and_are_counted() {
    let table = "path,v,m\n0.jpg,,\n1.jpg,1,\"{\"\"a\"\": 2}\"\n2.jpg, ,{}\n";
    let lines = "{\"path\": \"0.jpg\", \"v\": \"\", \"m\": null}\n\
                 {\"path\": \"1.jpg\", \"v\": 1, \"m\": {\"a\": 2}}\n\
                 {\"path\": \"2.jpg\", \"m\": {\"a\": null}}\n";
    for (name, content) in [("list.csv", table), ("list.jsonl", lines)] {
        let default = |value, column| ColumnSettings { default: Some(value), ..column };
        let numbers = || ColumnSettings::array("v", F32, &[]);
        let columns = vec![
            default(DefaultValue::Float(-1.5), numbers()),
            // A number fills an array.
            default(
                DefaultValue::Integer(7),
                with_field("m:b", ColumnSettings::array("b", I64, &[2, 2])),
            ),
            default(
                DefaultValue::Bool(true),
                with_field("m:a", ColumnSettings::array("a", ElementType::U8, &[])),
            ),
        ];
        let (_folder, list) = listed(name, 3, content);
        let mut loader = builder(list, columns).build().unwrap();
        let batch = loader.epoch().next().unwrap().unwrap();
        let column = |name| batch.column(name).unwrap();
        assert_eq!(column("v").as_slice::<f32>().unwrap(), [-1.5, 1.0, -1.5], "{name}");
        assert_eq!(column("b").as_slice::<i64>().unwrap(), [7; 12], "{name}");
        assert_eq!(column("a").as_slice::<u8>().unwrap(), [1, 2, 1], "{name}");
        assert_eq!(batch.samples()[1].defaulted, 0b010);
        drop(batch);
        let defaulted = loader.stats().defaulted;
        assert_eq!([defaulted["v"], defaulted["b"], defaulted["a"]], [2, 3, 2], "{name}");
        let (_folder, list) = listed(name, 3, content);
        let (index, _, problem) = sample_error(builder(list, vec![numbers()]));
        assert!(index == 0 && problem.contains("\"v\" is missing"), "{name}: {problem}");
    }
}

/// The message names a path only where it leads to a value.
#[test]
fn the_error_of_a_list_in_a_text_column_names_its_first_entry() {
    let lines = "{\"path\": \"0.jpg\", \"c\": [\"a\", \"b\"], \"m\": {\"c\": [\"a\"], \"n\": 1}}\n";
    let open = |field: &str, column| {
        let (folder, list) = listed("list.jsonl", 1, lines);
        (folder, builder(list, vec![with_field(field, column)]))
    };
    for (field, advised) in
        [("c", "c:[0]"), ("m:c", "m:c[0]"), ("c:[*]", "c:[0]"), ("m:[\"c\"]", "m:c[0]")]
    {
        for column in [ColumnSettings::text("t"), ColumnSettings::bytes("t")] {
            let (_folder, loader) = open(field, column.clone());
            let (_, reason, problem) = sample_error(loader);
            assert_eq!(reason, Reason::Field);
            let advice = "the value is a list, but the column takes";
            assert!(problem.contains(advice), "{problem}");
            let advice = format!("; for its first entry, set field = {advised:?}");
            assert!(problem.ends_with(&advice), "{problem}");
            let others = ["fw.texts", "pick = \"first\" or \"random\""];
            let names_all = others.iter().all(|it| problem.contains(it));
            assert_eq!(names_all, column.kind == ColumnKind::Text, "{problem}");
        }
        let (_folder, loader) = open(advised, ColumnSettings::text("t"));
        assert_eq!(batches(loader).unwrap()[0].column("t").unwrap().text(0), Some("a"));
    }
    let (_folder, loader) = open("m:n", ColumnSettings::text("t"));
    let (_, _, problem) = sample_error(loader);
    assert!(
        problem.ends_with("the value is the number 1, but the column takes a text"),
        "{problem}"
    );
}

#[test]
fn floats_are_the_nearest_ones_and_integers_exact_in_tables_and_in_json() {
    let texts = ["677.171722412109376", "1e-45", "16777216", "0.1", "-0.0", "2218594565777117.0"];
    let table = texts.iter().enumerate().map(|(number, it)| format!("{number}.jpg,{it},[{it}]\n"));
    let table = format!("path,v,list\n{}", table.collect::<String>());
    let lines = texts.iter().enumerate().map(|(number, it)| {
        format!("{{\"path\": \"{number}.jpg\", \"v\": {it}, \"list\": [{it}]}}\n")
    });
    for (name, content) in [("list.csv", table), ("list.jsonl", lines.collect::<String>())] {
        let (_folder, list) = listed(name, texts.len(), &content);
        let columns =
            vec![ColumnSettings::array("v", F32, &[]), ColumnSettings::array("list", F32, &[1])];
        let batch = batches(builder(list, columns).batch_size(6)).unwrap().remove(0);
        for name in ["v", "list"] {
            let found = batch.column(name).unwrap().as_slice::<f32>().unwrap();
            let expected: Vec<u32> =
                texts.iter().map(|it| it.parse::<f32>().unwrap().to_bits()).collect();
            assert_eq!(found.iter().map(|it| it.to_bits()).collect::<Vec<_>>(), expected);
        }
    }
    let content = "{\"path\": \"0.jpg\", \"v\": 2218594565777117.0}\n\
                   {\"path\": \"1.jpg\", \"v\": -9223372036854775809}\n";
    let (_folder, list) = listed("list.jsonl", 2, content);
    let loaded = builder(list, vec![ColumnSettings::array("v", I64, &[])]).on_error(OnError::Drop);
    let batch = batches(loaded).unwrap().remove(0);
    assert_eq!(batch.column("v").unwrap().as_slice::<i64>().unwrap(), [2218594565777117]);
}

#[test]
fn long_values_are_errors_or_cut_or_skipped_and_counted() {
    let lines =
        "path,text,list\n0.jpg,aaé,\"[1, 2]\"\n1.jpg,éé,\"[1, 2, 3]\"\n2.jpg,b,[]\n3.jpg,cd,[4]\n";
    let columns = |too_long| {
        vec![
            ColumnSettings { max_len: Some(3), too_long, ..ColumnSettings::text("text") },
            ColumnSettings { max_len: Some(2), too_long, ..ColumnSettings::list("list", F32, &[]) },
        ]
    };
    let open = || listed("list.csv", 4, lines);

    let (_folder, list) = open();
    let (index, reason, problem) = sample_error(builder(list, columns(TooLong::Error)));
    assert_eq!((index, reason), (0, Reason::TooLong));
    assert!(problem.contains("4 bytes") && problem.contains("max_len is 3"), "{problem}");

    let (_folder, list) = open();
    let mut loader = builder(list, columns(TooLong::Truncate)).build().unwrap();
    let batch = loader.epoch().next().unwrap().unwrap();
    // A text is cut between characters.
    let texts: Vec<_> = (0..4).map(|it| batch.column("text").unwrap().text(it).unwrap()).collect();
    assert_eq!(texts, ["aa", "é", "b", "cd"]);
    let list = batch.column("list").unwrap();
    assert_eq!(list.as_slice::<f32>().unwrap(), [1.0, 2.0, 1.0, 2.0, 4.0]);
    assert_eq!(list.offsets().unwrap(), [0, 2, 4, 4, 5]);
    assert_eq!(batch.samples().iter().map(|it| it.truncated).collect::<Vec<_>>(), [1, 3, 0, 0]);
    drop(batch);
    let stats = loader.stats();
    assert_eq!((stats.truncated["text"], stats.truncated["list"]), (2, 1));

    let (_folder, list) = open();
    let mut loader = builder(list, columns(TooLong::Skip)).build().unwrap();
    let batch = loader.epoch().next().unwrap().unwrap();
    let replaced: Vec<_> = batch.samples().iter().map(|it| it.replaces).collect();
    assert_eq!(replaced, [Some(0), Some(1), None, None]);
    assert!(batch.indices().all(|index| index >= 2));
    drop(batch);
    let stats = loader.stats();
    assert_eq!((stats.errors["too_long"] >= 2, stats.outcomes["skipped"] >= 2), (true, true));
}

#[test]
fn policies_for_failed_samples_keep_all_columns_together() {
    let lines =
        "path,text,n\n0.jpg,a,1\nmissing.jpg,b,2\n2.jpg,ccc,x\n3.jpg,dd,4\n4.jpg,,5\n5.jpg,e,6\n";
    let columns = vec![ColumnSettings::text("text"), ColumnSettings::array("n", F32, &[])];
    let with = |policy, columns: Vec<ColumnSettings>| {
        let (_folder, list) = listed("list.csv", 6, lines);
        batches(builder(list, columns).batch_size(6).on_error(policy)).unwrap().remove(0)
    };
    let dropped = with(OnError::Drop, columns.clone());
    assert_eq!(dropped.indices().collect::<Vec<_>>(), [0, 3, 5]);
    let text = dropped.column("text").unwrap();
    assert_eq!((text.as_slice::<u8>().unwrap(), text.offsets().unwrap().len()), (&b"adde"[..], 4));
    assert_eq!((0..3).map(|it| text.text(it).unwrap()).collect::<Vec<_>>(), ["a", "dd", "e"]);
    assert_eq!(dropped.column("n").unwrap().as_slice::<f32>().unwrap(), [1.0, 4.0, 6.0]);
    assert_eq!((text.text(3), text.sample::<u8>(usize::MAX)), (None, None));

    let substituted = with(OnError::Substitute, columns.clone());
    let numbers = substituted.column("n").unwrap().as_slice::<f32>().unwrap();
    assert!([1, 2, 4].iter().all(|&it| numbers[it].is_nan()), "{numbers:?}");
    let text = substituted.column("text").unwrap();
    assert_eq!(
        (0..6).map(|it| text.text(it).unwrap()).collect::<Vec<_>>(),
        ["a", "", "", "dd", "", "e"]
    );

    let filled =
        columns.into_iter().zip(["none".into(), "0".into()]).map(|(column, text): (_, String)| {
            let number = text.parse().map(DefaultValue::Integer);
            ColumnSettings { default: Some(number.unwrap_or(DefaultValue::Text(text))), ..column }
        });
    let substituted = with(OnError::Substitute, filled.collect());
    // A default also replaces a field that is empty, so sample 4 does not fail.
    let text = substituted.column("text").unwrap();
    assert_eq!(
        (0..6).map(|it| text.text(it).unwrap()).collect::<Vec<_>>(),
        ["a", "none", "none", "dd", "none", "e"]
    );
    let numbers = substituted.column("n").unwrap().as_slice::<f32>().unwrap();
    assert_eq!(numbers, [1.0, 0.0, 0.0, 4.0, 5.0, 6.0]);

    let skipped = with(OnError::Skip, vec![ColumnSettings::text("text")]);
    let expected = ["a", "", "ccc", "dd", "", "e"];
    for (place, index) in skipped.indices().enumerate() {
        assert_eq!(skipped.column("text").unwrap().text(place), Some(expected[index as usize]));
    }
}
