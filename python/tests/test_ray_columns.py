"""Tests of columns for fields and annotated objects, and of element types of images, on a Ray cluster."""

import json

import numpy
import pytest

ray = pytest.importorskip("ray")
pytest.importorskip("pyarrow")

import feedwater as fw  # noqa: E402
from ray_helpers import RANDOM, SAMPLES, SETTINGS, check, loaded  # noqa: E402


class Captioned:
    """A sequence of the images of a folder, with fields that are the same in every process."""

    def __init__(self, folder, fields):
        self.files = sorted(str(path) for path in folder.rglob("*.ppm"))
        self.fields = fields

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        return self.files[index], index % 7, self.fields(index)


def everything(index):
    """Returns fields of every type. For some images, fields are missing, `None` or numbers of NumPy."""
    fields = {"caption": f"image {index} ☂", "id": index << 40, "score": index / 3, "mask": bytes([index, 0, 255]), "good": index % 2 == 0}
    if index % 5 == 4:
        return {**fields, "caption": None, "id": numpy.int32(index), "score": index}
    return {"caption": "only"} if index % 5 == 3 else fields


def test_fields_are_columns(cluster, many):
    source = fw.samples(Captioned(many, everything))
    rows = check(fw.ray.read(source, RANDOM, batch_size=4, override_num_blocks=3, **SETTINGS), loaded(source))
    with fw.Loader(source, RANDOM, batch_size=4, framework="batch", **SETTINGS) as loader:
        expected = [fields for batch in loader for fields in batch.fields]
    names = ["caption", "id", "score", "mask", "good"]
    assert [{name: row[name] for name in names} for row in rows] == [{name: it.get(name) for name in names} for it in expected]
    # Select one field. Then use fields that are not a dictionary.
    dataset = fw.ray.read(source, RANDOM, batch_size=4, override_num_blocks=1, fields={"score": float}, **SETTINGS)
    columns = dataset.schema()
    assert "score" in columns.names and not {"caption", "id"} & set(columns.names)
    dataset = fw.ray.read(fw.samples(Captioned(many, str)), RANDOM, batch_size=4, override_num_blocks=1, **SETTINGS)
    assert all(row["fields"] == str(row["index"]) for row in dataset.take_all())


def test_keys_of_items_that_are_dictionaries_are_columns(cluster):
    image = b"P6 2 2 255\n" + bytes(12)
    items = [{"image": image, "label": number, "name": str(number), "score": number / 2} for number in range(6)]
    rows = fw.ray.read(fw.samples(items), [fw.ops.Resize(width=2, height=2)], batch_size=4, drop_last=False).take_all()
    assert sorted((row["label"], row["name"], row["score"]) for row in rows) == [(number, str(number), number / 2) for number in range(6)]


def test_fields_of_sequences_in_a_combination_are_columns(cluster, many):
    def city(index):
        return {"caption": None if index == 0 else f"city {index}", "height": index / 2}

    first, second = fw.samples(Captioned(many, everything)), fw.samples(Captioned(many, city))
    paths = fw.samples(Captioned(many, str).files)
    parts = [first.select(take=20), second.select(subset=[9, 3, 9]), fw.directory(many / "cat"), paths.select(take=5)]
    source = fw.mixture(fw.concat(*parts, first.select(skip=50)), second.select(skip=40), weights=[2, 1])
    # With one task, this task reads both epochs, and its loaders share an opened source.
    for tasks in (1, 5):
        rows = check(fw.ray.read(source, RANDOM, batch_size=4, epochs=2, override_num_blocks=tasks, **SETTINGS), loaded(source, epochs=2))
        with fw.Loader(source, RANDOM, batch_size=4, framework="batch", **SETTINGS) as loader:
            expected = [fields or {} for _ in range(2) for batch in loader for fields in batch.fields]
        names = ["caption", "id", "score", "mask", "good", "height"]
        assert [{name: row[name] for name in names} for row in rows] == [{name: it.get(name) for name in names} for it in expected]
        captions = {row["caption"].split()[0] for row in rows if row["caption"]}
        assert captions == {"image", "city", "only"} and any(row["location"].endswith(".ppm") and row["id"] is None for row in rows)


