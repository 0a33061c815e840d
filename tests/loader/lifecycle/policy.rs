//! Samples that cannot be used: the policies of `loader.on_error`, and limits on errors.

use super::*;

/// Returns twenty samples. Numbers 6 and 13 are not valid images.
fn damaged() -> Memory {
    let mut all = jpegs(20);
    all[6].0.truncate(200);
    all[13].0.clear();
    Memory::new(all).unwrap()
}

pub fn damaged_builder(policy: OnError) -> LoaderBuilder {
    Loader::builder(damaged(), evaluation())
        .device(DeviceChoice::Cpu)
        .batch_size(4)
        .num_workers(3)
        .last_batch(LastBatch::Partial)
        .on_error(policy)
}

#[test]
fn stop_yields_the_batches_before_then_only_the_error() {
    for _ in 0..20 {
        let mut loader = damaged_builder(OnError::Stop).build().unwrap();
        let mut epoch = loader.epoch();
        assert_eq!(epoch.next().unwrap().unwrap().indices().collect::<Vec<_>>(), [0, 1, 2, 3]);
        let Err(Error::Sample(error)) = epoch.next().unwrap() else {
            panic!("batch 1 has sample 6")
        };
        assert_eq!((error.index, error.location.as_str()), (6, "memory[6]"));
        assert_eq!(error.reason, Reason::Truncated);
        assert!(epoch.next().is_none());
        let again = loader.epoch().next().unwrap().err().unwrap().to_string();
        assert_eq!(again, Error::Sample(error).to_string());
    }
}

#[test]
fn skip_keeps_batches_full_and_moves_no_other_sample() {
    let good = {
        let mut loader = Loader::builder(memory(20), evaluation())
            .device(DeviceChoice::Cpu)
            .batch_size(4)
            .last_batch(LastBatch::Partial)
            .build()
            .unwrap();
        samples(&mut loader)
    };
    let run = |workers| {
        let mut loader = damaged_builder(OnError::Skip).num_workers(workers).build().unwrap();
        let mut places = Vec::new();
        for batch in &mut loader {
            let batch = batch.unwrap();
            let bytes = batch.shape().sample_bytes();
            for (record, sample) in
                batch.samples().iter().zip(batch.host().unwrap().chunks_exact(bytes))
            {
                places.push((*record, sample.to_vec()));
            }
        }
        (places, loader.stats())
    };
    let (places, stats) = run(1);
    assert_eq!(places.len(), 20);
    for (place, (record, bytes)) in places.iter().enumerate() {
        match place as u64 {
            bad @ (6 | 13) => {
                assert_eq!(record.replaces, Some(bad));
                assert!(record.index != 6 && record.index != 13);
            }
            place => assert_eq!((record.index, record.replaces), (place, None)),
        }
        assert_eq!(record.label, Some(record.index as i64));
        assert!(*bytes == good[&record.index], "place {place}");
    }
    assert_eq!(stats.images, 20);
    assert_eq!(stats.outcomes["cpu"], 20);
    assert!(stats.outcomes["skipped"] >= 2);
    assert!(stats.errors["truncated"] >= 1 && stats.errors["empty"] >= 1);
    assert!(run(4).0 == places, "the choice must not depend on the number of workers");
}

#[test]
fn substitute_puts_zeros_and_marks_them() {
    let mut loader = damaged_builder(OnError::Substitute).build().unwrap();
    let mut errors = Vec::new();
    for batch in &mut loader {
        let batch = batch.unwrap();
        let bytes = batch.shape().sample_bytes();
        errors.extend(batch.errors().to_vec());
        for (record, sample) in
            batch.samples().iter().zip(batch.host().unwrap().chunks_exact(bytes))
        {
            let bad = record.index == 6 || record.index == 13;
            assert_eq!(record.outcome == Outcome::Substituted, bad);
            assert_eq!(sample.iter().all(|&byte| byte == 0), bad);
            assert_eq!(
                record.label,
                Some(record.index as i64),
                "the label must be that of the sample"
            );
        }
    }
    assert_eq!(errors.iter().map(|error| error.index).collect::<Vec<_>>(), [6, 13]);
    let stats = loader.stats();
    assert_eq!((stats.outcomes["substituted"], stats.outcomes["cpu"]), (2, 18));
    assert_eq!((stats.outcomes["skipped"], stats.errors["empty"]), (0, 1));
}

#[test]
fn a_set_without_a_usable_sample_ends_with_its_first_error() {
    let source = Memory::new(vec![(b"no image".to_vec(), 0); 8]).unwrap();
    let mut loader = Loader::builder(source, evaluation())
        .device(DeviceChoice::Cpu)
        .batch_size(4)
        .on_error(OnError::Skip)
        .build()
        .unwrap();
    let error = loader.epoch().next().unwrap().err().unwrap();
    let Error::Sample(error) = error else { panic!("{error}") };
    assert_eq!(error.reason, Reason::Unsupported);
    // The message must contain the location of the first sample, the setting, and the number of the
    // other seven samples.
    let text = error.to_string();
    for value in ["memory[", "loader.on_error", "the 7 samples"] {
        assert!(text.contains(value), "{value}: {text}");
    }
}

