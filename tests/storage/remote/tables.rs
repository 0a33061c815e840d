//! Columns from fields that are not beside their image, and lists of all fields, in a bucket.

use super::fields::{bytes_of, files, gets, open as open_archive, small, tar};
use super::*;
use feedwater::ElementType;
use feedwater::loader::{Batch, LoaderBuilder};
use feedwater::plan::{ColumnSettings, LastBatch};
use feedwater::source::custom::Fields;
use feedwater::source::settings::{BetonSettings, RecordIoLabel, RecordIoSettings};
use feedwater::source::{Beton, RecordIo};
use std::sync::Arc;

/// The fields of `fields.beton`, in the order of the file.
const OF_BETON: [&str; 6] = ["id", "a name longer th", "box", "about", "label", "epoch"];

/// Values of fields of a sample, as text.
fn shown(source: &dyn Source, index: u64, wanted: &[&str]) -> Vec<String> {
    let (mut found, mut buffer) = (Vec::new(), Vec::new());
    let fields = source.fields().unwrap();
    let read = fields.read_fields(index, wanted, &mut buffer, 1 << 20, &mut |number, value| {
        found.push(format!("{}: {value:?}", wanted[number]));
        Ok(())
    });
    read.unwrap_or_else(|error| panic!("{error}"));
    found
}

#[test]
fn fields_of_a_beton_file_take_a_request_for_the_row_and_one_for_each_other_value() {
    let (server, _guard) = buckets();
    let file = golden("../beton/fields.beton");
    server.put("/ffcv/a.beton", &file[..]);
    let folder = tempfile::tempdir().unwrap();
    let local = folder.path().join("a.beton");
    fs::write(&local, &file).unwrap();
    let settings = BetonSettings { image: Some("image".into()), label: Some("label".into()) };
    let open = |path: &str| Beton::open_with(&[path.into()], &settings, &USUAL).unwrap();
    let local = open(local.to_str().unwrap());
    let remote = open("s3://ffcv/a.beton");
    gets("/ffcv/");
    let names: Vec<String> = remote.schema().into_iter().map(|field| field.name).collect();
    assert_eq!(names, OF_BETON);
    // The descriptions of the fields and the rows of the four samples.
    let requests = gets("/ffcv/");
    assert!(requests.len() <= 6 && bytes_of(&requests) < 100_000, "{requests:?}");
    for index in 0..remote.len() {
        assert_eq!(shown(&remote, index, &OF_BETON), shown(&local, index, &OF_BETON));
        // A row, a text, an array and JSON.
        let requests = gets("/ffcv/");
        assert_eq!(requests.len(), 4, "{requests:?}");
        assert!(bytes_of(&requests) < 250, "{requests:?}");
        assert_eq!(shown(&remote, index, &["epoch", "label"]).len(), 2);
        assert_eq!(gets("/ffcv/").len(), 1);
    }
    // Without an image, in a join.
    let list = folder.path().join("list.csv");
    let image = folder.path().join("0.jpg");
    fs::write(&image, &small(1)[0]).unwrap();
    fs::write(&list, "path,key\n0.jpg,id 2\n").unwrap();
    let text = "[source]\nlist = \"list.csv\"\n[source.join]\nbeton = \"s3://ffcv/a.beton\"\n\
                key = \"key\"\nother_key = \"id\"\nprefix = \"b.\"";
    let pipeline = feedwater::Pipeline::from_toml(text, folder.path()).unwrap();
    let joined = pipeline.source.open_with(&USUAL).unwrap();
    assert_eq!(shown(&*joined, 0, &["b.epoch"]), ["b.epoch: Integer(102)"]);
}

/// A file with a record of two parts: an image whose pixels contain the magic number, where writers
/// split a record.
fn record_in_parts() -> Vec<u8> {
    const MAGIC: [u8; 4] = [0x0a, 0x23, 0xd7, 0xce];
    let header = [&0u32.to_le_bytes()[..], &7f32.to_le_bytes(), &[0; 16]].concat();
    let mut whole = [&header[..], b"P6\n8 8\n255\n"].concat();
    whole.extend((0..3 * 64u8).map(|it| it ^ 0x55));
    const SPLIT: usize = 80;
    let part = |sort: u32, data: &[u8]| {
        let len = sort << 29 | data.len() as u32;
        let mut part = [&MAGIC[..], &len.to_le_bytes(), data].concat();
        part.resize(part.len().next_multiple_of(4), 0);
        part
    };
    [part(1, &whole[..SPLIT]), part(3, &whole[SPLIT + MAGIC.len()..])].concat()
}

