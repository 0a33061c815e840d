"""Compares chains that are converted from torchvision's and timm's transforms with these transforms on PIL images."""

import itertools

import feedwater as fw
import numpy
import pytest
from conftest import pixels_of, write_image
from feedwater import ops

torch = pytest.importorskip("torch")
v1 = pytest.importorskip("torchvision.transforms")
v2 = pytest.importorskip("torchvision.transforms.v2")
F = pytest.importorskip("torchvision.transforms.v2.functional")
Image = pytest.importorskip("PIL.Image")

BICUBIC = v1.InterpolationMode.BICUBIC


@pytest.fixture
def large(tmp_path):
    """Four images of 60x44."""
    (tmp_path / "large" / "a").mkdir(parents=True)
    for index in range(4):
        write_image(tmp_path / "large" / "a" / f"{index}.ppm", smooth(index))
    return tmp_path / "large"


def smooth(index):
    """Returns enlarged noise of 15x11 pixels, so that filters interpolate between different values."""
    return numpy.asarray(Image.fromarray(pixels_of(index, 15, 11)).resize((60, 44), Image.Resampling.BICUBIC))


#: Transforms without random numbers.
FIXED = {
    "v1 evaluation": v1.Compose([v1.Resize(32), v1.CenterCrop(28), v1.ToTensor(), v1.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])]),
    "v2 evaluation": v2.Compose([v2.Resize((30, 40), interpolation=BICUBIC), v2.CenterCrop((20, 36)), v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5] * 3, [0.25] * 3)]),
    "bytes": v1.Compose([v1.CenterCrop(70), v1.PILToTensor()]),
    "0 to 1": v1.Compose([v1.ToTensor()]),
    "one number for all channels": v1.Compose([v1.ToTensor(), v1.Normalize(0.4, 0.3)]),
    "one value for all channels": v1.Compose([v1.ToTensor(), v1.Normalize([0.4], (0.3,))]),
    "a number and a list": v1.Compose([v1.ToTensor(), v1.Normalize(1, [0.2, 0.3, 0.4])]),
    "numbers of arrays": v1.Compose([v1.ToTensor(), v1.Normalize(torch.tensor(0.4), numpy.array([0.2, 0.3, 0.4]))]),
    "0 to 255": v2.Compose([v2.PILToTensor(), v2.ToDtype(torch.float32)]),
    "half": v1.Compose([v1.PILToTensor(), v1.ConvertImageDtype(torch.float16)]),
    "flips": v1.Compose([v1.RandomHorizontalFlip(1.0), v1.RandomVerticalFlip(p=1.0), v1.ToTensor()]),
    "pad": v1.Compose([v1.Pad((1, 2, 3, 4), fill=(9, 8, 7)), v2.Pad(5, padding_mode="reflect"), v1.ToTensor()]),
    "colours": v1.Compose([v1.RandomInvert(1.0), v1.RandomPosterize(3, 1.0), v1.RandomSolarize(100, 1.0), v1.RandomAutocontrast(1.0), v1.PILToTensor()]),
    "equalized": v1.Compose([v2.RandomEqualize(1.0), v2.RandomAdjustSharpness(1.7, 1.0), v1.PILToTensor()]),
    "gray": v1.Compose([v1.Grayscale(3), v1.PILToTensor()]),
    "nested": v1.Compose([v1.RandomApply([v1.RandomChoice([v1.RandomInvert(1.0)]), v1.RandomOrder([v1.Grayscale(3)])], p=1.0), v1.PILToTensor()]),
    "sequential": torch.nn.Sequential(v1.CenterCrop(8), torch.nn.Identity(), v2.PILToTensor()),
}


@pytest.mark.parametrize("name", FIXED)
def test_pixels_are_those_of_torchvision(large, name):
    transform = v1.Compose([v1.CenterCrop((44, 60)), FIXED[name]])
    loader = fw.Loader(large, fw.from_torchvision(transform), batch_size=4)
    images, _ = next(iter(loader))
    for index, image in enumerate(images):
        expected = transform(Image.fromarray(smooth(index)))
        assert image.dtype == expected.dtype and image.shape == expected.shape
        # ToDtype multiplies by 1/255, while ToTensor and feedwater divide by 255. For half floats, torchvision rounds more often.
        atol = {"half": 5e-4, "v2 evaluation": 5e-7}.get(name, 0)
        torch.testing.assert_close(image, torch.as_tensor(expected), rtol=0, atol=atol)


