"""Functions that apply torchvision's functions to an image, given the actions that feedwater recorded for it. They
raise :class:`Impossible` for actions that a transform with the given settings cannot have drawn."""

import torch
from PIL import Image
from torchvision.transforms.v2 import functional as F


class Impossible(Exception):
    """Raised if a recorded action cannot come from a transform."""


def resampled(interpolation):
    """Returns a function that crops and resizes the box of an action."""

    def run(image, actions):
        (action,) = actions
        left, top, width, height = action["params"]["box"]
        size = action["size"][::-1]
        return F.resized_crop(image, top, left, height, width, size, interpolation=interpolation, antialias=True)

    return run


def in_range(value, low, high):
    if not low - 1e-6 <= value <= high + 1e-6:
        raise Impossible
    return value


#: For each formula of ``color_jitter``: the setting, torchvision's function and the recorded parameter.
JITTERS = {
    "Brightness": ("brightness", F.adjust_brightness, "factor"),
    "Contrast": ("contrast", F.adjust_contrast, "factor"),
    "Saturation": ("saturation", F.adjust_saturation, "factor"),
    "Hue": ("hue", F.adjust_hue, "shift"),
}


def adjusted(image, action, ranges):
    """Applies one adjustment of colours, given the range of each setting."""
    name, function, parameter = JITTERS[action["formula"]]
    low, high = ranges[name]
    drawn = action["params"][parameter]
    if isinstance(drawn, int):
        # Only hue has an integer: the byte that is added to the hue, which is int(255 * hue) in torchvision.
        signed = drawn - 256 if drawn > 128 else drawn
        drawn = (signed + (0.5 if signed > 0 else -0.5 if signed < 0 else 0)) / 255
        low, high = low - 1 / 255, high + 1 / 255
    return function(image, in_range(drawn, low, high))


def jittered(settings):
    ranges = {name: (-value, value) if name == "hue" else (1 - value, 1 + value) for name, value in settings.items()}

    def run(image, actions):
        names = [JITTERS[action["formula"]][0] if action.get("formula") in JITTERS else None for action in actions]
        if sorted(map(str, names)) != sorted(settings):
            raise Impossible
        for action in actions:
            image = adjusted(image, action, ranges)
        return image

    return run


def distorted(image, actions):
    """Applies the recorded actions of ``RandomPhotometricDistort`` with torchvision's defaults."""
    ranges = {"brightness": (0.875, 1.125), "contrast": (0.5, 1.5), "saturation": (0.5, 1.5), "hue": (-0.05, 0.05)}
    names = [action["formula"] for action in actions]
    orders = [["Brightness", "Contrast", "Saturation", "Hue", "ChannelPermutation"], ["Brightness", "Saturation", "Hue", "Contrast", "ChannelPermutation"]]
    if not any([name for name in order if name in names] == names for order in orders):
        raise Impossible
    for action in actions:
        if action["formula"] == "ChannelPermutation":
            image = F.permute_channels(image, [int(channel) for channel in action["params"]["order"]])
        else:
            image = adjusted(image, action, ranges)
    return image


def warped(image, action, mode, fill, is_perspective=False):
    """Applies a recorded matrix with Pillow, as torchvision does for PIL images. Pillow computes affine maps and
    perspectives in different ways."""
    if action["kind"] != "warp":
        raise Impossible
    matrix = action["params"]["matrix"]
    method, count = (Image.Transform.PERSPECTIVE, 8) if is_perspective else (Image.Transform.AFFINE, 6)
    colour = fill if image.mode == "L" else (fill,) * 3
    return image.transform(tuple(action["size"]), method, matrix[:count], getattr(Image.Resampling, mode.upper()), fillcolor=colour)


def policy_step(image, action, mode, fill, thresholds):
    """Applies a recorded step of an augmentation policy. The thresholds of ``Solarize`` must be those of the policy's
    version of torchvision."""
    params, formula = action["params"], action.get("formula")
    if tuple(action["size"]) != image.size:
        # The step was drawn for the image after other transforms.
        raise Impossible
    if action["kind"] == "warp":
        return warped(image, action, mode, fill)
    if formula == "Solarize" and params["threshold"] not in thresholds:
        raise Impossible
    steps = {
        "Brightness": lambda: F.adjust_brightness(image, params["factor"]),
        "Saturation": lambda: F.adjust_saturation(image, params["factor"]),
        "Contrast": lambda: F.adjust_contrast(image, params["factor"]),
        "Sharpness": lambda: F.adjust_sharpness(image, params["factor"]),
        "Posterize": lambda: F.posterize(image, int(params["bits"])),
        "Solarize": lambda: F.solarize(image, params["threshold"]),
        "Autocontrast": lambda: F.autocontrast(image),
        "Equalize": lambda: F.equalize(image),
        "Invert": lambda: F.invert(image),
    }
    if formula not in steps:
        raise Impossible
    return steps[formula]()


def mixed(mode, fill, thresholds):
    """Returns a function that applies the recorded chains of ``AugMix``, and sums their results like torchvision."""

    def run(image, actions):
        if not actions or actions[0]["kind"] != "mix" or actions[-1]["kind"] != "mix":
            raise Impossible
        result, current = 0.0, image
        for action in actions:
            if action["kind"] == "mix":
                result = result + torch.tensor(action["params"]["weight"], dtype=torch.float32) * F.pil_to_tensor(current)
                current = image
            else:
                current = policy_step(current, action, mode, fill, thresholds)
        return F.to_pil_image(result.to(torch.uint8))

    return run


def erased(value):
    def run(image, actions):
        if not actions:
            return image
        params = actions[0]["params"]
        x, y, right, bottom = (params[key] for key in ("x", "y", "right", "bottom"))
        fill = torch.tensor(value, dtype=torch.float32).to(image.dtype)[:, None, None]
        return F.erase(image, y, x, bottom - y, right - x, fill.expand(image.shape[-3], bottom - y, right - x))

    return run
