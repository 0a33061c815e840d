"""Tests of columns of batches on the simulated GPU of `tests/simulated/`, with stand-ins for frameworks. These tests have not run on a real
GPU."""

import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

BEGIN = """
    import sys
    sys.path.insert(0, FOLDER)
    import device_frameworks
    device_frameworks.install()

    import feedwater as fw
    import numpy

    random = numpy.random.default_rng(5)
    outlines = ["[]", "[null, [[1, 1, 5, 1, 5, 5]]]", "[[[0, 0, 8, 0, 8, 6, 0, 6]]]"]
    items = []
    for number in range(48):
        lists = random.integers(-9, 9, number % 5).tolist()
        points = random.random((number % 3, 2)).tolist()
        boxes = (random.random((number % 4, 4)) * 4).tolist()
        fields = {"vector": random.random(3).tolist(), "number": number << 40, "bits": [number % 2, 1], "half": number / 2, "text": str(number)}
        fields |= {"lists": lists, "points": points, "boxes": boxes, "outlines": outlines[number % 3]}
        items.append({"image": b"P6 8 8 255\\n" + random.bytes(192), "label": number % 7, **fields})
    columns = {
        "vector": fw.array("f32", shape=3),
        "number": fw.array("i64"),
        "bits": fw.array("u8", shape=2),
        "half": fw.array("f16"),
        "lists": fw.list_("i64"),
        "points": fw.points(),
        "boxes": fw.boxes(format="xywh"),
        "instances": fw.instances("outlines", max_len=4),
        "runs": fw.runs("outlines"),
        "text": fw.text(),
    }
    SAME = [fw.ops.Crop(width=8, height=8)]

    def loader(device, framework, **settings):
        settings = {"columns": columns, "batch_size": 4, "prefetch": 1, **settings}
        return fw.Loader(fw.samples(items), SAME, framework=framework, device=device, epochs=1, **settings)

    def check(found, expected, name):
        if isinstance(expected, fw.Ragged):
            check(found.values, expected.values, name)
            check(found.offsets, expected.offsets, name)
            # The stand-ins do not read a single number, so indices of samples use offsets in host memory.
            for sample, entries in zip(found, expected, strict=True):
                if isinstance(entries, list):
                    assert [part.numpy().tolist() for part in sample] == [part.tolist() for part in entries]
                else:
                    numpy.testing.assert_array_equal(sample.numpy(), entries)
        elif name == "text":
            assert found == expected
        else:
            found = found.numpy()
            assert found.dtype == expected.dtype and found.shape == expected.shape, name
            numpy.testing.assert_array_equal(found, expected, name)
"""


def run(program, environment):
    folder = repr(str(pathlib.Path(__file__).parent))
    text = textwrap.dedent(BEGIN).replace("FOLDER", folder) + textwrap.dedent(program)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, env={**os.environ, **environment}, timeout=300)
    assert done.returncode == 0 and done.stdout == "done\n", done.stdout + done.stderr


@pytest.mark.parametrize("framework", ["torch", "jax", "tensorflow"])
@pytest.mark.parametrize("classes", [0, 7])
def test_columns_of_a_loop_are_copied_on_the_device(simulated, framework, classes):
    """All copies of an epoch are kept until the end. They have the values of a loop without a GPU, although the slots are filled again."""
    program = f"""
        settings = {{"classes": {classes}, "smoothing": 0.1}} if {classes} else {{}}
        expected = list(loader("cpu", "numpy", **settings))
        assert len(expected) == 12
        on_device = loader("cuda", "{framework}", **settings)
        found, images, reads, slots = [], set(), 0, None
        for batch in on_device.batches():
            reads -= device_frameworks.calls("cuMemcpyDtoHAsync")
            record = on_device.record(batch)
            reads += device_frameworks.calls("cuMemcpyDtoHAsync")
            images.add(record.pop("image").data)
            found.append(record)
            del batch, record
        # The loader used few slots, so no copy keeps one. Nothing was read back to host memory.
        assert on_device.stats["batches_added"] == 0 and len(images) <= 3 and reads == 0, (images, reads)
        for record, other in zip(found, expected, strict=True):
            assert set(record) == set(other) - {{"image"}} == {{"label", *columns, *(["target"] if {classes} else [])}}
            for name, column in record.items():
                check(column, other[name], name)
        print("done")
    """
    run(program, simulated)