#[test]
fn skip_finds_the_only_usable_sample() {
    let mut all = vec![(b"no image".to_vec(), 0); 50];
    all[31] = jpegs(1).remove(0);
    let mut loader = Loader::builder(Memory::new(all).unwrap(), evaluation())
        .device(DeviceChoice::Cpu)
        .batch_size(10)
        .on_error(OnError::Skip)
        .build()
        .unwrap();
    for batch in &mut loader {
        assert!(batch.unwrap().indices().all(|index| index == 31));
    }
}

#[test]
fn limits_are_checked_on_the_header() {
    let mut loader = builder(8).configure(|it| it.limits.max_pixels = 100).build().unwrap();
    let Err(Error::Sample(error)) = loader.epoch().next().unwrap() else { panic!("too large") };
    assert_eq!(error.reason, Reason::Oversized);
    for value in ["limits.max_pixels", "100"] {
        assert!(error.problem.contains(value), "{error}");
    }
    let mut loader = builder(8).configure(|it| it.limits.max_file_bytes = 50).build().unwrap();
    let Err(Error::Sample(error)) = loader.epoch().next().unwrap() else { panic!("too large") };
    assert_eq!(error.reason, Reason::Oversized);
    for value in ["limits.max_file_bytes", "50"] {
        assert!(error.problem.contains(value), "{error}");
    }
}

/// A batch with failed samples keeps its other samples, so it is shorter. A batch is not delivered
/// if all its samples fail.
#[test]
fn drop_leaves_failed_samples_out() {
    let mut all = jpegs(20);
    for bad in [4, 5, 6, 7, 9, 19] {
        all[bad].0.truncate(200);
    }
    let plain = {
        let builder =
            Loader::builder(memory(20), evaluation()).device(DeviceChoice::Cpu).batch_size(4);
        samples(&mut builder.build().unwrap())
    };
    for (workers, classes) in [(1, None), (3, Some(20))] {
        let builder = Loader::builder(Memory::new(all.clone()).unwrap(), evaluation());
        let builder = builder.device(DeviceChoice::Cpu).batch_size(4).num_workers(workers);
        let builder = builder
            .on_error(OnError::Drop)
            .configure(|it| it.targets.classes = classes)
            .epochs(Some(1));
        let mut loader = builder.build().unwrap();
        assert_eq!(loader.failures(), None);
        let (mut lens, mut seen) = (Vec::new(), Vec::new());
        for batch in &mut loader {
            let batch = batch.unwrap();
            assert_eq!(batch.shape().batch, batch.len());
            let bytes = batch.shape().sample_bytes();
            let tensor = batch.host().unwrap();
            assert_eq!(tensor.len(), batch.len() * bytes);
            for (place, pixels) in tensor.chunks_exact(bytes).enumerate() {
                let index = batch.samples()[place].index;
                assert_eq!(pixels, plain[&index], "sample {index}");
                assert_eq!(batch.labels()[place], index as i64);
                if let Some(targets) = batch.soft_targets() {
                    assert_eq!(targets[place * 20 + index as usize], 1.0);
                }
                seen.push(index);
            }
            lens.push((batch.number(), batch.len()));
        }
        assert_eq!(lens, [(0, 4), (2, 3), (3, 4), (4, 3)]);
        assert_eq!(seen, [0, 1, 2, 3, 8, 10, 11, 12, 13, 14, 15, 16, 17, 18]);
        let stats = loader.stats();
        assert_eq!((stats.images, stats.batches, stats.outcomes["dropped"]), (14, 5, 6));
        assert_eq!((stats.outcomes["skipped"], stats.errors["truncated"]), (0, 6));
        let told = loader.failures().unwrap();
        assert!(told.starts_with("6 samples") && told.contains("memory[4]"), "{told}");
        assert_eq!(loader.warnings().last(), Some(&told));
    }
}

#[test]
fn zeros_have_the_label_that_losses_ignore() {
    for (label, expected) in [(None, -100), (Some(3), 3)] {
        let mut builder =
            damaged_builder(OnError::Substitute).configure(|it| it.targets.classes = Some(20));
        if let Some(label) = label {
            builder = builder.configure(|it| it.loader.ignore_label = label);
        }
        for batch in &mut builder.epochs(Some(1)).build().unwrap() {
            let batch = batch.unwrap();
            for (place, record) in batch.samples().iter().enumerate() {
                let failed = matches!(record.index, 6 | 13);
                assert_eq!(record.label, Some(record.index as i64));
                let label = if failed { expected } else { record.index as i64 };
                assert_eq!(batch.labels()[place], label);
                let target = &batch.soft_targets().unwrap()[place * 20..][..20];
                assert_eq!(target.iter().sum::<f32>() == 0.0, label < 0, "{target:?}");
            }
        }
    }
}