#: Transforms with random numbers, and the expected chains.
RANDOM = [
    (v1.RandomResizedCrop(24, scale=(0.2, 0.9), ratio=(0.8, 1.25), interpolation=BICUBIC), [ops.RandomResizedCrop(width=24, height=24, scale=(0.2, 0.9), ratio=(0.8, 1.25), filter="bicubic")]),
    (v2.RandomResizedCrop((24, 32)), [ops.RandomResizedCrop(width=32, height=24, scale=(0.08, 1.0), ratio=(3 / 4, 4 / 3), filter="bilinear")]),
    (v1.RandomCrop((20, 30), padding=4, pad_if_needed=True, fill=7), [ops.RandomCrop(width=30, height=20, padding=[4] * 4, pad_if_needed=True, fill=[7] * 3)]),
    (v1.ColorJitter(0.4, (0.5, 1.5), 0, 0.1), [ops.ColorJitter(brightness=(0.6, 1.4), contrast=(0.5, 1.5), hue=(-0.1, 0.1))]),
    (v2.RandomGrayscale(0.2), [ops.RandomGrayscale(probability=0.2)]),
    (v1.GaussianBlur(5, (0.1, 2.0)), [ops.GaussianBlur(kernel_size=[5, 5], sigma=[0.1, 2.0])]),
    (v1.RandomRotation(20, expand=True, fill=3), [ops.RandomRotation(degrees=[-20.0, 20.0], interpolation="nearest", expand=True, fill=[3] * 3)]),
    (v2.RandomAffine(10, (0.1, 0.2), (0.9, 1.1), 5), None),
    (v1.RandomAffine(0, shear=(1, 2, 3, 4)), [ops.RandomAffine(degrees=[0.0, 0.0], shear_x=[1.0, 2.0], shear_y=[3.0, 4.0], interpolation="nearest", fill=[0] * 3)]),
    (v2.RandomPerspective(0.4, 0.6), None),
    (v1.ElasticTransform(30.0, 4.0), None),
    (v1.RandAugment(3, 7), [ops.RandAugment(num_ops=3, magnitude=7, num_magnitude_bins=31, interpolation="nearest", version="v1")]),
    (v2.TrivialAugmentWide(), None),
    (v1.AutoAugment(v1.AutoAugmentPolicy.CIFAR10), [ops.AutoAugment(policy="cifar10", interpolation="nearest", version="v1")]),
    (v2.AugMix(chain_depth=2), None),
    (v2.RandomPhotometricDistort(), None),
    (v2.RandomChannelPermutation(), [ops.ChannelPermutation()]),
    (v2.JPEG((20, 80)), [ops.JpegDistortion(quality=[20, 80])]),
    (v2.ScaleJitter((30, 40)), None),
    (v2.RandomShortestSize([20, 30], max_size=50), None),
    (v2.RandomZoomOut(fill=4), None),
    (v1.RandomApply([v1.ColorJitter(0.1)], 0.3), None),
    (v1.RandomChoice([v1.RandomInvert(0.5), v1.Grayscale(3)], p=[1, 2]), None),
    (v2.RandomChoice([v2.RandomInvert(), v2.Identity()], p=[0.5, 0.5]), None),
]


@pytest.mark.parametrize("case", RANDOM, ids=lambda it: type(it[0]).__name__)
def test_random_transforms_are_operators(large, case):
    transform, expected = case
    recipe = fw.from_torchvision(v1.Compose([transform, v2.Resize((16, 16)), v1.ToTensor()]))
    if expected is not None:
        assert recipe[: len(expected)] == expected
    images, _ = next(iter(fw.Loader(large, recipe, batch_size=4)))
    assert images.shape == (4, 3, 16, 16) and 0 <= images.min() and images.max() <= 1


