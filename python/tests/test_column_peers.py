"""Columns compared with torchvision v2 (``tv_tensors``), Albumentations and Pillow, given the actions that feedwater
recorded: masks of segmentation as palette and as gray files, boxes and keypoints; and the views of DINO."""

import io

import numpy
import pytest
from feedwater import ops

import feedwater as fw

torch = pytest.importorskip("torch")
Image = pytest.importorskip("PIL.Image")
pytest.importorskip("torchvision")
from torchvision import tv_tensors  # noqa: E402
from torchvision.transforms.v2 import InterpolationMode  # noqa: E402
from torchvision.transforms.v2 import functional as F  # noqa: E402

from recorded_actions import adjusted  # noqa: E402

#: Width and height of the results.
SIZE = (37, 29)
MOVES = [
    ops.RandomResizedCrop(width=SIZE[0], height=SIZE[1], scale=(0.2, 1)),
    ops.Flip(horizontal=0.5, vertical=0.3),
    ops.ColorJitter(brightness=0.4, saturation=0.3),
]
COLUMNS = {
    "voc": fw.mask("voc", like="image"),
    "ade": fw.mask("ade", dtype="i64", fill=-1),
    "boxes": fw.boxes("boxes", format="xyxy"),
    "keypoints": fw.points("keypoints"),
}


def encoded(image, kind, **settings):
    out = io.BytesIO()
    image.save(out, kind, **settings)
    return out.getvalue()


