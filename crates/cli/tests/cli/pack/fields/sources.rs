//! Round trips of the fields of each source.

use super::*;

#[test]
fn columns_of_a_table_are_packed() {
    let folder = folder_of(5);
    let lines = "path,label,Caption,score,tags,,a:b,x/y
0.jpg,cat,\"a \"\"b\"\",
c \u{1f600}\",0.1,\"[3, 17]\",1,p,[1.5]
1.jpg,dog,,nan,[],2,q,\"{\"\"a\"\": [0, {\"\"b\"\": 7}]}\"
2.jpg,dog,x,-1e-45,\"[1,2,3,4]\",,,
3.jpg,cat,y,16777217,,4,,null
4.jpg,cat,  ,1e400,\"[9007199254740993]\",5,,true
";
    let source = list(&folder, "a.csv", lines);
    let columns = [
        or(DefaultValue::Text("none".into()), ColumnSettings::text("Caption")),
        or(DefaultValue::List(vec![]), ColumnSettings::list("tags", I64, &[])),
        or(DefaultValue::Text(String::new()), ColumnSettings::text("a:b")),
        column("label", ColumnSettings::text("class")),
        or(DefaultValue::Text(String::new()), column("x/y", ColumnSettings::text("xy"))),
        ColumnSettings::text("path"),
    ];
    round_trip(source, &columns);
}

#[test]
fn keys_of_json_lines_are_packed() {
    let folder = folder_of(5);
    let lines = r#"
{"path": "0.jpg", "label": 1, "caption": "a \"b\" \u00e9\ud83d\ude00", "n": 0.1, "list": [1, 2.5, -0.0], "big": 18446744073709551615}
{"label": 0, "path": "1.jpg", "caption": "", "n": 1e-320, "list": [], "meta": {"a": [{"b": 1}, {"b": 2}]}, "big": 123456789012345678901234567890}
{"label": 0, "path": "2.jpg", "caption": null, "n": 5.0, "list": [[1, 2], [3, 4]], "meta": null, "big": -1}
{"label": 0, "path": "3.jpg", "n": true, "list": ["a", "b"], "meta": [{"x": 1}, {"x": 0.30000000000000004}], "big": 1e300}
{"label": 0, "path": "4.jpg", "caption": "\u0000", "n": null, "list": null, "meta": "{\"a\": 1}", "big": 2.2250738585072011e-308}
"#;
    let source = list(&folder, "a.jsonl", lines.trim_start());
    let columns = [or(DefaultValue::Float(-1.0), ColumnSettings::array("n", F32, &[]))];
    round_trip(source, &columns);
}

#[test]
fn side_files_keep_their_extension() {
    let root = tempfile::tempdir().unwrap();
    for (number, (bytes, _)) in jpegs(4).into_iter().enumerate() {
        let size = Header::parse(&bytes).unwrap().size;
        let path = |folder: &str, ending: &str| {
            let folder = root.path().join(folder).join("cat");
            fs::create_dir_all(&folder).unwrap();
            folder.join(format!("{number}.{ending}"))
        };
        fs::write(path("images", "jpg"), &bytes).unwrap();
        fs::write(path("masks", "png"), mask(size)).unwrap();
        if number != 1 {
            fs::write(path("texts", "vtt"), format!("WEBVTT {number}\n")).unwrap();
        }
        fs::write(path("json", "json"), format!(" {{\"a\": {number}}}\n")).unwrap();
        let array = npy("<f4", "(2,)", &[0.1f32, f32::NAN].map(f32::to_le_bytes).concat());
        fs::write(path("arrays", "npy"), array).unwrap();
        fs::write(path("raw", "dat"), [number as u8, 255, 0]).unwrap();
    }
    let file = |(name, path): (&str, &str)| (name.to_string(), path.to_string());
    let side_files = BTreeMap::from(
        [
            ("caption", "../texts/{folder}/{stem}.vtt"),
            ("mask", "../masks/{folder}/{stem}.png"),
            ("meta", "../json/{folder}/{stem}.json"),
            ("emb", "../arrays/{folder}/{stem}.npy"),
            ("raw", "../raw/{folder}/{stem}.dat"),
        ]
        .map(file),
    );
    let settings_of = DirectorySettings { side_files, ..Default::default() };
    let source =
        Directory::open_with(root.path().join("images"), &settings_of, &Storage::default())
            .unwrap();
    let source: Arc<dyn Source> = Arc::new(source);
    let columns = [
        or(DefaultValue::Text("none".into()), ColumnSettings::text("caption")),
        ColumnSettings::mask("mask"),
        column("meta:a", ColumnSettings::array("a", I64, &[])),
        ColumnSettings::array("emb", F32, &[2]),
        ColumnSettings::bytes("raw"),
    ];
    round_trip(source.clone(), &columns);
    let (root, _) = packed(&*source, &settings(ShardFormat::WebDataset));
    let names = members(root.path());
    for name in ["0.jpg", "0.cls", "0.caption.vtt", "0.mask.png", "0.meta.json", "0.emb.npy"] {
        assert!(names.iter().any(|it| it == name), "{name}: {names:?}");
    }
    assert!(names.iter().all(|name| name != "1.caption.vtt"), "{names:?}");
}

