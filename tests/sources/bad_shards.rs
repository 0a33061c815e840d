//! The setting `on_bad_shard`, which decides about shards that are damaged or cannot be opened.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::common::{config_error, refused};
use feedwater::error::Error;
use feedwater::internals::config::Pipeline;
use feedwater::source::settings::{TfRecordSettings, WebDatasetSettings};
use feedwater::source::{BadShards, ExclusionReason, Source, TfRecord, WebDataset};
use feedwater::storage::Storage;
use tempfile::TempDir;

/// Returns a tar archive of samples with these labels.
fn archive(labels: std::ops::Range<i64>) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for label in labels {
        for (extension, text) in [("jpg", format!("image {label}")), ("cls", label.to_string())] {
            let mut header = tar::Header::new_ustar();
            header.set_size(text.len() as u64);
            header.set_cksum();
            let name = format!("{label:03}.{extension}");
            archive.append_data(&mut header, name, text.as_bytes()).unwrap();
        }
    }
    archive.into_inner().unwrap()
}

/// Creates three shards of ten samples. The second one is truncated within its fourth sample. A
/// fourth shard is missing.
fn shards() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for number in 0..3 {
        let mut bytes = archive(10 * number..10 * number + 10);
        if number == 1 {
            bytes.truncate(2048 * 3 + 700);
        }
        fs::write(root.path().join(format!("{number}.tar")), bytes).unwrap();
    }
    root
}

fn open(root: &Path, policy: &str) -> Result<Arc<dyn Source>, Error> {
    let text = format!("[source]\nwebdataset = \"{{0..3}}.tar\"\non_bad_shard = \"{policy}\"\n");
    Pipeline::from_toml(&text, root)?.open()
}

fn labels(source: &dyn Source) -> Vec<i64> {
    (0..source.len()).map(|index| source.label(index)).collect()
}

fn counts(source: &dyn Source) -> BTreeMap<(ExclusionReason, String), u64> {
    source.excluded().into_iter().map(|it| ((it.why, it.kind), it.count)).collect()
}

#[test]
fn bad_shards_are_errors_skipped_or_read_until_the_damage_and_every_loss_is_counted() {
    let root = shards();
    assert!(open(root.path(), "error").is_err());
    let bytes = fs::metadata(root.path().join("1.tar")).unwrap().len();
    // Opens the source twice. If the first opening stored an incomplete table, the second one would
    // give different labels.
    for _ in 0..2 {
        let source = open(root.path(), "skip").unwrap();
        assert_eq!(labels(&*source), Vec::from_iter((0..10).chain(20..30)));
        let expected = [
            ((ExclusionReason::BadShard, "skipped".into()), 2),
            ((ExclusionReason::InBadShard, String::new()), 3),
            ((ExclusionReason::LostBytes, String::new()), bytes),
        ];
        assert_eq!(counts(&*source), BTreeMap::from(expected));
        let source = open(root.path(), "until_damage").unwrap();
        assert_eq!(labels(&*source), Vec::from_iter((0..13).chain(20..30)));
        let expected = [
            ((ExclusionReason::BadShard, "read until the damage".into()), 1),
            ((ExclusionReason::BadShard, "skipped".into()), 1),
        ];
        let mut counted = counts(&*source);
        let lost = counted.remove(&(ExclusionReason::LostBytes, String::new())).unwrap();
        assert!(lost < bytes, "{lost}");
        assert_eq!(counted, BTreeMap::from(expected));
        let [warning] = &source.warnings()[..] else { panic!("{:?}", source.warnings()) };
        for words in ["2 of 4", "1.tar", "until_damage", "on_bad_shard"] {
            assert!(warning.contains(words), "{words}: {warning}");
        }
    }
    // Replaces the bad shards by intact ones.
    fs::write(root.path().join("1.tar"), archive(10..20)).unwrap();
    fs::write(root.path().join("3.tar"), archive(30..40)).unwrap();
    for policy in ["error", "skip", "until_damage"] {
        let source = open(root.path(), policy).unwrap();
        assert_eq!(labels(&*source), Vec::from_iter(0..40), "{policy}");
        assert!(source.excluded().is_empty() && source.warnings().is_empty());
    }
}

