"""Tests of models that are applied to images on a Ray cluster."""

import numpy
import pytest

ray = pytest.importorskip("ray")
pytest.importorskip("pyarrow")

import feedwater as fw  # noqa: E402
from ray_helpers import RANDOM, SAMPLES, SETTINGS, loaded  # noqa: E402


def test_a_model_is_given_the_memory_of_the_block():
    import pyarrow
    from feedwater.ray import _model
    from ray.data.extensions import ArrowTensorArray

    torch = pytest.importorskip("torch")
    images = numpy.arange(5 * 3 * 4 * 6, dtype=numpy.float32).reshape(5, 3, 4, 6)
    table = pyarrow.table({"image": ArrowTensorArray.from_numpy(images)})
    given = []
    for framework in ("numpy", "torch"):
        model = _model._Applied(lambda images: given.append(images) or images[:, 0, 0, 0], framework, "first", [], True)
        assert model.apply(table)["first"].to_pylist() == images[:, 0, 0, 0].tolist()
    assert numpy.shares_memory(given[0], images)
    assert isinstance(given[1], torch.Tensor) and given[1].data_ptr() == images.ctypes.data


class Mean:
    """A model whose embedding is the mean of each channel."""

    def __init__(self, scale=1.0):
        self.scale = scale

    def __call__(self, images):
        return {"mean": images.mean(axis=(2, 3)) * self.scale, "largest": images.max(axis=(1, 2, 3))}


def test_embeddings_lie_beside_what_they_belong_to(cluster, many, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    settings = {**SETTINGS, "last_batch": "pad"}
    dataset = fw.ray.read(many, RANDOM, batch_size=4, override_num_blocks=4, **settings)
    embedded = fw.ray.map_batches(
        dataset, Mean, framework="numpy", arguments={"scale": 2.0}, compute=ray.data.ActorPoolStrategy(size=1), num_cpus=0.5
    )
    embedded.write_parquet(str(tmp_path / "embeddings"))
    table = parquet.read_table(tmp_path / "embeddings").sort_by("index")
    assert table.column_names == ["index", "label", "location", "mean", "largest"]
    assert table["index"].to_pylist() == list(range(SAMPLES))
    means = {}
    for images, _, records in loaded(many):
        means |= {record["index"]: image.mean(axis=(1, 2)) * 2.0 for record, image in zip(records, images)}
    found = numpy.array(table["mean"].to_pylist(), numpy.float32)
    numpy.testing.assert_array_equal(found, numpy.stack([means[index] for index in range(SAMPLES)]))


def test_models_that_give_too_few_rows_are_refused(cluster, many):
    dataset = fw.ray.read(many, RANDOM, batch_size=4, override_num_blocks=1, **SETTINGS)
    with pytest.raises(Exception, match="embedding of the model has shape"):
        fw.ray.map_batches(dataset, lambda images: images[:1].mean(axis=(2, 3)), framework="numpy").take_all()


def where(images):
    """A model that returns the name of the memory-mapped file that contains its images."""
    address = images.ctypes.data if isinstance(images, numpy.ndarray) else images.data_ptr()
    with open("/proc/self/maps") as maps:
        lines = [line.split(maxsplit=5) for line in maps]
    ranges = [(*(int(bound, 16) for bound in bounds.split("-")), name) for bounds, *_, name in lines if name.startswith("/")]
    name = next((name for first, end, name in ranges if first <= address < end), "no file")
    shape = "x".join(map(str, images.shape))
    return {"mapping": numpy.array([name] * len(images), object), "shape": numpy.array([shape] * len(images), object)}


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_a_model_reads_the_object_store(cluster, large, framework):
    if framework == "torch":
        pytest.importorskip("torch")
    # The data set is one block of three batches of 4.4 MB each. Blocks below 100 KB would not be stored in the object store.
    dataset = fw.ray.read(large, [fw.ops.Crop(width=180, height=100)], batch_size=20, override_num_blocks=1)
    # The model needs other resources than the read tasks. Otherwise Ray would run it inside the read tasks.
    options = {"framework": framework, "keep": ["index"], "num_cpus": 0.5}
    rows = fw.ray.map_batches(dataset, where, **options).take_all()
    assert len(rows) == 60 and all("/dev/shm/plasma" in row["mapping"] and row["shape"] == "20x3x100x180" for row in rows)
    # Images of several batches must be copied.
    (row, *_) = fw.ray.map_batches(dataset, where, batch_size=60, **options).take_all()
    assert "/dev/shm/plasma" not in row["mapping"] and row["shape"] == "60x3x100x180"
