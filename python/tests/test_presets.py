"""Compares conversions of torchvision's presets, timm's transforms and transforms of batches with the originals on
PIL images."""

import json
import subprocess
import sys

import feedwater as fw
import numpy
import pytest
from conftest import pixels_of, write_image
from feedwater import ops

torch = pytest.importorskip("torch")
torchvision = pytest.importorskip("torchvision")
v1 = pytest.importorskip("torchvision.transforms")
v2 = pytest.importorskip("torchvision.transforms.v2")
Image = pytest.importorskip("PIL.Image")


def smooth(index, width=60, height=44):
    """Returns an image of enlarged noise, in which neighbouring pixels differ, so that wrong interpolation is noticed."""
    return numpy.asarray(Image.fromarray(pixels_of(index, 15, 11)).resize((width, height), Image.Resampling.BICUBIC))


@pytest.fixture
def large(tmp_path):
    """Four images of 60x44."""
    (tmp_path / "large" / "a").mkdir(parents=True)
    for index in range(4):
        write_image(tmp_path / "large" / "a" / f"{index}.ppm", smooth(index))
    return tmp_path / "large"


def check(large, transform, **settings):
    """Checks that the images equal those of the transform. Returns the recipe."""
    recipe = fw.from_torchvision([v1.CenterCrop((44, 60)), transform])
    images, _ = next(iter(fw.Loader(large, recipe, batch_size=4, **settings)))
    for index, image in enumerate(images):
        expected = torch.as_tensor(transform(Image.fromarray(smooth(index))))
        assert image.dtype == expected.dtype and image.shape == expected.shape
        # convert_image_dtype multiplies by 1/255, while feedwater divides by 255.
        torch.testing.assert_close(image, expected, rtol=0, atol=1e-6)
    return recipe


def presets():
    """Returns the transforms of all weights, without duplicates."""
    found = {}
    for name in torchvision.models.list_models():
        for weights in torchvision.models.get_model_weights(name):
            transform = weights.transforms()
            if type(transform).__name__ not in ("VideoClassification", "OpticalFlow"):
                found.setdefault(repr(transform), transform)
    return found


PRESETS = presets()


@pytest.mark.parametrize("text", PRESETS, ids=range(len(PRESETS)))
def test_presets_of_weights(large, text):
    check(large, PRESETS[text])


def test_presets_of_other_things_are_refused():
    flow = torchvision.models.optical_flow.Raft_Small_Weights.DEFAULT.transforms()
    video = torchvision.models.video.R3D_18_Weights.DEFAULT.transforms()
    for transform, words in ((flow, "two images"), (video, "videos")):
        with pytest.raises(fw.errors.ConversionError, match=words):
            fw.from_torchvision(transform)


EXACT = {
    "max_size": [v1.Resize(40, max_size=50), v1.PILToTensor()],
    "max_size of v2": [v2.Resize([20], max_size=26), v2.PILToTensor()],
    "nearest-exact": [v2.Resize((30, 41), interpolation=v1.InterpolationMode.NEAREST_EXACT), v2.PILToTensor()],
    # Each of these transforms has only one possible result, so nothing is random.
    "reflect": [v1.RandomCrop((44 + 5, 60 + 5), padding=(2, 2, 3, 3), padding_mode="reflect"), v1.PILToTensor()],
    "symmetric of v2": [v2.RandomCrop((44 + 2 + 4, 60 + 1 + 3), padding=(1, 2, 3, 4), padding_mode="symmetric"), v2.PILToTensor()],
    "one size": [v2.RandomResize(19, 20), v2.PILToTensor()],
}


@pytest.mark.parametrize("name", EXACT)
def test_transforms_that_draw_nothing(large, name):
    check(large, v1.Compose(EXACT[name]))


def test_random_sizes_and_windows_are_operators(large):
    recipe = fw.from_torchvision([v2.RandomResize(10, 20), v2.RandomIoUCrop(trials=7), v2.Resize((8, 8)), v2.ToImage()])
    assert recipe[0] == ops.RandomResize(min_size=10, max_size=20, filter="bilinear")
    assert recipe[1] == ops.RandomIouCrop(scale=[0.3, 1.0], ratio=[0.5, 2.0], overlaps=[0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0], trials=7)
    images, _ = next(iter(fw.Loader(large, recipe, batch_size=4)))
    assert images.shape == (4, 3, 8, 8)


