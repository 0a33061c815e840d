//! Tests of the choice of fields.

use super::*;

#[test]
fn fields_are_chosen_by_name() {
    let folder = folder_of(2);
    let source = list(&folder, "a.csv", "path,label,b,a\n0.jpg,0,x,1\n1.jpg,0,y,2\n");
    for format in FORMATS {
        let with = |fields| Settings { fields, ..settings(format) };
        let (root, manifest) = packed(&*source, &with(FieldChoice::None));
        assert!(manifest.made.fields.is_empty());
        let found = open(format, root.path());
        assert!(found.schema().iter().all(|it| !["a", "b", "path"].contains(&&*it.name)));
        let (root, manifest) = packed(&*source, &with(FieldChoice::Named(vec!["b".into()])));
        assert_eq!(manifest.made.fields, [("b".to_string(), "b.*".to_string())].into());
        let found = open(format, root.path());
        assert!(found.schema().iter().any(|it| it.name == "b"));
        assert!(found.schema().iter().all(|it| it.name != "a"));
        let named = with(FieldChoice::Named(vec!["a".into(), "c".into()]));
        let error = config_error(pack(&*source, root.path(), &named, |_| {}));
        assert_eq!(error.key, "fields");
        assert!(has_words(&error.problem, &["\"c\"", "a", "b", "path"]), "{error}");
        let error = config_error(pack(&super::source(), root.path(), &named, |_| {}));
        assert!(has_words(&error.problem, &["\"a\""]), "{error}");
    }
}

#[test]
fn the_command_lists_and_chooses_fields() {
    let folder = folder_of(2);
    list(&folder, "a.csv", "path,label,caption\n0.jpg,0,x\n1.jpg,0,y\n");
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_feedwater"));
        let output = command.arg("pack").args(arguments).current_dir(folder.path()).output();
        let output = output.unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, text, _) = run(&["a.csv", "all"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(has_words(row(&text, "fields "), &["caption", "label", "path"]), "{text}");
    let dry = &["a.csv", "none", "--shorter", "8", "--fields", "caption", "--dry-run"];
    let (_, text, _) = run(dry);
    assert!(has_words(row(&text, "warning "), &["caption", "--shorter"]), "{text}");
    let (_, text, _) = run(&[&dry[..], &["--json"]].concat());
    let json: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&json["fields"], json["warnings"].as_array().unwrap().len()),
        (&json!(["caption"]), 1)
    );
    let (code, _, words) = run(&["a.csv", "other", "--fields", "caption,tags"]);
    assert_eq!(code, Some(2), "{words}");
    assert!(has_words(&words, &["\"tags\"", "caption", "label", "path"]), "{words}");
    assert_eq!(run(&["a.csv", "other", "--fields", "a,,b"]).0, Some(2));
    let (code, text, _) = run(&["a.csv", "plain", "--fields", "none"]);
    assert!(code == Some(0) && !text.contains("fields "), "{text}");
    // The shards of another choice are not mixed with these.
    let (code, _, words) = run(&["a.csv", "plain"]);
    assert_eq!(code, Some(2), "{words}");
    assert!(has_words(&words, &["fields", "none", "caption", "--overwrite"]), "{words}");
}

#[test]
fn fields_in_pixels_are_refused_or_named_if_images_become_smaller() {
    let presize = Some(Presize { shorter: 16, quality: 80 });
    let folder = folder_of(1);
    let file = json!({
        "images": [{"id": 1, "file_name": "0.jpg", "width": 40, "height": 30}],
        "categories": [{"id": 3, "name": "a"}],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 3, "bbox": [1, 2, 3, 4], "area": 12, "iscrowd": 0}],
    });
    let path = folder.path().join("a.json");
    fs::write(&path, file.to_string()).unwrap();
    let source = Coco::open(&path, &CocoSettings::default()).unwrap();
    let out = folder.path().join("out");
    let wanted = Settings { presize, ..settings(ShardFormat::WebDataset) };
    let error = config_error(pack(&source, &out, &wanted, |_| {}));
    assert_eq!(error.key, "fields");
    let words = [
        "boxes",
        "areas",
        "segmentations",
        "width",
        "categories,category_ids,file_name,image_id,iscrowd",
    ];
    assert!(has_words(&error.problem, &words), "{error}");
    let named = |names: &[&str]| Settings {
        fields: FieldChoice::Named(names.iter().map(|it| it.to_string()).collect()),
        ..wanted.clone()
    };
    assert!(pack(&source, &out, &named(&["boxes"]), |_| {}).is_err());
    let settings = named(&["categories"]);
    let ChosenFields { warnings, .. } = chosen_fields(&source, &settings).unwrap();
    assert!(has_words(&warnings[0], &["categories"]), "{warnings:?}");
    pack(&source, &out, &settings, |_| {}).unwrap();
    assert_eq!(verify(&out, |_| {}).unwrap(), 1);
}
