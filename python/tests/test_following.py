"""Columns that follow the geometry of the image: masks, points and boxes."""

import io
import json
import tarfile

import numpy
import pytest

import feedwater as fw
from feedwater import ops

Image = pytest.importorskip("PIL.Image")

CHAIN = [
    ops.Crop(x=7, y=3, width=50, height=40),
    ops.Rotate(angle=12.5, interpolation="bilinear"),
    ops.Flip(horizontal=1.0),
    ops.ColorJitter(brightness=0.4),
    ops.Resize(width=31, height=29, filter="bicubic"),
]
KEYPOINTS = [[[20.0, 10.0, 2.0], [2.0, 2.0, 1.0]], [[0.0, 0.0, 0.0], [30.5, 20.25, 2.0]]]
BOXES = [[10.0, 5.0, 20.0, 15.0], [0.0, 0.0, 5.0, 3.0]]


def moved(mask: "Image.Image") -> numpy.ndarray:
    """What the chain does to a mask, by Pillow."""
    mask = mask.crop((7, 3, 57, 43)).rotate(12.5, Image.Resampling.NEAREST, fillcolor=255)
    mask = mask.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return numpy.asarray(mask.resize((31, 29), Image.Resampling.NEAREST))


@pytest.fixture
def archive(tmp_path):
    """A WebDataset archive of five images with palette masks, 16-bit depth and JSON."""
    random = numpy.random.default_rng(7)
    masks, depths = [], []
    with tarfile.open(tmp_path / "train.tar", "w") as tar:
        for number in range(5):
            size = (60 + number, 50 + number)
            mask = Image.fromarray(random.integers(0, 21, size[::-1], dtype=numpy.uint8), mode="P")
            mask.putpalette([value for index in range(21) for value in (index * 10, 255 - index, 7)])
            depth = Image.fromarray(random.integers(0, 60000, size[::-1], dtype=numpy.uint16))
            photo = Image.fromarray(random.integers(0, 256, (*size[::-1], 3), dtype=numpy.uint8))
            files = {"cls": str(number).encode(), "json": json.dumps({"keypoints": KEYPOINTS, "boxes": BOXES}).encode()}
            for name, image, kind in (("jpg", photo, "JPEG"), ("seg.png", mask, "PNG"), ("depth.png", depth, "PNG")):
                out = io.BytesIO()
                image.save(out, kind)
                files[name] = out.getvalue()
            for name, content in files.items():
                entry = tarfile.TarInfo(f"{number:03}.{name}")
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
            masks.append(mask)
            depths.append(depth)
    return tmp_path / "train.tar", masks, depths


COLUMNS = {
    "mask": fw.mask("seg.png", like="image"),
    "target_mask": fw.mask("seg.png", dtype="int64", fill=-1),
    "depth": fw.mask("depth.png", dtype="float32", fill=0),
    "keypoints": fw.points("json:keypoints", shape=(2, 3), flip_pairs=[(0, 1)]),
    "boxes": fw.boxes("json:boxes", format="xywh"),
}


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_masks_equal_pillows(archive, framework):
    if framework == "torch":
        pytest.importorskip("torch")
    path, masks, depths = archive
    loader = fw.Loader(path, CHAIN, batch_size=2, framework=framework, columns=COLUMNS, drop_last=False, epochs=1, device="cpu", dtype="u8")
    seen = 0
    for batch in loader:
        assert batch["mask"].shape == (len(batch["label"]), 29, 31)
        for place, label in enumerate(batch["label"].tolist()):
            expected = moved(masks[label])
            assert numpy.array_equal(numpy.asarray(batch["mask"][place]), expected)
            ignored = numpy.where(expected == 255, -1, expected.astype(numpy.int64))
            assert numpy.array_equal(numpy.asarray(batch["target_mask"][place]), ignored)
            # 255 is also a depth, so only pixels that the result shows are compared.
            shown = expected != 255
            depth = numpy.asarray(depths[label].crop((7, 3, 57, 43)))
            found = numpy.asarray(batch["depth"][place])
            assert found.dtype == numpy.float32 and numpy.all(found[~shown] == 0)
            assert numpy.isin(found[shown], depth).all() and found[shown].std() > 10000
            seen += 1
    assert seen == 5


def test_points_and_boxes_follow_the_image(archive):
    path, *_ = archive
    chain = [ops.Crop(x=10, y=5, width=20, height=20), ops.Flip(horizontal=1.0), ops.Resize(width=40, height=20)]
    batch = next(iter(fw.Loader(path, chain, batch_size=5, framework="numpy", columns=COLUMNS, epochs=1, device="cpu")))
    # The points of a pair have changed places, and what the crop cut off is invisible.
    expected = [[[56.0, -3.0, 0.0], [20.0, 5.0, 2.0]], [[-1.0, 15.25, 0.0], [0.0, 0.0, 0.0]]]
    assert batch["keypoints"][3].tolist() == expected
    assert batch["boxes"][3].tolist() == [[0.0, 0.0, 40.0, 15.0], [0.0, 0.0, 0.0, 0.0]]


