"""Compares converted random nestings of transforms with torchvision, given the parameters that feedwater drew.

Each run has its own seed, which a failure prints. ``FEEDWATER_GRAMMAR_SECONDS`` sets the duration in seconds (default
20). ``FEEDWATER_GRAMMAR_SEED`` repeats a single chain.
"""

import json
import os
import random
import subprocess
import sys
import time

import feedwater as fw
import numpy
import pytest
from conftest import pixels_of, write_image

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")
Image = pytest.importorskip("PIL.Image")


def images_of(folder):
    """Writes six images of random sizes: noise and enlarged noise. Returns their pixels by name."""
    pixels = {}
    for index, (width, height) in enumerate([(40, 30), (31, 47), (64, 16), (20, 20), (53, 52), (17, 70)]):
        small = pixels_of(index, width // 4 + 2, height // 4 + 2)
        array = pixels_of(index, width, height) if index % 2 else numpy.asarray(Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC))
        path = folder / f"{index}.ppm"
        write_image(path, array)
        pixels[str(path)] = array
    return pixels


def dumped(folder, out, recipe, seed):
    """Returns the images of a loader, and the recorded actions of each image."""
    with fw.Loader(fw.directory(folder), recipe, batch_size=6, seed=seed, epochs=1, device="cpu") as loader:
        (out / "pipeline.toml").write_text(loader.settings())
        images, _ = next(iter(loader))
        images = images.clone()
    command = [sys.executable, "-m", "feedwater", "dump", str(out / "pipeline.toml"), "--out", str(out / "dump")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return images, json.loads((out / "dump" / "samples.json").read_text())


def check(folder, out, pixels, seed):
    """Checks that the chain that a seed generates gives the same pixels as torchvision."""
    import transform_grammar

    nodes, end, levels = transform_grammar.made(seed)
    recipe = fw.from_torchvision([node.transform for node in nodes])
    images, samples = dumped(folder, out, recipe, seed % (1 << 32))
    unit = 1.0 if end == "bytes" else 1 / 255 if end == "scaled" else 1 / 255 / 0.224
    for image, sample in zip(images, samples):
        actions = [action for operator in sample["operators"] for action in operator["actions"]]
        if end == "scaled":
            # feedwater converts bytes to floats in an action of its own, which the leaf of ConvertImageDtype does not expect.
            assert actions.pop()["op"] == "normalize"
        if any(action["kind"] == "resample" and 1 in action["size"] for action in actions):
            # PyTorch 2.15 resizes tensors to one column wrongly: errors are up to 150 levels, and differ for bytes and floats.
            continue
        if any(action["kind"] == "blur" and min(action["size"]) <= max(action["params"]["kernel"]) // 2 for action in actions):
            # torchvision mirrors the border, and refuses images that are too small for this.
            continue
        start = Image.fromarray(pixels[sample["path"]])
        found = transform_grammar.outcomes(transform_grammar.Node("sequence", nodes, None), start, actions)
        # Results of floats may differ by one rounding.
        allowed = levels * unit + (0 if end == "bytes" else 2e-6)
        differences = []
        for result, left in found:
            if not left:
                differences.append(_difference(image, result))
                if differences[-1] <= allowed:
                    break
        names = [action["op"] for action in actions]
        assert differences, f"no order of the transforms has the actions {names}"
        assert min(differences) <= allowed, f"a difference of {min(differences) / unit} levels, allowed are {levels}; actions {names}"


def _difference(image, result):
    if image.shape != result.shape:
        return float("inf")
    return float((image.to(torch.float64) - torch.as_tensor(result).to(torch.float64)).abs().max())


def test_random_nestings_have_torchvisions_pixels(tmp_path):
    folder = tmp_path / "set" / "a"
    folder.mkdir(parents=True)
    pixels = images_of(folder)
    given = os.environ.get("FEEDWATER_GRAMMAR_SEED")
    seconds = float(os.environ.get("FEEDWATER_GRAMMAR_SECONDS", "20"))
    first = int(given) if given else random.SystemRandom().randrange(1 << 48)
    end, count = time.monotonic() + seconds, 0
    while count == 0 or (not given and time.monotonic() < end):
        seed = first + count
        try:
            check(tmp_path / "set", tmp_path, pixels, seed)
        except Exception as problem:
            import transform_grammar

            pytest.fail(f"FEEDWATER_GRAMMAR_SEED={seed}: {type(problem).__name__}: {problem}\n{transform_grammar.made(seed)[0]}")
        count += 1
    print(f"{count} chains from seed {first} on")
