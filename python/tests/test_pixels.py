"""Images of 16 bits and of floats (``pixels``), compared with Pillow's mode F and with NumPy."""

import io

import numpy
import pytest

import feedwater as fw
from feedwater import ops
from feedwater._items import stored

Image = pytest.importorskip("PIL.Image")

FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "box": Image.Resampling.BOX,
    "bilinear": Image.Resampling.BILINEAR,
    "hamming": Image.Resampling.HAMMING,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}
SIZES = [(40, 31), (9, 64), (55, 50), (33, 20)]


def depths():
    random = numpy.random.default_rng(3)
    return [random.integers(0, 1 << 16, (height, width), numpy.uint16) for width, height in SIZES]


def png(array):
    file = io.BytesIO()
    Image.fromarray(array).save(file, "PNG")
    return file.getvalue()


@pytest.fixture
def depth_folder(tmp_path):
    (tmp_path / "d" / "0").mkdir(parents=True)
    for number, depth in enumerate(depths()):
        (tmp_path / "d" / "0" / f"{number}.png").write_bytes(png(depth))
    return tmp_path / "d"


def loader(source, transform=(), **more):
    return fw.Loader(source, transform, framework="numpy", device="cpu", batch_size=4, epochs=1, **more)


def images(source, transform, pixels, **more):
    ((batch, _),) = loader(source, transform, decode=fw.Decode(pixels=pixels), **more)
    return batch


@pytest.mark.parametrize("name", FILTERS)
def test_resizing_equals_pillow_for_mode_f(depth_folder, name):
    for width, height in [(16, 24), (70, 33), (40, 31)]:
        made = images(depth_folder, ops.Resize(width=width, height=height, filter=name), "u16")
        expected = [numpy.asarray(Image.fromarray(depth.astype("f4")).resize((width, height), FILTERS[name])) for depth in depths()]
        assert made.shape == (4, 1, height, width)
        assert (made[:, 0] == expected).all()


def test_a_chain_equals_the_same_steps_of_pillow(depth_folder):
    chain = [
        ops.CenterCrop(width=30, height=28),
        ops.Rotate(angle=12.5, interpolation="bicubic", fill=9),
        ops.Flip(horizontal=1.0),
        ops.Resize(width=21, height=17, filter="bilinear"),
        ops.Normalize(mean=0.4, std=0.2),
    ]
    made = images(depth_folder, chain, "u16")

    def plain(depth):
        image = Image.fromarray(depth.astype("f4"))
        left, top = round((image.width - 30) / 2), round((image.height - 28) / 2)
        image = image.crop((left, top, left + 30, top + 28)).rotate(12.5, Image.Resampling.BICUBIC, fillcolor=9)
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT).resize((21, 17), Image.Resampling.BILINEAR)
        return (numpy.asarray(image) / numpy.float32(65535) - numpy.float32(0.4)) / numpy.float32(0.2)

    # Images that are smaller than the crop are padded, which tests of `CenterCrop` cover.
    large = [number for number, (width, height) in enumerate(SIZES) if width >= 30 and height >= 28]
    assert len(large) == 2
    for number in large:
        assert (made[number, 0] == plain(depths()[number])).all()


def samples():
    """Images in gray of 8 bits, with the same numbers as 16 bits and as arrays in fields."""
    random = numpy.random.default_rng(5)
    made = []
    for number, (width, height) in enumerate(SIZES):
        gray = random.integers(0, 256, (height, width), numpy.uint8)
        depth = gray.astype(numpy.uint16) * 200
        fields = {
            "depth": png(depth),
            "array": depth,
            "float": gray.astype("f4") * 200,
            "double": numpy.stack([gray.astype("f8") * 200] * 3, axis=2),
            "signed": gray.astype("i2") - 100,
            "other": png(depth[:-1]),
        }
        made.append((png(gray), number, fields))
    return made