@pytest.fixture(scope="module")
def items():
    """Photographs with a palette mask of 21 classes and an ignored border, as in Pascal VOC, a gray mask of 150
    classes, as in ADE20K, boxes and keypoints."""
    random = numpy.random.default_rng(3)
    items = []
    for number in range(24):
        width, height = (int(side) for side in random.integers(40, 120, 2))
        pixels = random.integers(0, 256, (height // 6 + 1, width // 6 + 1, 3), dtype=numpy.uint8)
        classes = random.integers(0, 21, (height, width), dtype=numpy.uint8)
        classes[:2] = 255
        palette = Image.fromarray(classes, mode="P")
        palette.putpalette(random.integers(0, 256, 768, dtype=numpy.uint8).tolist())
        gray = Image.fromarray(random.integers(0, 151, (height, width), dtype=numpy.uint8))
        corners = numpy.sort(random.uniform(0, 1, (5, 2, 2)), axis=1) * (width, height)
        items.append({
            "image": encoded(Image.fromarray(pixels).resize((width, height)), "JPEG", quality=95),
            "voc": encoded(palette, "PNG"),
            "ade": encoded(gray, "PNG"),
            "boxes": corners.reshape(5, 4).astype(numpy.float32).tolist(),
            "keypoints": random.uniform(0, (width, height), (7, 2)).astype(numpy.float32).tolist(),
        })
    return items


def samples(items):
    """For each sample of an epoch: its item, its values by column, and the drawn crop and flips."""
    loader = fw.Loader(fw.samples(items), MOVES, columns=COLUMNS, batch_size=5, drop_last=False, epochs=1, shuffle=True, seed=1, dtype="u8", framework="batch", device="cpu")
    for batch in loader:
        columns = {name: batch.column(name) for name in COLUMNS}
        images = numpy.asarray(batch)
        for place, record in enumerate(batch.samples):
            actions = {operator["op"]: operator["actions"] for operator in record["operators"]}
            (crop,) = actions["random_resized_crop"]
            flips = [action["params"] for action in actions["flip"]]
            found = {name: numpy.asarray(column[place]) for name, column in columns.items()}
            yield items[record["index"]], {"image": images[place], **found}, crop["params"]["box"], flips, actions["color_jitter"]


def test_torchvisions_tensors_follow_in_the_same_way(items):
    seen, outside = 0, 0
    for item, found, (left, top, width, height), flips, colours in samples(items):
        image = Image.open(io.BytesIO(item["image"]))
        size = image.size[::-1]
        whole = {
            "image": image,
            # PIL images are resized by the centres of pixels, and tensors with InterpolationMode.NEAREST are not.
            "voc": Image.open(io.BytesIO(item["voc"])),
            "ade": Image.open(io.BytesIO(item["ade"])),
            "boxes": tv_tensors.BoundingBoxes(item["boxes"], format="XYXY", canvas_size=size),
            "keypoints": tv_tensors.KeyPoints(item["keypoints"], canvas_size=size),
        }
        moved = {}
        for name, value in whole.items():
            mode = InterpolationMode.NEAREST if name in ("voc", "ade") else InterpolationMode.BILINEAR
            value = F.resized_crop(value, top, left, height, width, SIZE[::-1], interpolation=mode)
            for flip in flips:
                value = F.horizontal_flip(value) if flip["horizontal"] else value
                value = F.vertical_flip(value) if flip["vertical"] else value
            moved[name] = value
        image = moved["image"]
        for action in colours:
            image = adjusted(image, action, {"brightness": (0.6, 1.4), "saturation": (0.7, 1.3)})
        assert numpy.array_equal(found["image"], numpy.moveaxis(numpy.asarray(image), 2, 0))
        assert numpy.array_equal(found["voc"], numpy.asarray(moved["voc"]))
        assert numpy.array_equal(found["ade"], numpy.asarray(moved["ade"]))
        boxes = F.clamp_bounding_boxes(tv_tensors.BoundingBoxes(moved["boxes"], format="XYXY", canvas_size=SIZE[::-1])).numpy()
        visible = numpy.all(boxes[:, 2:] > boxes[:, :2], axis=1)
        assert numpy.allclose(found["boxes"][visible], boxes[visible], atol=1e-3)
        hidden = found["boxes"][~visible]
        assert numpy.all((hidden[:, 2:] - hidden[:, :2]).prod(axis=1) < 1e-3)
        # torchvision mirrors keypoints as indices of pixels. feedwater's are positions, whose mirror image is 1 further.
        further = [sum(flip[axis] for flip in flips) for axis in ("horizontal", "vertical")]
        assert numpy.allclose(found["keypoints"], moved["keypoints"].numpy() + further, atol=1e-3)
        seen += 1
        outside += len(hidden)
    assert seen == len(items) and outside > 0


def test_albumentations_follows_in_the_same_way(items):
    albumentations = pytest.importorskip("albumentations")
    import cv2

    seen = 0
    for item, found, (left, top, width, height), flips, _ in samples(items):
        steps = [
            albumentations.Crop(left, top, left + width, top + height),
            # INTER_NEAREST, its default, is not by the centres of pixels.
            albumentations.Resize(SIZE[1], SIZE[0], mask_interpolation=cv2.INTER_NEAREST_EXACT),
        ]
        for flip in flips:
            steps += [albumentations.HorizontalFlip(p=1)] * flip["horizontal"] + [albumentations.VerticalFlip(p=1)] * flip["vertical"]
        boxes = albumentations.BboxParams(format="pascal_voc", label_fields=["numbers"])
        run = albumentations.Compose(steps, bbox_params=boxes)
        result = run(
            image=numpy.asarray(Image.open(io.BytesIO(item["image"]))),
            masks=[numpy.asarray(Image.open(io.BytesIO(item[name]))) for name in ("voc", "ade")],
            bboxes=numpy.array(item["boxes"]),
            numbers=numpy.arange(len(item["boxes"])),
        )
        assert numpy.array_equal(found["voc"], result["masks"][0]) and numpy.array_equal(found["ade"], result["masks"][1])
        numbers = numpy.asarray(result["numbers"], dtype=int)
        assert numpy.allclose(found["boxes"][numbers], result["bboxes"], atol=1e-3)
        others = numpy.delete(found["boxes"], numbers, axis=0)
        # Albumentations leaves out boxes of less than a pixel.
        assert numpy.all((others[:, 2:] - others[:, :2]).prod(axis=1) <= 1.001)
        seen += 1
    assert seen == len(items)


def crop(side, scale):
    return [
        ops.RandomResizedCrop(width=side, height=side, scale=scale, filter="bicubic"),
        ops.Flip(horizontal=0.5),
        ops.RandomApply([ops.ColorJitter(brightness=0.4, contrast=0.4, saturation=0.2, hue=0.1)], probability=0.8),
        ops.RandomGrayscale(probability=0.2),
        ops.RandomApply([ops.Solarize(threshold=128)], probability=0.2),
    ]


def replayed(image, operators):
    """The image after the recorded actions of a crop, by torchvision's functions for PIL images."""
    ranges = {"brightness": (0.6, 1.4), "contrast": (0.6, 1.4), "saturation": (0.8, 1.2), "hue": (-0.1, 0.1)}
    for action in (action for operator in operators for action in operator["actions"]):
        params, formula = action["params"], action.get("formula")
        if action["op"] == "random_resized_crop":
            left, top, width, height = params["box"]
            image = F.resized_crop(image, top, left, height, width, action["size"][::-1], interpolation=InterpolationMode.BICUBIC)
        elif action["op"] == "flip":
            image = F.horizontal_flip(image) if params["horizontal"] else image
        elif formula == "Solarize":
            image = F.solarize(image, params["threshold"])
        elif action["op"] == "random_grayscale":
            image = F.rgb_to_grayscale(image, num_output_channels=3)
        else:
            image = adjusted(image, action, ranges)
    return image


def test_views_of_dino_equal_torchvisions(items):
    columns = {"large": fw.view(crop(48, (0.4, 1)), count=2), "small": fw.view(crop(20, (0.05, 0.4)), count=6), "teacher": fw.view(crop(48, (0.4, 1))[:2], count=2, like="large")}
    loader = fw.Loader(fw.samples(items), columns=columns, batch_size=7, drop_last=False, epochs=1, shuffle=True, seed=0, dtype="u8", framework="batch", device="cpu")
    seen, kinds = 0, set()
    for batch in loader:
        views = {name: numpy.asarray(batch.column(name)) for name in columns}
        for place, record in enumerate(batch.samples):
            image = Image.open(io.BytesIO(items[record["index"]]["image"]))
            assert [len(record["views"][name]) for name in columns] == [2, 6, 2]
            for name, outputs in record["views"].items():
                for number, operators in enumerate(outputs):
                    expected = numpy.moveaxis(numpy.asarray(replayed(image, operators)), 2, 0)
                    assert numpy.array_equal(views[name][place, number], expected), (name, operators)
                    kinds.update(action.get("formula", action["op"]) for operator in operators for action in operator["actions"])
            # The teacher sees the crops of the student without its colours.
            plain = [operators[:2] for operators in record["views"]["large"]]
            assert plain == record["views"]["teacher"]
            seen += 1
    assert seen == len(items) and len(kinds) >= 6, kinds