def test_an_offset_moves_the_indices_of_pixels():
    image = b"P6 50 4 255\n" + bytes(50 * 4 * 3)
    source = fw.samples([{"image": image, "at": [[40, 1], [0, 3]]}])
    chain = [ops.Flip(horizontal=1.0), ops.Resize(width=50, height=4)]
    for column, expected in ((fw.points("at"), [[10, 1], [50, 3]]), (fw.points("at", offset=0.5), [[9, 1], [49, 3]])):
        loader = fw.Loader(source, chain, batch_size=1, framework="numpy", columns={"points": column}, epochs=1, device="cpu")
        assert next(iter(loader))["points"][0].tolist() == expected


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (lambda: fw.mask(dtype="f16"), "columns of the kind mask may have u8, i64, f32"),
        (lambda: fw.mask(fill=300), "300 is not between 0 and 255"),
        (lambda: fw.mask(like="photo"), 'there are no views; remove like to follow "image"'),
        (lambda: fw.points(shape=4), "2 numbers (x, y) or 3"),
        (lambda: fw.points(shape=(2, 3), flip_pairs=[(0, 2)]), "has the point 2"),
        (lambda: fw.boxes(format="yxyx"), "xyxy"),
        (lambda: fw.points(offset=float("nan")), "columns['seg.png'].offset: is NaN"),
        (lambda: fw.points(offset="half"), "columns['seg.png'].offset: "),
    ],
)
def test_wrong_settings_are_errors(archive, column, words):
    with pytest.raises(fw.errors.ConfigError) as error:
        fw.Loader(archive[0], CHAIN, columns={"seg.png": column()}, device="cpu")
    assert words in str(error.value)


def test_batch_operators_and_presize_are_refused(archive):
    columns = {"mask": fw.mask("seg.png")}
    with pytest.raises(fw.errors.ConfigError, match="mixes the images of two samples"):
        fw.Loader(archive[0], CHAIN, columns=columns, batch_operators=[ops.Mixup()], targets=fw.Targets(classes=5), batch_size=4, device="cpu")
    with pytest.raises(fw.errors.ConfigError, match="cache.presize resizes images before the chain"):
        fw.Loader(archive[0], CHAIN, columns=columns, cache=fw.Cache(decoded=1 << 20, presize=40), device="cpu")


def test_masks_may_be_arrays_or_missing_and_a_path_is_explained(folder):
    paths = sorted(folder.rglob("*.ppm"))[:3]
    width, height = Image.open(paths[0]).size

    class Items:
        def __init__(self, *masks):
            self.masks = masks

        def __len__(self):
            return len(paths)

        def __getitem__(self, index):
            return {"image": paths[index], "mask": self.masks[index % len(self.masks)]}

    whole = [ops.Resize(width=width, height=height)]
    levels = numpy.arange(width * height).reshape(height, width)

    def batch(column, *masks):
        return next(iter(fw.Loader(fw.samples(Items(*masks)), whole, batch_size=3, framework="numpy", columns={"mask": column}, device="cpu")))

    masks = batch(fw.mask(dtype="i64", default=7), levels, (levels % 200).astype(numpy.uint8), None)["mask"]
    assert numpy.array_equal(masks[0], levels) and numpy.array_equal(masks[1], levels % 200) and (masks[2] == 7).all()
    for mask, words in (
        ("masks/1.png", "if the text is a path, set side_files"),
        (levels - 1, "has the number -1"),
        (levels / 2, "is an array of floats"),
        (levels[None], r"an array of shape \[1, "),
        (levels[:-1], "and its image has"),
        (3, "or an array"),
    ):
        with pytest.raises(fw.errors.SampleError, match=words):
            batch(fw.mask(dtype="i64"), mask)


def test_transforms_that_stay_python_are_refused(folder):
    v2 = pytest.importorskip("torchvision.transforms.v2")
    transform = v2.Compose([v2.Resize((8, 8)), v2.Lambda(lambda it: it), v2.RandomHorizontalFlip(1.0), v2.ToImage()])
    with pytest.raises(ValueError, match="Lambda, RandomHorizontalFlip may move the images without the column 'mask'"):
        fw.Loader(folder, fw.from_torchvision(transform, keep_rest=True), columns={"mask": fw.mask()}, device="cpu")


