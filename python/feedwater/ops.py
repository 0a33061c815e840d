"""Operators of a chain, as classes with the settings of a pipeline file.

Written by ``scripts/python-api --write`` from the doc comments in ``src/op/``. A setting that is ``None`` has its default. All
classes but those of ``[[batch_operators]]`` also take ``placement``: ``"cpu"``, ``"gpu"`` or ``"auto"``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NoReturn

from ._names import unknown_operator
from ._settings import BatchOperator, Operator, Placement
from .combine import OneOf, RandomApply, RandomOrder, SomeOf

__all__ = [
    "Affine",
    "AugMix",
    "AutoAugment",
    "Autocontrast",
    "Brightness",
    "CenterCrop",
    "ChannelPermutation",
    "ColorJitter",
    "ColorTwist",
    "Contrast",
    "Crop",
    "CutMix",
    "Cutout",
    "Elastic",
    "Equalize",
    "FiveCrop",
    "Flip",
    "Gamma",
    "GaussianBlur",
    "GaussianNoise",
    "Grayscale",
    "GridMask",
    "Hue",
    "Invert",
    "JpegDistortion",
    "Letterbox",
    "Lighting",
    "Mixup",
    "MixupOrCutMix",
    "Normalize",
    "NormalizeImage",
    "OneOf",
    "Pad",
    "Perspective",
    "PhotometricDistort",
    "Pointwise",
    "Posterize",
    "RandAugment",
    "RandomAffine",
    "RandomApply",
    "RandomCrop",
    "RandomErasing",
    "RandomGrayscale",
    "RandomIouCrop",
    "RandomOrder",
    "RandomPerspective",
    "RandomResize",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomShortestSize",
    "RandomZoomOut",
    "Resize",
    "ResizeKeepRatio",
    "Rotate",
    "SaltAndPepper",
    "Saturation",
    "ScaleJitter",
    "Sharpen",
    "Sharpness",
    "Solarize",
    "SomeOf",
    "TenCrop",
    "ThreeAugment",
    "Thumbnail",
    "TimmAugMix",
    "TimmAutoAugment",
    "TimmRandAugment",
    "ToYcbcr",
    "TrivialAugmentWide",
]


class Crop(Operator):
    """Crops a window at a fixed position. Pixels outside the image are 0, as with Pillow's
    ``Image.crop``.

    Settings:

    * ``width``: Output width, in pixels.
    * ``height``: Output height, in pixels.
    * ``x``: First column of the window. Default 0.
    * ``y``: First row of the window. Default 0.
    """

    OP = "crop"

    def __init__(
        self,
        *,
        width: int,
        height: int,
        x: int | None = None,
        y: int | None = None,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(width=width, height=height, x=x, y=y, placement=placement)


class CenterCrop(Operator):
    """Crops a centred window: torchvision's ``CenterCrop``.

    Along each axis, the window begins at ``int(round((side - wanted) / 2))``, rounding half to even.
    ``side`` is the side of the image, and ``wanted`` is that of the window. An image that is smaller
    than the window is padded. The padding on the left and at the top is ``(wanted - side) / 2``,
    truncated to an integer. With ``fill`` and ``mode`` it is timm's ``CenterCropOrPad``.

    Settings:

    * ``width``: Output width, in pixels.
    * ``height``: Output height, in pixels.
    * ``fill``: Red, green and blue of the padding, in the unit of the input pixels: 0 to 255, or normalized values after ``normalize``. In TOML, one number sets all three. Default 0. Only for the mode ``constant``.
    * ``mode``: How a smaller image is padded: ``constant`` (default), ``edge``, ``reflect`` or ``symmetric``.
    """

    OP = "center_crop"

    def __init__(
        self,
        *,
        width: int,
        height: int,
        fill: float | Sequence[float] | None = None,
        mode: Literal["constant", "edge", "reflect", "symmetric"] | None = None,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(width=width, height=height, fill=fill, mode=mode, placement=placement)


class RandomCrop(Operator):
    """Crops a window at a random position of the padded image: torchvision's ``RandomCrop``.

    If the padded image is smaller than the window, torchvision raises an error. feedwater begins
    the window at the first column or row of the image, and fills the missing pixels at the end with
    ``fill``.

    Settings:

    * ``width``: Output width, in pixels.
    * ``height``: Output height, in pixels.
    * ``padding``: Padding on the left, top, right and bottom, in pixels. In TOML, one number sets all four. Default 0.
    * ``pad_if_needed``: Whether an image that is smaller than the window even with ``padding`` is padded further: on both sides, by the missing number of pixels. Default false.
    * ``fill``: Red, green and blue of the padding, in the unit of the input pixels: 0 to 255, or normalized values after ``normalize``. In TOML, one number sets all three. Default 0. Only for the mode ``constant``.
    * ``mode``: How the image is padded: ``constant`` (default), ``edge``, ``reflect`` or ``symmetric``.
    """

    OP = "random_crop"

    def __init__(
        self,
        *,
        width: int,
        height: int,
        padding: int | Sequence[int] | None = None,
        pad_if_needed: bool | None = None,
        fill: float | Sequence[float] | None = None,
        mode: Literal["constant", "edge", "reflect", "symmetric"] | None = None,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(width=width, height=height, padding=padding, pad_if_needed=pad_if_needed, fill=fill, mode=mode, placement=placement)


class RandomResizedCrop(Operator):
    """Crops a window of random area and aspect ratio and resizes it: torchvision's
    ``RandomResizedCrop``.

    Draws an area (uniform in ``scale``, as a fraction of the image) and an aspect ratio (log-uniform
    in ``ratio``), up to ten times, until a window fits into the image. Draws the position of this
    window uniformly. If no window fits, crops the largest centred window that the ratios allow.

    Settings:

    * ``width``: Output width, in pixels.
    * ``height``: Output height, in pixels.
    * ``scale``: Minimum and maximum area of the window, as a fraction of the image's area. Default ``[0.08, 1]``.
    * ``ratio``: Minimum and maximum aspect ratio of the window, width / height. Default 3/4 to 4/3.
    * ``filter``: Resampling filter. Default bilinear.
    """

    OP = "random_resized_crop"

    def __init__(
        self,
        *,
        width: int,
        height: int,
        scale: Sequence[float] | None = None,
        ratio: Sequence[float] | None = None,
        filter: Literal["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"] | None = None,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(width=width, height=height, scale=scale, ratio=ratio, filter=filter, placement=placement)


class Resize(Operator):
    """Resizes the whole image: torchvision's ``Resize`` on PIL images.

    The settings have exactly one of three forms. With ``width`` and ``height``, the output has this
    size. With ``shorter``, the other side becomes ``int(shorter * long / short)``. With ``longer``, the
    other side becomes ``int(longer * short / long)``, but at least 1. ``max_size`` limits the longer
    side if ``shorter`` is given.

    Settings:

    * ``width``: Output width, in pixels.
    * ``height``: Output height, in pixels.
    * ``shorter``: Shorter side of the output, in pixels.
    * ``max_size``: Maximum length of the longer side, in pixels. It must be above ``shorter``. If the longer side would exceed it, both sides are reduced in proportion. Only with ``shorter``. Default: no maximum.
    * ``longer``: Longer side of the output, in pixels.
    * ``filter``: Resampling filter. Default bilinear.
    """

    OP = "resize"

    def __init__(
        self,
        *,
        width: int | None = None,
        height: int | None = None,
        shorter: int | None = None,
        max_size: int | None = None,
        longer: int | None = None,
        filter: Literal["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"] | None = None,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(width=width, height=height, shorter=shorter, max_size=max_size, longer=longer, filter=filter, placement=placement)


class Flip(Operator):
    """Mirrors each image left to right and top to bottom, each with its own probability.

    Draws like torchvision's ``RandomHorizontalFlip`` and ``RandomVerticalFlip``: the image is mirrored
    if a uniform number in ``[0, 1)`` is below the probability.

    Settings:

    * ``horizontal``: Probability of mirroring left to right, 0 to 1. Default 0.
    * ``vertical``: Probability of mirroring top to bottom, 0 to 1. Default 0.
    """

    OP = "flip"

    def __init__(
        self,
        *,
        horizontal: float | None = None,
        vertical: float | None = None,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(horizontal=horizontal, vertical=vertical, placement=placement)


class Normalize(Operator):
    """Computes ``(value / 255 - mean) / std`` and rounds each step to f32: torchvision's ``ToTensor``,
    then ``Normalize``. For images of 16 bits (``decode.pixels``), the divisor is 65535. For images of
    floats it is 1.

    Settings:

    * ``mean``: Means of red, green and blue for channels from 0 to 1, each from -1 to 1. In TOML, one number sets all three. DALI's means are for channels from 0 to 255: divide them by 255. For images of floats, any means in the unit of the stored numbers.
    * ``std``: Standard deviations of red, green and blue for channels from 0 to 1: above 0, at most ``Normalize::MAX_STD``. In TOML, one number sets all three. The standard deviation of real images never exceeds 0.5. For images of floats, any deviations above 0.
    """

    OP = "normalize"

    def __init__(
        self,
        *,
        mean: float | Sequence[float],
        std: float | Sequence[float],
        placement: Placement | None = None,
    ) -> None:
        super().__init__(mean=mean, std=std, placement=placement)


class Autocontrast(Operator):
    """Stretches each channel to 0..=255, like torchvision's ``autocontrast``."""

    OP = "autocontrast"

    def __init__(
        self,
        *,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(placement=placement)


class Brightness(Operator):
    """Blends the image with black, like torchvision's ``adjust_brightness``.

    Settings:

    * ``factor``: Brightness factor: 0 gives black, 1 leaves the image unchanged, 2 doubles each byte. One number, or a range ``[low, high]`` from which the factor is drawn uniformly.
    """

    OP = "brightness"

    def __init__(
        self,
        *,
        factor: float | Sequence[float],
        placement: Placement | None = None,
    ) -> None:
        super().__init__(factor=factor, placement=placement)


class ChannelPermutation(Operator):
    """Reorders the channels, like torchvision's ``permute_channels`` and ``RandomChannelPermutation``.

    Settings:

    * ``order``: For each channel of the output, the channel of the input (0 to 2) that it copies. Default: one of the six orders, drawn per sample.
    """

    OP = "channel_permutation"

    def __init__(
        self,
        *,
        order: Sequence[int] | None = None,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(order=order, placement=placement)


class ColorJitter(Operator):
    """Changes brightness, contrast, saturation and hue by random amounts in random order, like
    torchvision's ``ColorJitter``.

    Each setting is a range ``[low, high]``, from which the factor is drawn uniformly, or one number
    v, which stands for the range ``[max(0, 1 - v), 1 + v]`` (hue: ``[-v, v]``). A setting that is left
    out changes nothing.

    Settings:

    * ``brightness``: Brightness factor: 0 gives black, 1 leaves the image unchanged.
    * ``contrast``: Contrast factor: 0 gives the mean gray of the image, 1 leaves the image unchanged.
    * ``saturation``: Saturation factor: 0 gives the gray image, 1 leaves the image unchanged.
    * ``hue``: Hue rotation as a fraction of a full circle, -0.5 to 0.5.
    """

    OP = "color_jitter"

    def __init__(
        self,
        *,
        brightness: float | Sequence[float] | None = None,
        contrast: float | Sequence[float] | None = None,
        saturation: float | Sequence[float] | None = None,
        hue: float | Sequence[float] | None = None,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(brightness=brightness, contrast=contrast, saturation=saturation, hue=hue, placement=placement)


class ColorTwist(Operator):
    """Changes brightness, contrast, saturation and hue by one linear map of each pixel: DALI's
    ``color_twist``. DALI computes the matrix in f32 and feedwater in f64, so a byte may differ by one
    level where the exact value is halfway between two levels.

    Each setting is one number, or a range ``[low, high]`` from which the number is drawn uniformly.

    Settings:

    * ``brightness``: Brightness factor: 0 gives black. Default 1.
    * ``contrast``: Contrast factor: 0 gives the gray 128. Default 1.
    * ``saturation``: Saturation factor: 0 gives the gray image. Default 1.
    * ``hue``: Hue rotation in degrees, -360 to 360. Default 0.
    """

    OP = "color_twist"

    def __init__(
        self,
        *,
        brightness: float | Sequence[float] | None = None,
        contrast: float | Sequence[float] | None = None,
        saturation: float | Sequence[float] | None = None,
        hue: float | Sequence[float] | None = None,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(brightness=brightness, contrast=contrast, saturation=saturation, hue=hue, placement=placement)


class Contrast(Operator):
    """Blends the image with its mean gray, like torchvision's ``adjust_contrast``.

    Settings:

    * ``factor``: Contrast factor: 0 gives the mean gray of the image, 1 leaves the image unchanged. One number, or a range ``[low, high]`` from which the factor is drawn uniformly.
    """

    OP = "contrast"

    def __init__(
        self,
        *,
        factor: float | Sequence[float],
        placement: Placement | None = None,
    ) -> None:
        super().__init__(factor=factor, placement=placement)


class Equalize(Operator):
    """Equalizes the histogram of each channel, like torchvision's ``equalize``."""

    OP = "equalize"

    def __init__(
        self,
        *,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(placement=placement)


class Gamma(Operator):
    """Raises each channel to a power, like torchvision's ``adjust_gamma``.

    Settings:

    * ``gamma``: Exponent, 0 to 100. One number, or a range ``[low, high]`` from which the exponent is drawn uniformly.
    * ``gain``: Factor that multiplies the power, 0 to 1000. Default 1.
    """

    OP = "gamma"

    def __init__(
        self,
        *,
        gamma: float | Sequence[float],
        gain: float | None = None,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(gamma=gamma, gain=gain, placement=placement)


class Grayscale(Operator):
    """Replaces each channel by the pixel's luma: torchvision's ``Grayscale``, and ``convert("L")`` of
    Pillow.

    With ``channels = 1`` the tensor has one channel, and the operators after this one process images
    with one channel. Operators that are only for colours are then refused, and so are fill colours,
    values, means and standard deviations whose three numbers differ.

    Settings:

    * ``channels``: Number of channels of the output: 3 (default), which are equal, or 1.
    """

    OP = "grayscale"

    def __init__(
        self,
        *,
        channels: int | None = None,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(channels=channels, placement=placement)


class Hue(Operator):
    """Rotates the hue of each pixel, like torchvision's ``adjust_hue``.

    Settings:

    * ``shift``: Hue rotation as a fraction of a full circle, -0.5 to 0.5. One number, or a range ``[low, high]`` from which the rotation is drawn uniformly.
    """

    OP = "hue"

    def __init__(
        self,
        *,
        shift: float | Sequence[float],
        placement: Placement | None = None,
    ) -> None:
        super().__init__(shift=shift, placement=placement)


class Invert(Operator):
    """Makes the negative of the image, like torchvision's ``invert``."""

    OP = "invert"

    def __init__(
        self,
        *,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(placement=placement)


class Lighting(Operator):
    """Adds AlexNet's noise along the principal components of natural colours.

    Settings:

    * ``std``: Standard deviation of the three factors, one per principal component, 0 to 100. The factors are normally distributed. Default 0.1.
    """

    OP = "lighting"

    def __init__(
        self,
        *,
        std: float | None = None,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(std=std, placement=placement)


class NormalizeImage(Operator):
    """Subtracts the image's own mean and divides by its own standard deviation: Albumentations'
    ``Normalize`` with the normalization ``image`` or ``image_per_channel``. The results are the f64
    values of Albumentations, rounded to f32.

    Settings:

    * ``per_channel``: Whether each channel has its own mean and standard deviation. Default: false, one mean and one deviation for all channels together.
    """

    OP = "normalize_image"

    def __init__(
        self,
        *,
        per_channel: bool | None = None,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(per_channel=per_channel, placement=placement)


class PhotometricDistort(Operator):
    """Changes brightness, contrast, saturation, hue and the order of channels, each with a
    probability, like torchvision's ``RandomPhotometricDistort`` (Liu et al., "SSD: Single shot
    multibox detector", 2016).

    Settings:

    * ``brightness``: Range of the brightness factor. Default ``[0.875, 1.125]``.
    * ``contrast``: Range of the contrast factor. Default ``[0.5, 1.5]``.
    * ``saturation``: Range of the saturation factor. Default ``[0.5, 1.5]``.
    * ``hue``: Range of the hue rotation, as fractions of a full circle, -0.5 to 0.5. Default ``[-0.05, 0.05]``.
    * ``probability``: Probability of each change, 0 to 1. Default 0.5.
    """

    OP = "photometric_distort"

    def __init__(
        self,
        *,
        brightness: Sequence[float] | None = None,
        contrast: Sequence[float] | None = None,
        saturation: Sequence[float] | None = None,
        hue: Sequence[float] | None = None,
        probability: float | None = None,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(brightness=brightness, contrast=contrast, saturation=saturation, hue=hue, probability=probability, placement=placement)


class Pointwise(Operator):
    """Computes each channel of each pixel from its value, with an expression such as
    ``clamp(x * 1.1 - 0.05, 0, 1)``.

    * ``x`` is the byte of the channel divided by 255, so it is from 0 to 1. ``c`` is the number of the
      channel: 0 red, 1 green, 2 blue.
    * Operators and functions are ``+ - * /``, parentheses, ``abs``, ``clamp(v, low, high)``, ``exp``,
      ``floor``, ``if(condition, then, else)``, ``log`` (natural), ``max(a, b)``, ``min(a, b)``,
      ``pow(base, exponent)``, ``round`` (half away from 0) and ``sqrt``. Comparisons (``< <= > >= == !=``)
      give 1 or 0.

    The result is clamped to 0..=1, and the new byte is ``round(255 * result)``. The expression is
    evaluated in f64, once for each byte and channel, when the operator is created. A result that is
    not a number is an error.

    Settings:

    * ``expr``: Expression, at most 4096 characters.
    """

    OP = "pointwise"

    def __init__(
        self,
        *,
        expr: str,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(expr=expr, placement=placement)


class Posterize(Operator):
    """Keeps the leading bits of each channel, like torchvision's ``posterize``.

    Settings:

    * ``bits``: Number of bits that are kept, 0 (black) to 8 (unchanged).
    """

    OP = "posterize"

    def __init__(
        self,
        *,
        bits: int,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(bits=bits, placement=placement)


class RandomGrayscale(Operator):
    """Replaces each channel by the pixel's luma with a probability, like torchvision's
    ``RandomGrayscale``.

    Settings:

    * ``probability``: Probability of gray, 0 to 1. Default 0.1.
    """

    OP = "random_grayscale"

    def __init__(
        self,
        *,
        probability: float | None = None,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(probability=probability, placement=placement)


class Saturation(Operator):
    """Blends each pixel with its gray value, like torchvision's ``adjust_saturation``.

    Settings:

    * ``factor``: Saturation factor: 0 gives the gray image, 1 leaves the image unchanged. One number, or a range ``[low, high]`` from which the factor is drawn uniformly.
    """

    OP = "saturation"

    def __init__(
        self,
        *,
        factor: float | Sequence[float],
        placement: Placement | None = None,
    ) -> None:
        super().__init__(factor=factor, placement=placement)


class Solarize(Operator):
    """Inverts bytes that reach a threshold, like torchvision's ``solarize``.

    Settings:

    * ``threshold``: Smallest byte that is inverted: 0 inverts all bytes, 256 none. Default 128.
    """

    OP = "solarize"

    def __init__(
        self,
        *,
        threshold: float | None = None,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(threshold=threshold, placement=placement)


class ToYcbcr(Operator):
    """Converts RGB to YCbCr with the full range of bytes, like Pillow's ``convert("YCbCr")``."""

    OP = "to_ycbcr"

    def __init__(
        self,
        *,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(placement=placement)


class Cutout(Operator):
    """Overwrites random squares with a colour, like DeVries and Taylor's Cutout.

    Settings:

    * ``holes``: Number of squares, 1 to 8. Default 1.
    * ``length``: Side of a square in pixels, 1 to 65,535. Default 16, the paper's value for CIFAR-10.
    * ``fill``: Red, green and blue of the squares, 0 to 255. In TOML, one number sets all three. Default black.
    """

    OP = "cutout"

    def __init__(
        self,
        *,
        holes: int | None = None,
        length: int | None = None,
        fill: int | Sequence[int] | None = None,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(holes=holes, length=length, fill=fill, placement=placement)


class GridMask(Operator):
    """Overwrites the squares of a rotated grid with a colour: DALI's ``grid_mask``. Pixels less than
    0.001 pixel from the edge of a square may differ, because DALI rounds in f32 (measured on images
    of up to 1000x1000).

    Each number except ``fill`` may be given as a range ``[low, high]`` from which it is drawn
    uniformly.

    Settings:

    * ``tile``: Distance between equal edges of neighbouring squares, in pixels, 1 to 65,535. Default 100.
    * ``ratio``: Side of a square divided by ``tile``, 0 to 1. Default 0.5.
    * ``angle``: Rotation in degrees, -360 to 360. DALI's setting is in radians. Default 0.
    * ``shift_x``: Shift along the grid's first axis in pixels, -65,535 to 65,535. Default 0.
    * ``shift_y``: Shift along the grid's second axis in pixels, -65,535 to 65,535. Default 0.
    * ``fill``: Red, green and blue of the squares, 0 to 255. In TOML, one number sets all three. Default black.
    """

    OP = "grid_mask"

    def __init__(
        self,
        *,
        tile: float | Sequence[float] | None = None,
        ratio: float | Sequence[float] | None = None,
        angle: float | Sequence[float] | None = None,
        shift_x: float | Sequence[float] | None = None,
        shift_y: float | Sequence[float] | None = None,
        fill: int | Sequence[int] | None = None,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(tile=tile, ratio=ratio, angle=angle, shift_x=shift_x, shift_y=shift_y, fill=fill, placement=placement)


class RandomErasing(Operator):
    """Overwrites random rectangles with a colour or with noise, like torchvision's and timm's
    ``RandomErasing``.

    The defaults are those of torchvision, which erases one rectangle. timm erases after
    ``normalize``. timm's command line uses ``scale = [0.02, 0.3333]``, ``ratio = [0.3, 3.3333]`` and
    ``mode = "pixel"``.

    Settings:

    * ``probability``: Probability that a sample is changed, 0 to 1. Default 0.5.
    * ``scale``: Minimum and maximum area of all rectangles together, 0 to 1 as a fraction of the image's area. Default ``[0.02, 0.33]``.
    * ``ratio``: Minimum and maximum of a rectangle's height divided by its width, 0.001 to 1000. Default ``[0.3, 3.3]``.
    * ``value``: New value of erased pixels, or mean of the noise. One number, or one per channel, in the unit of the input pixels: levels of a byte, or normalized values after ``normalize``. Default 0.
    * ``mode``: Content of the rectangles: one colour (``const``, the default), one random colour per rectangle (``rand``), or noise for each pixel (``pixel``).
    * ``std``: Standard deviation of the noise in the modes ``rand`` and ``pixel``, 0 to 1000. One number, or one per channel, in the same unit as ``value``. Default 1.
    * ``min_count``: Minimum number of rectangles, 1 to 32. The number of rectangles is drawn uniformly, and ``scale`` is divided by it. Default 1.
    * ``max_count``: Maximum number of rectangles, ``min_count`` to 32. Default 1.
    """

    OP = "random_erasing"

    def __init__(
        self,
        *,
        probability: float | None = None,
        scale: Sequence[float] | None = None,
        ratio: Sequence[float] | None = None,
        value: float | Sequence[float] | None = None,
        mode: Literal["const", "rand", "pixel"] | None = None,
        std: float | Sequence[float] | None = None,
        min_count: int | None = None,
        max_count: int | None = None,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(probability=probability, scale=scale, ratio=ratio, value=value, mode=mode, std=std, min_count=min_count, max_count=max_count, placement=placement)


class GaussianBlur(Operator):
    """Blurs with a Gaussian, like torchvision's ``GaussianBlur``. Bytes may differ from torchvision's by
    one level, because weights are integers, and the image is rounded to bytes after the columns and
    again after the rows.

    The weight at distance x is exp(-x^2 / (2 sigma^2)), normalized. The image is reflected at its
    borders. torchvision refuses kernels that reach over a whole image. feedwater reflects the image
    as often as such a kernel needs.

    Settings:

    * ``kernel_size``: Width and height of the kernel in pixels, or one number for both: odd, 1 to 1023.
    * ``sigma``: Standard deviation in pixels, 0.001 to 1000, the same for both axes. One number, or a range ``[low, high]`` from which the deviation is drawn uniformly. Default ``[0.1, 2.0]``.
    """

    OP = "gaussian_blur"

    def __init__(
        self,
        *,
        kernel_size: int | Sequence[int],
        sigma: float | Sequence[float] | None = None,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(kernel_size=kernel_size, sigma=sigma, placement=placement)


class JpegDistortion(Operator):
    """Compresses the image as a JPEG of a quality drawn for each sample, and decompresses it:
    torchvision's ``JPEG`` on PIL images, bit for bit.

    The JPEG is Pillow's: baseline, 4:2:0, with libjpeg-turbo's quantization tables scaled by the
    quality. Only the lossy steps are computed, in integers. No file is written.

    Settings:

    * ``quality``: Quality, 1 to 100. One integer, or a range ``[low, high]`` from which the quality is drawn uniformly, including both ends.
    """

    OP = "jpeg_distortion"

    def __init__(
        self,
        *,
        quality: int | Sequence[int],
        placement: Placement | None = None,
    ) -> None:
        super().__init__(quality=quality, placement=placement)


class Sharpen(Operator):
    """Blends the image with Pillow's filter ``SHARPEN``.

    Settings:

    * ``amount``: Amount of sharpening: 0 leaves the image unchanged, 1 gives the filtered image. One number, or a range ``[low, high]`` from which the amount is drawn uniformly.
    """

    OP = "sharpen"

    def __init__(
        self,
        *,
        amount: float | Sequence[float],
        placement: Placement | None = None,
    ) -> None:
        super().__init__(amount=amount, placement=placement)


class Sharpness(Operator):
    """Blends the image with a smoothed copy, like torchvision's ``adjust_sharpness``.

    Settings:

    * ``factor``: Sharpness factor: 0 gives the smoothed image, 1 leaves the image unchanged, 2 gives a sharpened image. One number, or a range ``[low, high]`` from which the factor is drawn uniformly.
    """

    OP = "sharpness"

    def __init__(
        self,
        *,
        factor: float | Sequence[float],
        placement: Placement | None = None,
    ) -> None:
        super().__init__(factor=factor, placement=placement)


class GaussianNoise(Operator):
    """Adds normally distributed noise to each channel of each pixel, like torchvision's
    ``GaussianNoise``.

    Settings:

    * ``mean``: Mean of the noise, -1 to 1, where 1 means 255 levels of a byte. Default 0.
    * ``sigma``: Standard deviation of the noise, 0 to 10, where 1 means 255 levels of a byte. Default 0.1.
    """

    OP = "gaussian_noise"

    def __init__(
        self,
        *,
        mean: float | None = None,
        sigma: float | None = None,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(mean=mean, sigma=sigma, placement=placement)


class SaltAndPepper(Operator):
    """Turns single pixels white or black, like DALI's ``noise.salt_and_pepper``.

    Settings:

    * ``probability``: Probability that a pixel changes, 0 to 1. Default 0.05.
    * ``salt_vs_pepper``: Probability that a changed pixel is white, 0 to 1. Default 0.5.
    * ``per_channel``: Whether each channel changes independently. Default: false, all channels of a pixel change together.
    """

    OP = "salt_and_pepper"

    def __init__(
        self,
        *,
        probability: float | None = None,
        salt_vs_pepper: float | None = None,
        per_channel: bool | None = None,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(probability=probability, salt_vs_pepper=salt_vs_pepper, per_channel=per_channel, placement=placement)


class Affine(Operator):
    """Rotates and shears the image around its centre, scales it and moves it: torchvision's ``affine``
    on PIL images, bit for bit (``_affine_image_pil`` of
    ``torchvision/transforms/v2/functional/_geometry.py``). The output has the size of the input.

    Settings:

    * ``angle``: Angle in degrees, clockwise. Default 0.
    * ``translate``: Pixels by which the image moves to the right and down. Default 0.
    * ``scale``: Scale factor, 0.001 to 1000. Default 1.
    * ``shear``: Shear angles in degrees, parallel to the x axis and to the y axis, -89 to 89. Default 0.
    * ``interpolation``: Interpolation between pixels. Default nearest.
    * ``center``: Centre of rotation, shear and scale as ``[column, row]``, in pixels from the upper left corner. Default: the centre of the image.
    * ``fill``: Fill colour outside of the image: red, green and blue. In TOML, one number sets all three. Default 0.
    """

    OP = "affine"

    def __init__(
        self,
        *,
        angle: float | None = None,
        translate: Sequence[float] | None = None,
        scale: float | None = None,
        shear: Sequence[float] | None = None,
        interpolation: Literal["nearest", "bilinear", "bicubic"] | None = None,
        center: Sequence[float] | None = None,
        fill: int | Sequence[int] | None = None,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(angle=angle, translate=translate, scale=scale, shear=shear, interpolation=interpolation, center=center, fill=fill, placement=placement)


class Elastic(Operator):
    """Displaces each pixel by blurred noise: torchvision's ``ElasticTransform``. With the same noise,
    channel values differ from torchvision's by at most 1.

    Columns of masks, points and boxes follow the image. Annotated objects of a source do not move.
    torchvision moves points and the corners of a box by the displacements at their pixels, which is
    an approximation. Unlike in torchvision, the image may be smaller than the kernel of the blur.

    Settings:

    * ``alpha``: Strength in x and in y direction, 0 to 10,000. A blurred noise value of 1 displaces a pixel by ``alpha / 2`` pixels. In TOML, one number sets both. Default 50.
    * ``sigma``: Standard deviation of the blur in x and in y direction, in pixels, 0 to 100. Either both are 0 (no blur) or both are above 0. In TOML, one number sets both. Default 5.
    * ``interpolation``: Interpolation between pixels: ``bilinear`` (default) or ``nearest``.
    * ``fill``: Fill colour outside of the image: red, green and blue, 0 to 255. In TOML, one number sets all three. Default 0.
    """

    OP = "elastic"

    def __init__(
        self,
        *,
        alpha: float | Sequence[float] | None = None,
        sigma: float | Sequence[float] | None = None,
        interpolation: Literal["nearest", "bilinear", "bicubic"] | None = None,
        fill: int | Sequence[int] | None = None,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(alpha=alpha, sigma=sigma, interpolation=interpolation, fill=fill, placement=placement)


class FiveCrop(Operator):
    """Crops the four corners and the centre of the image: torchvision's ``FiveCrop``.

    The five crops are in this order: top left, top right, bottom left, bottom right, centre. They
    are the outputs of a ``View``, or ``crop`` chooses one of them.

    If the image is smaller than the window, torchvision raises an error. feedwater fills the
    missing pixels with 0: beyond the edges that a corner does not touch, and on both sides of the
    centre.

    Settings:

    * ``width``: Output width, in pixels.
    * ``height``: Output height, in pixels.
    * ``crop``: Index of the only crop to make, 0 to 4. By default, all five are made, which is possible only in a view.
    """

    OP = "five_crop"

    def __init__(
        self,
        *,
        width: int,
        height: int,
        crop: int | None = None,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(width=width, height=height, crop=crop, placement=placement)


class Letterbox(Operator):
    """Resizes the image to the largest size that fits into the output, and pads the rest. This is
    YOLO's preprocessing: the image is placed as by Ultralytics' ``LetterBox`` 8.4
    (``ultralytics/data/augment.py``).

    Ultralytics resizes with OpenCV's bilinear interpolation, which does not antialias when it
    shrinks an image. feedwater resamples as Pillow does, with antialiasing.

    Settings:

    * ``width``: Output width, in pixels.
    * ``height``: Output height, in pixels.
    * ``scale_up``: Whether images that are smaller than the output are enlarged. Default true.
    * ``center``: Whether the image is centred. If false, it is at the upper left corner. Default true.
    * ``stride``: Reduces the padding of each axis to its remainder after division by this many pixels, as Ultralytics' ``auto`` does with 32. If ``width`` and ``height`` are multiples of ``stride``, so are the sides of the output. Default: pads to the whole output.
    * ``fill``: Colour of the padding: red, green and blue. In TOML, one number sets all three. Default 114, except for palette indices (``decode.pixels = "indices"``), where it must be set.
    * ``filter``: Resampling filter. Default bilinear.
    """

    OP = "letterbox"

    def __init__(
        self,
        *,
        width: int,
        height: int,
        scale_up: bool | None = None,
        center: bool | None = None,
        stride: int | None = None,
        fill: int | Sequence[int] | None = None,
        filter: Literal["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"] | None = None,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(width=width, height=height, scale_up=scale_up, center=center, stride=stride, fill=fill, filter=filter, placement=placement)


class Pad(Operator):
    """Adds pixels at the sides: torchvision's ``Pad`` on PIL images.

    The modes ``reflect`` and ``symmetric`` mirror the image repeatedly if the padding is larger than
    the image, as torchvision does with PIL images. With tensors, torchvision refuses such a
    padding. In every mode, boxes move with the image, and mirrored copies of an object have no box.

    Settings:

    * ``padding``: Pixels to add on the left, top, right and bottom. In TOML, one number sets all four.
    * ``fill``: Colour of the padding in the mode ``constant``: red, green and blue in the scale of the input pixels, which is 0 to 255, or normalized values after ``normalize``. In TOML, one number sets all three. Default 0.
    * ``mode``: Pixels that are added: ``constant`` (the fill colour, default), ``edge`` (repeats edge pixels), ``reflect`` (mirrors the image without its edge pixels) or ``symmetric`` (mirrors the image with its edge pixels).
    """

    OP = "pad"

    def __init__(
        self,
        *,
        padding: int | Sequence[int],
        fill: float | Sequence[float] | None = None,
        mode: Literal["constant", "edge", "reflect", "symmetric"] | None = None,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(padding=padding, fill=fill, mode=mode, placement=placement)


class Perspective(Operator):
    """Maps four points of the input to four points of the output: torchvision's ``perspective`` on PIL
    images (``torchvision/transforms/_functional_pil.py``). The output has the size of the input.

    With the same coefficients, pixels equal torchvision's. torchvision computes the coefficients
    with LAPACK's least-squares solver and rounds them to f32. feedwater solves the equations
    exactly for coordinates up to 4096 before it rounds.

    Settings:

    * ``end``: Points of the output to which the points of the input move, in the same order.
    * ``start``: Points of the input as ``[column, row]`` in pixels: upper left, upper right, lower right, lower left. Default: the centres of the corner pixels.
    * ``interpolation``: Interpolation between pixels. Default bilinear.
    * ``fill``: Fill colour outside of the image: red, green and blue. In TOML, one number sets all three. Default 0.
    """

    OP = "perspective"

    def __init__(
        self,
        *,
        end: Sequence[Sequence[float]],
        start: Sequence[Sequence[float]] | None = None,
        interpolation: Literal["nearest", "bilinear", "bicubic"] | None = None,
        fill: int | Sequence[int] | None = None,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(end=end, start=start, interpolation=interpolation, fill=fill, placement=placement)


class RandomAffine(Operator):
    """Rotates, moves, scales and shears by random amounts, which are drawn uniformly in this order:
    torchvision's ``RandomAffine``. The result equals that of ``Affine`` with
    the same amounts.

    Settings:

    * ``degrees``: Smallest and largest angle in degrees, clockwise. In TOML, one number n means ``[-n, n]``.
    * ``translate``: Largest translation in each direction, as a fraction of width and height, 0 to 1. Drawn translations are rounded to whole pixels. Default: the image is not moved.
    * ``scale``: Smallest and largest scale factor, 0.001 to 1000. Default: the image is not scaled.
    * ``shear_x``: Smallest and largest shear angle parallel to the x axis, in degrees, -89 to 89. In TOML, one number n means ``[-n, n]``. Default: no shear.
    * ``shear_y``: Smallest and largest shear angle parallel to the y axis, in degrees, -89 to 89. In TOML, one number n means ``[-n, n]``. Default: no shear. torchvision takes ``shear_x`` and ``shear_y`` as one list ``shear``.
    * ``interpolation``: Interpolation between pixels. Default nearest.
    * ``center``: Centre of rotation, shear and scale as ``[column, row]``, in pixels from the upper left corner. Default: the centre of the image.
    * ``fill``: Fill colour outside of the image: red, green and blue. In TOML, one number sets all three. Default 0.
    """

    OP = "random_affine"

    def __init__(
        self,
        *,
        degrees: float | Sequence[float],
        translate: Sequence[float] | None = None,
        scale: Sequence[float] | None = None,
        shear_x: float | Sequence[float] | None = None,
        shear_y: float | Sequence[float] | None = None,
        interpolation: Literal["nearest", "bilinear", "bicubic"] | None = None,
        center: Sequence[float] | None = None,
        fill: int | Sequence[int] | None = None,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(degrees=degrees, translate=translate, scale=scale, shear_x=shear_x, shear_y=shear_y, interpolation=interpolation, center=center, fill=fill, placement=placement)


class RandomIouCrop(Operator):
    """Crops a random window whose intersection over union with one of the boxes is large enough:
    torchvision's ``RandomIoUCrop`` of SSD.

    The boxes come from the source's annotations (COCO). An image without boxes is not cropped.
    Objects whose box has its centre outside of the window are dropped, and boxes are clipped to the
    window, as in torchvision. If 100 drawn overlaps lead to no window, the image is not cropped.
    torchvision has no such limit.

    Settings:

    * ``scale``: Smallest and largest side of the window as a fraction of the image's side, above 0 and at most 1. Default ``[0.3, 1]``.
    * ``ratio``: Smallest and largest aspect ratio of the window (width divided by height), above 0. Default ``[0.5, 2]``.
    * ``overlaps``: Candidates for the smallest allowed intersection over union, each 0 to 1. One candidate is drawn uniformly. If 1 is drawn, the image is not cropped. Default ``[0, 0.1, 0.3, 0.5, 0.7, 0.9, 1]``.
    * ``trials``: Number of windows that are tried for each drawn overlap, 1 to 1000. Default 40.
    """

    OP = "random_iou_crop"

    def __init__(
        self,
        *,
        scale: Sequence[float] | None = None,
        ratio: Sequence[float] | None = None,
        overlaps: Sequence[float] | None = None,
        trials: int | None = None,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(scale=scale, ratio=ratio, overlaps=overlaps, trials=trials, placement=placement)


class RandomPerspective(Operator):
    """Moves the corners of the image inwards by random amounts: torchvision's ``RandomPerspective``. The
    result equals that of ``Perspective`` with the same corners.

    Settings:

    * ``distortion_scale``: Largest distance by which a corner moves, as a fraction of half the side, 0 to 1. Default 0.5.
    * ``probability``: Probability that the image changes, 0 to 1. Default 0.5.
    * ``interpolation``: Interpolation between pixels. Default bilinear.
    * ``fill``: Fill colour outside of the image: red, green and blue. In TOML, one number sets all three. Default 0.
    """

    OP = "random_perspective"

    def __init__(
        self,
        *,
        distortion_scale: float | None = None,
        probability: float | None = None,
        interpolation: Literal["nearest", "bilinear", "bicubic"] | None = None,
        fill: int | Sequence[int] | None = None,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(distortion_scale=distortion_scale, probability=probability, interpolation=interpolation, fill=fill, placement=placement)


class RandomResize(Operator):
    """Resizes the shorter side to a length that is drawn from a range: torchvision's ``RandomResize``.

    Settings:

    * ``min_size``: Smallest length of the shorter side, in pixels.
    * ``max_size``: End of the range of lengths, above ``min_size``. As in torchvision, the end is excluded: at most ``max_size - 1`` is drawn.
    * ``filter``: Resampling filter. Default bilinear.
    """

    OP = "random_resize"

    def __init__(
        self,
        *,
        min_size: int,
        max_size: int,
        filter: Literal["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"] | None = None,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(min_size=min_size, max_size=max_size, filter=filter, placement=placement)


class RandomRotation(Operator):
    """Rotates by an angle that is drawn uniformly: torchvision's ``RandomRotation``. The result equals
    that of ``Rotate`` with the same angle.

    Settings:

    * ``degrees``: Smallest and largest angle in degrees, counter-clockwise. In TOML, one number n means ``[-n, n]``.
    * ``interpolation``: Interpolation between pixels. Default nearest.
    * ``expand``: Whether the output is enlarged to hold the whole rotated image. Default false: the output has the size of the input.
    * ``center``: Centre of the rotation as ``[column, row]``, in pixels from the upper left corner. Default: the centre of the image.
    * ``fill``: Fill colour outside of the image: red, green and blue. In TOML, one number sets all three. Default 0.
    """

    OP = "random_rotation"

    def __init__(
        self,
        *,
        degrees: float | Sequence[float],
        interpolation: Literal["nearest", "bilinear", "bicubic"] | None = None,
        expand: bool | None = None,
        center: Sequence[float] | None = None,
        fill: int | Sequence[int] | None = None,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(degrees=degrees, interpolation=interpolation, expand=expand, center=center, fill=fill, placement=placement)


class RandomShortestSize(Operator):
    """Resizes the shorter side to a length that is drawn from a list, or to less if the longer side
    would exceed ``max_size``: torchvision's ``RandomShortestSize`` (DETR). Sides have at least one
    pixel. torchvision fails if a side would have none.

    Settings:

    * ``min_size``: Lengths of the shorter side, in pixels. All have the same probability.
    * ``max_size``: Maximum length of the longer side, in pixels. Default: no maximum.
    * ``filter``: Resampling filter. Default bilinear.
    """

    OP = "random_shortest_size"

    def __init__(
        self,
        *,
        min_size: Sequence[int],
        max_size: int | None = None,
        filter: Literal["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"] | None = None,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(min_size=min_size, max_size=max_size, filter=filter, placement=placement)


class RandomZoomOut(Operator):
    """Places the image at a random position of a larger canvas of random size: torchvision's
    ``RandomZoomOut`` (SSD).

    Settings:

    * ``side_range``: Smallest and largest ratio of the canvas's sides to the image's sides, 1 to 32. Default 1 to 4.
    * ``probability``: Probability that the image changes, 0 to 1. Default 0.5.
    * ``fill``: Colour of the padding: red, green and blue in the scale of the input pixels, which is 0 to 255, or normalized values after ``normalize``. In TOML, one number sets all three. Default 0.
    """

    OP = "random_zoom_out"

    def __init__(
        self,
        *,
        side_range: Sequence[float] | None = None,
        probability: float | None = None,
        fill: float | Sequence[float] | None = None,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(side_range=side_range, probability=probability, fill=fill, placement=placement)


class ResizeKeepRatio(Operator):
    """Resizes the image to cover a size (``longest`` 0), to fit into the size (``longest`` 1), or to
    something in between: timm's ``ResizeKeepRatio``. A random scale and a random aspect ratio can
    change both sides. Sides have at least one pixel. timm fails if a side would have none.

    Settings:

    * ``width``: Width to cover or to fit into, in pixels.
    * ``height``: Height to cover or to fit into, in pixels.
    * ``longest``: Weight between covering the size (0) and fitting into it (1). Default 0.
    * ``scale_probability``: Probability of a random scale, 0 to 1. Default 0.
    * ``scale``: Smallest and largest scale, 0.01 to 32. Default 0.85 to 1.05.
    * ``scale_is_area``: Whether ``scale`` is the relative area of a crop, as in ``random_resized_crop``. A smaller scale then makes the image larger. Default false.
    * ``aspect_probability``: Probability of a random aspect ratio, 0 to 1. Default 0.
    * ``aspect``: Smallest and largest factor by which the aspect ratio changes, 0.01 to 32. Default 0.9 to 1.11.
    * ``filter``: Resampling filter. Default bilinear.
    """

    OP = "resize_keep_ratio"

    def __init__(
        self,
        *,
        width: int,
        height: int,
        longest: float | None = None,
        scale_probability: float | None = None,
        scale: Sequence[float] | None = None,
        scale_is_area: bool | None = None,
        aspect_probability: float | None = None,
        aspect: Sequence[float] | None = None,
        filter: Literal["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"] | None = None,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(width=width, height=height, longest=longest, scale_probability=scale_probability, scale=scale, scale_is_area=scale_is_area, aspect_probability=aspect_probability, aspect=aspect, filter=filter, placement=placement)


class Rotate(Operator):
    """Rotates counter-clockwise: torchvision's ``rotate`` on PIL images, bit for bit (Pillow's
    ``Image.rotate``).

    A rotation by a multiple of 90 degrees around the centre of the image needs no interpolation if
    the output has the shape of the rotated image. This is so with ``expand``, for square images, and
    for 180 degrees.

    Settings:

    * ``angle``: Angle in degrees, counter-clockwise.
    * ``interpolation``: Interpolation between pixels. Default nearest.
    * ``expand``: Whether the output is enlarged to hold the whole rotated image. Default false: the output has the size of the input.
    * ``center``: Centre of the rotation as ``[column, row]``, in pixels from the upper left corner. Default: the centre of the image.
    * ``fill``: Fill colour outside of the image: red, green and blue. In TOML, one number sets all three. Default 0.
    """

    OP = "rotate"

    def __init__(
        self,
        *,
        angle: float,
        interpolation: Literal["nearest", "bilinear", "bicubic"] | None = None,
        expand: bool | None = None,
        center: Sequence[float] | None = None,
        fill: int | Sequence[int] | None = None,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(angle=angle, interpolation=interpolation, expand=expand, center=center, fill=fill, placement=placement)


class ScaleJitter(Operator):
    """Resizes to the largest size that fits into a target, times a random scale: torchvision's
    ``ScaleJitter`` (Simple Copy-Paste). Sides have at least one pixel. torchvision fails if a side
    would have none.

    Settings:

    * ``width``: Width of the target, in pixels.
    * ``height``: Height of the target, in pixels.
    * ``scale_range``: Smallest and largest scale, 0.01 to 32. Default 0.1 to 2.
    * ``filter``: Resampling filter. Default bilinear.
    """

    OP = "scale_jitter"

    def __init__(
        self,
        *,
        width: int,
        height: int,
        scale_range: Sequence[float] | None = None,
        filter: Literal["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"] | None = None,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(width=width, height=height, scale_range=scale_range, filter=filter, placement=placement)


class TenCrop(Operator):
    """Crops the four corners and the centre of the image and of its mirror image: torchvision's
    ``TenCrop``.

    First come the crops of ``FiveCrop``, then those of the mirror image in the same order. They are
    the outputs of a ``View``, or ``crop`` selects one of them. Images that are
    smaller than the window are filled as by ``FiveCrop``.

    Settings:

    * ``width``: Output width, in pixels.
    * ``height``: Output height, in pixels.
    * ``vertical_flip``: Whether the image is mirrored top to bottom instead of left to right. Default false.
    * ``crop``: Index of the only crop to make, 0 to 9. By default, all ten are made, which is possible only in a view.
    """

    OP = "ten_crop"

    def __init__(
        self,
        *,
        width: int,
        height: int,
        vertical_flip: bool | None = None,
        crop: int | None = None,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(width=width, height=height, vertical_flip=vertical_flip, crop=crop, placement=placement)


class Thumbnail(Operator):
    """Shrinks an image to fit into a size and preserves its aspect ratio: Pillow's ``Image.thumbnail``
    with ``reducing_gap=None``. Images that already fit are unchanged.

    Settings:

    * ``width``: Maximum width of the output, in pixels.
    * ``height``: Maximum height of the output, in pixels.
    * ``filter``: Resampling filter. Default bicubic.
    """

    OP = "thumbnail"

    def __init__(
        self,
        *,
        width: int,
        height: int,
        filter: Literal["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"] | None = None,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(width=width, height=height, filter=filter, placement=placement)


class AugMix(Operator):
    """Mixes the image with the results of several chains of random operations: torchvision's ``AugMix``,
    with the same operations, magnitudes, weights and order of draws.

    The sum is computed in f32 and truncated, as in torchvision. The operations are those of PIL
    images, as in the other policies, but torchvision converts a PIL image to a tensor first. Boxes,
    masks and keypoints stay where they are.

    Settings:

    * ``severity``: Strength of the operations, 1 to 10. Magnitudes are drawn from the first ``severity`` of ten. Default 3.
    * ``mixture_width``: Number of chains of operations whose results are mixed, 1 to 16. Default 3.
    * ``chain_depth``: Number of operations of each chain, 1 to 16. Default: 1 to 3, drawn for each chain (torchvision's -1).
    * ``alpha``: Parameter of the Dirichlet distributions of the weights, 0.1 to 1000. Default 1.
    * ``all_ops``: Whether brightness, saturation, contrast and sharpness are among the operations. Default true.
    * ``interpolation``: Interpolation between pixels. Default bilinear.
    * ``fill``: Red, green and blue of pixels that an operation leaves empty. In TOML, one number sets all three. Default 0.
    * ``version``: Version of torchvision's transforms, ``v1`` or ``v2`` (default). Only the thresholds of ``Solarize`` differ: v1's are evenly spaced from 255 to 0. v2's are 255 times a rounded fraction. Where v1's threshold is a whole number, v2's may be a little larger, so that v2 does not invert pixels with this value.
    """

    OP = "aug_mix"

    def __init__(
        self,
        *,
        severity: int | None = None,
        mixture_width: int | None = None,
        chain_depth: int | None = None,
        alpha: float | None = None,
        all_ops: bool | None = None,
        interpolation: Literal["nearest", "bilinear", "bicubic"] | None = None,
        fill: int | Sequence[int] | None = None,
        version: Literal["v1", "v2"] | None = None,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(severity=severity, mixture_width=mixture_width, chain_depth=chain_depth, alpha=alpha, all_ops=all_ops, interpolation=interpolation, fill=fill, version=version, placement=placement)


class AutoAugment(Operator):
    """Applies one of 25 pairs of operations, in which each operation has its own probability and
    strength: torchvision's ``AutoAugment``, with the same operations, magnitudes and order of draws.
    The pixels are those that torchvision computes for PIL images.

    Settings:

    * ``policy``: Dataset for which the pairs were found: ``imagenet`` (default), ``cifar10`` or ``svhn``.
    * ``interpolation``: Interpolation between pixels. Default nearest.
    * ``fill``: Red, green and blue of pixels that an operation leaves empty. In TOML, one number sets all three. Default 0.
    * ``version``: Version of torchvision's transforms, ``v1`` or ``v2`` (default). Only the thresholds of ``Solarize`` differ: v1's are evenly spaced from 255 to 0. v2's are 255 times a rounded fraction. Where v1's threshold is a whole number, v2's may be a little larger, so that v2 does not invert pixels with this value.
    """

    OP = "auto_augment"

    def __init__(
        self,
        *,
        policy: Literal["imagenet", "cifar10", "svhn"] | None = None,
        interpolation: Literal["nearest", "bilinear", "bicubic"] | None = None,
        fill: int | Sequence[int] | None = None,
        version: Literal["v1", "v2"] | None = None,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(policy=policy, interpolation=interpolation, fill=fill, version=version, placement=placement)


class RandAugment(Operator):
    """Applies operations that are drawn from 14, all with the same strength: torchvision's
    ``RandAugment``, with the same operations, magnitudes and order of draws. The pixels are those
    that torchvision computes for PIL images.

    Settings:

    * ``num_ops``: Number of operations per image, 0 to 16. Default 2.
    * ``magnitude``: Strength of the operations: number of the magnitude, from 0 to ``num_magnitude_bins - 1``. Default 9.
    * ``num_magnitude_bins``: Number of magnitudes of each operation, 2 to 1000. Default 31.
    * ``interpolation``: Interpolation between pixels. Default nearest.
    * ``fill``: Red, green and blue of pixels that an operation leaves empty. In TOML, one number sets all three. Default 0.
    * ``version``: Version of torchvision's transforms, ``v1`` or ``v2`` (default). Only the thresholds of ``Solarize`` differ: v1's are evenly spaced from 255 to 0. v2's are 255 times a rounded fraction. Where v1's threshold is a whole number, v2's may be a little larger, so that v2 does not invert pixels with this value.
    """

    OP = "rand_augment"

    def __init__(
        self,
        *,
        num_ops: int | None = None,
        magnitude: int | None = None,
        num_magnitude_bins: int | None = None,
        interpolation: Literal["nearest", "bilinear", "bicubic"] | None = None,
        fill: int | Sequence[int] | None = None,
        version: Literal["v1", "v2"] | None = None,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(num_ops=num_ops, magnitude=magnitude, num_magnitude_bins=num_magnitude_bins, interpolation=interpolation, fill=fill, version=version, placement=placement)


class ThreeAugment(Operator):
    """Makes each image gray, solarized from 128 on, or blurred with a radius of 0.1 to 2 pixels, with
    equal probability: 3-Augment of DeiT III (``augment.py`` of facebookresearch/deit). The recipe of
    DeiT III continues with ``color_jitter`` of 0.3.

    The blur is Pillow's ``ImageFilter.GaussianBlur``, which approximates a Gaussian by three box
    filters along each axis.
    """

    OP = "three_augment"

    def __init__(
        self,
        *,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(placement=placement)


class TimmAugMix(Operator):
    """Mixes the image with the results of several chains of random operations, configured by a text of
    timm 1.0 such as ``augmix-m5-w4-d2``. The operations, magnitudes and distributions are those of
    ``augment_and_mix_transform`` in ``timm/data/auto_augment.py``.

    Sections of the text: ``m`` magnitude (default 3), ``w`` number of chains of operations (3), ``d``
    number of operations of each chain (1 to 3, drawn), ``a`` parameter of the distributions of the
    weights (1), ``mstd`` standard deviation of the magnitude. Without ``mstd``, the magnitude is
    uniform from 0 to ``m``. The weighted sum is rounded once. timm rounds the sum of the chains
    before it adds the image, so pixels may differ from timm's by one level.

    Settings:

    * ``config``: Text that configures the policy as in timm, such as ``augmix-m5-w4-d2``.
    * ``translate``: Largest translation at magnitude 10, as a fraction of the side, 0 to 1. Default 0.45. timm's ``create_transform`` uses 0.3.
    * ``interpolation``: Interpolation between pixels. Default: bilinear or bicubic, drawn for each operation.
    * ``fill``: Red, green and blue of pixels that an operation leaves empty. timm uses the mean of the data. In TOML, one number sets all three. Default 128.
    """

    OP = "timm_aug_mix"

    def __init__(
        self,
        *,
        config: str,
        translate: float | None = None,
        interpolation: Literal["nearest", "bilinear", "bicubic"] | None = None,
        fill: int | Sequence[int] | None = None,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(config=config, translate=translate, interpolation=interpolation, fill=fill, placement=placement)


class TimmAutoAugment(Operator):
    """Applies operations that a text of timm 1.0 selects, such as ``original-mstd0.5``. The operations,
    magnitudes and distributions are those of ``auto_augment_transform`` in
    ``timm/data/auto_augment.py``.

    The text begins with the policy. ``v0`` (EfficientNet) and ``original`` (the paper of AutoAugment)
    apply one of 25 pairs of operations to each image. ``v0r`` and ``originalr`` do the same, but
    posterizing becomes stronger with the magnitude. ``3a`` applies one of the three operations of
    DeiT III. The section ``mstd`` is the standard deviation of the magnitude (default 0).

    Settings:

    * ``config``: Text that configures the policy as in timm, such as ``original-mstd0.5``.
    * ``interpolation``: Interpolation between pixels. Default: bilinear or bicubic, drawn for each operation.
    * ``fill``: Red, green and blue of pixels that an operation leaves empty. timm uses the mean of the data. In TOML, one number sets all three. Default 128.
    """

    OP = "timm_auto_augment"

    def __init__(
        self,
        *,
        config: str,
        interpolation: Literal["nearest", "bilinear", "bicubic"] | None = None,
        fill: int | Sequence[int] | None = None,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(config=config, interpolation=interpolation, fill=fill, placement=placement)


class TimmRandAugment(Operator):
    """Applies operations that a text of timm 1.0 selects, such as ``rand-m9-mstd0.5-inc1``. The
    operations, magnitudes and distributions are those of ``rand_augment_transform`` in
    ``timm/data/auto_augment.py``.

    Sections of the text: ``m`` magnitude (default 10), ``n`` number of operations per image (2), ``p``
    probability of each operation (0.5), ``mstd`` standard deviation of the magnitude (0), ``mmax``
    largest magnitude (10). If ``mstd`` is above 100, the magnitude is uniform from 0 to ``m``. ``inc1``
    selects operations that become stronger with the magnitude. ``tweights``, ``t3a`` and ``t3aw`` select
    other sets of operations.

    Settings:

    * ``config``: Text that configures the policy as in timm, such as ``rand-m9-mstd0.5-inc1``.
    * ``interpolation``: Interpolation between pixels. Default: bilinear or bicubic, drawn for each operation.
    * ``fill``: Red, green and blue of pixels that an operation leaves empty. timm uses the mean of the data. In TOML, one number sets all three. Default 128.
    """

    OP = "timm_rand_augment"

    def __init__(
        self,
        *,
        config: str,
        interpolation: Literal["nearest", "bilinear", "bicubic"] | None = None,
        fill: int | Sequence[int] | None = None,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(config=config, interpolation=interpolation, fill=fill, placement=placement)


class TrivialAugmentWide(Operator):
    """Applies one operation that is drawn from 14, with a strength that is drawn too: torchvision's
    ``TrivialAugmentWide``, with the same operations, magnitudes and order of draws. The pixels are
    those that torchvision computes for PIL images.

    Settings:

    * ``num_magnitude_bins``: Number of magnitudes of each operation, 2 to 1000. Default 31.
    * ``interpolation``: Interpolation between pixels. Default nearest.
    * ``fill``: Red, green and blue of pixels that an operation leaves empty. In TOML, one number sets all three. Default 0.
    * ``version``: Version of torchvision's transforms, ``v1`` or ``v2`` (default). Only the thresholds of ``Solarize`` differ: v1's are evenly spaced from 255 to 0. v2's are 255 times a rounded fraction. Where v1's threshold is a whole number, v2's may be a little larger, so that v2 does not invert pixels with this value.
    """

    OP = "trivial_augment_wide"

    def __init__(
        self,
        *,
        num_magnitude_bins: int | None = None,
        interpolation: Literal["nearest", "bilinear", "bicubic"] | None = None,
        fill: int | Sequence[int] | None = None,
        version: Literal["v1", "v2"] | None = None,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(num_magnitude_bins=num_magnitude_bins, interpolation=interpolation, fill=fill, version=version, placement=placement)


class Mixup(BatchOperator):
    """Replaces each sample of a pair by ``l * own + (1 - l) * other``. ``own`` is this sample, ``other`` is
    the other sample of the pair, and ``l`` is drawn from Beta(``alpha``, ``alpha``). Targets are replaced
    in the same way. This is mixup (Zhang et al., ICLR 2018), like timm's ``Mixup`` in mode ``pair``.
    torchvision's ``MixUp`` draws one ``l`` for the whole batch.

    Settings:

    * ``alpha``: Parameter of the Beta distribution, 0.001 to 1000. Default 1, the uniform distribution.
    * ``probability``: Probability that a pair is mixed, 0 to 1. Default 1.
    """

    OP = "mixup"

    def __init__(
        self,
        *,
        alpha: float | None = None,
        probability: float | None = None,
    ) -> None:
        super().__init__(alpha=alpha, probability=probability)


class CutMix(BatchOperator):
    """Exchanges a box between both samples of a pair: CutMix (Yun et al., ICCV 2019). Each target
    becomes ``l * own + (1 - l) * other``. ``own`` is this target, ``other`` is the target of the other
    sample, and ``l`` is the fraction of the image outside the box.

    The box is drawn as in torchvision. A number ``m`` is drawn from Beta(``alpha``, ``alpha``), and a
    pixel is drawn uniformly. The box extends from this pixel by ``int(width * sqrt(1 - m) / 2)``
    columns and ``int(height * sqrt(1 - m) / 2)`` rows to each side, clipped to the image. timm's box
    is up to one pixel larger.

    Settings:

    * ``alpha``: Parameter of the Beta distribution, 0.001 to 1000. Default 1, the uniform distribution.
    * ``probability``: Probability that a pair is mixed, 0 to 1. Default 1.
    """

    OP = "cutmix"

    def __init__(
        self,
        *,
        alpha: float | None = None,
        probability: float | None = None,
    ) -> None:
        super().__init__(alpha=alpha, probability=probability)


class MixupOrCutMix(BatchOperator):
    """Mixes each pair by ``Mixup`` or by ``CutMix``: timm's ``Mixup`` in
    mode ``pair``.

    timm's mode ``batch`` draws once per batch, so samples depend on the batch size. feedwater does
    not have this mode.

    Settings:

    * ``mixup_alpha``: Parameter of mixup's Beta distribution, 0.001 to 1000: timm's ``mixup_alpha``. Default 0.8.
    * ``cutmix_alpha``: Parameter of CutMix' Beta distribution, 0.001 to 1000: timm's ``cutmix_alpha``. Default 1.
    * ``probability``: Probability that a pair is mixed, 0 to 1: timm's ``prob``. Default 1.
    * ``cutmix_probability``: Probability that a mixed pair is mixed by CutMix, 0 to 1: timm's ``switch_prob``. Default 0.5.
    """

    OP = "mixup_or_cutmix"

    def __init__(
        self,
        *,
        mixup_alpha: float | None = None,
        cutmix_alpha: float | None = None,
        probability: float | None = None,
        cutmix_probability: float | None = None,
    ) -> None:
        super().__init__(mixup_alpha=mixup_alpha, cutmix_alpha=cutmix_alpha, probability=probability, cutmix_probability=cutmix_probability)


if not TYPE_CHECKING:

    def __getattr__(name: str) -> NoReturn:
        raise unknown_operator(name, __all__)