def test_fields_of_sequences_that_do_not_agree_are_named(cluster, many):
    numbers, texts = fw.samples(Captioned(many, lambda index: {"id": index})), fw.samples(Captioned(many, lambda index: {"id": str(index)}))
    boxes = fw.samples(Captioned(many, lambda index: {"id": numpy.zeros(3, numpy.float32)}))
    for sequence, kind in ((texts, "str"), (boxes, "list<item: float>")):
        with pytest.raises(ValueError, match=f"field 'id' is of type {kind} in samples2.0., but of type int in an earlier sequence"):
            fw.ray.read(fw.concat(numbers, fw.directory(many / "cat"), sequence), RANDOM, batch_size=4)
    unknown = fw.samples(Captioned(many, lambda index: {"id": None}))
    with pytest.raises(ValueError, match="field 'id' of the first item is None"):
        fw.ray.read(fw.concat(unknown, unknown.select(take=1)), RANDOM, batch_size=4)
    dataset = fw.ray.read(fw.concat(fw.directory(many / "cat"), numbers, texts), RANDOM, batch_size=4, fields={"id": int}, override_num_blocks=1)
    with pytest.raises(Exception, match=f"field 'id' of sample {30 + SAMPLES} is of type str, but its column is of type int"):
        dataset.take_all()


def test_ragged_fields_are_lists(cluster, many):
    import pyarrow

    def ragged(index):
        boxes = numpy.arange(4 * (index % 3), dtype=numpy.float32).reshape(-1, 4) + index
        return {"boxes": boxes, "categories": numpy.arange(index % 3) * index, "tags": ["new"] * (index % 2)}

    source = fw.samples(Captioned(many, ragged))
    boxes = pyarrow.list_(pyarrow.list_(pyarrow.float32(), 4))
    types = {"boxes": boxes, "categories": pyarrow.list_(pyarrow.int64()), "tags": pyarrow.list_(pyarrow.string())}
    dataset = fw.ray.read(source, RANDOM, batch_size=4, override_num_blocks=2, fields=types, **SETTINGS)
    rows = check(dataset, loaded(source))
    schema = dataset.schema()
    assert {name: schema.types[schema.names.index(name)] for name in types} == types
    for row in rows:
        expected = ragged(row["index"])
        assert numpy.array_equal(numpy.array(list(row["boxes"]), numpy.float32).reshape(-1, 4), expected["boxes"])
        assert list(row["categories"]) == expected["categories"].tolist() and list(row["tags"]) == expected["tags"]
    # For arrays, the first item determines the type.
    source = fw.samples(Captioned(many, lambda index: {"boxes": ragged(index)["boxes"]}))
    schema = fw.ray.read(source, RANDOM, batch_size=4, override_num_blocks=1).schema()
    assert schema.types[schema.names.index("boxes")] == boxes


