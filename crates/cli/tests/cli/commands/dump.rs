//! Tests of the files that the command `dump` writes.

use std::collections::HashSet;

use super::*;

/// Returns the dictionary and the data of a version 1.0 `.npy` file.
fn npy(path: &Path) -> (String, Vec<u8>) {
    let bytes = fs::read(path).unwrap();
    assert_eq!(&bytes[..8], b"\x93NUMPY\x01\x00");
    let end = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    assert_eq!(end % 64, 0);
    assert_eq!(bytes[end - 1], b'\n');
    (text(&bytes[10..end]).trim_end().to_string(), bytes[end..].to_vec())
}

#[test]
fn dump_writes_tensor_samples_and_sheet() {
    let dir = workplace();
    let path = dir.path();
    done(path, &["dump", "pipeline.toml", "--device", "cpu", "--out", "one"]);
    done(path, &["dump", "pipeline.toml", "--device", "cpu", "--out", "all", "--batches", "9"]);
    let (head, one) = npy(&path.join("one/images.npy"));
    assert_eq!(head, "{'descr': '<f4', 'fortran_order': False, 'shape': (4, 3, 24, 32), }");
    assert_eq!(one.len(), 4 * 3 * 24 * 32 * 4);
    let (head, all) = npy(&path.join("all/images.npy"));
    assert_eq!(head, "{'descr': '<f4', 'fortran_order': False, 'shape': (8, 3, 24, 32), }");
    assert_eq!(all[..one.len()], one);

    let samples: Value =
        serde_json::from_slice(&fs::read(path.join("all/samples.json")).unwrap()).unwrap();
    let samples = samples.as_array().unwrap();
    assert_eq!(samples.len(), 8);
    for sample in samples {
        let mut keys: Vec<_> = sample.as_object().unwrap().keys().map(String::as_str).collect();
        keys.sort_unstable();
        assert_eq!(
            keys,
            [
                "flipped_horizontally",
                "flipped_vertically",
                "height",
                "index",
                "label",
                "operators",
                "outcome",
                "path",
                "reduction",
                "roi",
                "width"
            ]
        );
        assert_eq!((&sample["width"], &sample["height"]), (&80.into(), &60.into()));
        assert_eq!(sample["outcome"], "cpu");
        assert_eq!(sample["reduction"], 1);
        let file = path.join(sample["path"].as_str().unwrap());
        assert!(file.is_file(), "{file:?}");
        let class = format!("class{:03}", sample["label"].as_i64().unwrap());
        assert!(file.parent().unwrap().ends_with(class), "{file:?}");
        let roi: Vec<u64> =
            sample["roi"].as_array().unwrap().iter().map(|it| it.as_u64().unwrap()).collect();
        assert!(roi[2] >= 1 && roi[0] + roi[2] <= 80 && roi[3] >= 1 && roi[1] + roi[3] <= 60);
        let operators = sample["operators"].as_array().unwrap();
        let names: Vec<_> = operators.iter().map(|it| it["op"].as_str().unwrap()).collect();
        assert_eq!(names, ["random_resized_crop", "flip", "normalize"]);
        assert_eq!(operators[0]["actions"][0]["params"]["box"], sample["roi"]);
        assert_eq!(operators[0]["actions"][0]["size"], serde_json::json!([32, 24]));
        let flips = operators[1]["actions"][0]["params"]["horizontal"].as_bool().unwrap();
        assert_eq!(sample["flipped_horizontally"], flips);
    }
    let sheet = png::Decoder::new(std::io::BufReader::new(
        fs::File::open(path.join("one/sheet.png")).unwrap(),
    ));
    let info = sheet.read_info().unwrap();
    // The sheet has two rows of two images with gaps of 8 pixels. A caption is 25 pixels high and
    // sixteen characters (95 pixels) wide.
    assert_eq!((info.info().width, info.info().height), (2 * (95 + 8) + 8, 2 * (24 + 25 + 8) + 8));
}

