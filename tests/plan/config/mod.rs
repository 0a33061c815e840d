//! The pipeline file: how it is parsed, its errors, and how settings are written to it.

mod errors;
mod places;
mod views;

use std::fs;
use std::ops::Range;

use crate::common::config_error;
use feedwater::internals::config::Pipeline;
use feedwater::internals::tensor::{DType, Layout};
use feedwater::op::Placement;
use feedwater::plan::{AutoCount, DeviceChoice, LastBatch, OnError, Route, Settings, ShardFrom};
use feedwater::source::settings::{
    DirectorySettings, FileListSettings, SourceSettings, TfRecordSettings, WebDatasetSettings,
};
use feedwater::source::{Directory, FileList, TfRecord, WebDataset};
use feedwater::storage::{Storage, StorageSettings};
use feedwater::{ConfigError, Error};
use proptest::prelude::*;

/// A pipeline file like the one in the documentation.
const WHOLE: &str = r#"
[source]
directory = "data/train"
[loader]
batch_size = 64
num_workers = 2
prefetch = 2
seed = 42
shuffle = true
last_batch = "drop"
shard = "environment"
on_error = "stop"
[decode]
placement = "auto"
routes = ["nvjpeg-hardware", "feedwater", "nvjpeg-gpu", "nvjpeg-hybrid", "cpu"]
prescale = false
orientation = true
[output]
dtype = "f32"
layout = "nchw"
[limits]
max_pixels = 178956970
[[chain]]
op = "random_resized_crop"
width = 224
height = 224
[[chain]]
op = "flip"
horizontal = 0.5
[[chain]]
op = "normalize"
mean = [0.485, 0.456, 0.406]
std = [0.229, 0.224, 0.225]
"#;

const SOURCE: &str = "[source]\ndirectory = \"data\"\n";

#[test]
fn the_documented_file_is_read() {
    let pipeline = Pipeline::from_toml(WHOLE, "base").unwrap();
    assert_eq!(
        pipeline.source,
        SourceSettings::new::<Directory>(
            vec!["base/data/train".into()],
            DirectorySettings::default()
        )
    );
    let mut settings = Settings::default();
    settings.loader.num_workers = 2.into();
    settings.loader.seed = 42;
    settings.loader.shuffle = true;
    assert_eq!(pipeline.settings, settings);
    let names: Vec<_> = pipeline.chain.steps().iter().map(|it| it.operator.name()).collect();
    assert_eq!(names, ["random_resized_crop", "flip", "normalize"]);
    assert!(pipeline.chain.steps().iter().all(|step| step.placement == Placement::Auto));
}

/// The example in docs/pipeline-file.md is parsed to the values that the page documents.
#[test]
fn the_file_of_the_documentation_is_read() {
    let page = include_str!("../../../docs/pipeline-file.md");
    let (_, rest) = page.split_once("```toml\n").unwrap();
    let (text, _) = rest.split_once("```").unwrap();
    let shown = Pipeline::from_toml(text, "").unwrap();
    let documented = Pipeline::from_toml(WHOLE, "").unwrap();
    assert_eq!(shown.source, documented.source);
    assert_eq!(shown.settings, documented.settings);
    assert_eq!(format!("{:?}", shown.chain), format!("{:?}", documented.chain));
}

#[test]
fn missing_keys_have_the_default_of_the_rust_field() {
    let pipeline = Pipeline::from_toml(SOURCE, "").unwrap();
    assert_eq!(pipeline.settings, Settings::default());
    assert!(pipeline.chain.steps().is_empty());
}

#[test]
fn former_names_are_read_and_todays_written() {
    let former = "[loader]\nbatch = 5\nworkers = \"auto\"\nlast = \"pad\"\nrank = 1\nworld = 3\n\
        [[transform]]\nop = \"flip\"\n";
    let todays = "[loader]\nbatch_size = 5\nnum_workers = \"auto\"\nlast_batch = \"pad\"\nrank = 1\n\
        world_size = 3\n[[chain]]\nop = \"flip\"\n";
    let [former, todays] =
        [former, todays].map(|text| Pipeline::from_toml(&format!("{SOURCE}{text}"), "").unwrap());
    assert_eq!(former.settings, todays.settings);
    assert_eq!((former.settings.loader.batch_size, former.chain.steps().len()), (5, 1));
    let written = former.to_toml().unwrap();
    assert_eq!(written, todays.to_toml().unwrap());
    for line in
        ["batch_size = 5", "num_workers = \"auto\"", "last_batch = \"pad\"", "world_size = 3"]
    {
        assert!(written.lines().any(|it| it == line), "{line}\n{written}");
    }
}