def test_evaluation_of_timm(large):
    timm = pytest.importorskip("timm.data")
    for settings in (
        {"input_size": (3, 24, 36)},
        {"input_size": (3, 36, 24), "crop_pct": 1.0, "interpolation": "bicubic"},
        {"input_size": (3, 24, 36), "crop_mode": "border"},
        {"input_size": (3, 70, 24), "crop_mode": "border", "crop_pct": 0.9},
        {"input_size": (3, 24, 36), "crop_mode": "squash"},
    ):
        check(large, timm.create_transform(**settings, is_training=False))


@pytest.mark.parametrize(
    ("text", "operator"),
    [
        ("3a", "three"),
        ("original-mstd0.5", ops.TimmAutoAugment(config="original-mstd0.5", fill=[124, 116, 104])),
        ("originalr", ops.TimmAutoAugment(config="originalr", fill=[124, 116, 104])),
        ("v0", ops.TimmAutoAugment(config="v0", fill=[124, 116, 104])),
        ("v0r-mstd1.0", ops.TimmAutoAugment(config="v0r-mstd1.0", fill=[124, 116, 104])),
        ("augmix-m5-w4-d2", ops.TimmAugMix(config="augmix-m5-w4-a1.0-d2", translate=0.3, fill=[124, 116, 104])),
        ("augmix-mstd0.5", ops.TimmAugMix(config="augmix-m3-w3-a1.0-mstd0.5", translate=0.3, fill=[124, 116, 104])),
        ("rand-m9-n3-mstd0.5-inc1", None),
        ("rand-m9-tweights", None),
        ("rand-m9-t3aw", None),
    ],
)
def test_policies_of_timm(large, text, operator):
    timm = pytest.importorskip("timm.data")
    training = timm.create_transform(24, is_training=True, auto_augment=text, interpolation="random", re_prob=0.3, re_mode="pixel")
    recipe = fw.from_torchvision(training)
    if text == "3a":
        operator = ops.TimmAutoAugment(config="3a", fill=[124, 116, 104])
        assert isinstance(recipe[3], ops.ColorJitter)
    if operator is not None:
        assert recipe[2] == operator
    images, _ = next(iter(fw.Loader(large, recipe, batch_size=4)))
    assert images.shape == (4, 3, 24, 24) and images.dtype == torch.float32


def drawn(action, image):
    """Applies an operation of timm's AugMix to an image with Pillow, given the recorded action."""
    from PIL import ImageEnhance, ImageOps

    values = action["params"]
    if action["kind"] == "warp":
        return image.transform(image.size, Image.Transform.AFFINE, values["matrix"][:6], Image.Resampling.BILINEAR, fillcolor=tuple(values["fill"]))
    enhance = {"Contrast": "Contrast", "Saturation": "Color", "Brightness": "Brightness", "Sharpness": "Sharpness"}
    formula = action["formula"]
    if formula in enhance:
        return getattr(ImageEnhance, enhance[formula])(image).enhance(values["factor"])
    if formula == "Solarize":
        return ImageOps.solarize(image, int(values["threshold"]))
    if formula == "Posterize":
        return ImageOps.posterize(image, int(values["bits"]))
    return {"Equalize": ImageOps.equalize, "Autocontrast": ImageOps.autocontrast}[formula](image)