def test_one_hot_masks_are_mixed_like_images(tmp_path):
    """With MixUp, the mask of a uniform class equals the soft target of this class at every pixel."""
    from PIL import Image

    for number in range(8):
        folder = tmp_path / str(number % 3)
        folder.mkdir(exist_ok=True)
        Image.fromarray(numpy.full((6, 5, 3), 30 * number, numpy.uint8)).save(folder / f"{number}.png")
        (folder / f"{number}.mask").write_bytes(b"P5 5 6 255\n" + bytes([number % 3] * 30))
    source = fw.directory(tmp_path, side_files={"mask": "{folder}/{stem}.mask"})
    chain = [ops.Resize(width=5, height=6)]
    settings = {"batch_size": 4, "classes": 3, "framework": "numpy", "device": "cpu", "shuffle": True, "seed": 1, "epochs": 2, "batch_operators": ops.Mixup()}
    loader = fw.Loader(source, chain, columns={"mask": fw.mask(one_hot=3)}, **settings)
    fractions = 0
    for _ in range(2):
        for batch in loader:
            assert batch["mask"].shape == (4, 3, 6, 5) and batch["mask"].dtype == numpy.float32
            expected = numpy.broadcast_to(batch["target"][:, :, None, None], batch["mask"].shape)
            numpy.testing.assert_array_equal(batch["mask"], expected)
            fractions += ((batch["mask"] > 0) & (batch["mask"] < 1)).sum()
    assert fractions > 0
    with pytest.raises(fw.errors.ConfigError, match="one_hot to the number of classes"):
        fw.Loader(source, chain, columns={"mask": fw.mask()}, **settings)


def test_masks_of_objects_are_those_of_pycocotools(tmp_path):
    """Dense masks of `segmentations` equal those of `annToMask`, cropped and flipped, and run lengths those of `encode`."""
    masks = pytest.importorskip("pycocotools.mask")
    from pycocotools.coco import COCO

    rng = numpy.random.default_rng(4)
    width, height = 41, 30
    images, annotations = [], []
    for number in range(6):
        Image.fromarray(rng.integers(0, 256, (height, width, 3), numpy.uint8)).save(tmp_path / f"{number}.png")
        images.append({"id": number, "file_name": f"{number}.png", "width": width, "height": height})
        for _ in range(number):
            pixels = numpy.asfortranarray(rng.random((height, width)) < 0.3, numpy.uint8)
            compressed = masks.encode(pixels)["counts"].decode()
            polygons = [rng.uniform(-9, 50, 2 * points).round(2).tolist() for points in (3, 7, 4)]
            # Pixels after the last run are undefined in pycocotools.
            lengths = [5, 100, 0, 3, 60, width * height - 168]
            outlines = [polygons, polygons[:1], {"size": [height, width], "counts": compressed}, {"size": [height, width], "counts": lengths}]
            box = {"bbox": [0, 0, width, height], "area": 1, "iscrowd": 0, "category_id": 1}
            annotations.append({"id": len(annotations) + 1, "image_id": number, "segmentation": outlines[rng.integers(4)], **box})
    path = tmp_path / "instances.json"
    path.write_text(json.dumps({"images": images, "annotations": annotations, "categories": [{"id": 1, "name": "a"}]}))
    reference = COCO(str(path))
    columns = {
        "runs": fw.runs("segmentations"),
        "masks": fw.instances("segmentations"),
        "number": fw.array("i64", field="image_id"),
    }
    seen = 0
    for chain, moved in (
        ([ops.CenterCrop(width=width, height=height)], lambda mask: mask),
        ([ops.Crop(x=4, y=3, width=20, height=21), ops.Flip(horizontal=1.0)], lambda mask: mask[3:24, 4:24][:, ::-1]),
    ):
        for batch in fw.Loader(fw.coco(path, images=tmp_path), chain, columns=columns, batch_size=3, framework="numpy", device="cpu", epochs=1):
            for place, number in enumerate(batch["number"]):
                objects = reference.loadAnns(reference.getAnnIds(int(number)))
                assert len(objects) == len(batch["runs"][place]) == len(batch["masks"][place]) == number
                for of, runs, mask in zip(objects, batch["runs"][place], batch["masks"][place]):
                    expected = numpy.asfortranarray(moved(reference.annToMask(of)))
                    numpy.testing.assert_array_equal(mask, expected)
                    encoded = masks.encode(expected)
                    assert masks.frPyObjects({"size": list(expected.shape), "counts": runs.tolist()}, *expected.shape)["counts"] == encoded["counts"]
                    seen += 1
            assert batch["runs"].tolist()[0] == [runs.tolist() for runs in batch["runs"][0]]
    assert seen == 2 * 15
