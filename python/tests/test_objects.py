"""Tests of the annotated objects of a batch."""

import json

import feedwater as fw
import numpy
import pytest
from conftest import pixels_of, write_image

# COCO annotations: a rectangle, a triangle, a crowd as run lengths, and an object without an outline.
OBJECTS = [
    {"id": 11, "category_id": 5, "bbox": [2, 1, 6, 4], "area": 24.5, "segmentation": [[2, 1, 8, 1, 8, 5, 2, 5]]},
    {"id": 12, "category_id": 3, "bbox": [0, 0, 12, 8], "segmentation": [[0, 0, 12, 0, 0, 8]]},
    {"id": 13, "category_id": 3, "bbox": [10, 6, 2, 2], "iscrowd": 1, "segmentation": {"size": [8, 12], "counts": [86, 2, 6, 2]}},
    {"id": 14, "category_id": 9, "bbox": [1, 6, 3, 1.5]},
]


@pytest.fixture
def annotated(tmp_path):
    """Six images of 12x8. The first has four objects, the last has none, and each of the others has one."""
    for index in range(6):
        write_image(tmp_path / f"{index}.ppm", pixels_of(index))
    images = [{"id": index, "file_name": f"{index}.ppm", "width": 12, "height": 8} for index in range(6)]
    annotations = [{**it, "image_id": 0} for it in OBJECTS]
    annotations += [{"id": index, "image_id": index, "category_id": 5, "bbox": [index, 0, 4, 4]} for index in range(1, 5)]
    categories = [{"id": it, "name": f"kind {it}"} for it in (3, 5, 9)]
    path = tmp_path / "instances.json"
    path.write_text(json.dumps({"images": images, "annotations": annotations, "categories": categories}))
    return fw.coco(path)


def first(source, *chain, **settings):
    """Returns the first batch of a loader."""
    return next(fw.Loader(source, list(chain), batch_size=3, framework="batch", **settings).batches())


def test_objects_of_an_unmoved_image(annotated):
    objects, one, _ = first(annotated, fw.ops.Crop(width=12, height=8)).objects()
    assert (len(objects), objects.size, len(one)) == (4, (12, 8), 1)
    assert objects.boxes.tolist() == [[2, 1, 8, 5], [0, 0, 12, 8], [10, 6, 12, 8], [1, 6, 4, 7.5]]
    assert objects.categories.tolist() == [1, 0, 0, 2] and objects.ids.tolist() == [11, 12, 13, 14]
    assert objects.areas.tolist() == [24.5, 96, 4, 4.5]
    assert objects.crowd.tolist() == [False, False, True, False] and objects.visible.tolist() == [1] * 4
    kinds = [it.dtype.name for it in (objects.boxes, objects.categories, objects.ids, objects.areas, objects.visible, objects.crowd)]
    assert kinds == ["float32", "int64", "int64", "float64", "float64", "bool"]
    masks = objects.masks()
    assert masks.shape == (4, 8, 12) and masks.dtype == "uint8" and masks.flags.writeable
    expected = numpy.zeros((4, 8, 12), "uint8")
    expected[0, 1:5, 2:8] = 1
    # Runs are in column-major order: the first 86 pixels are ten columns of eight and six pixels.
    expected[2, 6:8, 10:12] = 1
    assert numpy.array_equal(masks[[0, 2, 3]], expected[[0, 2, 3]])
    # The triangle covers half of the image. Each row may differ by half a pixel.
    assert abs(int(masks[1].sum()) - 48) <= 4 and masks[1, 0, 0] == 1 and masks[1, 7, 11] == 0
    runs = objects.run_lengths()
    assert runs[2] == {"size": [8, 12], "counts": b"f2260"} and runs[3] is None
    assert repr(objects) == "<feedwater.Objects: 4 in 12x8>"