@pytest.mark.parametrize("library", [v1, v2], ids=["v1", "v2"])
@pytest.mark.parametrize("name", ["RandAugment", "TrivialAugmentWide", "AutoAugment", "AugMix"])
def test_policies_solarize_like_their_version(tmp_path, library, name):
    """Thresholds of v1 are often whole numbers. v1 inverts values that equal a threshold, and v2 often leaves them."""
    (tmp_path / "set" / "a").mkdir(parents=True)
    # One row has all bytes in every channel. Many files draw many of the policy's thresholds.
    every_byte = numpy.arange(256, dtype=numpy.uint8)[None, :, None].repeat(3, axis=2)
    for index in range(64):
        write_image(tmp_path / "set" / "a" / f"{index:02}.ppm", every_byte)
    settings = {"RandAugment": {"num_ops": 1, "magnitude": 6}, "AugMix": {"severity": 10}}
    policy = getattr(library, name)(**settings.get(name, {}))
    table, bins = {"RandAugment": [6], "TrivialAugmentWide": range(31)}.get(name, range(10)), 31 if "Wide" in name or "Rand" in name else 10
    if library is v1:
        sizes = () if "Wide" in name else ((1, 256),)
        thresholds = policy._augmentation_space(bins, *sizes)["Solarize"][0].tolist()
    else:
        thresholds = [255.0 * it for it in policy._AUGMENTATION_SPACE["Solarize"][0](bins, 1, 256).tolist()]
    recipe = fw.from_torchvision([policy, v2.CenterCrop((1, 256)), v1.PILToTensor()])
    loader, seen = fw.Loader(tmp_path / "set", recipe, batch_size=64, seed=1, framework="batch"), 0
    for batch in itertools.chain.from_iterable(itertools.repeat(loader, 20)):
        for image, sample in zip(batch.numpy(), batch.samples):
            actions = [action for operator in sample["operators"] for action in operator["actions"]]
            drawn = [action["params"]["threshold"] for action in actions if action.get("formula") == "Solarize"]
            assert all(threshold in [thresholds[bin] for bin in table] for threshold in drawn)
            seen += len(drawn)
            if name != "AugMix" and len(actions) == 2 and drawn:
                expected = F.solarize(Image.fromarray(every_byte), drawn[0])
                assert numpy.array_equal(image, numpy.asarray(expected).transpose(2, 0, 1))
    assert seen > 10


@pytest.mark.parametrize("form", ["bytes", "floats"])
def test_noise_is_distributed_as_torchvisions(tmp_path, form):
    """Compares mean, deviation and quantiles of 15,840 values each: of a middle gray, and near white, where values are cut off."""
    (tmp_path / "a").mkdir()
    levels = [120, 240]
    for index, level in enumerate(levels):
        write_image(tmp_path / "a" / f"{index}.ppm", numpy.full((66, 80, 3), level, numpy.uint8))
    before = [v2.PILToTensor()] if form == "bytes" else [v1.ToTensor()]
    noise = v2.GaussianNoise(mean=0.05, sigma=0.1)
    recipe = fw.from_torchvision([v2.CenterCrop((66, 80)), *before, noise])
    images, _ = next(iter(fw.Loader(tmp_path, recipe, batch_size=2, seed=5)))
    torch.manual_seed(5)
    unit = 1 if form == "bytes" else 255
    for image, level in zip(images, levels):
        plain = torch.full((3, 66, 80), level, dtype=torch.uint8)
        expected = noise(plain if form == "bytes" else plain.float() / 255).double() * unit
        ours = image.double() * unit
        # The standard error of a mean of 15,840 values with a deviation of 25 levels is 0.2. feedwater cuts floats off to levels too.
        assert abs(float(ours.mean() - expected.mean())) < (1.0 if form == "bytes" else 1.5)
        assert abs(float(ours.std() - expected.std())) < 1.0
        for share in (0.01, 0.1, 0.25, 0.5, 0.75, 0.9):
            assert abs(float(ours.quantile(share) - expected.quantile(share))) <= 3


def test_noise_that_cannot_be_converted_is_named():
    assert "clip is False" in problems_of(v1.ToTensor(), v2.GaussianNoise(clip=False))[0]
    assert "only to tensors" in problems_of(v2.GaussianNoise(), v1.ToTensor())[0]


def test_erasing_has_the_values_of_its_place():
    after = fw.from_torchvision(v1.Compose([v1.ToTensor(), v1.Normalize([0.5] * 3, [0.5] * 3), v1.RandomErasing(0.3, value="random")]))
    assert after[1] == ops.RandomErasing(probability=0.3, scale=[0.02, 0.33], ratio=[0.3, 3.3], mode="pixel", std=1.0)
    before = fw.from_torchvision(v1.Compose([v1.ToTensor(), v1.RandomErasing(0.3, value=[0.2, 0.4, 0.6])]))
    assert before[0] == ops.RandomErasing(probability=0.3, scale=[0.02, 0.33], ratio=[0.3, 3.3], value=[51, 102, 153])
    assert before[1] == ops.Normalize(mean=(0, 0, 0), std=(1, 1, 1))