#[test]
fn dump_writes_how_far_the_decoder_reduced() {
    let dir = workplace();
    let text = format!(
        "{PIPELINE}[decode]\nprescale = true\n[[chain]]\nop = \"random_resized_crop\"\nwidth = 10\nheight = 7\n"
    );
    write(&dir, "prescaled.toml", &text);
    done(
        dir.path(),
        &["dump", "prescaled.toml", "--device", "cpu", "--out", "out", "--batches", "9"],
    );
    let samples = fs::read(dir.path().join("out/samples.json")).unwrap();
    let samples: Value = serde_json::from_slice(&samples).unwrap();
    let mut reduced = 0;
    for sample in samples.as_array().unwrap() {
        assert_eq!((&sample["width"], &sample["height"]), (&80.into(), &60.into()));
        let [width, height] = [2, 3].map(|side| sample["roi"][side].as_u64().unwrap());
        let fits = |by: &u64| width / by >= 10 && height / by >= 7;
        let expected = [8, 4, 2].into_iter().find(fits).unwrap_or(1);
        assert_eq!(sample["reduction"], expected, "{width}x{height}");
        reduced += u32::from(expected > 1);
    }
    assert!(reduced > 0);
}

#[test]
fn dump_of_another_epoch_reorders_the_same_set() {
    let dir = workplace();
    let order = |epoch: &str| {
        let args = [
            "dump",
            "pipeline.toml",
            "--device",
            "cpu",
            "--out",
            epoch,
            "--batches",
            "9",
            "--epoch",
            epoch,
        ];
        done(dir.path(), &args);
        let samples = fs::read(dir.path().join(epoch).join("samples.json")).unwrap();
        let samples: Value = serde_json::from_slice(&samples).unwrap();
        samples
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["index"].as_u64().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(order("1").len(), 8);
    assert_ne!(order("0"), order("1"));
    assert_eq!(order("1"), order("1"));
}

#[test]
fn dump_writes_what_each_repeat_drew() {
    let dir = workplace();
    let text = format!("{PIPELINE}repeats = 2\n{TRAINING}");
    write(&dir, "repeats.toml", &text);
    done(dir.path(), &["dump", "repeats.toml", "--device", "cpu", "--out", "out"]);
    let samples = fs::read(dir.path().join("out/samples.json")).unwrap();
    let samples: Value = serde_json::from_slice(&samples).unwrap();
    let samples = samples.as_array().unwrap();
    assert_eq!(samples.len(), 4);
    for repeats in samples.chunks(2) {
        assert_eq!(repeats[0]["index"], repeats[1]["index"]);
        assert_eq!((&repeats[0]["repeat"], &repeats[1]["repeat"]), (&Value::Null, &1.into()));
        assert_ne!(repeats[0]["operators"], repeats[1]["operators"]);
        for sample in repeats {
            assert_eq!(sample["operators"][0]["actions"][0]["params"]["box"], sample["roi"]);
        }
    }
}

#[test]
fn dump_writes_each_element_type() {
    let dir = workplace();
    let crop = "[[chain]]\nop = \"center_crop\"\nwidth = 8\nheight = 6\n";
    let dump = |dtype: &str, chain: &str| {
        write(
            &dir,
            "typed.toml",
            &format!("{PIPELINE}[output]\ndtype = \"{dtype}\"\nlayout = \"nhwc\"\n{chain}"),
        );
        done(dir.path(), &["dump", "typed.toml", "--device", "cpu", "--out", dtype]);
        npy(&dir.path().join(dtype).join("images.npy"))
    };
    let (head, bytes) = dump("u8", crop);
    assert_eq!(head, "{'descr': '|u1', 'fortran_order': False, 'shape': (4, 6, 8, 3), }");
    for (dtype, descr) in [("f16", "<f2"), ("f32", "<f4"), ("bf16", "<f4")] {
        let (head, data) = dump(dtype, crop);
        assert_eq!(
            head,
            format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': (4, 6, 8, 3), }}")
        );
        // Every element type represents the integers from 0 to 255 exactly.
        let values: Vec<u8> = match descr {
            "<f2" => data
                .as_chunks()
                .0
                .iter()
                .map(|&it| half::f16::from_le_bytes(it).to_f32() as u8)
                .collect(),
            _ => data.as_chunks().0.iter().map(|&it| f32::from_le_bytes(it) as u8).collect(),
        };
        assert_eq!(values, bytes, "{dtype}");
    }
}

#[test]
fn dump_writes_what_batch_operators_drew() {
    let dir = workplace();
    let text = format!(
        "{PIPELINE}{TRAINING}[targets]\nclasses = 3\n[[batch_operators]]\nop = \"mixup\"\nalpha = 0.8\n\
         [[batch_operators]]\nop = \"cutmix\"\n"
    );
    write(&dir, "mixed.toml", &text);
    done(dir.path(), &["dump", "mixed.toml", "--device", "cpu", "--out", "out"]);
    let samples = fs::read(dir.path().join("out/samples.json")).unwrap();
    let samples: Value = serde_json::from_slice(&samples).unwrap();
    let samples = samples.as_array().unwrap();
    assert_eq!(samples.len(), 4);
    for pair in samples.chunks(2) {
        let [first, second] = [&pair[0]["mixed"], &pair[1]["mixed"]];
        assert_eq!((&first["with"], &second["with"]), (&pair[1]["index"], &pair[0]["index"]));
        assert_eq!(first["blends"], second["blends"]);
        let blends = first["blends"].as_array().unwrap();
        let names: Vec<&Value> = blends.iter().map(|it| &it["op"]).collect();
        assert_eq!(names, ["mixup", "cutmix"]);
        assert_eq!(blends[0]["window"], serde_json::json!([0, 0, 32, 24]));
        assert_eq!(blends[0]["weight"], blends[0]["target_weight"]);
        assert_eq!(blends[1]["weight"], 0.0);
    }
}

#[test]
fn dump_writes_the_objects_of_every_sample() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("0.jpg"), crate::common::jpeg(0, 64, 48)).unwrap();
    let coco = r#"{
        "images": [{"id": 0, "file_name": "0.jpg", "width": 64, "height": 48}],
        "annotations": [
            {"id": 0, "image_id": 0, "category_id": 5, "bbox": [4, 6, 20, 10]},
            {"id": 1, "image_id": 0, "category_id": 5, "bbox": [0, 0, 3, 3]}
        ],
        "categories": [{"id": 5, "name": "x"}]
    }"#;
    fs::write(root.path().join("a.json"), coco).unwrap();
    let pipeline = "[source]\ncoco = \"a.json\"\n[loader]\nbatch_size = 1\n\
                    [[chain]]\nop = \"crop\"\nx = 5\nwidth = 32\nheight = 11\n";
    fs::write(root.path().join("a.toml"), pipeline).unwrap();
    done(root.path(), &["dump", "a.toml", "--device", "cpu", "--out", "out"]);
    let samples = fs::read(root.path().join("out/samples.json")).unwrap();
    let samples: Value = serde_json::from_slice(&samples).unwrap();
    let expected = serde_json::json!([{
        "id": 0, "category": 0, "bbox": [0.0, 6.0, 19.0, 11.0], "visible": 0.475, "crowd": false,
    }]);
    assert_eq!(samples[0]["objects"], expected);
}

