"""Random nestings of transforms, and torchvision's result for a nesting with the parameters that feedwater drew.

Each :class:`Leaf` is a transform with a function that applies torchvision's functions, given the actions that
feedwater recorded. :func:`outcomes` runs a nesting and tries every choice that the recorded actions allow. If a
conversion loses or reorders a part of the nesting, :func:`outcomes` yields nothing, or an image with other pixels.
"""

import dataclasses
import random
from collections.abc import Callable
from typing import Any

import torch
from torchvision.transforms import InterpolationMode, v2
from torchvision.transforms import transforms as v1
from torchvision.transforms.v2 import functional as F

FILTERS = {mode.value: mode for mode in InterpolationMode}
PIL_MODES = ["bilinear", "bicubic", "nearest", "nearest-exact", "box", "hamming", "lanczos"]


class Impossible(Exception):
    """Raised if a recorded action cannot come from a transform."""


@dataclasses.dataclass
class Leaf:
    """A transform without inner transforms.

    * ``op``: name of the operator to which its actions belong.
    * ``run``: function that returns the transformed image, given the actions.
    * ``count``: possible numbers of actions.
    * ``levels``: number of levels by which feedwater's result may differ. ``grows``: whether the transform can
      enlarge a difference in its input.
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


def _resampled(interpolation):
    """Returns a function that crops and resizes the box of an action."""

    def run(image, actions):
        (action,) = actions
        left, top, width, height = action["params"]["box"]
        size = action["size"][::-1]
        return F.resized_crop(image, top, left, height, width, size, interpolation=interpolation, antialias=True)

    return run


def _in_range(value, low, high):
    if not low - 1e-6 <= value <= high + 1e-6:
        raise Impossible
    return value


def _jittered(settings):
    functions = {
        "Brightness": ("brightness", F.adjust_brightness, "factor"),
        "Contrast": ("contrast", F.adjust_contrast, "factor"),
        "Saturation": ("saturation", F.adjust_saturation, "factor"),
        "Hue": ("hue", F.adjust_hue, "shift"),
    }

    def run(image, actions):
        names = [functions[action["formula"]][0] for action in actions]
        if sorted(names) != sorted(settings):
            raise Impossible
        for action in actions:
            name, function, parameter = functions[action["formula"]]
            value = settings[name]
            drawn, around = action["params"][parameter], 0.0 if name == "hue" else 1.0
            if isinstance(drawn, int):
                # Only hue has an integer: the byte that is added to the hue, which is int(255 * hue) in torchvision.
                signed = drawn - 256 if drawn > 128 else drawn
                drawn = (signed + (0.5 if signed > 0 else -0.5 if signed < 0 else 0)) / 255
                value += 1 / 255
            image = function(image, _in_range(drawn, around - value, around + value))
        return image

    return run


def _erased(value):
    def run(image, actions):
        if not actions:
            return image
        params = actions[0]["params"]
        x, y, right, bottom = (params[key] for key in ("x", "y", "right", "bottom"))
        fill = torch.tensor(value, dtype=torch.float32).to(image.dtype)[:, None, None]
        return F.erase(image, y, x, bottom - y, right - x, fill.expand(image.shape[-3], bottom - y, right - x))

    return run


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
        return Leaf(transform, "resize", lambda image, _: transform(image), levels=self.resized, grows=False)

    def _random_resize(self):
        if self.tensors:
            return None
        low = self.rng.randint(8, 30)
        transform = v2.RandomResize(low, low + self.rng.randint(1, 20))

        def run(image, actions):
            _in_range(min(actions[0]["size"]), transform.min_size, transform.max_size - 1)
            return F.resize(image, [min(actions[0]["size"])])

        return Leaf(transform, "random_resize", run)

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
            _in_range(x, 0, width - wanted[1])
            _in_range(y, 0, height - wanted[0])
            return F.crop(padded, y, x, *wanted)

        return Leaf(transform, "random_crop", run, count=(1, 2))

    def _random_resized_crop(self):
        mode = "bilinear" if self.tensors else self.rng.choice(PIL_MODES[:3])
        size = self.rng.randint(8, 40), self.rng.randint(8, 40)
        transform = self._library("RandomResizedCrop", size, interpolation=FILTERS[mode])
        return Leaf(transform, "random_resized_crop", _resampled(FILTERS[mode]), levels=self.resized)

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
        return Leaf(transform, "color_jitter", _jittered(settings), count=(len(settings),), levels=1.0 if self.floats else 0, grows=True)

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
        return Leaf(transform, "resize", lambda image, _: transform(image))

    def _dtype(self):
        if self.tensors:
            return None
        # This transform does nothing. Random choices need an operator, so the conversion uses a flip that never happens.
        return Leaf(v2.ToDtype(torch.float32, scale=True), "flip", lambda image, _: image, count=(0, 1))

    LEAVES = (
        _resize, _random_resize, _center_crop, _random_crop, _random_resized_crop, _pad, _flip, _invert, _posterize, _solarize,
        _equalize, _autocontrast, _sharpness, _grayscale, _jitter, _permutation, _no_antialias, _dtype,
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
        return Leaf(transform, "random_erasing", _erased(value), count=(0, 1))


def made(seed):
    """Returns the chain of a seed: its nodes, the type of its values at the end, and the number of levels by which
    they may differ."""
    rng = random.Random(seed)
    grammar = Grammar(rng, rng.choice(["pil", "pil", "bytes", "floats"]))
    nodes, end = grammar.chain()
    return nodes, end, grammar.levels
