"""Random nestings of transforms, and torchvision's result for a nesting with the parameters that feedwater drew.

Each :class:`Leaf` is a transform with a function that applies torchvision's functions, given the actions that
feedwater recorded. :func:`outcomes` runs a nesting and tries every choice that the recorded actions allow. If a
conversion loses or reorders a part of the nesting, :func:`outcomes` yields nothing, or an image with other pixels.
"""

import dataclasses
import math
import random
from collections.abc import Callable
from typing import Any

import numpy
import torch
from recorded_actions import Impossible, distorted, erased, in_range, jittered, mixed, policy_step, resampled, warped
from torchvision import transforms as v1
from torchvision.transforms import InterpolationMode, v2
from torchvision.transforms.v2 import functional as F

FILTERS = {mode.value: mode for mode in InterpolationMode}
WARP_MODES = ["nearest", "bilinear", "bicubic"]
PIL_MODES = ["bilinear", "bicubic", "nearest", "nearest-exact", "box", "hamming", "lanczos"]


@dataclasses.dataclass
class Leaf:
    """A transform without inner transforms.

    * ``op``: name of the operator to which its actions belong.
    * ``run``: function that returns the transformed image, given the actions.
    * ``count``: possible numbers of actions.
    * ``levels``: number of levels by which feedwater's result may differ. ``grows``: whether the transform can
      enlarge a difference in its input, also by rounding to bytes.
    """

    transform: Any
    op: str
    run: Callable[[Any, list[Any]], Any]
    count: tuple[int, ...] = (1,)
    levels: float = 0
    grows: bool = False

    def __repr__(self):
        return repr(self.transform)


@dataclasses.dataclass
class Node:
    """A transform with inner transforms: ``sequence``, ``apply``, ``choice`` or ``order``."""

    kind: str
    inner: list[Any]
    transform: Any

    def __repr__(self):
        return f"{self.kind}({', '.join(map(repr, self.inner))})"


def outcomes(node, image, actions):
    """Yields an image and the remaining actions for each choice that the actions allow."""
    if isinstance(node, Leaf):
        for count in node.count:
            mine = actions[:count]
            if len(mine) == count and all(action["op"] == node.op for action in mine):
                try:
                    result = node.run(image, mine)
                except Impossible:
                    continue
                yield result, actions[count:]
    elif node.kind == "sequence":
        yield from _in_order(node.inner, image, actions)
    elif node.kind == "apply":
        yield image, actions
        yield from _in_order(node.inner, image, actions)
    elif node.kind == "choice":
        for inner in node.inner:
            yield from outcomes(inner, image, actions)
    else:
        yield from _in_any_order(node.inner, image, actions)


def _in_order(nodes, image, actions):
    if not nodes:
        yield image, actions
        return
    for after, left in outcomes(nodes[0], image, actions):
        yield from _in_order(nodes[1:], after, left)


def _in_any_order(nodes, image, actions):
    if not nodes:
        yield image, actions
    for place, node in enumerate(nodes):
        for after, left in outcomes(node, image, actions):
            yield from _in_any_order(nodes[:place] + nodes[place + 1 :], after, left)