#[test]
fn members_of_archives_keep_their_names() {
    let root = tempfile::tempdir().unwrap();
    let mut files = Vec::new();
    for (number, (jpeg, _)) in jpegs(120).into_iter().enumerate() {
        let key = format!("k{number}");
        let size = Header::parse(&jpeg).unwrap().size;
        let image = if number % 2 == 0 { "jpg" } else { "jpeg" };
        files.push((format!("{key}.{image}"), jpeg));
        files.push((format!("{key}.cls"), format!("{number}\n").into()));
        files.push((format!("{key}.seg.png"), mask(size)));
        files.push((format!("{key}.json"), format!("{{\"a\": {number}}}").into()));
        files.push((format!("{key}.txt"), format!("no. {number}\n").into()));
        files.push((format!("{key}.mp3"), vec![255, number as u8]));
        files.push((format!("{key}.emb.npy"), npy("<i2", "(2, 2)", &[number as u8; 8])));
        // The schema lists the fields of the first 100 samples only.
        if number > 110 {
            files.push((format!("{key}.late.txt"), b"late".to_vec()));
        }
    }
    let path = root.path().join("a.tar");
    archive(&path, &files);
    let source: Arc<dyn Source> =
        Arc::new(WebDataset::open(&[path], &WebDatasetSettings::default()).unwrap());
    let columns = [
        column("seg.png", ColumnSettings::mask("seg")),
        column("json:a", ColumnSettings::array("a", I64, &[])),
        ColumnSettings::text("txt"),
        ColumnSettings::bytes("mp3"),
        column("emb.npy", ColumnSettings::array("emb", F32, &[2, 2])),
        or(DefaultValue::Text("none".into()), column("late.txt", ColumnSettings::text("late"))),
        column("cls", ColumnSettings::text("class")),
    ];
    round_trip(source.clone(), &columns);
    let (out, _) = packed(&*source, &settings(ShardFormat::WebDataset));
    let names = members(out.path());
    for name in ["000.jpg", "000.seg.png", "000.json", "000.txt", "000.mp3", "111.late.txt"] {
        assert!(names.iter().any(|it| it == name), "{name}: {names:?}");
    }
    // The image is not stored a second time.
    assert!(names.iter().all(|it| !it.contains(".jpeg") && !it.contains("jpg.")), "{names:?}");
    let size = |root: &Path| -> usize { super::files(root).iter().map(|it| it.1.len()).sum() };
    assert!(size(out.path()) < 2 * fs::metadata(root.path().join("a.tar")).unwrap().len() as usize);
}

#[test]
fn fields_of_parquet_files_are_packed() {
    let path = crate::repository().join("tests/golden/parquet/fields-v1.parquet");
    let source = Parquet::open(&[path], &ParquetSettings::default()).unwrap();
    let columns = [
        or(DefaultValue::Float(-1.0), ColumnSettings::array("f32", F32, &[])),
        ColumnSettings::array("f64", F32, &[]),
        or(DefaultValue::Text("none".into()), ColumnSettings::text("text")),
        ColumnSettings::bytes("raw"),
        or(DefaultValue::List(vec![]), ColumnSettings::list("numbers", I64, &[])),
        or(DefaultValue::Text("none".into()), column("tags:[0]", ColumnSettings::text("tag"))),
        or(DefaultValue::Float(0.0), ColumnSettings::array("decimal", F32, &[])),
    ];
    // Lists with holes are errors of their samples.
    let source: Arc<dyn Source> = Arc::new(source);
    let names = source.schema().into_iter().map(|it| it.name).filter(|name| name != "holes");
    let fields = FieldChoice::Named(names.collect());
    round_trip_of(source, &columns, &fields);
}

