//! Batch operators with failed samples and invalid labels.

use feedwater::error::{Error, Reason};
use feedwater::loader::{Loader, LoaderBuilder, PairOutcome};
use feedwater::op::Mixup;
use feedwater::plan::{LastBatch, OnError};
use feedwater::source::Memory;

use super::{run, settled};
use crate::common::{jpegs, training};

/// Returns a loader that reads its source in order. Sample 5 is not an image. Sample 9 has the
/// label 61, for which there is no class.
fn damaged(policy: OnError) -> LoaderBuilder {
    let mut samples = jpegs(24);
    samples[5].0 = b"no image".to_vec();
    samples[9].1 = 61;
    let chain = training().then_batch(Mixup::alpha(0.8));
    let builder = Loader::builder(Memory::new(samples).unwrap(), chain);
    settled(builder).shuffle(false).on_error(policy).last_batch(LastBatch::Partial)
}

#[test]
fn the_partner_of_a_substituted_sample_stays_unmixed() {
    let mut loader = damaged(OnError::Substitute).build().unwrap();
    let made = run(&mut loader, usize::MAX);
    for (place, made) in made.iter().enumerate() {
        let alone = [4, 5, 8, 9].contains(&place);
        let outcome = if alone { PairOutcome::Alone } else { PairOutcome::Mixed };
        assert_eq!(made.pair.outcome(), outcome, "{place}");
        assert_eq!(made.pair.blends().is_empty(), alone);
    }
    assert!(made[5].pixels.iter().all(|&byte| byte == 0));
    let one_hot = |place: usize| made[place].target.iter().position(|&it| it > 0.5);
    assert_eq!([4, 8].map(one_hot), [Some(4), Some(8)]);
    // A sample that was replaced by zeros has no class, and neither has the label 61. Both soft
    // targets are therefore all zeros.
    assert!([5, 9].iter().all(|&place| made[place].target.iter().all(|&it| it == 0.0)));
    let errors = loader.stats().errors;
    assert_eq!((errors["label"], errors.values().sum::<u64>()), (1, 2));
}

/// Samples are mixed in pairs. If one sample of a pair were dropped, the other could not be mixed.
#[test]
fn samples_are_not_dropped_before_they_are_mixed() {
    let Err(Error::Config(error)) = damaged(OnError::Drop).build() else {
        panic!("the loader was built")
    };
    assert_eq!(error.key, "loader.on_error");
    assert!(error.problem.contains("mixup"), "{error}");
}

#[test]
fn a_replacement_is_mixed() {
    let mut loader = damaged(OnError::Skip).build().unwrap();
    let made = run(&mut loader, usize::MAX);
    assert!(made.iter().all(|it| it.pair.outcome() == PairOutcome::Mixed));
    assert!(![5, 9].contains(&made[5].index) && ![5, 9].contains(&made[9].index));
}

#[test]
fn a_label_that_is_no_class_is_an_error_of_its_sample() {
    let mut samples = jpegs(8);
    samples[6].1 = -1;
    let builder = Loader::builder(Memory::new(samples).unwrap(), training());
    let mut loader = settled(builder).shuffle(false).build().unwrap();
    let mut epoch = loader.epoch();
    assert_eq!(epoch.next().unwrap().unwrap().len(), 4);
    let Some(Err(Error::Sample(error))) = epoch.next() else { panic!("sample 6 must be an error") };
    assert_eq!((error.index, error.reason), (6, Reason::Label));
    for value in ["-1", "61", "targets.classes"] {
        assert!(error.problem.contains(value), "{error}");
    }
}
