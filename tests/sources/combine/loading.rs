//! Batches that loaders produce from combined sources.

use super::*;

/// With a global shuffle, the shards together have each index exactly once, for any world size.
/// Label and bytes of an index are always the same. Both are also true if loaders are resumed.
#[test]
fn shuffled_sharded_and_resumed_a_mixture_is_exact() {
    let source = mixed();
    let expected: BTreeMap<_, _> = (0..31).map(|it| (it, source.label(it))).collect();
    let mut whole = loader(mixed()).shuffle(true).seed(4).build().unwrap();
    let all = epoch(&mut whole);
    let seen: BTreeMap<_, _> = all.iter().map(|it| (it.0, it.1)).collect();
    assert_eq!((seen, all.len()), (expected, 31));
    let counts = all.iter().filter(|it| it.1 < 5).count();
    assert_eq!(
        counts,
        draws_of_first(&source),
        "the share of each part must be exact over an epoch"
    );

    let by_index: BTreeMap<_, _> = all.iter().map(|it| (it.0, it.clone())).collect();
    for world in [2, 3] {
        let shards = (0..world).flat_map(|rank| {
            epoch(&mut loader(mixed()).shuffle(true).seed(4).shard(rank, world).build().unwrap())
        });
        let shards: Vec<_> = shards.collect();
        assert_eq!(shards.len(), 31, "{world} shards");
        assert!(shards.iter().all(|it| by_index[&it.0] == *it), "{world} shards");
    }

    let mut first = loader(mixed()).shuffle(true).seed(4).build().unwrap();
    let begun: Vec<_> =
        first.epoch().take(4).map(|it| it.unwrap().indices().collect::<Vec<_>>()).collect();
    let rest = epoch(&mut loader(mixed()).resume(first.state()).build().unwrap());
    assert_eq!(begun.concat(), all[..12].iter().map(|it| it.0).collect::<Vec<_>>());
    assert!(rest == all[12..]);
}

fn draws_of_first(source: &Mixture) -> usize {
    (0..source.len()).filter(|&index| source.label(index) < 5).count()
}