def test_a_depth_map_follows_its_image():
    moves = [
        ops.RandomCrop(width=24, height=18, pad_if_needed=True),
        ops.Flip(horizontal=0.5, vertical=0.5),
        ops.RandomRotation(degrees=90),
        ops.RandomResizedCrop(width=12, height=10, filter="nearest"),
    ]
    columns = {
        "depth": fw.image("depth", moves, like="image", pixels="u16"),
        "array": fw.image("array", moves, like="image", pixels="f32"),
        "float": fw.image("float", moves, like="image", pixels="f32"),
        "double": fw.image("double", moves, like="image", pixels="f32x3"),
        "mask": fw.mask("depth", dtype="f32", fill=0),
        "twice": fw.image("depth", moves, like="image", pixels="u16x3"),
    }
    for epoch in loader(fw.samples(samples()), moves, columns=columns), loader(fw.samples(samples()), moves, columns=columns, seed=9):
        (batch,) = epoch
        # All operators take the nearest pixel, so no number is mixed with others.
        expected = batch["image"][:, :1] * numpy.float32(200)
        assert len(numpy.unique(expected)) > 20
        for name in ("depth", "array", "float"):
            assert batch[name].shape == (4, 1, 10, 12) and (batch[name] == expected).all(), name
        assert (batch["double"] == expected.repeat(3, axis=1)).all() and (batch["twice"] == batch["double"]).all()
        assert (batch["mask"] == expected[:, 0]).all()


def test_arrays_are_decoded_exactly():
    whole = ops.CenterCrop(width=20, height=20)
    (batch,) = loader(fw.samples(samples()), columns={"signed": fw.image("signed", whole, pixels="f32")})
    expected = samples()[2][2]["signed"]
    left, top = round((55 - 20) / 2), round((50 - 20) / 2)
    assert (batch["signed"][2, 0] == expected[top : top + 20, left : left + 20]).all()


@pytest.mark.parametrize(
    ("name", "pixels", "words"),
    [
        ("float", "u16", "field .float..*a .npy array with floats, but the pixels are u16; use f32"),
        ("signed", "u16", "field .signed.* has the number -[0-9]+, but u16 pixels are from 0 to 65535; set pixels to f32"),
        ("array", "u8x3", "field .array..*elements of the type <u2, but the pixels have 8 bits; set pixels to u16"),
        ("double", "f32", "3 channels, but f32 pixels have one; use f32x3"),
        ("other", "u16", "both images must have the same size"),
    ],
)
def test_fields_that_do_not_have_the_pixels_are_errors(name, pixels, words):
    columns = {name: fw.image(name, [ops.Resize(width=8, height=8)], like="image", pixels=pixels)}
    with pytest.raises(fw.errors.SampleError, match=words):
        list(loader(fw.samples(samples()), ops.Resize(width=8, height=8), columns=columns))


@pytest.mark.parametrize(
    ("chain", "settings", "words"),
    [
        (ops.Hue(shift=0.1), {"pixels": "u16"}, "is hue, which does not support decoded u16 pixels"),
        (ops.RandomApply([ops.ColorJitter(brightness=0.1)]), {"pixels": "f32x3"}, r"operators\[0\].op: is color_jitter"),
        (ops.Normalize(mean=[0.1, 0.2, 0.3], std=1), {"pixels": "u16"}, "one channel"),
        (ops.Normalize(mean=30000, std=9000), {"pixels": "u16"}, "and not to 0 to 65535; write mean = "),
        (ops.RandomErasing(), {"pixels": "u16"}, "random_erasing"),
        ((), {"pixels": "u8x2"}, "unknown choice u8x2"),
        ((), {"pixels": "u16", "placement": "gpu"}, "decode.pixels is u16"),
    ],
)
def test_chains_that_do_not_take_the_pixels_are_errors(depth_folder, chain, settings, words):
    chain = [ops.Resize(width=8, height=8), *(chain if isinstance(chain, tuple) else [chain])]
    with pytest.raises(fw.errors.ConfigError, match=words):
        loader(depth_folder, chain, decode=fw.Decode(**settings))


