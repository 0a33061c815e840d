"""Tests of transforms that stay Python (`keep_rest`) and of annotated objects, which these transforms do not move."""

import json

import feedwater as fw
import pytest
from conftest import pixels_of, write_image

torch = pytest.importorskip("torch")
v1 = pytest.importorskip("torchvision.transforms")
v2 = pytest.importorskip("torchvision.transforms.v2")

SIZE = v2.Resize((16, 24))
IMAGE = v2.ToImage()
#: Cannot be converted after `ToImage`, but before it or with `as_pil=True`.
DISTORT = v2.RandomPhotometricDistort()
CROP = v2.RandomIoUCrop()
FLOATS = v2.ToDtype(torch.float32, scale=True)


@pytest.fixture
def annotated(tmp_path):
    """One image of 12x8 with one object."""
    write_image(tmp_path / "0.ppm", pixels_of(0))
    annotations = [{"id": 1, "image_id": 0, "category_id": 1, "bbox": [2, 1, 6, 4], "segmentation": [[2, 1, 8, 1, 8, 5, 2, 5]]}]
    document = {"images": [{"id": 0, "file_name": "0.ppm", "width": 12, "height": 8}], "annotations": annotations, "categories": [{"id": 1, "name": "it"}]}
    (tmp_path / "instances.json").write_text(json.dumps(document))
    return fw.coco(tmp_path / "instances.json")


def kept(*transforms):
    return fw.from_torchvision(list(transforms), keep_rest=True)


def refusal(*transforms, **settings):
    with pytest.raises(fw.errors.ConversionError) as error:
        fw.from_torchvision(list(transforms), **settings)
    return str(error.value)


class OwnJitter(v2.ColorJitter):
    """A transform whose class might do anything."""


@pytest.mark.parametrize(
    ("rest", "names"),
    [
        ([DISTORT, v2.RandomHorizontalFlip(1.0)], "RandomHorizontalFlip may"),
        ([DISTORT, v2.RandomZoomOut(), v2.RandomVerticalFlip(), SIZE], "RandomZoomOut, RandomVerticalFlip, Resize may"),
        ([DISTORT, v2.RandomApply([v2.Compose([v2.ColorJitter(0.1), v2.RandomRotation(9)])])], "RandomRotation may"),
        ([v1.RandomOrder([v1.Lambda(lambda image: image), v1.ColorJitter(0.1)])], "Lambda may"),
        ([v2.TrivialAugmentWide()], "TrivialAugmentWide may"),
        ([DISTORT, OwnJitter(0.1)], "OwnJitter may"),
    ],
)
def test_objects_that_would_not_follow_the_image_are_an_error(annotated, rest, names):
    recipe = kept(SIZE, IMAGE, *rest, FLOATS)
    loader = fw.Loader(annotated, recipe, batch_size=1, device="cpu")
    for batch in loader.batches():
        loader.pair(batch)
        with pytest.raises(ValueError, match=f"keep_rest.*{names} move the images without the objects; .*leave (it|them) out"):
            batch.objects()
        # The contact sheet shows the images before these transforms.
        assert batch._repr_html_().count("<rect") == 1
    with pytest.raises(ValueError, match=f"{names} move the images without the column 'boxes'; .*leave (it|them) out"):
        fw.Loader(annotated, recipe, batch_size=1, device="cpu", columns={"boxes": fw.boxes(format="xywh")})


def test_objects_of_an_image_that_keeps_its_place_remain(annotated):
    colours = [DISTORT, v2.RandomApply([v2.GaussianBlur(3)]), v2.RandomErasing(), FLOATS, v2.Normalize([0.5] * 3, [0.5] * 3)]
    loader = fw.Loader(annotated, kept(SIZE, IMAGE, *colours), batch_size=1, device="cpu", columns={"boxes": fw.boxes(format="xywh")})
    [batch] = loader.batches()
    assert batch.objects()[0].boxes.tolist() == [[4, 2, 16, 10]]
    assert loader.record(batch)["boxes"].values.tolist() == [[4, 2, 16, 10]]
    pil = kept(SIZE, v2.Lambda(lambda image: image), IMAGE)
    assert fw.Loader(annotated, fw.Recipe(list(pil), rest=pil.rest[:1]), batch_size=1, device="cpu")._meaning.moved_by == []