#[test]
fn every_choice_is_read() {
    let text = r#"
        device = "cuda:3"
        [source]
        list = "/data/list.tsv"
        [loader]
        last_batch = "partial"
        on_error = "substitute"
        rank = 1
        world_size = 3
        num_workers = "auto"
        prefetch = "auto"
        shard = "environment"
        shuffle = true
        shuffle_window = 1000
        repeats = 3
        [decode]
        placement = "cpu"
        routes = ["cpu", "nvjpeg-hybrid"]
        max_cpu_threads = 3
        hardware_group = 24
        [output]
        dtype = "bf16"
        layout = "nhwc"
        [limits]
        max_file_bytes = "512 MiB"
        device_memory = "1 GiB"
        pinned_memory = 65536
        cpu_threads = 6
        [storage]
        connections = 16
        cache = "2 GiB"
        cache_directory = "kept"
        map = false
        [[chain]]
        op = "resize"
        shorter = 256
        placement = "cpu"
        [[chain]]
        op = "center_crop"
        width = 224
        height = 224
        placement = "gpu"
    "#;
    let Pipeline { source, settings, chain, .. } = Pipeline::from_toml(text, "base").unwrap();
    assert_eq!(
        source,
        SourceSettings::new::<FileList>(vec!["/data/list.tsv".into()], FileListSettings::default())
    );
    assert_eq!(
        (settings.loader.last_batch, settings.loader.on_error),
        (LastBatch::Partial, OnError::Substitute)
    );
    assert_eq!(settings.device, DeviceChoice::Gpu(3));
    assert_eq!((settings.loader.rank, settings.loader.world_size), (Some(1), Some(3)));
    assert_eq!(
        (settings.loader.shard, settings.loader.shuffle_window, settings.loader.repeats),
        (ShardFrom::Environment, Some(1000), 3)
    );
    assert_eq!(settings.decode.placement, Placement::Cpu);
    assert_eq!((settings.output.dtype, settings.output.layout), (DType::BF16, Layout::Nhwc));
    assert_eq!(settings.decode.routes, [Route::Cpu, Route::NvjpegHybrid]);
    assert_eq!(settings.decode.max_cpu_threads, Some(3));
    assert_eq!(settings.decode.hardware_group, Some(24));
    assert_eq!(settings.limits.max_file_bytes, 512 << 20);
    assert_eq!(settings.limits.device_memory, Some(1 << 30));
    assert_eq!(settings.limits.pinned_memory, Some(65536));
    assert_eq!(settings.limits.cpu_threads, Some(6));
    assert_eq!(
        (settings.loader.num_workers, settings.loader.prefetch),
        (AutoCount::Auto, AutoCount::Auto)
    );
    assert_eq!((settings.storage.connections, settings.storage.cache), (16, 2 << 30));
    assert_eq!(settings.storage.cache_directory, Some("base/kept".into()));
    assert_eq!(settings.storage.retries, StorageSettings::default().retries);
    assert!(StorageSettings::default().map && !settings.storage.map);
    let places: Vec<_> = chain.steps().iter().map(|step| step.placement).collect();
    assert_eq!(places, [Placement::Cpu, Placement::Gpu]);
}

#[test]
fn former_names_of_decode_routes_are_accepted() {
    let text =
        "[source]\nlist = \"/a\"\n[decode]\nroutes = [\"hardware\", \"cuda\", \"host\", \"cpu\"]";
    let pipeline = Pipeline::from_toml(text, "/").unwrap();
    let routes = [Route::NvjpegHardware, Route::NvjpegGpu, Route::NvjpegHybrid, Route::Cpu];
    assert_eq!(pipeline.settings.decode.routes, routes);
    assert!(pipeline.to_toml().unwrap().contains("\"nvjpeg-hardware\""));
}