def test_element_types_that_are_too_small_are_errors(depth_folder):
    small = ops.Resize(width=8, height=8)
    for dtype, words in [("u8", "do not fit u8; choose f32 or bf16"), ("f16", "whose maximum is 65504")]:
        with pytest.raises(fw.errors.ConfigError, match=words):
            loader(depth_folder, small, dtype=dtype, decode=fw.Decode(pixels="u16"))
    half = images(depth_folder, [small, ops.Normalize(mean=0, std=1)], "u16", dtype="f16")
    assert half.dtype == numpy.float16 and half.max() <= 1
    with pytest.raises(fw.errors.ConfigError, match="cache.decoded, or use cache.encoded"):
        loader(depth_folder, small, cache=fw.Cache(decoded="1 GiB"), decode=fw.Decode(pixels="u16"))
    with pytest.raises(TypeError, match="no setting pixels"):
        fw.view(small, pixels="u16")


def test_the_notebook_shows_numbers_of_any_range(depth_folder):
    small = ops.Resize(width=8, height=8)
    for pixels in ("u16", "f32"):
        settings = {"framework": "batch", "device": "cpu", "batch_size": 4, "decode": fw.Decode(pixels=pixels)}
        batch = next(iter(fw.Loader(depth_folder, small, **settings)))
        assert batch._repr_html_().count("<img") == 4


def stickers():
    """Images with alpha, which is often 0 or 255."""
    random = numpy.random.default_rng(8)
    for width, height in SIZES:
        image = random.integers(0, 256, (height, width, 4), numpy.uint8)
        image[..., 3] = (2 * image[..., 3].astype(int) - 128).clip(0, 255)
        yield Image.fromarray(image)


def saved(image, kind="PNG", **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


@pytest.mark.parametrize("name", FILTERS)
def test_gray_and_alpha_are_resized_as_by_pillow(name):
    source = fw.samples([(saved(image), 0) for image in stickers()])
    for width, height in [(16, 24), (70, 33), (40, 31)]:
        for pixels, mode in [("u8", "L"), ("u8x4", "RGBA")]:
            made = images(source, ops.Resize(width=width, height=height, filter=name), pixels, dtype="u8")
            expected = [numpy.asarray(image.convert(mode).resize((width, height), FILTERS[name])) for image in stickers()]
            channels = 1 if mode == "L" else 4
            assert made.shape == (4, channels, height, width)
            assert (made.transpose(0, 2, 3, 1) == numpy.reshape(expected, (4, height, width, channels))).all()


@pytest.mark.parametrize("kind, options", [("PNG", {}), ("WEBP", {"lossless": True}), ("TIFF", {}), ("GIF", {})])
def test_a_background_is_composed_as_by_pillow(kind, options):
    files = [saved(image, kind, **options) for image in stickers()]
    crop = ops.CenterCrop(width=9, height=20)
    ((made, _),) = loader(fw.samples([(file, 0) for file in files]), crop, decode=fw.Decode(background=(250, 128, 3)), dtype="u8")
    for file, found in zip(files, made):
        image = Image.open(io.BytesIO(file)).convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, (250, 128, 3, 255)), image).convert("RGB")
        left, top = round((image.width - 9) / 2), round((image.height - 20) / 2)
        assert (found.transpose(1, 2, 0) == numpy.asarray(image.crop((left, top, left + 9, top + 20)))).all()


def test_four_values_per_setting():
    source = fw.samples([(saved(image), 0) for image in stickers()])
    mean, std = [0.5, 0.4, 0.3, 0.0], [0.5, 0.25, 0.3, 1.0]
    moves = [
        ops.Resize(width=20, height=12),
        ops.Rotate(angle=30.0, interpolation="bilinear", fill=[200, 30, 9, 128]),
        ops.Pad(padding=2, fill=[9, 8, 7, 255]),
        ops.Normalize(mean=mean, std=std),
    ]
    made = images(source, moves, "u8x4")
    for found, image in zip(made, stickers()):
        image = image.resize((20, 12), Image.Resampling.BILINEAR).rotate(30.0, Image.Resampling.BILINEAR, fillcolor=(200, 30, 9, 128))
        padded = Image.new("RGBA", (24, 16), (9, 8, 7, 255))
        padded.paste(image, (2, 2))
        expected = (numpy.asarray(padded, "f4") / numpy.float32(255) - numpy.array(mean, "f4")) / numpy.array(std, "f4")
        assert (found.transpose(1, 2, 0) == expected).all()
    with pytest.raises(fw.errors.ConfigError, match="u8x4"):
        images(source, [ops.Resize(width=20, height=12), ops.Grayscale()], "u8x4")


