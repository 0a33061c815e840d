//! Columns from fields that are not beside their image, and lists of all fields, in a bucket.

use super::fields::{bytes_of, files, gets, open as open_archive, small, tar};
use super::*;
use feedwater::ElementType;
use feedwater::loader::{Batch, LoaderBuilder};
use feedwater::plan::{ColumnSettings, LastBatch};
use feedwater::source::custom::Fields;
use feedwater::source::settings::{BetonSettings, LmdbSettings, RecordIoLabel, RecordIoSettings};
use feedwater::source::{Beton, Lmdb, RecordIo};
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

/// An environment of LMDB with one page of keys and values. The values are in the reverse order of
/// the keys.
fn environment(pairs: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    const PAGE: usize = 1 << 16;
    let mut file = vec![0; 3 * PAGE];
    let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
    for page in 0..2u64 {
        let at = page as usize * PAGE;
        put(at, &page.to_le_bytes());
        put(at + 10, &8u16.to_le_bytes());
        put(at + 16, &0xbeef_c0de_u32.to_le_bytes());
        put(at + 20, &1u32.to_le_bytes());
        put(at + 40, &(PAGE as u32).to_le_bytes());
        for (offset, number) in [(120, pairs.len() as u64), (128, 2), (136, 2), (144, page)] {
            put(at + offset, &number.to_le_bytes());
        }
    }
    let (leaf, mut end) = (2 * PAGE, PAGE);
    put(leaf, &2u64.to_le_bytes());
    put(leaf + 10, &2u16.to_le_bytes());
    put(leaf + 12, &(16 + 2 * pairs.len() as u16).to_le_bytes());
    for (number, (key, value)) in pairs.iter().enumerate() {
        let sizes = [&(value.len() as u32).to_le_bytes()[..], &[0; 2]].concat();
        let node = [&sizes, &(key.len() as u16).to_le_bytes()[..], key, value].concat();
        end -= node.len().next_multiple_of(2);
        put(leaf + end, &node);
        put(leaf + 16 + 2 * number, &(end as u16).to_le_bytes());
    }
    put(leaf + 14, &(end as u16).to_le_bytes());
    file
}

/// A Datum with an encoded image between its other fields. Some have no label, and one has floats.
fn datum(number: u8, image: &[u8]) -> Vec<u8> {
    let size = [image.len() as u8 | 0x80, (image.len() >> 7) as u8 & 0x7f];
    let mut datum = [&[8, 3, 16, 9 + number, 24, 70, 34][..], &size, image, &[56, 1]].concat();
    if !number.is_multiple_of(3) {
        datum.extend([40, number]);
    }
    if number == 5 {
        datum.extend([50, 8, 0, 0, 128, 63, 0, 0, 0, 64]);
    }
    datum
}

#[test]
fn fields_of_lmdb_take_no_request_for_keys_and_one_for_the_image_with_its_datum() {
    const OF_DATUM: [&str; 6] = ["key", "channels", "height", "width", "label", "float_data"];
    let (server, _guard) = buckets();
    let folder = tempfile::tempdir().unwrap();
    let images = small(8);
    let key = |number: usize| match number {
        3 => b"key 3 \xff".to_vec(),
        number => format!("key {number} é").into_bytes(),
    };
    let pairs = |value: &dyn Fn(usize) -> Vec<u8>| -> Vec<(Vec<u8>, Vec<u8>)> {
        (0..8).map(|number| (key(number), value(number))).collect()
    };
    let datums = environment(&pairs(&|number| datum(number as u8, &images[number])));
    let plain = environment(&pairs(&|number| images[number].clone()));
    let record = |name: &str| golden(&format!("../lmdb/{name}"));
    for (name, file, keys, is_datum) in [
        ("datums", datums, "*", true),
        ("plain", plain, "*", false),
        ("py-datums", record("datum.mdb"), "*", true),
        ("py-raw", record("raw.mdb"), "*", true),
        ("py-images", record("image/data.mdb"), "image-*", false),
        ("py-images-1.0", record("image-1.0.mdb"), "image-*", false),
    ] {
        let local = folder.path().join(format!("{name}.mdb"));
        fs::write(&local, &file).unwrap();
        server.put(&format!("/lmdb/{name}.mdb"), &file[..]);
        let settings = LmdbSettings { keys: keys.into(), ..Default::default() };
        let open = |path: &str| Lmdb::open_with(&[path.into()], &settings, &USUAL).unwrap();
        let local = open(local.to_str().unwrap());
        // The second time, the table of the file is stored.
        for _ in 0..2 {
            let remote = open(&format!("s3://lmdb/{name}.mdb"));
            assert_eq!(remote.len(), local.len());
            gets("/lmdb/");
            for index in (0..remote.len()).rev() {
                let found = shown(&remote, index, &OF_DATUM);
                assert_eq!(found, shown(&local, index, &OF_DATUM), "{name}");
                assert!(found[0].starts_with("key: "), "{found:?}");
                assert_eq!(gets("/lmdb/").len(), usize::from(is_datum), "{name}, {index}");
                let expected = remote.expect_with_fields(index, true, 1 << 20).unwrap();
                assert_eq!(shown(&remote, index, &OF_DATUM), found);
                let mut page = HostPage::default();
                expected(&mut page, 1 << 20).unwrap();
                assert_eq!(Ok(page.bytes()), read(&local, index).as_deref(), "{name}, {index}");
                assert_eq!(gets("/lmdb/").len(), 1, "{name}, {index}");
            }
            // The fields of all samples are in the table, also those of a later sample only.
            let names = |source: &Lmdb| -> Vec<String> {
                source.complete_schema().unwrap().into_iter().map(|it| it.name).collect()
            };
            let listed: Vec<String> = remote.schema().into_iter().map(|it| it.name).collect();
            gets("/lmdb/");
            let mut sorted = [names(&remote), names(&local), listed];
            sorted.iter_mut().for_each(|names| names.sort());
            assert!(sorted.iter().all(|names| *names == sorted[0]), "{sorted:?}");
            assert!(gets("/lmdb/").is_empty());
        }
    }
}

#[test]
fn a_key_that_the_table_of_lmdb_does_not_hold_is_an_error() {
    let (server, _guard) = buckets();
    let image = small(1).remove(0);
    let keys = [vec![b'a'; 254], vec![b'b'; 255]];
    let pairs: Vec<_> = keys.iter().map(|key| (key.clone(), image.clone())).collect();
    server.put("/lmdb/long.mdb", environment(&pairs));
    let url = "s3://lmdb/long.mdb".into();
    let remote = Lmdb::open_with(&[url], &LmdbSettings::default(), &USUAL).unwrap();
    assert_eq!(shown(&remote, 0, &["key"]), [format!("key: Text({:?})", "a".repeat(254))]);
    let put = &mut |_, _: feedwater::source::FieldValue<'_>| Ok(());
    let error = remote.read_fields(1, &["key"], &mut Vec::new(), 999, put).unwrap_err();
    assert!(error.problem.contains("254 bytes") && error.problem.contains("copy"), "{error}");
    // The image and the other fields of the sample can be read.
    assert_eq!(read(&remote, 1), Ok(image));
    assert!(shown(&remote, 1, &["label"]).is_empty());
}