#[test]
fn record_sources_have_one_path_or_many_and_their_settings() {
    let text = "[source]\ntfrecord = \"train-*\"\n";
    let settings = TfRecordSettings::default();
    let one = Pipeline::from_toml(text, "base").unwrap();
    assert_eq!(one.source, SourceSettings::new::<TfRecord>(vec!["base/train-*".into()], settings));
    let text = "[source]\ntfrecord = [\"a\", \"/b\"]\nimage = \"jpg\"\nlabel = \"\"\n";
    let settings = TfRecordSettings { image: "jpg".into(), label: String::new() };
    let many = Pipeline::from_toml(text, "base").unwrap();
    let paths = vec!["base/a".into(), "/b".into()];
    assert_eq!(many.source, SourceSettings::new::<TfRecord>(paths, settings));
    let text = "[source]\nwebdataset = \"a.tar\"\nlabel = \"json\"\nlabel_key = \"id\"\n";
    let settings =
        WebDatasetSettings { label: "json".into(), label_key: "id".into(), ..Default::default() };
    let tar = Pipeline::from_toml(text, "base").unwrap();
    assert_eq!(tar.source, SourceSettings::new::<WebDataset>(vec!["base/a.tar".into()], settings));
    for pipeline in [one, many, tar] {
        let again = Pipeline::from_toml(&pipeline.to_toml().unwrap(), "").unwrap();
        assert_eq!(again.source, pipeline.source);
    }
}

#[test]
fn paths_are_relative_to_the_file_and_syntax_errors_have_a_location() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pipeline.toml");
    fs::write(&file, SOURCE).unwrap();
    let pipeline = Pipeline::from_file(&file).unwrap();
    assert_eq!(
        pipeline.source,
        SourceSettings::new::<Directory>(
            vec![dir.path().join("data")],
            DirectorySettings::default()
        )
    );
    fs::write(&file, "[source]\ndirectory = \"a\"\nbatch = = 3\n").unwrap();
    let words = Pipeline::from_file(&file).unwrap_err().to_string();
    assert!(words.starts_with(&format!("{}:3:9: ", file.display())), "{words}");
    let none = dir.path().join("none.toml");
    assert!(matches!(Pipeline::from_file(&none), Err(Error::Io { path, .. }) if path == none));
}

fn count(numbers: Range<usize>) -> impl Strategy<Value = AutoCount> {
    prop_oneof![Just(AutoCount::Auto), numbers.prop_map(AutoCount::Fixed)]
}