def test_arrays_are_images_of_samples():
    arrays = [numpy.asarray(image) for image in stickers()]
    moves = ops.Resize(width=20, height=12)
    for pixels in ["u8", "u8x3", "u8x4"]:
        of_files = images(fw.samples([(saved(image), 0) for image in stickers()]), moves, pixels, dtype="u8")
        of_arrays = images(fw.samples([(array, 0) for array in arrays]), moves, pixels, dtype="u8")
        of_planes = images(fw.samples([{"image": array.transpose(2, 0, 1)} for array in arrays]), moves, pixels, dtype="u8")
        assert (of_arrays == of_files).all() and (of_planes == of_files).all()
    of_files = images(fw.samples([(png(depth), 0) for depth in depths()]), moves, "u16")
    of_arrays = images(fw.samples([(depth, 0) for depth in depths()]), moves, "u16")
    of_floats = images(fw.samples([(depth.astype("f4"), 0) for depth in depths()]), moves, "f32")
    assert (of_arrays == of_files).all() and (of_floats == of_files).all()


def test_an_image_with_alpha_in_a_field():
    items = [{"image": saved(image), "sticker": numpy.asarray(image), "file": saved(image)} for image in stickers()]
    moves = ops.Resize(width=20, height=12)
    columns = {name: fw.image(name, moves, pixels="u8x4", dtype="u8") for name in ["sticker", "file"]}
    (batch,) = loader(fw.samples(items), moves, columns=columns, decode=fw.Decode(pixels="u8x4"), dtype="u8")
    assert (batch["sticker"] == batch["image"]).all() and (batch["file"] == batch["image"]).all()
    assert batch["image"].shape == (4, 4, 12, 20)


@pytest.mark.parametrize("mode", ["L", "PA", "RGB", "RGBA", "RGBa", "CMYK", "YCbCr", "HSV", "I", "F", "I;16", "I;16B"])
def test_the_parts_of_a_large_image_of_pillow_are_its_pixels(mode):
    numbers = numpy.random.default_rng(1).integers(0, 256, (211, 307, 3), dtype=numpy.uint8)
    match mode:
        case "I;16" | "I" | "F":
            image = Image.fromarray(numbers[..., 0].astype({"I;16": "u2", "I": "i4", "F": "f4"}[mode]) * 200)
        case "I;16B":
            image = Image.frombytes(mode, (307, 211), (numbers[..., 0].astype(">u2") * 200).astype(">u2").tobytes())
        case "PA":
            image = Image.fromarray(numbers).convert("P").convert("PA")
        case "RGBa":
            image = Image.fromarray(numbers)
            image.putalpha(Image.fromarray(numbers[..., 0]))
            image = image.convert("RGBa")
        case _:
            image = Image.fromarray(numbers).convert(mode)
    images = [image]
    if mode == "RGB":
        images.append(image.copy())
        images[1].info["transparency"] = image.getpixel((3, 4))
    for image in images:
        assert image.mode == mode
        has_alpha = "A" in image.getbands() or "a" in image.getbands() or "transparency" in image.info
        is_kept = mode in ("RGBA", "I;16", "I;16B", "I", "F", "L") or (mode == "RGB" and not has_alpha)
        expected = numpy.asarray(image if is_kept else image.convert("RGBA" if has_alpha else "RGB"))
        dtype, shape, size, parts = stored(image)
        parts = list(parts())
        assert max(map(len, parts)) <= 1 << 16 and (len(parts) > 1) == (size > 1 << 16)
        assert (dtype, shape, size) == (expected.dtype.str, expected.shape, expected.nbytes)
        assert b"".join(parts) == expected.tobytes()


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr", "HSV", "I;16"])
def test_images_of_pillow_are_converted_by_their_mode(mode):
    if mode == "I;16":
        image = Image.fromarray((numpy.arange(99, dtype="u2") * 600).reshape(9, 11))
        expected, pixels = numpy.asarray(image, "f4")[None], "u16"
    else:
        colours = numpy.random.default_rng(1).integers(0, 256, (9, 11, 3), dtype=numpy.uint8)
        image = Image.fromarray(colours).convert(mode)
        rgb = image.convert("RGBA").convert("RGB") if mode == "LA" else image.convert("RGB")
        expected, pixels = numpy.moveaxis(numpy.asarray(rgb), 2, 0), "u8x3"
    found = images(fw.samples([image] * 4), [ops.Resize(width=11, height=9)], pixels, dtype="f32")[0]
    assert numpy.array_equal(found, expected), mode
    # Pillow copies a whole image for its array interface.
    class Counted(Image.Image):
        reads = 0

        @property
        def __array_interface__(self):
            Counted.reads += 1
            return super().__array_interface__

    counted = Image.new("RGB", (5, 4))
    counted.__class__ = Counted
    images(fw.samples([counted] * 4), [ops.Resize(width=2, height=2)], "u8x3")
    assert Counted.reads == 0
    # A transparent palette has alpha.
    stamp = Image.fromarray(numpy.array([[0, 1], [1, 0]], numpy.uint8), mode="P")
    stamp.putpalette([255, 0, 0, 0, 0, 255])
    stamp.info["transparency"] = 1
    made, *_ = images(fw.samples([stamp] * 4), [ops.Resize(width=2, height=2)], "u8x4")
    assert numpy.array_equal(numpy.moveaxis(made, 0, 2), numpy.asarray(stamp.convert("RGBA")))