/// Raw pixels get a header before them, and a record in parts is joined, also if the fields are
/// prefetched with the image.
#[test]
fn prefetched_images_of_every_form_equal_those_of_local_files() {
    let (server, _guard) = buckets();
    let folder = tempfile::tempdir().unwrap();
    let column = |name: &str| ColumnSettings {
        field: Some(name.into()),
        ..ColumnSettings::array("number", ElementType::F32, &[])
    };
    let run = |source: Arc<dyn Source>, column: &ColumnSettings| {
        let builder = LoaderBuilder::new(source, common::training()).batch_size(2);
        let builder = builder.device(DeviceChoice::Cpu).last_batch(LastBatch::Partial).seed(1);
        let builder = builder.epochs(Some(1)).configure(|it| it.columns = vec![column.clone()]);
        let content = |batch: feedwater::error::Result<Batch>| {
            let batch = batch.unwrap();
            let numbers = batch.column("number").unwrap().as_slice::<f32>().unwrap().to_vec();
            (batch.to_host().unwrap(), numbers)
        };
        builder.build().unwrap().into_batches().map(content).collect::<Vec<_>>()
    };
    for (end, bytes) in [
        ("raw.beton", golden("../beton/raw.beton")),
        ("smart.beton", golden("../beton/smart.beton")),
        ("parts.rec", record_in_parts()),
    ] {
        server.put(&format!("/forms/{end}"), &bytes[..]);
        let local = folder.path().join(end);
        fs::write(&local, &bytes).unwrap();
        let open = |path: &str| -> Arc<dyn Source> {
            match end.ends_with(".rec") {
                true => {
                    let settings = RecordIoSettings { label: RecordIoLabel::First };
                    Arc::new(RecordIo::open_with(&[path.into()], &settings, &USUAL).unwrap())
                }
                false => {
                    let settings = BetonSettings::default();
                    Arc::new(Beton::open_with(&[path.into()], &settings, &USUAL).unwrap())
                }
            }
        };
        let expected = run(open(local.to_str().unwrap()), &column("label"));
        assert!(!expected.is_empty());
        assert!(run(open(&format!("s3://forms/{end}")), &column("label")) == expected, "{end}");
    }
}

/// The fields of all samples are known from the scan, also those of a late sample only.
#[test]
fn listing_all_fields_takes_no_request() {
    const COUNT: usize = 150;
    let (server, _guard) = buckets();
    let mut all = files(&small(COUNT as u64));
    let late = all.iter().rposition(|(name, _)| name.starts_with("0120.")).unwrap();
    all.insert(late, ("0120.extra.json".into(), b"{}".to_vec()));
    all.push(("without.other".into(), b"no image".to_vec()));
    let archive = tar(&all);
    server.put("/listed/a.tar", &archive[..]);
    let folder = tempfile::tempdir().unwrap();
    let local = folder.path().join("a.tar");
    fs::write(&local, &archive).unwrap();
    let names = |source: &WebDataset| {
        let listed = source.complete_schema().unwrap();
        listed.into_iter().map(|field| format!("{field:?}")).collect::<Vec<_>>()
    };
    // The second time, the table of the file is stored.
    for _ in 0..2 {
        let source = open_archive("s3://listed/a.tar", &USUAL);
        gets("/listed/");
        let found = names(&source);
        assert_eq!(gets("/listed/").len(), 0);
        assert!(found.iter().any(|field| field.contains("extra.json")), "{found:?}");
        assert!(!found.iter().any(|field| field.contains("other")), "{found:?}");
        assert_eq!(found, names(&open_archive(local.to_str().unwrap(), &USUAL)));
        assert_eq!(found.len(), 4);
        assert!(!source.schema().iter().any(|field| field.name == "extra.json"));
    }
}
