//! Tests of packing in pieces, as on several machines.

use feedwater_tools::pack::{Coordinator, Piece, ShardRange, Written, encode, write_shard};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::*;

/// Serializes and parses a value, as if it had been sent to another machine.
fn sent<T: Serialize + DeserializeOwned>(value: &T) -> T {
    serde_json::from_str(&serde_json::to_string(value).unwrap()).unwrap()
}

/// Encodes the samples from `begin` on, in pieces of `samples` samples. Encodes the last piece
/// first. Returns the pieces as bytes.
fn pieces(
    source: &dyn Source,
    settings: &Settings,
    begin: u64,
    samples: u64,
) -> Vec<(u64, Vec<u8>)> {
    let mut begins: Vec<u64> = (begin..source.len()).step_by(samples as usize).collect();
    begins.reverse();
    let encoded = begins.into_iter().map(|begin| {
        let piece = encode(source, settings, begin..begin + samples).unwrap();
        (begin, piece.to_bytes().unwrap())
    });
    let mut pieces: Vec<_> = encoded.collect();
    pieces.reverse();
    pieces
}

/// Packs in pieces of `samples` samples. Stops after `most` shards are listed.
pub fn in_pieces(
    source: &dyn Source,
    root: &Path,
    settings: &Settings,
    samples: u64,
    most: usize,
) -> Option<Manifest> {
    let mut coordinator = Coordinator::begin(source, root, settings).unwrap();
    let pieces = pieces(source, settings, coordinator.next(), samples);
    let mut ended: Vec<ShardRange> = Vec::new();
    for (_, bytes) in &pieces {
        let sizes = Piece::from_bytes(bytes).unwrap().sizes(settings, source.len());
        ended.extend(coordinator.sized(&sizes));
    }
    // Write the shards in another order than their numbers, and some of them twice.
    let write = |shard: &ShardRange| {
        let overlap = |begin: u64| begin < shard.end && begin + samples > shard.begin;
        let needed = pieces.iter().filter(|it| overlap(it.0)).map(|it| Piece::from_bytes(&it.1));
        write_shard(root, settings, &sent(shard), needed).unwrap()
    };
    let mut written: Vec<Written> = ended.iter().rev().map(write).collect();
    written.reverse();
    assert_eq!(ended.first().map(write).as_ref(), written.first());
    for written in written.iter().take(most) {
        coordinator.written(sent(written)).unwrap();
    }
    (written.len() <= most).then(|| coordinator.finish().unwrap())
}

#[test]
fn pieces_of_any_size_give_the_files_of_one_machine() {
    let presize = Some(Presize { shorter: 32, quality: 80 });
    for format in [ShardFormat::WebDataset, ShardFormat::TfRecord] {
        for settings in [settings(format), Settings { presize, ..settings(format) }] {
            let (whole, manifest) = packed(&source(), &settings);
            for samples in [1, 2, 3, 5, 11, 100] {
                let root = tempfile::tempdir().unwrap();
                let made = in_pieces(&source(), root.path(), &settings, samples, usize::MAX);
                assert_eq!(made.as_ref(), Some(&manifest));
                assert_eq!(everything(root.path()), everything(whole.path()));
                assert_eq!(verify(root.path(), |_| {}).unwrap(), 11);
                // The directory is already complete, so packing again changes nothing.
                let again = in_pieces(&source(), root.path(), &settings, samples, usize::MAX);
                assert_eq!(again.as_ref(), Some(&manifest));
            }
        }
    }
}

/// Returns a source whose samples 3, 4, 9 and 10 are unusable.
fn broken() -> Memory {
    let mut images = images();
    for index in [3, 4, 9, 10] {
        images[index].0.truncate(10);
    }
    Memory::new(images).unwrap()
}

#[test]
fn skipped_samples_are_counted_as_on_one_machine() {
    let mut settings = Settings { skip: true, ..settings(ShardFormat::WebDataset) };
    for shard_bytes in [1, 6000, 1 << 20] {
        settings.shard_bytes = shard_bytes;
        let (whole, manifest) = packed(&broken(), &settings);
        assert_eq!(manifest.skipped, 4);
        for samples in [1, 2, 4, 11] {
            let root = tempfile::tempdir().unwrap();
            let made = in_pieces(&broken(), root.path(), &settings, samples, usize::MAX);
            assert_eq!(made.as_ref(), Some(&manifest));
            assert_eq!(everything(root.path()), everything(whole.path()));
        }
    }
    settings.skip = false;
    let error = encode(&broken(), &settings, 2..6).err().unwrap();
    assert!(matches!(&error, Error::Sample(it) if it.index == 3), "{error}");
}