def indexed(width, height):
    """Images of Pillow of this size in the modes P, 1, L and LA, with all kinds of palettes."""
    random = numpy.random.default_rng(width)
    numbers = random.integers(0, 256, (height, width), dtype=numpy.uint8)

    def palette(entries, mode="RGB"):
        image = Image.fromarray(numbers)
        image.putpalette(random.integers(0, 256, entries * len(mode), dtype=numpy.uint8).tobytes(), mode)
        return image

    yield palette(256)
    yield palette(256, "RGBA")
    yield palette(10)
    yield palette(256, "CMYK")
    yield Image.frombytes("P", (width, height), numbers.tobytes())
    for transparency in [3, bytes(range(100)), bytes(range(256))]:
        image = palette(256)
        image.info["transparency"] = transparency
        yield image
    yield Image.fromarray(numbers > 99)
    image = Image.fromarray(numbers > 99)
    image.info["transparency"] = 0
    yield image
    image = Image.fromarray(numbers)
    image.info["transparency"] = int(numbers[0, 0])
    yield image
    image = Image.fromarray(numbers)
    image.putalpha(Image.fromarray(numbers[::-1, ::-1]))
    yield image
    yield image.convert("La")


@pytest.mark.parametrize(("width", "height"), [(1, 1), (8, 3), (9, 5), (307, 211), (1, 70000), (65534, 2), (65535, 2), (65536, 2), (131075, 2)])
def test_images_with_a_palette_become_pngs(width, height):
    for image in indexed(width, height):
        assert image.mode in ("P", "1", "L", "LA", "La")
        dtype, shape, size, parts = stored(image)
        parts = list(parts())
        file = b"".join(parts)
        assert (dtype, shape, size) == (None, (height, width), len(file))
        assert max(map(len, parts)) <= (1 << 16) + 2 * width + 2000
        read = Image.open(io.BytesIO(file))
        expected = image.convert("LA") if image.mode == "La" else image
        assert numpy.array_equal(numpy.asarray(read), numpy.asarray(expected))
        assert numpy.array_equal(numpy.asarray(read.convert("RGBA")), numpy.asarray(expected.convert("RGBA")))