def problems_of(*transforms, **settings):
    """Returns the problems that the error about these transforms lists."""
    with pytest.raises(fw.errors.ConversionError) as problem:
        fw.from_torchvision(list(transforms), **settings)
    return problem.value.problems


def test_all_that_cannot_be_converted_is_named():
    def half(image):
        return image.reduce(2)

    transform = v1.Compose([v1.Lambda(lambda it: it), v1.RandomApply([v1.Grayscale(1)]), v1.LinearTransformation(torch.eye(3), torch.zeros(3)), half, str, v1.ToTensor()])
    with pytest.raises(fw.errors.ConversionError, match="5 of 6") as problem:
        fw.from_torchvision(transform)
    assert len(problem.value.problems) == 5
    for words in ("Lambda (transform 0): it calls test_torchvision.", "the number of channels", "LinearTransformation", "by a matrix", "half (transform 3): it is test_torchvision.", "str (transform 4)"):
        assert words in str(problem.value)
    assert "builtins.function" not in str(problem.value)
    normalized = v1.Compose([v1.ToTensor(), v1.Normalize([0.5] * 3, [0.5] * 3), v1.ColorJitter(0.4)])
    with pytest.raises(fw.errors.ConversionError, match="before Normalize"):
        fw.from_torchvision(normalized)
    with pytest.raises(fw.errors.ConversionError, match="it contains Lambda"):
        fw.from_torchvision(v1.RandomApply([v1.Lambda(lambda it: it)]))