@pytest.mark.parametrize("config", ["augmix-m5-w4-d2", "augmix-m9-w3-mstd0.5"])
def test_pixels_of_aug_mix_are_within_a_level_of_timms(tmp_path, config, count=60):
    """Compares with ``AugMixAugment._apply_basic``, given the operations and weights that feedwater drew."""
    chain = [ops.TimmAugMix(config=config, interpolation="bilinear"), ops.CenterCrop(width=60, height=44)]
    (tmp_path / "set" / "a").mkdir(parents=True)
    for index in range(count):
        write_image(tmp_path / "set" / "a" / f"{index:02}.ppm", smooth(index))
    with fw.Loader(fw.directory(tmp_path / "set"), chain, batch_size=count, layout="nhwc", framework="batch", device="cpu") as loader:
        (tmp_path / "pipeline.toml").write_text(loader.settings())
    command = [sys.executable, "-m", "feedwater", "dump", str(tmp_path / "pipeline.toml"), "--out", str(tmp_path / "dump")]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    images = numpy.load(tmp_path / "dump" / "images.npy")
    samples = json.loads((tmp_path / "dump" / "samples.json").read_text())
    differences, formulas = [], set()
    for image, sample in zip(images, samples, strict=True):
        start = Image.open(sample["path"])
        begin, *actions = sample["operators"][0]["actions"]
        rest = 1 - begin["params"]["weight"]
        mixed, chained = numpy.zeros((44, 60, 3), numpy.float32), start
        for action in actions:
            if action["kind"] == "mix":
                mixed += numpy.float32(action["params"]["weight"] / rest) * numpy.asarray(chained, numpy.float32)
                chained = start
            else:
                formulas.add(action.get("formula", action["kind"]))
                chained = drawn(action, chained)
        expected = Image.blend(start, Image.fromarray(mixed.clip(0, 255).astype(numpy.uint8)), rest)
        differences.append(numpy.abs(numpy.asarray(expected).astype(int) - image.astype(int)).max())
    assert len(differences) == count and max(differences) <= 1
    assert len(formulas) == 9


def test_training_crops_of_timm(large):
    timm = pytest.importorskip("timm.data")
    recipe = fw.from_torchvision(timm.create_transform(24, is_training=True, train_crop_mode="rkrc", interpolation="bilinear"))
    assert recipe[0].settings()["scale_is_area"] and recipe[1] == ops.CenterCrop(width=24, height=24, mode="reflect")
    images, _ = next(iter(fw.Loader(large, recipe, batch_size=4)))
    assert images.shape == (4, 3, 24, 24)
    with pytest.raises(fw.errors.ConversionError, match="RandomCropOrPad"):
        fw.from_torchvision(timm.create_transform(24, is_training=True, train_crop_mode="rkrr"))


def test_tensors_of_timm_are_not_scaled(large):
    transforms = pytest.importorskip("timm.data.transforms")
    check(large, v1.Compose([transforms.ToTensor()]))


def test_batches_are_mixed(folder):
    images = [v2.RandomCrop(8), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]

    def mixed(*transforms):
        recipe = fw.from_torchvision([*images, *transforms])
        targets = next(iter(fw.Loader(folder, recipe, batch_size=8, shuffle=True, seed=1)))[1]
        assert targets.shape == (8, 2) and torch.allclose(targets.sum(1), torch.ones(8))
        (operator,) = recipe.batch_operators
        return operator

    assert mixed(v2.MixUp(alpha=0.3, num_classes=2)) == ops.Mixup(alpha=0.3, probability=1.0)
    assert mixed(v2.RandomApply([v2.CutMix(num_classes=2)], p=0.25)) == ops.CutMix(alpha=1.0, probability=0.25)
    both = v2.RandomChoice([v2.CutMix(num_classes=2), v2.MixUp(alpha=0.2, num_classes=2), v2.Identity()], p=[1, 3, 4])
    assert mixed(both) == ops.MixupOrCutMix(mixup_alpha=0.2, cutmix_alpha=1.0, probability=0.5, cutmix_probability=0.25)
    timm = pytest.importorskip("timm.data")
    recipe = fw.from_torchvision([*images, timm.Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, prob=0.9, switch_prob=0.4, label_smoothing=0.1, num_classes=2)])
    assert recipe.batch_operators == [ops.MixupOrCutMix(mixup_alpha=0.8, cutmix_alpha=1.0, probability=0.9, cutmix_probability=0.4)]
    assert recipe.sections["targets"] == {"classes": 2, "smoothing": 0.1}


def test_batches_that_cannot_be_mixed_are_refused():
    for transforms, words in (
        ([v2.MixUp()], "num_classes"),
        ([v2.MixUp(num_classes=3), v2.CenterCrop(8)], "follows a transform that mixes"),
        ([v2.MixUp(num_classes=3), v2.CutMix(num_classes=3)], "RandomChoice"),
        ([v2.RandomChoice([v2.MixUp(num_classes=3), v2.CenterCrop(8)])], "between MixUp or CutMix and CenterCrop"),
        ([v2.RandomChoice([v2.MixUp(num_classes=3), v2.CutMix(num_classes=4)])], "num_classes"),
    ):
        with pytest.raises(fw.errors.ConversionError, match=words):
            fw.from_torchvision(transforms)
