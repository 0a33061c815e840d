"""Tests of the contact sheets that show batches in Jupyter."""

import base64
import re
import struct
import zlib

import feedwater as fw
import numpy
import pytest
from conftest import pixels_of, write_image

#: A chain that does not change pixels.
SAME = [fw.ops.Crop(width=12, height=8)]


def first(folder, chain=SAME, **settings):
    return next(iter(fw.Loader(folder, chain, framework="batch", **{"batch_size": 4, **settings})))


def pictures(page):
    """Returns the pixels of all images of a page. Checks the checksums of the PNG chunks."""
    return [decoded(base64.b64decode(data)) for data in re.findall(r'src="data:image/png;base64,([^"]*)"', page)]


def decoded(png):
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    at, chunks = 8, {}
    while at < len(png):
        (length,), kind = struct.unpack(">I", png[at : at + 4]), png[at + 4 : at + 8]
        data = png[at + 8 : at + 8 + length]
        assert struct.unpack(">I", png[at + 8 + length : at + 12 + length])[0] == zlib.crc32(kind + data)
        chunks[kind] = data
        at += 12 + length
    width, height, depth, colour = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    assert (depth, colour) == (8, 2) and list(chunks) == [b"IHDR", b"IDAT", b"IEND"]
    rows = numpy.frombuffer(zlib.decompress(chunks[b"IDAT"]), numpy.uint8).reshape(height, 1 + 3 * width)
    assert (rows[:, 0] == 0).all()
    return rows[:, 1:].reshape(height, width, 3)


@pytest.mark.parametrize("dtype", ["u8", "f16", "bf16", "f32"])
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_pixels_are_those_of_the_images(folder, dtype, layout):
    batch = first(folder, dtype=dtype, layout=layout)
    shown = pictures(batch._repr_html_())
    assert len(shown) == 4
    for index, pixels in enumerate(shown):
        numpy.testing.assert_array_equal(pixels, pixels_of(index))


def test_the_normalization_is_undone(folder):
    chain = [*SAME, fw.ops.Normalize(mean=(0.1, 0.5, 0.9), std=(0.2, 0.3, 0.4))]
    for index, pixels in enumerate(pictures(first(folder, chain)._repr_html_())):
        numpy.testing.assert_array_equal(pixels, pixels_of(index))


def test_a_sheet_leaves_the_tensor_and_shows_what_was_given_away(folder):
    batch = first(folder, dtype="u8", layout="nhwc")
    address = batch.data_ptr
    before = batch._repr_html_()
    assert batch.data_ptr == address
    array = batch.numpy()
    assert array.ctypes.data == address and batch._repr_html_() == before
    # The consumer of the capsule may change the pixels at any time, so the sheet must not read them.
    taken = first(folder, dtype="u8")
    numpy.from_dlpack(taken)
    page = taken._repr_html_()
    assert "given away" in page and not pictures(page) and "#3" in page


def test_labels_and_places_are_named(folder):
    (folder / "cat").rename(folder / "a <b> & a name that is rather long")
    page = first(folder)._repr_html_()
    assert page.count("a &lt;b&gt; &amp; a name t") == 4
    assert "Batch 0 of epoch 0: f32 nchw 4 x 3 x 8 x 12 on cpu" in page and "#0" in page and "#3" in page
    unnamed = fw.Loader(fw.samples([str(path) for path in sorted(folder.glob("*/*"))]), SAME, batch_size=4, framework="batch")
    assert next(iter(unnamed))._repr_html_().count("no label") == 4


def test_errors_substitutes_and_padding_are_marked(folder):
    (folder / "cat" / "03.ppm").write_bytes(b"P6 12 8 255\n too short")
    page = first(folder, on_error="substitute")._repr_html_()
    assert page.count("unusable") == page.count("2px solid #d33") == 1
    assert "03.ppm" in page and "#3: " in page
    padded = fw.Loader(folder, SAME, batch_size=15, last_batch="pad", on_error="skip", framework="batch")
    *_, last = [batch._repr_html_() for batch in padded]
    assert last.count("<br>padding<") == last.count("2px solid #888") > 0
    skipped = first(folder, on_error="skip", last_batch="partial")._repr_html_()
    assert "#3: " in skipped
    many = "".join(fw._sheet._failed([(index, "bad") for index in range(30)]))
    assert many.count("bad") == 8 and "and 22 more" in many


def test_the_size_is_bounded(tmp_path):
    pixels = numpy.random.default_rng(0).integers(0, 256, (80, 80, 3), dtype=numpy.uint8)
    for index in range(40):
        (tmp_path / "set" / "noise").mkdir(parents=True, exist_ok=True)
        write_image(tmp_path / "set" / "noise" / f"{index:02}.ppm", pixels)
    page = first(tmp_path / "set", [fw.ops.Crop(width=80, height=80)], batch_size=40)._repr_html_()
    assert len(pictures(page)) == 32 and "the first 32 images" in page
    # Noise is the worst case for PNG.
    assert len(page) < 1_000_000


def test_large_images_are_shrunk_by_means(tmp_path):
    (tmp_path / "set" / "a").mkdir(parents=True)
    pixels = numpy.random.default_rng(0).integers(0, 256, (70, 250, 3), dtype=numpy.uint8)
    write_image(tmp_path / "set" / "a" / "0.ppm", pixels)
    (shown,) = pictures(first(tmp_path / "set", [fw.ops.Crop(width=250, height=70)], batch_size=1)._repr_html_())
    means = pixels[:68, :248].reshape(17, 4, 62, 4, 3).mean(axis=(1, 3))
    numpy.testing.assert_allclose(shown, means, atol=0.51)
    # The height of this image is less than that of a block.
    write_image(tmp_path / "set" / "a" / "0.ppm", pixels[:2])
    (shown,) = pictures(first(tmp_path / "set", [fw.ops.Crop(width=250, height=2)], batch_size=1)._repr_html_())
    assert shown.shape == (1, 62, 3)


def test_indices_have_a_colour_each():
    numbers = numpy.array([[0, 1, 2, 255]] * 3, "u1")
    loader = fw.Loader(
        fw.samples([numbers]), [fw.ops.CenterCrop(width=4, height=3)], decode=fw.Decode(pixels="indices"), dtype="u8", batch_size=1, framework="batch", device="cpu"
    )
    (picture,) = pictures(next(iter(loader))._repr_html_())
    row = picture[0].tolist()
    assert row[0] == [0, 0, 0] and row[3] == [128, 128, 128] and row[1] != row[2] and max(row[1]) > 200 and max(row[2]) > 200