@pytest.mark.parametrize("keep_rest", [False, True])
def test_transforms_that_need_boxes_cannot_stay_in_python(keep_rest):
    also = "" if keep_rest else " and pass keep_rest=True"
    message = refusal(SIZE, IMAGE, DISTORT, CROP, v2.Resize((8, 8)), FLOATS, keep_rest=keep_rest)
    assert "RandomIoUCrop cannot stay in Python (keep_rest), because it needs bounding boxes" in message
    assert (
        "; pass as_pil=True, or move RandomPhotometricDistort before ToImage (transform 1), or put RandomPhotometricDistort after Resize "
        f"(transform 4){also}:\n" in message
    )
    assert "keep_rest=True keeps" not in message
    nothing = v2.Lambda(lambda image: image)
    assert f"; put Lambda after Resize (transform 3){also}:\n" in refusal(SIZE, nothing, v2.RandomApply([CROP]), v2.Resize((8, 8)), keep_rest=keep_rest)
    sized = "with a crop or Resize((height, width)) between them"
    assert f"; put Lambda after RandomIoUCrop (transform 2), {sized}{also}:\n" in refusal(SIZE, nothing, CROP, IMAGE, keep_rest=keep_rest)
    message = refusal(SIZE, IMAGE, DISTORT, v2.RandomHorizontalFlip(), v2.SanitizeBoundingBoxes(), keep_rest=keep_rest)
    assert "; leave SanitizeBoundingBoxes out, and pass as_pil=True, or move RandomPhotometricDistort before ToImage (transform 1)" in message
    assert "SanitizeKeyPoints cannot stay in Python (keep_rest), because it needs keypoints" in refusal(SIZE, nothing, v2.SanitizeKeyPoints(), keep_rest=keep_rest)
    both = v2.RandomChoice([CROP, nothing])
    assert "; change the transforms below, or leave RandomIoUCrop out:\n" in refusal(SIZE, both, keep_rest=keep_rest)


def test_the_advice_about_boxes_works(annotated):
    recipes = [
        fw.from_torchvision([SIZE, IMAGE, DISTORT, CROP, SIZE, FLOATS], as_pil=True),
        fw.from_torchvision([SIZE, DISTORT, IMAGE, CROP, SIZE, FLOATS]),
        kept(SIZE, IMAGE, CROP, SIZE, DISTORT, FLOATS),
    ]
    for recipe in recipes:
        loader = fw.Loader(annotated, recipe, batch_size=1, device="cpu", drop_last=False)
        [batch] = loader.batches()
        assert loader.pair(batch)[0].shape == (1, 3, 16, 24) and len(batch.objects()) == 1


class Whole(v2.RandomIoUCrop):
    """A subclass that accepts images without boxes."""

    def forward(self, image):
        return image


def test_every_transform_that_needs_boxes_is_known():
    from feedwater._torchvision.rest import needing_objects

    needing = set()
    for name in dir(v2):
        kind = getattr(v2, name)
        if not isinstance(kind, type) or not issubclass(kind, v2.Transform) or name in ("MixUp", "CutMix", "Transform"):
            continue
        try:
            step = kind()
        except TypeError:
            # Transforms with required arguments take images alone.
            continue
        try:
            step(torch.rand(3, 64, 64))
        except (TypeError, ValueError) as error:
            if "bounding boxes" in str(error) or "keypoints" in str(error) or "labels_getter" in str(error):
                needing.add(name)
    assert needing >= {"RandomIoUCrop", "SanitizeBoundingBoxes"}
    assert {name for name in needing if not needing_objects([getattr(v2, name)()])} == set()
    assert kept(SIZE, v2.Lambda(lambda image: image), Whole(), IMAGE).rest


def test_errors_name_what_replaces_a_transform_of_boxes():
    assert "already clipped" in refusal(SIZE, v2.ClampBoundingBoxes())
    assert "leaves out boxes outside of the image" in refusal(SIZE, v2.SanitizeBoundingBoxes())
    message = refusal(SIZE, v2.SanitizeBoundingBoxes(min_size=5))
    assert "Nothing replaces min_size=5, so leave out small boxes in the training loop, by the sides of objects.boxes" in message
    assert "by their visible share, not by their size" in message
    if "min_area" in v2.SanitizeBoundingBoxes.__init__.__code__.co_varnames:
        assert "Nothing replaces min_size=2.5 and min_area=30" in refusal(SIZE, v2.SanitizeBoundingBoxes(min_size=2.5, min_area=30))
    if hasattr(v2, "SanitizeKeyPoints"):
        assert "visibility 0" in refusal(SIZE, v2.SanitizeKeyPoints())