def test_fields_that_are_no_columns_are_named(cluster, many):
    def read(given, **settings):
        source = fw.samples(Captioned(many, given))
        return fw.ray.read(source, RANDOM, batch_size=4, override_num_blocks=1, **settings)

    with pytest.raises(ValueError, match="field 'box' is of type list; columns of fields must be of one of the types int, float"):
        read(lambda index: {"box": [1, 2]})
    with pytest.raises(ValueError, match="field 'label' has the name of another column"):
        read(lambda index: {"label": 1})
    with pytest.raises(ValueError, match="field 5 has a name that is no text"):
        read(lambda index: {5: 1})
    with pytest.raises(ValueError, match="field 'caption' is of type text; columns"):
        read(lambda index: {"caption": "one"}, fields={"caption": "text"})
    with pytest.raises(ValueError, match="field 'caption' of the first item is None"):
        read(lambda index: {"caption": None})
    with pytest.raises(TypeError, match="fields selects fields of items of fw.samples"):
        fw.ray.read(many, RANDOM, batch_size=4, fields={"caption": str})
    # Errors that only a task can detect.
    with pytest.raises(Exception, match="field 'id' of sample 1 is of type str, but its column is of type int"):
        read(lambda index: {"id": "one" if index == 1 else index}).take_all()
    with pytest.raises(Exception, match="sample 1 has the field 'late', which no sequence has in its first item"):
        read(lambda index: {"late": 1} if index == 1 else {}).take_all()
    with pytest.raises(Exception, match="field 'id' of samples 0 to 3 cannot be converted to a column of type int"):
        read(lambda index: {"id": 1 << 80}).take_all()
    with pytest.raises(Exception, match="field 'box' of samples 0 to 3 cannot be converted to a column of type list<item: fixed_size_list"):
        read(lambda index: {"box": numpy.zeros((1, 4 + index // 3))}).take_all()
    assert "late" not in read(lambda index: {"late": 1}, fields={}).schema().names


def test_fields_without_a_type_of_arrow_are_left_out_if_there_are_columns(cluster, many):
    Image = pytest.importorskip("PIL.Image")

    def fields(index):
        texts = {"caption": f"image {index}", "tags": [index, 7], "meta": {"score": index / 2}}
        late = {"late": ["a list that the first item does not have"]} if index == 3 else {}
        return {**texts, "picture": Image.new("L", (12, 8), index), "cube": numpy.full((2, 3, 4), index), **late}

    source = fw.samples(Captioned(many, fields))
    columns = {
        "tags": fw.list_("i64", max_len=2),
        "score": fw.array("f32", field="meta:score"),
        "picture": fw.image("picture", [fw.ops.Resize(width=3, height=2)]),
        "numbers": fw.array("i64", field="cube", shape=(2, 3, 4)),
    }
    dataset = fw.ray.read(source, RANDOM, batch_size=4, columns=columns, override_num_blocks=2, **SETTINGS)
    rows = check(dataset, loaded(source))
    for row in rows:
        index = row["index"]
        assert (row["caption"], list(row["tags"]), row["score"]) == (f"image {index}", [index, 7], index / 2)
        assert (row["numbers"] == index).all() and not {"meta", "cube", "late"} & set(row)
    # `fields` may name such a field, which then is no column of the loader.
    import pyarrow

    types = {"tags": pyarrow.list_(pyarrow.int64())}
    dataset = fw.ray.read(source, RANDOM, batch_size=4, columns={"score": columns["score"]}, fields=types, override_num_blocks=1)
    assert {"tags", "score"} <= set(dataset.schema().names) and "caption" not in dataset.schema().names
    # Fields with a type of Arrow are columns as before, so a late one is an error.
    source = fw.samples(Captioned(many, lambda index: {"tags": [1], **({"late": 1} if index == 1 else {})}))
    with pytest.raises(Exception, match="sample 1 has the field 'late', which no sequence has in its first item"):
        fw.ray.read(source, RANDOM, batch_size=4, columns={"tags": columns["tags"]}, override_num_blocks=1).take_all()


class Failing(Captioned):
    """A source with one item that cannot be read."""

    def __getitem__(self, index):
        if index == 7:
            raise OSError("gone")
        return super().__getitem__(index)


def test_a_failed_sample_has_no_fields(cluster, many):
    source = fw.samples(Failing(many, lambda index: {"id": index}), [0] * SAMPLES)
    for source in (source, fw.concat(source, fw.samples(["none.ppm"], [0]))):
        dataset = fw.ray.read(source, RANDOM, batch_size=4, override_num_blocks=1, on_error="substitute", **SETTINGS)
        rows = check(dataset, loaded(source, on_error="substitute"))
        assert [row["id"] for row in rows] == [None if row["index"] in (7, SAMPLES) else row["index"] for row in rows]


@pytest.mark.parametrize("dtype", ["u8", "f16", "bf16"])
def test_every_type_of_elements_has_a_column(cluster, many, dtype):
    torch = pytest.importorskip("torch")
    with fw.Loader(many, RANDOM, batch_size=4, dtype=dtype, **SETTINGS) as loader:
        expected = torch.cat([images.clone() for images, _ in loader])
    dataset = fw.ray.read(many, RANDOM, batch_size=4, dtype=dtype, override_num_blocks=2, **SETTINGS)
    # Convert bf16 in the loop, as the documentation shows.
    batches = [batch["image"] for batch in dataset.select_columns(["image"]).iter_torch_batches(batch_size=10)]
    batches = [batch.view(torch.bfloat16) for batch in batches] if dtype == "bf16" else batches
    assert batches[0].dtype == expected.dtype
    assert torch.equal(torch.cat(batches).view(torch.uint8), expected.view(torch.uint8))

    def first(images):
        assert images.dtype == expected.dtype
        return images.flatten(1).float()[:, 0]

    rows = fw.ray.map_batches(dataset, first, output="first", keep=[]).take_all()
    assert [row["first"] for row in rows] == expected.flatten(1).float()[:, 0].tolist()


def test_images_of_bf16_keep_their_memory():
    from feedwater.ray import _model
    from ray.data.extensions import ArrowTensorArray

    torch = pytest.importorskip("torch")
    ml_dtypes = pytest.importorskip("ml_dtypes")
    import pyarrow

    bits = numpy.arange(24, dtype=numpy.uint16).reshape(2, 3, 2, 2)
    column = pyarrow.chunked_array([ArrowTensorArray.from_numpy(bits)])
    tensor, array = (_model._images(column, framework) for framework in ("torch", "numpy"))
    assert tensor.dtype == torch.bfloat16 and array.dtype == ml_dtypes.bfloat16
    assert tensor.data_ptr() == array.ctypes.data == bits.ctypes.data


def test_a_task_without_the_gpu_that_it_was_promised_says_so(cluster, many):
    # The driver's node declares a GPU that cannot be used, like a node whose driver is too old.
    dataset = fw.ray.read(many, RANDOM, batch_size=4, num_gpus=1, num_cpus=0, override_num_blocks=1, **SETTINGS)
    with pytest.raises(fw.errors.UnavailableError, match="cuda"):
        dataset.take_all()
    with pytest.raises(RuntimeError, match="a read task needs 1 CPU, 2 GPU, .* MiB of memory, which no node of the cluster has"):
        fw.ray.read(many, RANDOM, batch_size=4, num_gpus=2)
    with pytest.raises(RuntimeError, match="1048576 MiB of memory, which no node of the cluster has"):
        fw.ray.read(many, RANDOM, batch_size=4, memory=1 << 40)
    with pytest.raises(TypeError, match="has all settings"):
        fw.ray.read(fw.ray.Datasource(many, RANDOM, batch_size=4), num_gpus=1)


def annotated(many, folder):
    """Returns COCO annotations of six images with none to five objects."""
    images = [{"id": number, "file_name": f"cat/{number:02}.ppm", "width": 12, "height": 8} for number in range(6)]
    outline = {"segmentation": [[1, 1, 9, 2, 4, 7]]}
    objects = [
        {"id": 10 * image + it, "image_id": image, "category_id": 1 + it % 2, "bbox": [it, 1, 7, 6], "area": it + 0.5, "iscrowd": 0, **(outline if it else {})}
        for image in range(6)
        for it in range(image)
    ]
    document = {"images": images, "annotations": objects, "categories": [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}]}
    (folder / "instances.json").write_text(json.dumps(document))
    return fw.coco(folder / "instances.json", images=str(many))


def test_a_column_of_the_loader_is_aligned_with_the_annotated_objects(cluster, many, tmp_path):
    """With a column `boxes` of the loader, all columns of annotated objects have an entry for each object, also for hidden ones."""
    source = annotated(many, tmp_path)
    chain = [fw.ops.Crop(x=8, y=2, width=4, height=5)]
    settings = {"batch_size": 4, **SETTINGS}
    shown = fw.ray.read(source, chain, masks=True, **settings).take_all()
    columns = {"boxes": fw.boxes(format="xywh")}
    rows = fw.ray.read(source, chain, masks=True, columns=columns, **settings).take_all()
    hidden = 0
    assert len(rows) == len(shown) == 6
    for row, kept in zip(rows, shown):
        number = row["index"]
        assert list(row["object_ids"]) == [10 * number + it for it in range(number)]
        assert list(row["categories"]) == [it % 2 for it in range(number)] and list(row["areas"]) == [it + 0.5 for it in range(number)]
        places = [place for place, it in enumerate(row["object_ids"]) if it in list(kept["object_ids"])]
        for name in ("boxes", "categories", "object_ids", "areas", "visible", "crowd", "masks"):
            assert len(row[name]) == number
            assert numpy.array_equal([row[name][place] for place in places], list(kept[name]))
        for place in set(range(number)) - set(places):
            assert row["visible"][place] == 0 and row["masks"][place] is None and list(row["boxes"][place]) == [0] * 4
            hidden += 1
    assert hidden > 0


def test_annotated_objects_are_columns_that_follow_the_chain(cluster, many, tmp_path):
    source = fw.concat(annotated(many, tmp_path), fw.samples(["none.ppm"], [0], classes=["cat"]), annotated(many, tmp_path))
    settings = {"batch_size": 4, "on_error": "substitute", **SETTINGS}
    with fw.Loader(source, RANDOM, framework="batch", epochs=1, **settings) as loader:
        expected = [objects for batch in loader for objects in batch.objects()]
    dataset = fw.ray.read(source, RANDOM, masks=True, override_num_blocks=2, **settings)
    rows = dataset.take_all()
    assert len(rows) == len(expected) == 13 and sum(len(it) for it in expected) > 15
    for row, objects in zip(rows, expected):
        assert numpy.array_equal(numpy.array(list(row["boxes"]), numpy.float32).reshape(-1, 4), objects.boxes)
        for name, values in [("categories", objects.categories), ("object_ids", objects.ids), ("areas", objects.areas), ("visible", objects.visible)]:
            assert list(row[name]) == values.tolist()
        assert list(row["crowd"]) == objects.crowd.tolist()
        assert list(row["masks"]) == [runs and runs["counts"] for runs in objects.run_lengths()]
    # The columns of annotated objects can be stored in Parquet. The column of masks exists only if it is requested.
    dataset.drop_columns(["image"]).write_parquet(str(tmp_path / "rows"))
    boxes = ray.data.read_parquet(str(tmp_path / "rows")).take_all()
    assert sum(len(row["boxes"]) for row in boxes) == sum(len(it) for it in expected)
    assert "masks" not in fw.ray.read(source, RANDOM, **settings).schema().names
    with pytest.raises(TypeError, match="masks=True needs annotated objects, which the source does not have"):
        fw.ray.read(many, RANDOM, batch_size=4, masks=True)
    captioned = fw.samples(Captioned(many, lambda index: {"boxes": [index]}), classes=["cat"])
    with pytest.raises(ValueError, match="field 'boxes' has the name of another column"):
        fw.ray.read(fw.concat(annotated(many, tmp_path), captioned), RANDOM, batch_size=4)


def test_columns_of_the_loader_are_columns_of_the_data_set(cluster, many, tmp_path):
    """Dense numbers, lists, texts, bytes, masks, boxes and views of `columns` equal those of one loader."""
    import pyarrow

    for index, path in enumerate(sorted(many.rglob("*.ppm"))):
        folder = tmp_path / path.parent.name
        folder.mkdir(exist_ok=True)
        (folder / path.name).write_bytes(path.read_bytes())
        mask = numpy.random.default_rng(index).integers(0, 9, 96, dtype=numpy.uint8)
        (folder / f"{path.stem}.mask").write_bytes(b"P5 12 8 255\n" + mask.tobytes())
        fields = {
            "score": index / 4,
            "pair": [[index, 1, 2], [3, 4, 5]],
            "boxes": [[1, 1, 5 + number, 6] for number in range(index % 3)],
            "caption": f"no. {index} ☂",
            "words": ["é" * (index % 2), "word"][: index % 3],
        }
        (folder / f"{path.stem}.json").write_text(json.dumps(fields))
    source = fw.directory(tmp_path, side_files={"json": "{folder}/{stem}.json", "mask": "{folder}/{stem}.mask"})
    columns = {
        "score": fw.array("f32", field="json:score"),
        "half": fw.array("bf16", field="json:score"),
        "pair": fw.array("i64", field="json:pair", shape=(2, 3)),
        "boxes": fw.boxes("json:boxes", max_len=4),
        "caption": fw.text("json:caption"),
        "words": fw.texts("json:words"),
        "raw": fw.bytes_("json:caption"),
        "mask": fw.mask("mask"),
        "classes": fw.mask("mask", one_hot=9),
        "small": fw.view([fw.ops.Resize(width=3, height=2)], count=2),
    }
    dataset = fw.ray.read(source, RANDOM, batch_size=4, columns=columns, override_num_blocks=3, **SETTINGS)
    rows = check(dataset, loaded(source))
    schema = dataset.schema()
    types = {name: schema.types[schema.names.index(name)] for name in columns}
    assert types["boxes"] == pyarrow.large_list(pyarrow.list_(pyarrow.float32(), 4)) and types["score"] == pyarrow.float32()
    assert types["words"] == pyarrow.large_list(pyarrow.large_string()) and types["raw"] == pyarrow.large_binary()
    with fw.Loader(source, RANDOM, batch_size=4, framework="batch", columns=columns, **SETTINGS) as loader:
        place = 0
        for batch in loader:
            found = {name: batch.column(name) for name in columns if name != "half"}
            for at in range(len(batch)):
                row = rows[place]
                for name, column in found.items():
                    if name in ("caption", "raw", "words"):
                        assert (list(row[name]) if name == "words" else row[name]) == column[at], name
                    else:
                        expected = numpy.asarray(column[at])
                        value = numpy.array(list(row[name]), expected.dtype).reshape(expected.shape) if name == "boxes" else numpy.asarray(row[name])
                        numpy.testing.assert_array_equal(value, expected, err_msg=name)
                        # Rows have single numbers as numbers of Python, and lists as lists.
                        assert name in ("score", "boxes") or value.dtype == expected.dtype
                # The bits of a bf16 are the upper half of a 32-bit float, which has these numbers exactly.
                assert row["half"] == numpy.float32(row["score"]).view(numpy.uint32) >> 16 and row["score"] == float(row["caption"].split()[1]) / 4
                place += 1
    assert place == len(rows) == SAMPLES
    # Without operators, there are no images.
    dataset = fw.ray.read(source, columns={"small": columns["small"]}, batch_size=4, override_num_blocks=1, **SETTINGS)
    assert "image" not in dataset.schema().names and dataset.take(1)[0]["small"].shape == (2, 3, 2, 3)
    own = fw.samples(Captioned(many, everything))
    for name, of, column in (("index", source, fw.text("json:caption")), ("caption", own, fw.text(default=""))):
        with pytest.raises(ValueError, match=rf"columns\['{name}'\] has the name of (another column|a field)"):
            fw.ray.read(of, RANDOM, batch_size=4, columns={name: column})
