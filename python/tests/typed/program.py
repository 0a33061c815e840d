"""A typical program for the type checker. Its comments and annotations state the expected types."""

from typing import Any

import feedwater as fw
from feedwater import ops
from typing_extensions import assert_type

chain = [ops.RandomResizedCrop(width=8, height=8), ops.Flip(horizontal=0.5), ops.Pointwise(expr="1 - x")]
source = fw.directory("data").select(classes=["cat"], take=10)
with fw.Loader(source, chain, batch_size=4, seed=1, framework="batch") as loader:
    assert_type(loader, fw.Loader)
    assert_type(len(loader), int)
    assert_type(loader.shard, tuple[int, int])
    assert_type(loader.classes, list[str])
    for batch in loader.batches():
        assert_type(batch, fw.Batch)
        assert_type(batch.shape, tuple[int, int, int, int])
        assert_type(batch.labels, list[int])
        assert_type(batch.errors, list[tuple[int, str]])
    state: dict[str, Any] = loader.state_dict()
    loader.load_state_dict(state)
    assert_type(loader.report(), fw.Report)
assert_type(fw.train_recipe(224), fw.Recipe)
assert_type(fw.mixture(source, fw.samples([b""], [1]).select(take=1), weights=[1, 3]), fw.Source)
assert_type(fw.Loader.from_toml("pipeline.toml", own={"new": fw.samples([b""])}), fw.Loader)
for images, labels in fw.Loader(fw.samples([b""], [1]), fw.eval_recipe(32)):
    print(images.shape, labels)


def names() -> None:
    """Groups of settings and other names are accepted, typos are not."""
    fw.Loader(source, transform=chain, drop_last=True, decode=fw.Decode(prescale=True), limits={"max_side": 9}, layout="nhwc")
    fw.Loader(source, chain=chain, batch=4, workers="auto", last="pad", rank=0, world=2)
    fw.Loader(source, transforms=ops.Flip(), num_threads=2, shard_id=0, num_shards=2, random_shuffle=True, prefetch_queue_depth=2)
    fw.Loader(source, chain, batch_sise=4)  # type: ignore[call-arg]
    fw.Loader(source, chain, workers="many")  # type: ignore[arg-type]
    fw.Loader(source, chain, sampler=None)  # type: ignore[call-arg]
    fw.Decode(prescal=True)  # type: ignore[call-arg]
    fw.Cache(encoded=1.5)  # type: ignore[arg-type]