def test_objects_follow_the_chain(annotated):
    # The tensor shows columns 4 to 11 and rows 2 to 7 of the image, mirrored and enlarged to twice the size.
    chain = [fw.ops.Crop(x=4, y=2, width=8, height=6), fw.ops.Flip(horizontal=1.0), fw.ops.Resize(width=16, height=12)]
    batch = first(annotated, *chain)
    batch.numpy()
    objects = batch.objects()[0]
    assert objects.boxes.tolist() == [[8, 0, 16, 6], [0, 0, 16, 12], [0, 8, 4, 12]]
    assert numpy.allclose(objects.visible, [4 * 3 / 24, 8 * 6 / 96, 1]) and objects.ids.tolist() == [11, 12, 13]
    masks = objects.masks()
    assert masks.shape == (3, 12, 16) and masks[0, :6, 8:].all() and masks[0].sum() == 48 and masks[2, 8:, :4].all() and masks[2].sum() == 16
    chosen = batch.objects(visible=0.5, crowd=False)[0]
    assert chosen.ids.tolist() == [11, 12] and numpy.array_equal(chosen.masks(), masks[:2])
    assert batch.objects(visible=0.51)[0].ids.tolist() == [13]
    for visible in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match="it must be a number from 0 to 1"):
            batch.objects(visible=visible)


def test_samples_without_objects(annotated, folder, tmp_path):
    last = list(fw.Loader(annotated, [fw.ops.Crop(width=12, height=8)], batch_size=3, last_batch="partial", framework="batch").batches())[-1]
    empty = last.objects()[2]
    assert len(empty) == 0 and empty.boxes.shape == (0, 4) and empty.masks().shape == (0, 8, 12) and empty.run_lengths() == []
    assert [len(it) for it in first(folder, fw.ops.Crop(width=12, height=8)).objects()] == [0] * 3
    # Checks the objects of a combined source. Its third sample is damaged and replaced by zeros, so it has no objects.
    (tmp_path / "1.ppm").write_bytes(b"P6 12")
    joined = fw.concat(fw.directory(folder).select(take=1), annotated)
    batch = first(joined, fw.ops.Crop(width=12, height=8), on_error="substitute")
    assert [len(it) for it in batch.objects()] == [0, 4, 0] and batch.samples[2]["outcome"] == "substituted"


def test_boxes_that_floats_make_empty_are_left_out(tmp_path):
    write_image(tmp_path / "0.ppm", pixels_of(0))
    boxes = [[5, 1, 1e-8, 2], [5, 1, 0.5, 2]]
    annotations = [{"id": number, "image_id": 0, "category_id": 1, "bbox": box} for number, box in enumerate(boxes)]
    document = {"images": [{"id": 0, "file_name": "0.ppm"}], "annotations": annotations, "categories": [{"id": 1, "name": "it"}]}
    (tmp_path / "instances.json").write_text(json.dumps(document))
    [objects] = first(fw.coco(tmp_path / "instances.json"), fw.ops.Crop(width=12, height=8), last_batch="partial").objects()
    assert objects.ids.tolist() == [1]


def test_a_contact_sheet_has_boxes(annotated):
    page = first(annotated, fw.ops.Crop(width=12, height=8), fw.ops.Resize(width=18, height=12))._repr_html_()
    assert page.count('<svg viewBox="0 0 18 12"') == 3 and page.count("<rect") == 6
    assert '<rect x="3" y="1.5" width="9" height="6"' in page and page.count("<title>kind 5</title>") == 3


def test_torchvisions_detection_models_take_the_targets(annotated):
    torch = pytest.importorskip("torch")
    detection = pytest.importorskip("torchvision").models.detection
    chain = [fw.ops.Resize(width=72, height=48), fw.ops.Normalize(mean=[0.5] * 3, std=[0.25] * 3)]
    batch = first(annotated, *chain)
    images, targets = batch.torch(), [it.torch(masks=True) for it in batch.objects(crowd=False)]
    assert targets[0]["labels"].tolist() == [2, 1, 3] and targets[0]["masks"].shape == (3, 48, 72)
    assert batch.objects()[0].torch(first_label=0)["labels"].tolist() == [1, 0, 0, 2]
    assert batch.objects()[0].torch()["iscrowd"].tolist() == [0, 0, 1, 0]
    torch.manual_seed(1)
    model = detection.maskrcnn_resnet50_fpn(weights=None, weights_backbone=None, num_classes=4, min_size=48, max_size=72)
    losses = model(list(images), targets)
    assert {"loss_classifier", "loss_box_reg", "loss_mask"} <= losses.keys()
    assert all(torch.isfinite(loss) for loss in losses.values())