#: Transforms that would give other pixels than torchvision, words in the error message, and whether ``as_pil`` accepts them.
REFUSED = {
    "no antialias": ([v2.ToImage(), v2.Resize(16, antialias=False)], "antialias is False", True),
    "no antialias in a random crop": ([v1.ToTensor(), v1.RandomResizedCrop(16, antialias=None)], "antialias is None", True),
    "bicubic floats": ([v1.ToTensor(), v1.Resize(16, interpolation=BICUBIC)], "exceed the range of bytes", True),
    "bicubic tensors": ([v2.ToImage(), v2.Resize(16, interpolation=BICUBIC)], "Pillow", True),
    "nearest tensors": ([v2.ToImage(), v2.Resize(16, interpolation=v1.InterpolationMode.NEAREST)], "nearest", True),
    "hue of tensors": ([v2.ToImage(), v2.ColorJitter(hue=0.1)], "hue", True),
    "warped tensors": ([v2.ToImage(), v2.RandomRotation(10)], "before ToImage", True),
    "policies of tensors": ([v2.PILToTensor(), v2.TrivialAugmentWide()], "before PILToTensor", True),
    "random erasing of bytes": ([v1.ToTensor(), v1.RandomErasing(value="random")], "after Normalize", False),
    "erasing with half a byte": ([v1.ToTensor(), v1.RandomErasing(value=0.5)], "multiple of 1/255", False),
    "erasing above 1": ([v1.ToTensor(), v1.RandomErasing(value=128)], "multiple of 1/255", False),
    "erasing of PIL images": ([v1.RandomErasing()], "after ToTensor", False),
    "normalized PIL images": ([v1.Normalize([0.5] * 3, [0.5] * 3)], "PIL image", False),
    "normalized bytes": ([v2.ToDtype(torch.float32, scale=True), v2.ToImage(), v2.Normalize([0.5] * 3, [0.5] * 3)], "tensor of bytes", False),
    "colours above 1": ([v2.ToImage(), v2.ToDtype(torch.float32), v2.ColorJitter(0.4)], "scale=True", False),
    "types inside of a choice": ([v1.RandomApply([v2.ToImage()])], "it contains ToImage", False),
    "batches inside of an order": ([v2.RandomOrder([v2.MixUp(num_classes=3)])], "it contains MixUp", False),
    "settings": ([v1.CenterCrop(200000)], "200000", False),
    "boxes": ([v2.SanitizeBoundingBoxes()], "batch.objects", False),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_have_other_pixels_is_refused_with_the_reason(name):
    transforms, words, as_pil = REFUSED[name]
    problems = problems_of(*transforms)
    assert len(problems) == 1 and words in problems[0], problems
    if as_pil:
        fw.from_torchvision(transforms, as_pil=True)
    else:
        assert problems_of(*transforms, as_pil=True) == problems


def test_a_compose_inside_of_a_random_order_stays_together(large):
    size = v1.CenterCrop((44, 60))
    order = v1.RandomOrder([v1.Compose([v1.RandomInvert(1.0), v1.RandomSolarize(100, 1.0)]), v1.RandomPosterize(1, 1.0), v1.Compose([])])
    images, _ = next(iter(fw.Loader(large, fw.from_torchvision([size, order, v1.PILToTensor()]), batch_size=4, seed=3)))
    invert, posterize, solarize = (lambda it: 255 - it), (lambda it: it & 128), (lambda it: numpy.where(it < 100, it, 255 - it))
    for index, image in enumerate(images):
        outcomes = [posterize(solarize(invert(smooth(index)))), solarize(invert(posterize(smooth(index))))]
        assert any((image.numpy().transpose(1, 2, 0) == outcome).all() for outcome in outcomes)


def test_padding_of_v2_is_left_top_right_and_bottom(large):
    # The crop has the size of the padded image, so nothing is random.
    transform = v2.Compose([v2.RandomCrop((44 + 2 + 4, 60 + 1 + 3), padding=(1, 2, 3, 4), fill=9), v2.PILToTensor()])
    images, _ = next(iter(fw.Loader(large, fw.from_torchvision(transform), batch_size=4)))
    torch.testing.assert_close(images[1], transform(Image.fromarray(smooth(1))), rtol=0, atol=0)


def test_images_of_pil_are_left_as_they_are_by_dtype(large):
    transform = v2.Compose([v2.CenterCrop(9), v2.ToDtype(torch.float32, scale=True), v2.ToImage()])
    images, _ = next(iter(fw.Loader(large, fw.from_torchvision(transform), batch_size=4)))
    expected = transform(Image.fromarray(smooth(2)))
    assert images.dtype == expected.dtype == torch.uint8
    torch.testing.assert_close(images[2], torch.Tensor(expected).to(torch.uint8), rtol=0, atol=0)


def test_evaluation_sees_every_sample_and_training_drops_the_last_batch(folder):
    evaluation = fw.from_torchvision(v1.Compose([v1.Resize(8), v1.CenterCrop(8), v1.RandomHorizontalFlip(1.0), v1.ToTensor()]))
    assert sum(len(images) for images, _ in fw.Loader(folder, evaluation, batch_size=8, epochs=1)) == 20
    assert sum(len(images) for images, _ in fw.Loader(folder, evaluation, batch_size=8, epochs=1, last_batch="drop")) == 16
    training = fw.from_torchvision(v1.Compose([v1.RandomCrop(8), v1.ToTensor()]))
    assert sum(len(images) for images, _ in fw.Loader(folder, training, batch_size=8, epochs=1)) == 16
    kept = fw.from_torchvision([v1.CenterCrop(8), v1.Grayscale(1), v1.ToTensor()], keep_rest=True)
    assert sum(len(images) for images, _ in fw.Loader(folder, kept, batch_size=8, epochs=1)) == 20


def _convert_image_to_rgb(image):
    return image.convert("RGB")


def test_functions_are_named_and_those_of_clip_are_known(monkeypatch):
    steps = [v1.CenterCrop(8), _convert_image_to_rgb, v1.ToTensor()]
    assert "_convert_image_to_rgb (transform 1): it is test_torchvision._convert_image_to_rgb" in problems_of(*steps)[0]
    # CLIP's function of this name does not change RGB images, so the conversion leaves it out.
    monkeypatch.setattr(_convert_image_to_rgb, "__module__", "clip.clip")
    assert len(fw.from_torchvision(steps)) == 2


def test_advice_says_when_the_rest_can_be_kept():
    def advice(*transforms):
        with pytest.raises(fw.errors.ConversionError) as problem:
            fw.from_torchvision(list(transforms))
        return str(problem.value)

    assert "keep_rest=True keeps Lambda and what follows" in advice(v1.CenterCrop(8), v1.Lambda(str), v1.ToTensor())
    for late in ([v1.Resize(12), v1.Lambda(str), v1.CenterCrop(8)], [v1.CenterCrop(8), v1.RandomRotation(9, expand=True), v1.Lambda(str)]):
        assert "if a crop or Resize((height, width)) comes before Lambda" in advice(*late)
        with pytest.raises(fw.errors.ConversionError, match="images before Lambda differ in size"):
            fw.from_torchvision(late, keep_rest=True)
    assert "mixes the samples" in advice(v1.CenterCrop(8), v1.Lambda(str), v2.MixUp(num_classes=3))


def test_the_rest_may_stay_python(large):
    def negative(tensor):
        return -tensor

    transform = v1.Compose([v1.Resize((12, 12)), v1.Grayscale(1), v1.ToTensor(), v1.Lambda(negative)])
    recipe = fw.from_torchvision(transform, keep_rest=True)
    images, labels = next(iter(fw.Loader(large, recipe, batch_size=4)))
    assert images.shape == (4, 1, 12, 12)
    for index, image in enumerate(images):
        torch.testing.assert_close(image, transform(Image.fromarray(smooth(index))), rtol=0, atol=0)
    later = v1.Compose([v1.Resize((12, 12)), v1.ToTensor(), v1.Lambda(negative)])
    images, _ = next(iter(fw.Loader(large, fw.from_torchvision(later, keep_rest=True), batch_size=4)))
    torch.testing.assert_close(images[3], later(Image.fromarray(smooth(3))), rtol=0, atol=0)
    with pytest.raises(ValueError, match="torch"):
        fw.Loader(large, recipe, batch_size=4, framework="numpy")


STACK = v1.Lambda(lambda views: torch.stack([v1.ToTensor()(view) for view in views]))
TO_TENSOR = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]