class Grammar:
    """Makes random transforms for one type of images: ``"pil"``, ``"bytes"`` (tensors) or ``"floats"`` (tensors from
    0 to 1)."""

    def __init__(self, rng, form):
        self.rng = rng
        self.tensors = form != "pil"
        self.floats = form == "floats"
        self.unit = 255 if self.floats else 1
        # Difference in levels that is allowed after a resize. For tensors, feedwater rounds both passes to bytes, by at most half a level each, and weights to 22 bits.
        self.resized = 1.001 if self.tensors else 0.0
        self.levels = 0.0
        self.grown = False
        # Whether the images have one channel.
        self.gray = form == "pil" and rng.random() < 0.3

    def _library(self, name, *arguments, **settings):
        """Returns the transform of v1 or v2, chosen at random."""
        found = [library for library in (v1, v2) if hasattr(library, name)]
        return getattr(self.rng.choice(found), name)(*arguments, **settings)

    def leaf(self):
        """Returns a random transform without inner transforms."""
        while True:
            leaf = self.rng.choice(self.LEAVES)(self)
            # Draws again if the transform needs another image type, or if it could enlarge an allowed difference.
            if leaf is None or (leaf.grows and self.levels) or (leaf.levels and self.grown):
                continue
            self.levels += leaf.levels
            self.grown |= leaf.grows
            return leaf

    def _maybe(self, op, name, function, *arguments, grows=False, **settings):
        """Returns a transform that applies a function to each value or to the whole image with a probability."""
        transform = self._library(name, *arguments, p=self.rng.choice([0.0, 0.5, 1.0]), **settings)
        always = Leaf(transform, op, lambda image, _: function(image), grows=grows)
        count = {0.0: (0,), 0.5: (0, 1), 1.0: (1,)}[transform.p]
        return dataclasses.replace(always, count=count, run=lambda image, actions: function(image) if actions else image)

    def _resize(self):
        mode = "bilinear" if self.tensors else self.rng.choice(PIL_MODES)
        size = self.rng.choice([self.rng.randint(8, 50), (self.rng.randint(8, 50), self.rng.randint(8, 50))])
        longest = size + self.rng.randint(1, 20) if isinstance(size, int) and self.rng.random() < 0.5 else None
        transform = self._library("Resize", size, interpolation=FILTERS[mode], max_size=longest)
        return Leaf(transform, "resize", lambda image, _: transform(image), levels=self.resized, grows=not self.tensors)

    def _random_resize(self):
        if self.tensors:
            return None
        low = self.rng.randint(8, 30)
        transform = v2.RandomResize(low, low + self.rng.randint(1, 20))

        def run(image, actions):
            in_range(min(actions[0]["size"]), transform.min_size, transform.max_size - 1)
            return F.resize(image, [min(actions[0]["size"])])

        return Leaf(transform, "random_resize", run, grows=True)

    def _center_crop(self):
        transform = self._library("CenterCrop", (self.rng.randint(5, 60), self.rng.randint(5, 60)))
        return Leaf(transform, "center_crop", lambda image, _: transform(image))

    def _random_crop(self):
        mode = "constant" if self.tensors else self.rng.choice(["constant", "edge", "reflect", "symmetric"])
        padding = self.rng.choice([None, 3, (1, 4), (1, 2, 3, 4)])
        wanted = self.rng.randint(3, 60), self.rng.randint(3, 60)
        fill = self.rng.randint(0, 255) / self.unit if mode == "constant" else 0
        library = self.rng.choice([v1, v2])
        if library is v1 and mode in ("reflect", "symmetric"):
            # With mirrored borders, v1 would pad twice: with `padding`, and because of `pad_if_needed`. This would be two operators.
            padding = None
        transform = library.RandomCrop(wanted, padding=padding, pad_if_needed=True, fill=fill, padding_mode=mode)
        sides = [0] * 4 if padding is None else [padding] * 4 if isinstance(padding, int) else [*padding] * (4 // len(padding))

        def run(image, actions):
            left, top, right, bottom = sides
            height, width = F.get_size(image)
            more_rows, more_columns = max(wanted[0] - height - top - bottom, 0), max(wanted[1] - width - left - right, 0)
            added = [left + more_columns, top + more_rows, right + more_columns, bottom + more_rows]
            if actions[-1]["kind"] != "crop" or len(actions) != (1 if mode == "constant" or not any(added) else 2):
                raise Impossible
            padded = F.pad(image, added, fill=fill, padding_mode=mode)
            x, y = actions[-1]["params"]["x"], actions[-1]["params"]["y"]
            if len(actions) == 1:
                x, y = x + added[0], y + added[1]
            height, width = F.get_size(padded)
            in_range(x, 0, width - wanted[1])
            in_range(y, 0, height - wanted[0])
            return F.crop(padded, y, x, *wanted)

        return Leaf(transform, "random_crop", run, count=(1, 2))

    def _random_resized_crop(self):
        mode = "bilinear" if self.tensors else self.rng.choice(PIL_MODES[:3])
        size = self.rng.randint(8, 40), self.rng.randint(8, 40)
        transform = self._library("RandomResizedCrop", size, interpolation=FILTERS[mode])
        return Leaf(transform, "random_resized_crop", resampled(FILTERS[mode]), levels=self.resized, grows=not self.tensors)

    def _pad(self):
        mode = "constant" if self.tensors else self.rng.choice(["constant", "edge", "reflect", "symmetric"])
        padding = self.rng.choice([2, (1, 3), (1, 2, 3, 4)])
        transform = self._library("Pad", padding, fill=self.rng.randint(0, 255) / self.unit if mode == "constant" else 0, padding_mode=mode)
        return Leaf(transform, "pad", lambda image, _: transform(image))

    def _flip(self):
        axis = self.rng.choice(["horizontal", "vertical"])
        probability = self.rng.choice([0.0, 0.5, 1.0])
        transform = self._library(f"Random{axis.title()}Flip", p=probability)

        def run(image, actions):
            flips = actions[0]["params"]
            if flips[{"horizontal": "vertical", "vertical": "horizontal"}[axis]] or (probability != 0.5 and flips[axis] != probability):
                raise Impossible
            function = F.horizontal_flip if axis == "horizontal" else F.vertical_flip
            return function(image) if flips[axis] else image

        return Leaf(transform, "flip", run)

    def _invert(self):
        return self._apply("invert", "RandomInvert", F.invert)

    def _posterize(self):
        if self.floats:
            return None
        bits = self.rng.randint(1, 7)
        return self._apply("posterize", "RandomPosterize", lambda image: F.posterize(image, bits), bits, grows=True)

    def _solarize(self):
        # For floats, choose a threshold between two bytes, so that rounding has no effect. torchvision refuses values above 1.
        threshold = (self.rng.randint(0, 254) + 0.5) / self.unit if self.floats else self.rng.randint(0, 255)
        return self._apply("solarize", "RandomSolarize", lambda image: F.solarize(image, threshold), threshold, grows=True)

    def _equalize(self):
        return None if self.floats else self._apply("equalize", "RandomEqualize", F.equalize, grows=True)

    def _autocontrast(self):
        return None if self.tensors else self._apply("autocontrast", "RandomAutocontrast", F.autocontrast, grows=True)

    def _sharpness(self):
        factor = self.rng.choice([0.0, 0.5, 1.7, 3.0])
        if self.tensors:
            return None
        return self._apply("sharpness", "RandomAdjustSharpness", lambda image: F.adjust_sharpness(image, factor), factor, grows=True)

    def _apply(self, op, name, function, *arguments, grows=False):
        return self._maybe(op, name, function, *arguments, grows=grows)

    def _grayscale(self):
        if self.tensors:
            return None
        if self.rng.random() < 0.5:
            return self._maybe("random_grayscale", "RandomGrayscale", lambda image: F.rgb_to_grayscale(image, 1 if self.gray else 3))
        if self.gray:
            return None
        transform = self._library("Grayscale", 3)
        return Leaf(transform, "grayscale", lambda image, _: transform(image))

    def _jitter(self):
        names = ["brightness"] if self.tensors else ["brightness", "contrast", "saturation", "hue"]
        settings = {name: self.rng.uniform(0.05, 0.4) for name in self.rng.sample(names, self.rng.randint(1, len(names)))}
        transform = self._library("ColorJitter", **settings)
        return Leaf(transform, "color_jitter", jittered(settings), count=(len(settings),), levels=1.0 if self.floats else 0, grows=True)

    def _permutation(self):
        if self.gray:
            return None

        def run(image, actions):
            return F.permute_channels(image, [int(channel) for channel in actions[0]["params"]["order"]])

        return Leaf(v2.RandomChannelPermutation(), "channel_permutation", run)

    def _no_antialias(self):
        # `antialias=False` has no effect on PIL images.
        if self.tensors:
            return None
        transform = self._library("Resize", self.rng.randint(8, 50), antialias=False)
        return Leaf(transform, "resize", lambda image, _: transform(image), grows=True)

    def _warp(self, op, make, check):
        """Returns a transform that moves pixels by a matrix, with a check of the matrix, given the action and the image."""
        if self.tensors:
            return None
        mode, fill = self.rng.choice(WARP_MODES), self.rng.randint(0, 255)
        transform = make(interpolation=FILTERS[mode], fill=fill)

        def run(image, actions):
            if actions:
                check(actions[0]["params"]["matrix"], image.size)
                return warped(image, actions[0], mode, fill, op == "random_perspective")
            return image

        # An identity has no action.
        return Leaf(transform, op, run, count=(0, 1), grows=mode != "nearest")

    def _rotation(self):
        degrees, expand = self.rng.randint(1, 180), self.rng.random() < 0.3

        def check(matrix, size):
            in_range(abs(math.degrees(math.atan2(matrix[3], matrix[0]))), 0, degrees)
            if max(abs(matrix[0] - matrix[4]), abs(matrix[1] + matrix[3]), abs(matrix[0] ** 2 + matrix[1] ** 2 - 1)) > 1e-9:
                raise Impossible

        return self._warp("random_rotation", lambda **warp: self._library("RandomRotation", degrees, expand=expand, **warp), check)

    def _affine(self):
        degrees, shear = self.rng.choice([0, 30]), self.rng.choice([None, 20])
        translate, scale = self.rng.choice([None, (0.1, 0.3)]), self.rng.choice([None, (0.6, 1.5)])

        def check(matrix, size):
            a, b, c, d, e, f = matrix[:6]
            # Rotation and shear keep areas, so the determinant of the inverse gives the scale.
            in_range((a * e - b * d) ** -0.5, *(scale or (1, 1)))
            # The centre of the result comes from the centre of the image, moved by whole pixels.
            x, y = (side / 2 for side in size)
            dx, dy = x - a * x - b * y - c, y - d * x - e * y - f
            shift = numpy.linalg.solve([[a, b], [d, e]], [dx, dy])
            for moved, side, share in zip(shift, size, translate or (0, 0)):
                in_range(abs(moved - round(moved)), 0, 0)
                in_range(abs(moved), 0, round(share * side))

        return self._warp("random_affine", lambda **warp: self._library("RandomAffine", degrees, translate, scale, shear, **warp), check)

    def _perspective(self):
        distortion, probability = self.rng.uniform(0.1, 0.9), self.rng.choice([0.5, 1.0])

        def check(matrix, size):
            inverse = numpy.linalg.inv(numpy.reshape(matrix, (3, 3)))
            (width, height), (far_x, far_y) = size, (distortion * side // 2 for side in size)
            for x, y in [(0, 0), (width - 1, 0), (width - 1, height - 1), (0, height - 1)]:
                moved = inverse @ [x, y, 1]
                for to, at, most in zip(moved[:2] / moved[2], (x, y), (far_x, far_y)):
                    if abs(to - round(to)) > 1e-2:
                        raise Impossible
                    in_range(abs(round(to) - at), 0, most + 1)

        return self._warp("random_perspective", lambda **warp: self._library("RandomPerspective", distortion, probability, **warp), check)

    def _blur(self):
        if self.floats:
            return None
        kernel, sigma = self.rng.choice([3, 5, (3, 7)]), (0.1, self.rng.uniform(0.2, 3.0))

        def run(image, actions):
            params = actions[0]["params"]
            if actions[0]["size"] != F.get_size(image)[::-1]:
                raise Impossible
            drawn = [in_range(value, *sigma) for value in params["sigma"]]
            return F.gaussian_blur(image, params["kernel"], drawn)

        # torchvision sums all neighbours in floats, and feedwater sums rows and columns of integer weights.
        return Leaf(self._library("GaussianBlur", kernel, sigma), "gaussian_blur", run, levels=1)

    def _jpeg(self):
        if self.tensors or self.gray:
            return None
        low = self.rng.randint(1, 90)
        quality = (low, low + self.rng.randint(1, 10))

        def run(image, actions):
            return F.jpeg(image, in_range(int(actions[0]["params"]["quality"]), *quality))

        return Leaf(v2.JPEG(quality), "jpeg_distortion", run, grows=True)

    def _photometric(self):
        if self.tensors or self.gray:
            return None
        return Leaf(v2.RandomPhotometricDistort(), "photometric_distort", distorted, count=(0, 1, 2, 3, 4, 5), grows=True)

    def _zoom_out(self):
        fill = self.rng.randint(0, 255) / self.unit
        most = self.rng.uniform(1.1, 3.0)

        def run(image, actions):
            if not actions:
                return image
            (width, height), (x, y) = actions[0]["size"], (-actions[0]["params"][key] for key in "xy")
            rows, columns = F.get_size(image)
            in_range(width, columns, most * columns)
            in_range(height, rows, most * rows)
            in_range(x, 0, width - columns)
            in_range(y, 0, height - rows)
            return F.pad(image, [x, y, width - columns - x, height - rows - y], fill=fill)

        return Leaf(v2.RandomZoomOut(fill=fill, side_range=(1.0, most), p=self.rng.choice([0.5, 1.0])), "random_zoom_out", run, count=(0, 1))

    def _scale_jitter(self):
        if self.tensors:
            return None
        height, width = target = self.rng.randint(10, 60), self.rng.randint(10, 60)
        transform = v2.ScaleJitter(target, scale_range=(0.5, 1.5))

        def run(image, actions):
            size = actions[0]["size"][::-1]
            rows, columns = F.get_size(image)
            ratio = min(height / rows, width / columns)
            for after, before in zip(size, (rows, columns)):
                in_range(after, int(before * ratio * 0.5), before * ratio * 1.5)
            return F.resize(image, size)

        return Leaf(transform, "scale_jitter", run, grows=True)

    def _shortest_size(self):
        if self.tensors:
            return None
        shortest, longest = self.rng.sample(range(8, 50), 2), self.rng.choice([None, 60])
        transform = v2.RandomShortestSize(shortest, max_size=longest)

        def run(image, actions):
            rows, columns = F.get_size(image)
            size = tuple(actions[0]["size"][::-1])
            for wanted in shortest:
                ratio = wanted / min(rows, columns)
                if longest is not None:
                    ratio = min(ratio, longest / max(rows, columns))
                if size == (int(rows * ratio), int(columns * ratio)):
                    return F.resize(image, size)
            raise Impossible

        return Leaf(transform, "random_shortest_size", run, grows=True)

    def _policy(self):
        if self.tensors:
            return None
        mode, fill = self.rng.choice(WARP_MODES), self.rng.randint(0, 255)
        library = self.rng.choice([v1, v2])
        bins = self.rng.choice([5, 16, 31])
        name, op, settings, most = self.rng.choice([
            ("RandAugment", "rand_augment", {"num_ops": 3, "magnitude": self.rng.randrange(bins), "num_magnitude_bins": bins}, 3),
            ("TrivialAugmentWide", "trivial_augment_wide", {"num_magnitude_bins": bins}, 1),
            ("AutoAugment", "auto_augment", {"policy": self.rng.choice(list(v1.AutoAugmentPolicy))}, 2),
            ("AugMix", "aug_mix", {"severity": 10, "mixture_width": 2, "chain_depth": self.rng.choice([-1, 1, 2])}, 9),
        ])  # fmt: skip
        transform = getattr(library, name)(**settings, interpolation=FILTERS[mode], fill=fill)
        bins = settings.get("num_magnitude_bins", 10)
        if library is v1:
            thresholds = torch.linspace(255.0, 0.0, bins).tolist()
        else:
            thresholds = [255.0 * magnitude for magnitude in torch.linspace(1.0, 0.0, bins).tolist()]
        if name == "AugMix":
            return Leaf(transform, op, mixed(mode, fill, thresholds), count=tuple(range(most, 2, -1)), grows=True)

        def run(image, actions):
            for action in actions:
                image = policy_step(image, action, mode, fill, thresholds)
            return image

        # Steps that change nothing have no action.
        return Leaf(transform, op, run, count=tuple(range(most + 1)), grows=True)

    def _dtype(self):
        if self.tensors:
            return None
        # This transform does nothing. Random choices need an operator, so the conversion uses a flip that never happens.
        return Leaf(v2.ToDtype(torch.float32, scale=True), "flip", lambda image, _: image, count=(0, 1))

    LEAVES = (
        _resize, _random_resize, _center_crop, _random_crop, _random_resized_crop, _pad, _flip, _invert, _posterize, _solarize,
        _equalize, _autocontrast, _sharpness, _grayscale, _jitter, _permutation, _no_antialias, _dtype,
        _rotation, _affine, _perspective, _blur, _jpeg, _photometric, _zoom_out, _scale_jitter, _shortest_size, _policy, _policy,
    )  # fmt: skip

    def node(self, depth):
        """Returns a random transform. It has inner transforms only if the depth is above 0."""
        kind = self.rng.choice(["leaf", "sequence", "apply", "choice", "order"]) if depth else "leaf"
        if kind == "leaf":
            return self.leaf()
        inner = [self.node(depth - 1) for _ in range(self.rng.randint(1, 3))]
        transforms = [it.transform for it in inner]
        library = self.rng.choice([v1, v2])
        if kind == "sequence":
            transform = library.Compose(transforms)
        elif kind == "apply":
            transform = library.RandomApply(transforms, p=self.rng.choice([0.3, 0.7, 1.0]))
        elif kind == "choice":
            transform = library.RandomChoice(transforms, p=[self.rng.uniform(0.1, 1) for _ in transforms])
        else:
            transform = library.RandomOrder(transforms)
        return Node(kind, inner, transform)

    def chain(self):
        """Returns a random chain from a PIL image to a tensor of one size, as a list of nodes."""
        start = [Leaf(self.rng.choice([v2.ToImage(), v1.PILToTensor()]), "", lambda image, _: F.pil_to_tensor(image), count=(0,))]
        if self.floats:
            start = [Leaf(v1.ToTensor(), "", lambda image, _: v1.ToTensor()(image), count=(0,))]
        nodes = [self.node(self.rng.randint(0, 3)) for _ in range(self.rng.randint(1, 4))]
        if self.gray:
            one = self._library("Grayscale", 1)
            nodes.insert(self.rng.choice([0, 0, len(nodes)]), Leaf(one, "grayscale", lambda image, _: one(image)))
        size = self._center_crop()
        end = self.rng.choice(["scaled", "normalized"] if self.floats else ["bytes", "scaled", "normalized"])
        nodes = [*start, *nodes, size] if self.tensors else [*nodes, size, *start]
        if end != "bytes" and not self.floats:
            scaled = Leaf(v1.ConvertImageDtype(torch.float32), "", lambda image, _: image.to(torch.float32) / 255, count=(0,))
            nodes.append(scaled)
        if end != "bytes":
            if self.rng.random() < 0.3:
                nodes.append(self._erasing([51 / 255] if self.gray else [51 / 255, 102 / 255, 1.0]))
        if end == "normalized":
            normalize = v1.Normalize([0.485], [0.224]) if self.gray else v1.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
            nodes.append(Leaf(normalize, "normalize", lambda image, _: normalize(image), count=(1,)))
            nodes.append(self._erasing([-0.5] if self.gray else [-0.5, 0.25, 2.0]))
        return nodes, end

    def _erasing(self, value):
        transform = self._library("RandomErasing", p=0.5, value=value)
        return Leaf(transform, "random_erasing", erased(value), count=(0, 1))


def made(seed):
    """Returns the chain of a seed: its nodes, the type of its values at the end, and the number of levels by which
    they may differ."""
    rng = random.Random(seed)
    grammar = Grammar(rng, rng.choice(["pil", "pil", "bytes", "floats"]))
    nodes, end = grammar.chain()
    return nodes, end, grammar.levels