/// A batch whose samples were all dropped is not delivered. An epoch then has fewer batches than
/// expected.
#[test]
fn commands_end_if_every_sample_is_dropped() {
    let dir = workplace();
    let data = fs::read_dir(dir.path().join("data")).unwrap().map(|it| it.unwrap().path());
    for class in data.filter(|it| it.is_dir()) {
        for image in fs::read_dir(class).unwrap() {
            fs::write(image.unwrap().path(), "no image").unwrap();
        }
    }
    write(&dir, "bad.toml", &format!("{PIPELINE}on_error = \"drop\"\n{TRAINING}"));
    let args = ["run", "bad.toml", "--device", "cpu", "--epochs", "3"];
    let (report, warning) = done_with_warnings(dir.path(), &args);
    assert!(has_words(row(&report, "images "), &["0"]), "{report}");
    assert!(warning.contains("24 samples"), "{warning}");
    let args = ["dump", "bad.toml", "--device", "cpu", "--out", "out"];
    let words = refused(dir.path(), &args, 1);
    assert!(words.contains("all samples failed, so there is no sample to write"), "{words}");
    assert_eq!(fs::read_dir(dir.path().join("out")).unwrap().count(), 0);
}

/// Every column becomes a file, also of several batches, and each view has a contact sheet.
#[test]
fn dump_writes_every_column() {
    let dir = workplace();
    let mut table = "path,label,caption,tags,box,all\n".to_string();
    let folders = fs::read_dir(dir.path().join("data")).unwrap().map(|it| it.unwrap().path());
    let folder = folders.filter(|it| it.is_dir()).min().unwrap();
    let mut images: Vec<_> = fs::read_dir(folder).unwrap().map(|it| it.unwrap().path()).collect();
    images.sort();
    for (number, image) in images.iter().cycle().take(6).enumerate() {
        let path = image.strip_prefix(dir.path()).unwrap().display();
        let tags: Vec<_> = (0..number).collect();
        table += &format!(
            "{path},1,\"text {number}, ü\",\"{tags:?}\",\"[[1, 2, 30, 20]]\",\"[\"\"a\"\", \"\"é\"\"]\"\n"
        );
    }
    write(&dir, "list.csv", &table);
    let text = "[source]\nlist = \"list.csv\"\n[loader]\nbatch_size = 4\nlast_batch = \"partial\"\n\
        [[column]]\nname = \"caption\"\nkind = \"text\"\n\
        [[column]]\nname = \"all\"\nkind = \"texts\"\n\
        [[column]]\nname = \"my tags\"\nfield = \"tags\"\nkind = \"list\"\ndtype = \"i64\"\n\
        [[column]]\nname = \"box\"\nkind = \"boxes\"\nlike = \"one\"\n\
        [[view]]\nname = \"crops\"\ncount = 3\ndtype = \"u8\"\n\
        [[view.chain]]\nop = \"random_resized_crop\"\nwidth = 16\nheight = 12\n\
        [[view]]\nname = \"one\"\n[[view.chain]]\nop = \"resize\"\nwidth = 20\nheight = 10\n";
    write(&dir, "columns.toml", text);
    let (out, path) = (dir.path().join("out"), dir.path());
    let told =
        done(path, &["dump", "columns.toml", "--device", "cpu", "--out", "out", "--batches", "2"]);
    let (head, crops) = npy(&out.join("columns/crops.npy"));
    assert_eq!(head, "{'descr': '|u1', 'fortran_order': False, 'shape': (6, 3, 3, 12, 16), }");
    assert_eq!(crops.len(), 6 * 3 * 3 * 12 * 16);
    let (head, _) = npy(&out.join("columns/one.npy"));
    assert!(head.contains("'<f4'") && head.contains("(6, 3, 10, 20)"), "{head}");
    let longs = |bytes: &[u8]| -> Vec<i64> {
        bytes.as_chunks().0.iter().map(|it| i64::from_le_bytes(*it)).collect()
    };
    let (head, offsets) = npy(&out.join("columns/my%20tags.offsets.npy"));
    assert!(head.contains("(7,)"), "{head}");
    assert_eq!(longs(&offsets), [0, 0, 1, 3, 6, 10, 15]);
    let (_, tags) = npy(&out.join("columns/my%20tags.npy"));
    assert_eq!(longs(&tags), [0, 0, 1, 0, 1, 2, 0, 1, 2, 3, 0, 1, 2, 3, 4]);
    let (head, boxes) = npy(&out.join("columns/box.npy"));
    assert!(head.contains("(6, 4)"), "{head}");
    let left = f32::from_le_bytes(*boxes.first_chunk().unwrap());
    assert!((left - 20.0 / 80.0).abs() < 1e-5, "{left}");
    let texts: Vec<String> =
        serde_json::from_slice(&fs::read(out.join("columns/caption.json")).unwrap()).unwrap();
    assert_eq!((texts.len(), &*texts[5]), (6, "text 5, ü"));
    let several: Vec<Vec<String>> =
        serde_json::from_slice(&fs::read(out.join("columns/all.json")).unwrap()).unwrap();
    assert_eq!(several, vec![["a", "é"]; 6]);
    assert!(!out.join("columns/all.offsets.npy").exists());
    let files = ["sheet-crops.png", "sheet-one.png", "samples.json", "columns/box.offsets.npy"];
    for file in files {
        assert!(out.join(file).is_file() && told.contains(file), "{file}: {told}");
    }
    assert!(!out.join("images.npy").exists() && !out.join("sheet.png").exists());
    let samples: serde_json::Value =
        serde_json::from_slice(&fs::read(out.join("samples.json")).unwrap()).unwrap();
    let views = &samples[0]["views"];
    let boxes: HashSet<String> = (0..3)
        .map(|output| views["crops"][output][0]["actions"][0]["params"]["box"].to_string())
        .collect();
    assert_eq!((boxes.len(), &views["one"][0][0]["op"]), (3, &"resize".into()), "{views}");
    let told = refused(path, &["bench-ops", "columns.toml"], 2);
    assert!(
        told.contains("chain: has no operators, and bench-ops does not measure views"),
        "{told}"
    );
}