#[test]
fn records_before_the_damage_are_used_also_of_compressed_files() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/records");
    let whole = fs::read(golden.join("train-00000-of-00002")).unwrap();
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("a");
    fs::write(&path, &whole[..whole.len() - 5]).unwrap();
    let open = |bad| {
        let storage = Storage::default();
        TfRecord::open_shards(
            std::slice::from_ref(&path),
            &TfRecordSettings::default(),
            &storage,
            bad,
        )
    };
    let count = open(BadShards::UntilDamage).unwrap().len();
    assert_eq!(count, 2);
    // If the only shard is skipped, there are no samples. The error must report the shard's damage.
    let error = config_error(open(BadShards::Skip));
    assert!(error.problem.contains("skipped 1") && error.problem.contains("byte"), "{error}");
    // A compressed file is decompressed in blocks of 1 MiB. All bytes of a damaged block are lost.
    let packed = root.path().join("b.tar.gz");
    let image: Vec<u8> = (0..64 << 10).map(|at: u32| ((at * at) >> 7) as u8).collect();
    let mut archive = tar::Builder::new(Vec::new());
    for label in 0..40 {
        for (extension, bytes) in [("jpg", &image[..]), ("cls", label.to_string().as_bytes())] {
            let mut header = tar::Header::new_ustar();
            header.set_size(bytes.len() as u64);
            header.set_cksum();
            archive.append_data(&mut header, format!("{label:03}.{extension}"), bytes).unwrap();
        }
    }
    let deflated = miniz_oxide::deflate::compress_to_vec(&archive.into_inner().unwrap(), 1);
    // The gzip trailer, which has the checksum, is missing.
    let head = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    fs::write(&packed, [&head[..], &deflated].concat()).unwrap();
    let storage = Storage::default();
    let settings = WebDatasetSettings::default();
    let source =
        WebDataset::open_shards(&[packed], &settings, &storage, BadShards::UntilDamage).unwrap();
    assert!((10..40).contains(&source.len()), "{}", source.len());
    let mut page = feedwater::source::custom::HostPage::default();
    for index in 0..source.len() {
        source.read(index, &mut page, 1 << 20).unwrap();
        assert!(source.label(index) == index as i64 && page.bytes() == image);
    }
}

#[test]
fn sources_without_shards_and_unknown_policies_are_refused() {
    let root = shards();
    fs::create_dir(root.path().join("train")).unwrap();
    let open = |text: &str| {
        Pipeline::from_toml(&format!("source = {{ {text} }}"), root.path())
            .and_then(|pipeline| pipeline.open())
            .map(drop)
    };
    let skip = "on_bad_shard = \"skip\"";
    refused(open(&format!("directory = \"train\", {skip}")), "source.on_bad_shard", &["directory"]);
    let concat = format!("concat = [{{ webdataset = \"0.tar\" }}], {skip}");
    refused(open(&concat), "source.on_bad_shard", &["concat"]);
    let within = format!("concat = [{{ webdataset = [\"0.tar\", \"1.tar\"], {skip} }}]");
    open(&within).unwrap();
    let unknown = open("webdataset = \"0.tar\", on_bad_shard = \"ignore\"");
    assert_eq!(config_error(unknown).key, "source.on_bad_shard");
    let until = "lmdb = \"train\", on_bad_shard = \"until_damage\"";
    refused(open(until), "source.on_bad_shard", &["skip"]);
}

/// The policy is the same after the settings are written to TOML and read again.
#[test]
fn the_policy_is_part_of_the_settings() {
    let root = shards();
    let text = "[source]\nwebdataset = \"0.tar\"\non_bad_shard = \"skip\"\n";
    let pipeline = Pipeline::from_toml(text, root.path()).unwrap();
    let written = pipeline.to_toml().unwrap();
    assert!(written.contains("on_bad_shard = \"skip\""), "{written}");
    assert_eq!(Pipeline::from_toml(&written, root.path()).unwrap().to_toml().unwrap(), written);
}