def crops_of(index, size, transforms):
    """Returns the crops that torchvision makes of an image of this size."""
    crops = Image.fromarray(smooth(index)).resize(size, Image.Resampling.BILINEAR)
    for step in transforms:
        crops = step(crops)
    return torch.stack(tuple(crops))


@pytest.mark.parametrize(
    ("views", "count"),
    [
        ([v1.FiveCrop(10), STACK], 5),
        ([v1.TenCrop((8, 10), vertical_flip=True), STACK], 10),
        ([v2.FiveCrop((8, 10)), *TO_TENSOR], 5),
    ],
)
def test_crops_that_stay_in_python_are_an_axis_of_the_batch(large, views, count):
    recipe = fw.from_torchvision([v1.Resize((12, 16)), *views], keep_rest=True)
    assert len(recipe) == 1
    images, _ = next(iter(fw.Loader(large, recipe, batch_size=4)))
    assert images.shape[:3] == (4, count, 3)
    for index, image in enumerate(images):
        torch.testing.assert_close(image, crops_of(index, (16, 12), views), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("crops", "count"),
    [(v2.FiveCrop((7, 10)), 5), (v2.FiveCrop((12, 16)), 5), (v2.TenCrop(9), 10), (v2.TenCrop((8, 11), vertical_flip=True), 10), (v1.TenCrop(12), 10)],
)
def test_crops_are_a_view(large, crops, count):
    chain = fw.from_torchvision([v1.Resize((12, 16)), crops, *TO_TENSOR])
    batch = next(iter(fw.Loader(large, columns={"crops": fw.view(chain)}, batch_size=4)))
    assert batch["crops"].shape[:3] == (4, count, 3)
    for index, image in enumerate(batch["crops"]):
        expected = crops_of(index, (16, 12), [crops, lambda made: torch.stack(tuple(v2.Compose(TO_TENSOR)(it) for it in made))])
        torch.testing.assert_close(image, expected, rtol=0, atol=6e-8)


def test_crops_belong_in_a_view(large):
    chain = fw.from_torchvision([v1.Resize(12), v1.FiveCrop(8), v1.ToTensor()])
    with pytest.raises(fw.errors.ConfigError, match="five_crop makes 5 outputs.*fw.view"):
        fw.Loader(large, chain, batch_size=4)
    with pytest.raises(fw.errors.ConfigError, match="is 7, but an operator of the chain makes 5 outputs"):
        fw.Loader(large, columns={"crops": fw.view(chain, count=7)}, batch_size=4)
    with pytest.raises(fw.errors.ConversionError, match="(?s)keep_rest=True keeps TenCrop and what.*Lambda.*transforms after TenCrop are applied to each crop; write them for one image") as problem:
        fw.from_torchvision([v1.Resize((12, 16)), v1.TenCrop(8), STACK])
    assert len(problem.value.problems) == 1
    with pytest.raises(fw.errors.ConversionError, match="move it out"):
        fw.from_torchvision([v1.RandomApply([v1.FiveCrop(8)])])