#[test]
fn a_stopped_run_resumes_after_the_last_listed_shard_on_one_machine_or_several() {
    let settings = settings(ShardFormat::WebDataset);
    let (whole, manifest) = packed(&source(), &settings);
    for most in 0..manifest.shards.len() {
        for again_in_pieces in [false, true] {
            let root = tempfile::tempdir().unwrap();
            assert_eq!(in_pieces(&source(), root.path(), &settings, 2, most), None);
            // Writes a file like the one that a process leaves behind if it is killed while it
            // writes a shard.
            fs::write(root.path().join(".train-000001.tar.77-0.part"), "half").unwrap();
            let listed = Manifest::read(root.path()).unwrap().unwrap().shards;
            assert_eq!(listed, manifest.shards[..most]);
            let next = listed.last().map_or(0, |shard| shard.end);
            assert_eq!(Coordinator::begin(&source(), root.path(), &settings).unwrap().next(), next);
            match again_in_pieces {
                true => in_pieces(&source(), root.path(), &settings, 3, usize::MAX).unwrap(),
                false => pack(&source(), root.path(), &settings, |_| {}).unwrap(),
            };
            assert_eq!(everything(root.path()), everything(whole.path()));
        }
    }
}

#[test]
fn a_coordinator_locks_the_directory_and_lists_every_shard_once_and_in_order() {
    let (settings, root) = (settings(ShardFormat::WebDataset), tempfile::tempdir().unwrap());
    let mut coordinator = Coordinator::begin(&source(), root.path(), &settings).unwrap();
    let second = Coordinator::begin(&source(), root.path(), &settings).err().unwrap();
    assert!(matches!(second, Error::Io { .. }), "{second}");
    let piece = encode(&source(), &settings, 0..11).unwrap();
    let ended = coordinator.sized(&piece.sizes(&settings, 11));
    assert!(ended.len() > 2 && ended.last().unwrap().end == 11, "{ended:?}");
    let write = |shard: &ShardRange, samples| {
        write_shard(root.path(), &settings, shard, [encode(&source(), &settings, samples)])
    };
    let config = |error: Error| {
        let Error::Config(error) = error else { panic!("{error}") };
        error.to_string()
    };
    let missing = config(write(&ended[1], ended[1].begin + 1..11).unwrap_err());
    assert!(has_words(&missing, &["pieces", &ended[1].begin.to_string()]), "{missing}");
    let written: Vec<Written> = ended.iter().map(|it| write(it, 0..11).unwrap()).collect();
    let early = config(coordinator.written(written[1].clone()).unwrap_err());
    assert!(has_words(&early, &["shard", "1", "0"]), "{early}");
    coordinator.written(written[0].clone()).unwrap();
    let twice = config(coordinator.written(written[0].clone()).unwrap_err());
    assert!(has_words(&twice, &["shard", "0", "1"]), "{twice}");
    let half = config(coordinator.finish().unwrap_err());
    assert!(has_words(&half, &["shard", "1"]), "{half}");
    assert!(!Manifest::read(root.path()).unwrap().unwrap().complete);
}

#[test]
fn damaged_pieces_and_those_of_other_versions_are_refused() {
    let settings = Settings { skip: true, ..settings(ShardFormat::WebDataset) };
    let bytes = encode(&broken(), &settings, 0..11).unwrap().to_bytes().unwrap();
    for len in (0..bytes.len()).step_by(7).chain([bytes.len() - 1]) {
        let error = Piece::from_bytes(&bytes[..len]).err().unwrap();
        assert!(matches!(&error, Error::Config(it) if it.key == "piece"), "{len}: {error}");
    }
    let version = env!("CARGO_PKG_VERSION");
    let at = bytes.windows(version.len()).position(|it| it == version.as_bytes()).unwrap();
    let mut other = bytes;
    other[at] = b'9';
    let error = Piece::from_bytes(&other).err().unwrap().to_string();
    assert!(has_words(&error, &[&format!("9{}", &version[1..]), version]), "{error}");
}