def test_a_palette_is_colours_in_an_image_and_indices_in_a_mask():
    pictures = list(indexed(31, 17))
    # A transparent gray is still gray in a mask, and alpha is no number.
    items = [{"image": image, "field": image, "gray": image if image.mode in "PL1" else image.convert("LA").convert("L")} for image in pictures]
    moves = ops.CenterCrop(width=31, height=17)
    columns = {"mask": fw.mask("gray"), "again": fw.image("field", moves, dtype="u8"), "alpha": fw.image("field", moves, pixels="u8x4", dtype="u8")}
    settings = {"framework": "numpy", "device": "cpu", "epochs": 1, "dtype": "u8", "layout": "nhwc", "batch_size": len(items)}
    (batch,) = fw.Loader(fw.samples(items), moves, columns=columns, **settings)
    for image, item, found, again, alpha, mask in zip(pictures, items, batch["image"], batch["again"], batch["alpha"], batch["mask"]):
        expected = image.convert("LA") if image.mode == "La" else image
        assert numpy.array_equal(found, numpy.asarray(expected.convert("RGBA").convert("RGB")))
        assert numpy.array_equal(again, found)
        assert numpy.array_equal(alpha, numpy.asarray(expected.convert("RGBA")))
        assert numpy.array_equal(mask, numpy.asarray(item["gray"]))
    settings["batch_size"] = 1
    for image in pictures:
        if image.mode in ("P", "L"):
            ((found, _),) = fw.Loader(fw.samples([image]), moves, decode=fw.Decode(pixels="indices"), **settings)
            assert numpy.array_equal(found[0, ..., 0], numpy.asarray(image))
        if image.mode in ("L", "LA"):
            ((found, _),) = fw.Loader(fw.samples([image]), moves, decode=fw.Decode(pixels="f32"), **{**settings, "dtype": "f32"})
            assert numpy.array_equal(found[0, ..., 0], numpy.asarray(image.convert("LA"))[..., 0])


def test_an_image_without_pixels_is_an_error():
    for mode in ["P", "1", "L", "RGB"]:
        with pytest.raises(fw.errors.SampleError, match="array has the shape|0 pixels"):
            images(fw.samples([Image.new(mode, (0, 5))] * 4), ops.Resize(width=2, height=2), "u8x3")


def test_workers_do_not_load_the_same_image_at_the_same_time(tmp_path):
    """Pillow's images of files are not loaded until they are used, and loading is not thread-safe."""
    numbers = numpy.random.default_rng(0).integers(0, 9, (400, 500)).astype("u1")
    Image.fromarray(numbers).convert("P").save(tmp_path / "mask.png")
    for _ in range(10):
        shared = Image.open(tmp_path / "mask.png")
        items = [{"image": numpy.zeros((400, 500, 3), "u1"), "mask": shared}] * 16
        for _ in fw.Loader(fw.samples(items), ops.Resize(width=8, height=8), batch_size=8, num_workers=8, epochs=1, device="cpu", columns={"mask": fw.mask()}):
            pass


def test_gray_of_16_bits_with_a_transparent_colour_has_alpha():
    numbers = (numpy.arange(99, dtype="u2") * 600).reshape(9, 11)
    image = Image.fromarray(numbers)
    image.info["transparency"] = 3000
    file = io.BytesIO()
    image.save(file, "PNG")
    moves = ops.CenterCrop(width=11, height=9)
    for item in [image, Image.open(io.BytesIO(file.getvalue())), file.getvalue()]:
        found = images(fw.samples([item] * 4), moves, "u16x4", dtype="f32")[0]
        assert numpy.array_equal(found[0], numbers) and numpy.array_equal(found[3], numpy.where(numbers == 3000, 0, 65535))


def test_transparency_that_pillow_refuses_is_an_error():
    image = Image.new("P", (4, 3))
    # `quantize` keeps the transparent colour of an image in RGB.
    for transparency in [(10, 20, 30), "3", bytes(300)]:
        image.info["transparency"] = transparency
        with pytest.raises(Exception, match="."):
            image.convert("RGBA")
        with pytest.raises(fw.errors.SampleError):
            images(fw.samples([image] * 4), ops.Resize(width=2, height=2), "u8x4")
    image.info["transparency"] = numpy.int64(0)
    assert not images(fw.samples([image] * 4), ops.Resize(width=2, height=2), "u8x4")[0][3].any()


def test_an_image_that_gets_smaller_while_it_is_read_is_an_error():
    class Shrinking(Image.Image):
        def crop(self, box=None):
            part = super().crop(box)
            self._size = (self.width, self.height - 1)
            return part

    for mode in ["P", "L", "RGB"]:
        image = Image.new(mode, (500, 2000))
        image.__class__ = Shrinking
        with pytest.raises(fw.errors.SampleError, match="changed while it was read"):
            images(fw.samples([image] * 4), ops.Resize(width=2, height=2), "u8x3")