/// Masks of pixels, one-hot masks, masks of objects and run lengths of the same pixels are drawn in
/// the same way.
#[test]
fn sheets_show_all_kinds_of_masks() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    fs::create_dir_all(path.join("data/cat")).unwrap();
    let file = |name: &str, bytes: &[u8]| fs::write(path.join("data/cat").join(name), bytes);
    let inside = |at: usize| (4..20).contains(&(at % 40)) && (5..25).contains(&(at / 40));
    for number in 0..2 {
        file(&format!("{number}.ppm"), &[b"P6 40 30 255\n", &[90; 3600][..]].concat()).unwrap();
        let mask: Vec<u8> = (0..1200).map(|at| u8::from(inside(at))).collect();
        file(&format!("{number}.pgm"), &[b"P5 40 30 255\n", &mask[..]].concat()).unwrap();
        file(&format!("{number}.json"), b"[[[4,5,20,5,20,25,4,25]],null]").unwrap();
    }
    let sheet = |name: &str, column: &str| {
        let text = format!(
            "[source]\ndirectory = \"data\"\nextensions = [\"ppm\"]\n\
             [source.side_files]\nmask = \"{{folder}}/{{stem}}.pgm\"\n\
             outlines = \"{{folder}}/{{stem}}.json\"\n\
             [[chain]]\nop = \"center_crop\"\nwidth = 30\nheight = 28\n\
             [loader]\nbatch_size = 2\n{column}"
        );
        fs::write(path.join("masks.toml"), text).unwrap();
        done(path, &["dump", "masks.toml", "--device", "cpu", "--out", name]);
        let mut sheets = fs::read_dir(path.join(name)).unwrap().map(|it| it.unwrap().path());
        let sheet = sheets.find(|it| it.extension().is_some_and(|it| it == "png")).unwrap();
        fs::read(sheet).unwrap()
    };
    let plain = sheet("plain", "");
    let mask = "[[column]]\nname = \"m\"\nfield = \"mask\"\nkind = \"mask\"\n";
    let expected = sheet("mask", mask);
    assert!(plain != expected);
    let outlines =
        |kind: &str| format!("[[column]]\nname = \"m\"\nfield = \"outlines\"\nkind = \"{kind}\"\n");
    for (name, column) in [
        ("one_hot", format!("{mask}one_hot = 3\n")),
        (
            "one_hot_nhwc",
            format!("{mask}one_hot = 2\ndtype = \"f16\"\n[output]\nlayout = \"nhwc\"\n"),
        ),
        ("instances", outlines("instances")),
        ("runs", outlines("runs")),
    ] {
        assert!(sheet(name, &column) == expected, "{name}");
    }
}