def test_kept_transforms_get_the_same_input_for_every_element_type(large):
    transform = v1.Compose([v1.Resize((30, 40)), v1.FiveCrop(8), STACK])
    recipe = fw.from_torchvision(transform, keep_rest=True)
    for dtype in ("u8", "f16", "bf16", torch.float32):
        images, _ = next(iter(fw.Loader(large, recipe, batch_size=4, dtype=dtype)))
        for index, image in enumerate(images):
            torch.testing.assert_close(image, transform(Image.fromarray(smooth(index))), rtol=0, atol=0)
    with pytest.raises(ValueError, match="channels first"):
        fw.Loader(large, recipe, batch_size=4, output={"layout": "nhwc"})
    with pytest.raises(TypeError, match="Lambda, the last transform that runs in Python .*returned Image; it must return a tensor"):
        next(iter(fw.Loader(large, fw.from_torchvision([v1.Resize((8, 8)), v1.Lambda(lambda it: it)], keep_rest=True), batch_size=4)))
    with pytest.raises(fw.errors.ConversionError, match="cannot stay in Python, because the images before TenCrop differ in size"):
        fw.from_torchvision([v1.Resize(20), v1.TenCrop(8), STACK], keep_rest=True)


@pytest.mark.parametrize("library", [v1, v2])
def test_one_channel_equals_torchvision(large, library):
    scaled = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)] if library is v2 else [v1.ToTensor()]
    size = library.Resize((20, 30))
    chains = [
        [size, library.Grayscale(), *scaled, library.Normalize((0.1307,), (0.3081,))],
        [library.Grayscale(1), size, library.RandomHorizontalFlip(1.0), *scaled],
        [library.Grayscale(1), size, library.Grayscale(3), *scaled],
    ]
    if library is v2:
        chains += [[size, v2.Grayscale(), v2.RGB(), *scaled, v2.Normalize((0.4, 0.5, 0.6), (0.2, 0.3, 0.4))]]
        chains += [[size, v2.Grayscale(), *scaled, v2.Normalize([0.4, 0.5, 0.6], [0.2, 0.2, 0.2])]]
    for chain in chains:
        images, _ = next(iter(fw.Loader(large, fw.from_torchvision(chain), batch_size=4)))
        for index, image in enumerate(images):
            expected = torch.as_tensor(library.Compose(chain)(Image.fromarray(smooth(index))))
            torch.testing.assert_close(image, expected, rtol=3e-7, atol=3e-7)


def test_errors_name_transforms_that_need_three_channels():
    gray = v1.Grayscale()
    for transform, words in [
        (v2.RandomPhotometricDistort(), "RandomPhotometricDistort .transform 1.: it changes colours"),
        (v2.RandomChannelPermutation(), "one channel here"),
        (v1.Pad(2, fill=(1, 2, 3)), "write one value"),
    ]:
        with pytest.raises(fw.errors.ConversionError, match=words):
            fw.from_torchvision([gray, transform, v1.ToTensor()])
    with pytest.raises(fw.errors.ConversionError, match="image has one channel here; write one value, or use Grayscale"):
        fw.from_torchvision([gray, v1.ToTensor(), v1.Normalize([0.5] * 3, [0.5] * 3)])
    with pytest.raises(fw.errors.ConversionError, match="a multiple of 1/255 from 0 to 1"):
        fw.from_torchvision([v1.ToTensor(), v1.RandomErasing(value=128)])


