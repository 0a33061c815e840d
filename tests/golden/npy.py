"""Writes tests/golden/npy/: stacks of images and of labels, written by NumPy. `<name>.raw` beside a stack has its
pixels: one image after another, each as height by width by channels in C order.

Run with numpy 2.x:  python tests/golden/npy.py
"""

import pathlib

import numpy as np
from numpy.lib import format

OUT = pathlib.Path(__file__).parent / "npy"
LABELS = np.array([7, 0, -3, 1 << 40])


def write(name, array, version=None):
    with open(OUT / f"{name}.npy", "wb") as file:
        format.write_array(file, array, version)


def stack(name, array, pictures, version=None):
    write(name, array, version)
    (OUT / f"{name}.raw").write_bytes(np.ascontiguousarray(pictures).tobytes())


def main():
    OUT.mkdir(exist_ok=True)
    for old in OUT.iterdir():
        old.unlink()
    random = np.random.default_rng(11)
    rgb = random.integers(0, 256, (4, 5, 7, 3), np.uint8)
    gray = random.integers(0, 256, (3, 6, 9), np.uint8)
    for version in [(1, 0), (2, 0), (3, 0)]:
        stack(f"rgb-{version[0]}", rgb, rgb, version)
    stack("gray", gray, gray)
    stack("gray-last", gray[..., None], gray)
    stack("gray-first", gray[:, None], gray)
    stack("planes", np.ascontiguousarray(rgb.transpose(0, 3, 1, 2)), rgb)
    for descr in ["<i8", ">i8"]:
        write(f"labels-{descr[1:]}-{'big' if descr[0] == '>' else 'little'}", LABELS.astype(descr))
    for descr in ["|i1", "<i2", ">i2", "<i4", ">i4"]:
        write(f"labels-{descr[1:]}-{'big' if descr[0] == '>' else 'little'}", np.array([7, 0, -3, 100]).astype(descr))
    for descr in ["|u1", "<u2", ">u2", "<u4", ">u4", "<u8", ">u8"]:
        write(f"labels-{descr[1:]}-{'big' if descr[0] == '>' else 'little'}", np.array([7, 0, 3, 200]).astype(descr))
    write("refused-fortran", np.asfortranarray(rgb))
    write("refused-bool", rgb > 127)
    write("refused-fields", np.zeros(3, [("x", "<f4"), ("y", "<i2")]))
    write("refused-one", rgb[0])
    write("refused-one-gray", gray[0])
    write("refused-scalar", np.uint8(3))
    write("refused-empty", np.zeros((0, 5, 7, 3), np.uint8))
    np.savez(OUT / "refused.npz", x=rgb[:1])


main()
