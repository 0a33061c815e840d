//! `decode.strict`: damaged images are either errors, or they are used and counted. Their pixels
//! are compared in `tests/images/decode/pillow.rs`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::common::png;
use feedwater::error::{Error, Tolerated};
use feedwater::internals::config::Pipeline;
use feedwater::loader::{DeviceChoice, Loader, LoaderBuilder};
use feedwater::op::{Chain, Resize};
use feedwater::plan::{LastBatch, OnError};
use feedwater::source::{Memory, Source};
use feedwater_tools::probe;

/// Returns the kinds of damage, and a source with an image for each of them and an intact image at
/// the end.
fn damaged() -> (Vec<&'static str>, Memory) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/tolerated");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|it| it.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|it| it != "rgb"));
    files.sort();
    let sort = |path: &Path| {
        let name = path.file_name().unwrap().to_str().unwrap().to_string();
        Tolerated::ALL.into_iter().map(Tolerated::name).find(|sort| name.starts_with(sort))
    };
    let sorts = files.iter().map(|path| sort(path).unwrap()).collect();
    let bytes = files.iter().map(|path| fs::read(path).unwrap());
    let samples = bytes.chain([png(1, 50, 40)]).map(|bytes| (bytes, 0)).collect();
    (sorts, Memory::new(samples).unwrap())
}

/// Returns a loader whose chain uses whole images, because a strict decoder does not detect damage
/// below the window.
fn builder(source: Memory) -> LoaderBuilder {
    Loader::builder(source, Chain::new().then(Resize::to(24, 20)))
        .device(DeviceChoice::Cpu)
        .batch_size(4)
        .num_workers(2)
        .last_batch(LastBatch::Partial)
}

fn counts(sorts: &[&'static str], times: u64) -> BTreeMap<&'static str, u64> {
    let mut counts = BTreeMap::new();
    sorts.iter().for_each(|sort| *counts.entry(*sort).or_default() += times);
    counts
}

/// In the second epoch, images are decoded again, or decoded images come from the cache.
#[test]
fn tolerated_samples_are_counted_by_kind_of_damage_in_every_epoch() {
    for cache in [None, Some(1 << 22)] {
        let (sorts, source) = damaged();
        let mut loader = builder(source)
            .configure(|it| {
                it.decode.strict = false;
                it.cache.decoded = cache;
            })
            .build()
            .unwrap();
        for _ in 0..2 {
            for batch in &mut loader {
                for record in batch.unwrap().samples() {
                    let expected = sorts.get(record.index as usize).copied();
                    assert_eq!(record.tolerated.map(Tolerated::name), expected, "{record:?}");
                }
            }
        }
        let stats = loader.stats();
        assert_eq!(stats.images, 2 * (sorts.len() as u64 + 1));
        assert_eq!(stats.tolerated, counts(&sorts, 2));
        assert_eq!(stats.epochs.len(), 2);
        for epoch in &stats.epochs {
            assert_eq!(epoch.tolerated, counts(&sorts, 1), "epoch {}", epoch.epoch);
        }
        assert_eq!(stats.errors.values().sum::<u64>(), 0);
        let metrics = loader.metrics();
        assert!(metrics.contains("feedwater_tolerated_total{damage=\"jpeg-data\"}"), "{metrics}");
    }
}

#[test]
fn a_strict_loader_accepts_none_of_them() {
    let (sorts, source) = damaged();
    let mut loader = builder(source).on_error(OnError::Substitute).build().unwrap();
    loader.epoch().for_each(|batch| drop(batch.unwrap()));
    let stats = loader.stats();
    assert_eq!(stats.errors.values().sum::<u64>(), sorts.len() as u64);
    assert_eq!(stats.outcomes["substituted"], sorts.len() as u64);
    assert!(stats.tolerated.is_empty());

    let (_, source) = damaged();
    let mut stopped = builder(source).build().unwrap();
    let error = stopped.epoch().find_map(Result::err).unwrap();
    assert!(matches!(error, Error::Sample(_)), "{error}");
}

#[test]
fn probe_counts_them() {
    let (sorts, source) = damaged();
    let settings = |strict| probe::Settings {
        samples: 0,
        threads: 2,
        decode: true,
        limits: Default::default(),
        strict,
        pixels: feedwater::PixelFormat::U8x3,
    };
    let report = probe::run(&source, &settings(false), |_| {});
    assert_eq!((report.usable(), report.errors.len()), (source.len(), 0));
    assert_eq!(report.tolerated, counts(&sorts, 1));
    let report = probe::run(&source, &settings(true), |_| {});
    assert_eq!((report.usable(), report.tolerated.len()), (1, 0));
}

#[test]
fn the_key_is_decode_strict() {
    let text = "[source]\ndirectory = \"d\"\n[decode]\nstrict = false\n";
    let pipeline = Pipeline::from_toml(text, "").unwrap();
    assert!(!pipeline.settings.decode.strict);
    assert!(pipeline.to_toml().unwrap().contains("strict = false"));
    let default = Pipeline::from_toml("[source]\ndirectory = \"d\"\n", "").unwrap();
    assert!(default.settings.decode.strict);
}