def test_a_view_has_the_element_type_and_the_last_batch_of_its_recipe(large):
    crops = fw.from_torchvision([v1.Resize(20), v1.TenCrop(16), v1.ToTensor()])
    pixels = fw.from_torchvision([v2.Resize((12, 12)), v2.ToImage()])
    half = fw.from_torchvision([v2.Resize((12, 12)), v2.ToImage(), v2.ToDtype(torch.float16, scale=True)])
    columns = {"crops": fw.view(crops), "pixels": fw.view(pixels), "half": fw.view(half)}
    total = len(next(iter(fw.Loader(large, pixels, batch_size=1000)))[0])
    loader = fw.Loader(large, columns=columns, batch_size=total - 1, epochs=1)
    batches = list(loader)
    assert [len(batch["crops"]) for batch in batches] == [total - 1, 1]
    assert [batches[0][name].dtype for name in columns] == [torch.float32, torch.uint8, torch.float16]
    given = next(iter(fw.Loader(large, columns=columns, batch_size=2, dtype="bf16")))
    assert {given[name].dtype for name in columns} == {torch.bfloat16}
    dropped = fw.Loader(large, columns=columns, batch_size=total - 1, epochs=1, drop_last=True)
    assert len(list(dropped)) == 1
    beside = fw.Loader(large, pixels, columns={"crops": fw.view(crops)}, batch_size=2)
    batch = next(iter(beside))
    assert (batch["image"].dtype, batch["crops"].dtype) == (torch.uint8, torch.float32)
    random = fw.from_torchvision([v1.RandomResizedCrop(16), v1.ToTensor()])
    both = {"crops": fw.view(crops), "random": fw.view(random)}
    assert len(list(fw.Loader(large, columns=both, batch_size=total - 1, epochs=1))) == 1


def test_recipes_of_timm(large):
    timm = pytest.importorskip("timm.data")
    training = timm.create_transform(24, is_training=True, auto_augment="rand-m9-mstd0.5-inc1", re_prob=0.25, re_mode="pixel", interpolation="random")
    recipe = fw.from_torchvision(training)
    assert isinstance(recipe[0], ops.OneOf) and recipe[1] == ops.Flip(horizontal=0.5)
    assert recipe[2].settings()["config"] == "rand-m9-n2-p0.5-mstd0.5-inc1"
    assert recipe[4].settings()["mode"] == "pixel"
    images, _ = next(iter(fw.Loader(large, recipe, batch_size=4)))
    assert images.shape == (4, 3, 24, 24)
    evaluation = timm.create_transform(24, is_training=False, crop_pct=0.8)
    images, _ = next(iter(fw.Loader(large, fw.from_torchvision(evaluation), batch_size=4)))
    torch.testing.assert_close(images[2], evaluation(Image.fromarray(smooth(2))), rtol=0, atol=0)


def test_pixels_of_floats_and_16_bits(tmp_path):
    for name, number in (("f32", 4), ("u16", 65535)):
        values = numpy.linspace(0, number, 60 * 80).reshape(60, 80)
        folder = tmp_path / name
        folder.mkdir()
        if name == "u16":
            Image.fromarray(values.astype(numpy.uint16)).save(folder / "0.png")
        else:
            Image.fromarray(values.astype(numpy.float32)).save(folder / "0.tiff")
    size = [v2.CenterCrop((32, 48)), v2.PILToTensor()]
    normalize = v2.Normalize([0.4], [0.2])
    scaled = [*size, v2.ToDtype(torch.float32, scale=True)]
    for transforms in (scaled, [*scaled, normalize], [*size, v2.ToDtype(torch.float32)]):
        for pixels in ("f32", "u16"):
            with Image.open(next((tmp_path / pixels).iterdir())) as image:
                expected = v2.Compose(transforms)(image)
            source = fw.directory(tmp_path / pixels, extensions=["png", "tiff"])
            images, _ = next(iter(fw.Loader(source, fw.from_torchvision(transforms), decode=fw.Decode(pixels=pixels))))
            numpy.testing.assert_allclose(images[0], expected, rtol=1e-6, atol=1e-6)
    # The mean and the deviation are on the scale 0 to 255, which these pixels do not have.
    recipe = fw.from_torchvision([*size, v2.ToDtype(torch.float32), v2.Normalize([100.0], [50.0])])
    columns = {"view": fw.view(recipe[:])}
    for pixels in ("f32", "u16"):
        for given in ({"transform": recipe}, {"columns": columns}):
            with pytest.raises(ValueError, match="decode.pixels is .*0 to 255"):
                fw.Loader(fw.directory(tmp_path / pixels), decode={"pixels": pixels}, **given)
        with pytest.raises(ValueError, match="pixels is .*0 to 255"):
            fw.image("depth.png", recipe + [], pixels=pixels)
    assert fw.image("photo.jpg", recipe).pixels is None