@pytest.mark.parametrize("framework", ["torch", "jax", "tensorflow"])
def test_pairs_are_copied_on_the_device(simulated, framework):
    program = f"""
        for settings in ({{}}, {{"classes": 7}}):
            expected = [targets for _, targets in loader("cpu", "numpy", columns=None, **settings)]
            found = []
            for images, targets in loader("cuda", "{framework}", columns=None, **settings):
                assert images.shape == (4, 3, 8, 8)
                found.append(targets)
                del images
            for targets, other in zip(found, expected, strict=True):
                check(targets, other, "target")
        print("done")
    """
    run(program, simulated)


@pytest.mark.parametrize("framework", ["torch", "jax", "tensorflow"])
@pytest.mark.parametrize("at_once", [True, False])
def test_copies_are_ordered_with_the_filling_of_slots(simulated, framework, at_once):
    """A copy waits until the batch is filled, and the slot is filled again after the copy, although the images were not exported."""
    program = f"""
        device_frameworks.at_once = {at_once}
        found, expected = [], []
        for batch in loader("cuda", "batch").batches():
            found.append((batch.column("vector", "{framework}"), batch._labels("{framework}")))
            expected.append((batch.column("vector"), numpy.array(batch.labels)))
            del batch
        for arrays, others in zip(found, expected, strict=True):
            for array, other in zip(arrays, others, strict=True):
                check(array, other, "vector")
        print("done")
    """
    run(program, simulated)


def test_copies_leave_the_memory_of_a_column_to_the_batch(simulated):
    """A column is copied any number of times and for several frameworks, and is then exported. Later copies are made from host memory."""
    program = """
        import types
        jax = sys.modules["jax"]
        jax.devices = lambda kind: [f"{kind}:0"]
        jax.device_put = lambda array, device: types.SimpleNamespace(numpy=lambda: array, on=device)

        for batch in loader("cuda", "batch", classes=7).batches():
            assert batch.device == "cuda:0"
            for name in columns:
                expected = batch.column(name)
                for framework in ("torch", "jax", "tensorflow", "torch"):
                    check(batch.column(name, framework), expected, name)
            labels, targets = batch.values("label"), batch.values("target")
            assert labels.numpy().tolist() == batch.labels and labels.shape == [4]
            expected = batch.targets()
            numpy.testing.assert_array_equal(targets.numpy(), expected)
            shared = [tensor.torch() for tensor in (labels, targets, batch.values("vector"), batch.offsets("lists"))]
            assert shared[0].data == labels.torch().data and shared[0].numpy().tolist() == batch.labels
            # The memory of these columns has an owner. Copies are made from host memory, and soft targets are still known.
            for name in ("vector", "lists"):
                copy = batch.column(name, "jax")
                assert (copy.values if name == "lists" else copy).on == "cuda:0"
                check(copy, batch.column(name), name) if name == "vector" else None
            numpy.testing.assert_array_equal(batch.targets(), expected)
            images, copied = batch.pair("jax")
            assert images.shape == (4, 3, 8, 8) and copied.on == "cuda:0"
            numpy.testing.assert_array_equal(copied.numpy(), expected)
            del batch, images, shared, labels, targets
        print("done")
    """
    run(program, simulated)


def test_a_record_of_an_exported_batch_is_complete(simulated):
    """A batch whose columns were exported before has all columns in its record."""
    program = """
        import types
        jax = sys.modules["jax"]
        jax.devices = lambda kind: [f"{kind}:0"]
        jax.device_put = lambda array, device: types.SimpleNamespace(numpy=lambda: array)

        made = loader("cuda", "jax")
        batch = next(made.batches())
        expected = batch.column("vector")
        owner = batch.values("vector").jax()
        record = made.record(batch)
        assert record["text"] == ["0", "1", "2", "3"]
        numpy.testing.assert_array_equal(record["vector"].numpy(), expected)
        numpy.testing.assert_array_equal(owner.numpy(), expected)
        print("done")
    """
    run(program, simulated)