#[test]
fn annotations_of_coco_are_packed() {
    let folder = folder_of(3);
    let annotation = |id: u64, image: u64, points: Option<u64>| {
        let mut it = json!({
            "id": id, "image_id": image, "category_id": 7, "iscrowd": 0, "area": 1.1 * id as f64,
            "bbox": [1.25, 2.5, 3.1, 4.0], "segmentation": [[1, 2, 3.5, 4, 5, 6]],
        });
        if let Some(count) = points {
            it["keypoints"] = (0..3 * count).map(|it| json!(it as f64 / 3.0)).collect();
        }
        it
    };
    let file = json!({
        "images": [
            {"id": 5, "file_name": "0.jpg", "width": 40, "height": 30},
            {"id": 6, "file_name": "1.jpg", "width": 47, "height": 35},
            {"id": 1i64 << 60, "file_name": "2.jpg"},
        ],
        "categories": [{"id": 3, "name": "a"}, {"id": 7, "name": "b"}],
        "annotations": [
            annotation(1, 5, Some(2)), annotation(2, 5, None), annotation(3, 6, None),
            {"id": 9, "image_id": 5, "caption": "one"}, {"id": 10, "image_id": 5, "caption": "two"},
        ],
    });
    let path = folder.path().join("a.json");
    fs::write(&path, file.to_string()).unwrap();
    let source = Coco::open(&path, &CocoSettings::default()).unwrap();
    let columns = [
        ColumnSettings::array("image_id", I64, &[]),
        ColumnSettings::boxes("boxes", BoxFormat::default()),
        ColumnSettings::list("categories", I64, &[]),
        ColumnSettings::list("areas", F32, &[]),
        or(DefaultValue::List(vec![]), ColumnSettings::list("keypoints", F32, &[2, 3])),
        or(DefaultValue::Text("none".into()), column("captions:[1]", ColumnSettings::text("c"))),
    ];
    round_trip(Arc::new(source), &columns);
}

#[test]
fn arrays_of_numpy_are_packed() {
    let root = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: Vec<u8>| fs::write(root.path().join(name), bytes).unwrap();
    write("x.npy", npy("|u1", "(3, 8, 8, 3)", &[7; 3 * 192]));
    let doubles = [0.1f64, 2.0, -0.0, f64::NAN, f64::INFINITY, 1e300];
    write(
        "one.npy",
        npy(
            "<f8",
            "(3,)",
            &doubles[..3].iter().flat_map(|it| it.to_le_bytes()).collect::<Vec<_>>(),
        ),
    );
    write(
        "odd.npy",
        npy(
            "<f8",
            "(3,)",
            &doubles[3..].iter().flat_map(|it| it.to_le_bytes()).collect::<Vec<_>>(),
        ),
    );
    write("flat.npy", npy("<f8", "(3, 4)", &[0.1f64; 12].map(f64::to_le_bytes).concat()));
    write("short.npy", npy("<f4", "(3, 4)", &[0.1f32; 12].map(f32::to_le_bytes).concat()));
    write("ids.npy", npy("<u8", "(3,)", &[u64::MAX, 0, 1 << 63].map(u64::to_le_bytes).concat()));
    write("word.npy", npy("|S3", "(3,)", b"ab\0\xff\0\0\0\0\0"));
    let names = ["one", "odd", "flat", "short", "ids", "word"];
    let fields = names.map(|name| (name.to_string(), PathBuf::from(format!("{name}.npy"))));
    let settings = NpySettings { fields: fields.into(), ..Default::default() };
    let source = Npy::open(&[root.path().join("x.npy")], &settings).unwrap();
    let columns = [
        ColumnSettings::array("one", F32, &[]),
        // A flat list fills any shape.
        ColumnSettings::array("flat", F32, &[2, 2]),
        ColumnSettings::list("short", F32, &[2]),
        or(DefaultValue::Text(String::new()), column("word", ColumnSettings::bytes("w"))),
    ];
    round_trip(Arc::new(source), &columns);
}

#[test]
fn parts_of_a_combination_keep_their_own_fields() {
    let (first, second) = (folder_of(2), folder_of(3));
    let csv = list(&first, "a.csv", "path,label,caption\n0.jpg,0,a\n1.jpg,1,b\n");
    let lines = "{\"path\": \"0.jpg\", \"label\": 0, \"caption\": \"c\", \"n\": 1}\n";
    let json = list(&second, "a.jsonl", lines);
    let source: Arc<dyn Source> = Arc::new(Concat::new(vec![csv, json]).unwrap());
    let columns = [
        ColumnSettings::text("caption"),
        or(DefaultValue::Integer(-1), ColumnSettings::array("n", I64, &[])),
    ];
    round_trip(source, &columns);
}