fn settings() -> impl Strategy<Value = Settings> {
    let last = prop_oneof![Just(LastBatch::Drop), Just(LastBatch::Pad), Just(LastBatch::Partial)];
    let on_error = prop_oneof![
        Just(OnError::Stop),
        Just(OnError::Skip),
        Just(OnError::Substitute),
        Just(OnError::Drop),
    ];
    let placement = prop_oneof![Just(Placement::Cpu), Just(Placement::Gpu), Just(Placement::Auto)];
    let device = prop_oneof![
        Just(DeviceChoice::Auto),
        Just(DeviceChoice::Cpu),
        Just(DeviceChoice::LocalGpu),
        (0usize..99).prop_map(DeviceChoice::Gpu),
    ];
    let dtype = prop::sample::select(DType::ALL.to_vec());
    let layout = prop::sample::select(Layout::ALL.to_vec());
    let memory = prop::option::of(0..i64::MAX as u64);
    let shard = prop_oneof![
        (0u64..5, 5u64..9).prop_map(|it| (ShardFrom::Environment, Some(it))),
        prop::sample::select(vec![ShardFrom::Environment, ShardFrom::None, ShardFrom::OpenMpi])
            .prop_map(|it| (it, None)),
    ];
    let routes = prop::sample::subsequence(Route::ALL.to_vec(), 1..=4).prop_shuffle();
    (
        (1usize..100_000, count(1..64), count(1..16), 0..i64::MAX as u64, any::<bool>()),
        (last, on_error, shard, prop::option::of(1u64..99)),
        (placement, any::<bool>(), any::<bool>(), dtype, layout),
        (1..1u64 << 40, 1..1u64 << 40, memory.clone(), memory, prop::option::of(1usize..99)),
        (routes, prop::option::of(1usize..99), device),
    )
        .prop_map(|(numbers, policies, rest, limits, (routes, threads, device))| {
            let mut settings = Settings::default();
            let loader = &mut settings.loader;
            (loader.batch_size, loader.num_workers, loader.prefetch, loader.seed, loader.shuffle) =
                numbers;
            let (last, on_error, (shard, written), window) = policies;
            (loader.last_batch, loader.on_error, loader.shard) = (last, on_error, shard);
            (loader.rank, loader.world_size) = written.unzip();
            loader.shuffle_window = window.filter(|_| loader.shuffle);
            loader.repeats = loader.shuffle_window.map_or(1, |window| window as u32);
            let (decode, output) = (&mut settings.decode, &mut settings.output);
            (decode.placement, decode.prescale, decode.orientation, output.dtype, output.layout) =
                rest;
            let most = &mut settings.limits;
            (most.max_pixels, most.max_file_bytes, ..) = limits;
            (.., most.device_memory, most.pinned_memory, most.cpu_threads) = limits;
            settings.decode.hardware_group = threads.map(|threads| 2 * threads);
            (settings.decode.routes, settings.decode.max_cpu_threads) = (routes, threads);
            settings.device = device;
            settings
        })
}

proptest! {
    #[test]
    fn serialized_files_parse_to_the_same_pipeline(settings in settings(), steps in 0usize..4) {
        let chain = "[[chain]]\nop = \"flip\"\nhorizontal = 0.25\nplacement = \"cpu\"\n".repeat(steps);
        let mut first = Pipeline::from_toml(&format!("{SOURCE}{chain}"), "base").unwrap();
        first.settings = settings;
        let text = first.to_toml().unwrap();
        let second = Pipeline::from_toml(&text, "").unwrap();
        prop_assert_eq!(&second.source, &first.source);
        prop_assert_eq!(&second.settings, &first.settings);
        prop_assert_eq!(format!("{:?}", second.chain), format!("{:?}", first.chain));
        prop_assert_eq!(second.to_toml().unwrap(), text);
    }

    /// Any text is parsed to a pipeline, or to an error that names a key. No text causes a panic.
    #[test]
    fn no_text_causes_a_panic(
        section in "loader|decode|output|limits|source|chain|x",
        key in "batch|dtype|max_file_bytes|directory|op|rank|[a-z]{1,4}",
        value in "-?[0-9]{1,20}|true|\"[a-z ]{0,9}\"|\\[1, 2\\]|\\{a = 1\\}|1979-05-27|nan|1e9",
    ) {
        let text = format!("{SOURCE}[{section}]\n{key} = {value}");
        if let Err(error) = Pipeline::from_toml(&text, "") {
            prop_assert!(error.to_string().contains(": "));
        }
    }
}

#[test]
fn files_are_read_with_the_storage_settings_unless_another_handle_is_given() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("0.jpg"), [0]).unwrap();
    let text = "[source]\ndirectory = \".\"\n[storage]\nmap = false\nretries = 2\n[[chain]]\nop = \"flip\"\nhorizontal = 1.0\n";
    let mut pipeline = Pipeline::from_toml(text, root.path()).unwrap();
    let handle = |pipeline: &Pipeline| pipeline.builder().unwrap().source().storages().remove(0);
    assert_eq!(*handle(&pipeline).settings(), pipeline.settings.storage);
    assert!(!pipeline.storage().unwrap().is_same(&pipeline.storage().unwrap()));
    let other = Storage::default();
    let source = pipeline.builder_with(&other).unwrap().source();
    assert!(source.storages()[0].is_same(&other));
    pipeline.settings.storage.retries = 5;
    assert_eq!(handle(&pipeline).settings().retries, 5);
    pipeline.settings.storage.retries = 500;
    assert_eq!(config_error(pipeline.builder()).key, "storage.retries");
}
