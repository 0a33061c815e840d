"""Operators of a chain, as classes with the settings of a pipeline file.

Written by ``scripts/python-api --write`` from the doc comments in ``src/op/``. A setting that is ``None`` has its default. All
classes but those of ``[[batch_operators]]`` also take ``placement``: ``"cpu"``, ``"gpu"`` or ``"auto"``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

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
    "ThreeAugment",
    "Thumbnail",
    "TimmAugMix",
    "TimmAutoAugment",
    "TimmRandAugment",
    "ToYcbcr",
    "TrivialAugmentWide",
]


class Crop(Operator):
    """Crops a window. Pixels outside the image are 0, as with Pillow's ``Image.crop``.

    Settings:

    * ``width``: Output width, in pixels.
    * ``height``: Output height, in pixels.
    * ``x``: First column. Default 0.
    * ``y``: First row. Default 0.
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

    The window begins at ``int(round((side - wanted) / 2))``, rounding half to even. A smaller image is padded,
    with ``(wanted - side) / 2`` truncated to an integer on the left and at the top. With ``fill`` and ``mode`` it is timm's
    ``CenterCropOrPad``.

    Settings:

    * ``width``: Output width, in pixels.
    * ``height``: Output height, in pixels.
    * ``fill``: Red, green and blue of the padding, in the values of the input pixels: 0 to 255, or normalized values after ``normalize``. In TOML also one number for all. Default 0. Only for the mode ``constant``.
    * ``mode``: What is added to a smaller image: ``constant`` (default), ``edge``, ``reflect`` or ``symmetric``.
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

    If the padded image is smaller than the window, torchvision raises an error. Here the window begins at the image's
    first column (row), and the missing pixels at the end are ``fill``.

    Settings:

    * ``width``: Output width, in pixels.
    * ``height``: Output height, in pixels.
    * ``padding``: Padding on the left, top, right and bottom, in pixels. In TOML also one number for all four. Default 0.
    * ``pad_if_needed``: Whether to pad both sides by the difference if the padded image is still smaller than the window. Default false.
    * ``fill``: Red, green and blue of the padding, in the values of the input pixels: 0 to 255, or normalized values after ``normalize``. In TOML also one number for all. Default 0. Only for the mode ``constant``.
    * ``mode``: What the padding is: ``constant`` (default), ``edge``, ``reflect`` or ``symmetric``.
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
    """Crops a window of random area and aspect ratio and resizes it: torchvision's ``RandomResizedCrop``.

    Draws an area (uniform in ``scale``, as a fraction of the image) and an aspect ratio (log-uniform in ``ratio``) up to
    ten times and places the first window that fits uniformly. If none fits, crops the largest centred window that the
    ratios allow.

    Settings:

    * ``width``: Output width, in pixels.
    * ``height``: Output height, in pixels.
    * ``scale``: Minimum and maximum area of the window, as a fraction of the image's area. Default 0.08 to 1.
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

    Exactly one of three forms: ``width`` and ``height``; ``shorter``, where the other side becomes ``int(shorter * long /
    short)``; or ``longer``, where the other side becomes ``int(longer * short / long)``, but at least 1. ``max_size`` limits the
    longer side of the second form.

    Settings:

    * ``width``: Output width, in pixels.
    * ``height``: Output height, in pixels.
    * ``shorter``: Shorter side of the output, in pixels.
    * ``max_size``: Maximum length of the longer side, in pixels, above ``shorter``: a longer one is reduced to it, with the shorter side in proportion. Only with ``shorter``. Default: no maximum.
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
    """Mirrors each sample with given probabilities, columns and rows independently.

    Draws like torchvision's ``RandomHorizontalFlip`` and ``RandomVerticalFlip``: mirrors if a uniform number in ``[0, 1)``
    is below the probability.

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
    """``(value / 255 - mean) / std``, each step rounded to f32: torchvision's ``ToTensor``, then ``Normalize``.

    Settings:

    * ``mean``: Means of red, green and blue on a scale of 0 to 1, each from -1 to 1. DALI uses a scale of 0 to 255: divide its values by 255.
    * ``std``: Standard deviations of red, green and blue on a scale of 0 to 1: over 0, at most ``Normalize::MAX_STD``. The standard deviation of real images never exceeds 0.5.
    """

    OP = "normalize"

    def __init__(
        self,
        *,
        mean: Sequence[float],
        std: Sequence[float],
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

    * ``factor``: 0 gives black, 1 the image, 2 twice its bytes. One number, or ``[low, high]``, from which it is drawn uniformly.
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
    """Exchanges channels, like torchvision's ``permute_channels`` and ``RandomChannelPermutation``.

    Settings:

    * ``order``: Channel of the input, 0 to 2, that each channel of the output copies. Default: one of the six orders, drawn per sample.
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
    """Changes brightness, contrast, saturation and hue by random amounts in random order, like torchvision's
    ``ColorJitter``.

    Each setting is a range ``[low, high]``, from which the factor is drawn uniformly, or one number v for the range
    ``[max(0, 1 - v), 1 + v]`` (hue: ``[-v, v]``). Default: not changed.

    Settings:

    * ``brightness``: Factor of brightness: 0 is black, 1 the image.
    * ``contrast``: Factor of contrast: 0 is the mean gray, 1 the image.
    * ``saturation``: Factor of saturation: 0 is the gray image, 1 the image.
    * ``hue``: Turn of the hue in circles, -0.5 to 0.5.
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
    """Changes brightness, contrast, saturation and hue by one linear map: DALI's ``color_twist``. DALI computes the map in f32,
    feedwater in f64, so a byte may differ by one level where the exact value is halfway between two levels.

    Each setting is one number, or ``[low, high]``, from which it is drawn uniformly.

    Settings:

    * ``brightness``: Factor of brightness: 0 is black. Default 1.
    * ``contrast``: Factor of contrast: 0 is the gray 128. Default 1.
    * ``saturation``: Factor of saturation: 0 is the gray image. Default 1.
    * ``hue``: Turn of the hue in degrees, -360 to 360. Default 0.
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

    * ``factor``: 0 gives the mean gray, 1 the image. One number, or ``[low, high]``, from which it is drawn uniformly.
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
    """Makes the bytes of each channel equally frequent, like torchvision's ``equalize``."""

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

    * ``gamma``: Exponent, 0 to 100. One number, or ``[low, high]``, from which it is drawn uniformly.
    * ``gain``: Factor, 0 to 1000. Default 1.
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
    """Replaces each channel by the pixel's luma, like torchvision's ``Grayscale(3)``."""

    OP = "grayscale"

    def __init__(
        self,
        *,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(placement=placement)


class Hue(Operator):
    """Turns the hue of each pixel, like torchvision's ``adjust_hue``.

    Settings:

    * ``shift``: Part of the circle, -0.5 to 0.5. One number, or ``[low, high]``, from which it is drawn uniformly.
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

    * ``std``: Deviation of the three normal factors, 0 to 100. Default 0.1.
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
    """Subtracts the image's own mean and divides by its own deviation: Albumentations' ``Normalize`` with the normalization
    ``image`` or ``image_per_channel``, whose f64 values are rounded to f32.

    Settings:

    * ``per_channel``: Whether each channel has its own mean and deviation. Default: all values have the same.
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
    """Changes brightness, contrast, saturation, hue and the order of channels, each with a probability, like torchvision's
    ``RandomPhotometricDistort`` (Liu et al., "SSD: Single shot multibox detector", 2016).

    Settings:

    * ``brightness``: Range of the factor of brightness. Default ``[0.875, 1.125]``.
    * ``contrast``: Range of the factor of contrast. Default ``[0.5, 1.5]``.
    * ``saturation``: Range of the factor of saturation. Default ``[0.5, 1.5]``.
    * ``hue``: Range of the turn of the hue in circles, -0.5 to 0.5. Default ``[-0.05, 0.05]``.
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
    """Computes each channel of each pixel from its value, by an expression such as ``clamp(x * 1.1 - 0.05, 0, 1)``.

    * ``x`` is the value of the channel, 0 to 1: its byte / 255. ``c`` is the number of the channel: 0 red, 1 green, 2 blue.
    * ``+ - * /``, parentheses, and ``abs``, ``clamp(v, low, high)``, ``exp``, ``floor``, ``if(condition, then, else)``, ``log``
      (natural),
      ``max(a, b)``, ``min(a, b)``, ``pow(base, exponent)``, ``round`` (half away from 0) and ``sqrt``. Comparisons (``< <= > >= == !=``)
      are 1 or 0.

    The result is a value from 0 to 1; below and above, it is 0 and 1. The new byte is ``round(255 * result)``.
    Everything is computed in f64, once per byte and channel when the operator is made. A result that is not a number
    is an error.

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

    * ``bits``: Number of bits, 0 (black) to 8 (unchanged).
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
    """Replaces each channel by the pixel's luma with a probability, like torchvision's ``RandomGrayscale``.

    Settings:

    * ``probability``: Probability, 0 to 1. Default 0.1.
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
    """Blends each pixel with its gray, like torchvision's ``adjust_saturation``.

    Settings:

    * ``factor``: 0 gives the gray image, 1 the image. One number, or ``[low, high]``, from which it is drawn uniformly.
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
    """Inverts bytes from a threshold on, like torchvision's ``solarize``.

    Settings:

    * ``threshold``: Smallest inverted byte, 0 (all) to 256 (none). Default 128.
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
    """Converts to YCbCr with the full range of bytes, like Pillow's ``convert("YCbCr")``."""

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
    * ``length``: Side of a square in pixels, 1 to 65,535. Default 16, the paper's for CIFAR-10.
    * ``fill``: Red, green and blue of the squares, 0 to 255. Default black.
    """

    OP = "cutout"

    def __init__(
        self,
        *,
        holes: int | None = None,
        length: int | None = None,
        fill: Sequence[int] | None = None,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(holes=holes, length=length, fill=fill, placement=placement)


class GridMask(Operator):
    """Overwrites the squares of a rotated grid with a colour: DALI's ``grid_mask``, except for pixels less than 0.001 pixel
    from the edge of a square, where DALI rounds in f32 (measured on images of up to 1000x1000).

    Each number may be given as ``[low, high]``, from which it is drawn uniformly.

    Settings:

    * ``tile``: Distance of squares in pixels, 1 to 65,535. Default 100.
    * ``ratio``: Side of a square divided by ``tile``, 0 to 1. Default 0.5.
    * ``angle``: Rotation in degrees, -360 to 360; DALI has radians. Default 0.
    * ``shift_x``: Shift along the grid's first axis in pixels, -65,535 to 65,535. Default 0.
    * ``shift_y``: Shift along the grid's second axis in pixels, -65,535 to 65,535. Default 0.
    * ``fill``: Red, green and blue of the squares, 0 to 255. Default black.
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
        fill: Sequence[int] | None = None,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(tile=tile, ratio=ratio, angle=angle, shift_x=shift_x, shift_y=shift_y, fill=fill, placement=placement)


class RandomErasing(Operator):
    """Overwrites random rectangles with a colour or with noise, like torchvision's and timm's ``RandomErasing``.

    torchvision erases one rectangle, whose defaults these are. timm erases after ``normalize``; its command line has
    ``scale = [0.02, 0.3333]``, ``ratio = [0.3, 3.3333]`` and ``mode = "pixel"``.

    Settings:

    * ``probability``: Probability that a sample is changed, 0 to 1. Default 0.5.
    * ``scale``: Smallest and largest share of the image's area, 0 to 1. Default ``[0.02, 0.33]``.
    * ``ratio``: Smallest and largest height divided by width, 0.001 to 1000. Default ``[0.3, 3.3]``.
    * ``value``: New value, or mean of the noise: one number or one per channel, in bytes before ``normalize``, else normalized. Default 0.
    * ``mode``: What the rectangles become: ``const`` (default), ``rand`` or ``pixel``.
    * ``std``: Standard deviation of the noise of the modes ``rand`` and ``pixel``: one number or one per channel, 0 to 1000, in bytes before ``normalize``, else normalized. Default 1.
    * ``min_count``: Minimum number of rectangles, 1 to 32. Their number is drawn uniformly, and each gets its part of the area. Default 1.
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
    """Blurs with a Gaussian, like torchvision's ``GaussianBlur``, to one level: weights are integers, and the image
    is rounded to bytes after the columns and after the rows.

    The weight at distance x is exp(-x^2 / (2 sigma^2)), normalized, with the image reflected at its borders. torchvision
    refuses kernels that reach over a whole image; here it is reflected again and again.

    Settings:

    * ``kernel_size``: Width and height of the kernel in pixels, or one number for both: odd, 1 to 1023.
    * ``sigma``: Deviation in pixels, 0.001 to 1000, the same for both axes. One number, or ``[low, high]``, from which it is drawn uniformly. Default ``[0.1, 2.0]``.
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
    """Compresses the image as a JPEG of a quality drawn for each sample, and decompresses it: torchvision's ``JPEG`` on PIL
    images, bit for bit.

    The JPEG is Pillow's: baseline, 4:2:0, with libjpeg-turbo's tables scaled by the quality. Only the lossy steps are
    computed, in integers; no file is written.

    Settings:

    * ``quality``: Quality, 1 to 100. One integer, or ``[low, high]``, from which it is drawn uniformly, both ends included.
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

    * ``amount``: 0 gives the image, 1 the filtered one. One number, or ``[low, high]``, from which it is drawn uniformly.
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
    """Blends the image with a smoothed one, like torchvision's ``adjust_sharpness``.

    Settings:

    * ``factor``: 0 gives the smoothed image, 1 the image, 2 a sharpened one. One number, or ``[low, high]``, from which it is drawn uniformly.
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
    """Adds normal noise to each channel of each pixel, like torchvision's ``GaussianNoise``.

    Settings:

    * ``mean``: Mean on a scale of 0 to 1, -1 to 1. Default 0.
    * ``sigma``: Deviation on a scale of 0 to 1, 0 to 10. Default 0.1.
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
    * ``per_channel``: Whether channels change independently. Default: pixels change as a whole.
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
    """Rotates and shears the image around its centre, scales it and moves it: torchvision's ``affine`` on PIL images, bit
    for bit (``_affine_image_pil`` of ``torchvision/transforms/v2/functional/_geometry.py``). The output has the size of the
    input.

    Settings:

    * ``angle``: Angle in degrees, clockwise. Default 0.
    * ``translate``: Pixels by which the image moves to the right and down. Default 0.
    * ``scale``: Factor of the size, above 0. Default 1.
    * ``shear``: Shear angles in degrees along columns and rows, -89 to 89. Default 0.
    * ``interpolation``: Interpolation between pixels. Default nearest.
    * ``center``: Centre of rotation, shear and scale in pixels, from the upper left corner: columns, rows. Default the centre of the image.
    * ``fill``: Red, green and blue outside of the image. In TOML also one number for all. Default 0.
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
    """Displaces each pixel by noise that is blurred: torchvision's ``ElasticTransform``, within one level for the same noise.

    Boxes, masks and keypoints stay where they are. torchvision moves the corners of a box by the displacements at the
    corners. Unlike in torchvision, the image may be smaller than the blur.

    Settings:

    * ``alpha``: Strength along columns and rows, 0 to 10,000: noise of 1 before the blur is half as many pixels. One number or two. Default 50.
    * ``sigma``: Standard deviation of the blur along columns and rows, in pixels: 0 to 100, and either both are 0 or none is. One number or two. Default 5.
    * ``interpolation``: Interpolation between pixels: ``bilinear`` (default) or ``nearest``.
    * ``fill``: Red, green and blue outside of the image, 0 to 255. In TOML also one number for all. Default 0.
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


class Letterbox(Operator):
    """Resizes the image to the largest size within the output, and pads the rest: YOLO's preprocessing, placed as by
    Ultralytics' ``LetterBox`` 8.4 (``ultralytics/data/augment.py``).

    Ultralytics resizes with OpenCV's bilinear interpolation, which does not smooth when it makes an image smaller. Here
    the image is resampled as by Pillow.

    Settings:

    * ``width``: Output width, in pixels.
    * ``height``: Output height, in pixels.
    * ``scale_up``: Whether small images are enlarged. Default true.
    * ``center``: Whether the image is in the middle, not at the upper left. Default true.
    * ``stride``: Pads each side only to a multiple of this many pixels: Ultralytics' ``auto``, where it is 32. Default: pads to the whole output.
    * ``fill``: Red, green and blue of the padding. In TOML also one number for all. Default 114.
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

    The modes ``reflect`` and ``symmetric`` mirror the image again and again if the padding is larger than the image, as
    torchvision does with PIL images. With tensors torchvision refuses such a padding. Boxes move as for one colour: a
    mirrored object has no box.

    Settings:

    * ``padding``: Pixels on the left, top, right and bottom. In TOML also one number for all four.
    * ``fill``: Red, green and blue of the padding, in the values of the input pixels: 0 to 255, or normalized values after ``normalize``. In TOML also one number for all. Default 0. Only for the mode ``constant``.
    * ``mode``: What is added: ``constant`` (default), ``edge``, ``reflect`` or ``symmetric``.
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
    """Moves four points of the image to others: torchvision's ``perspective`` on PIL images
    (``torchvision/transforms/_functional_pil.py``). The output has the size of the input.

    Pixels are those of torchvision for the same coefficients. torchvision's coefficients are a least-squares solution of
    LAPACK, which is rounded to f32; here the solution is exact before it is rounded.

    Settings:

    * ``end``: Points of the output, in the same order.
    * ``start``: Points of the input in pixels, as columns and rows: upper left, upper right, lower right, lower left. Default the centres of the corner pixels.
    * ``interpolation``: Interpolation between pixels. Default bilinear.
    * ``fill``: Red, green and blue outside of the image. In TOML also one number for all. Default 0.
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
    """Rotates, moves, scales and shears by amounts that are drawn uniformly, in this order: torchvision's ``RandomAffine``. Each
    result is as of ``Affine``.

    Settings:

    * ``degrees``: Smallest and largest angle in degrees, clockwise. In TOML also one number n for ``[-n, n]``.
    * ``translate``: Largest move along columns and rows, in both directions, as a fraction of width and height, 0 to 1. Moves are rounded to whole pixels. Default: the image is not moved.
    * ``scale``: Smallest and largest factor of the size. Default: the image is not scaled.
    * ``shear_x``: Smallest and largest shear along columns in degrees. In TOML also one number n for ``[-n, n]``. Default: none.
    * ``shear_y``: The same along rows. torchvision takes both as one list ``shear``.
    * ``interpolation``: Interpolation between pixels. Default nearest.
    * ``center``: Centre of rotation, shear and scale in pixels, from the upper left corner: columns, rows. Default the centre of the image.
    * ``fill``: Red, green and blue outside of the image. In TOML also one number for all. Default 0.
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
    """Crops a random window whose intersection over union with one of the boxes is large enough: torchvision's
    ``RandomIoUCrop`` of SSD.

    The boxes are those of the source's annotations (COCO). Without boxes the image stays as it is. Objects whose box's
    centre is outside of the window are dropped, and boxes are clipped to the window, as in torchvision. If none of 100
    overlaps leads to a window, the image stays as it is; torchvision would go on.

    Settings:

    * ``scale``: Smallest and largest side of the window as a fraction of the image's side, above 0 and up to 1. Default ``[0.3, 1]``.
    * ``ratio``: Smallest and largest width divided by height, above 0. Default ``[0.5, 2]``.
    * ``overlaps``: Least intersections over unions, one of which is drawn evenly, 0 to 1. 1 keeps the image as it is. Default ``[0, 0.1, 0.3, 0.5, 0.7, 0.9, 1]``.
    * ``trials``: Windows that are tried for one overlap, 1 to 1000. Default 40.
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
    """Moves the corners of the image inwards by random amounts: torchvision's ``RandomPerspective``. Each result is as of
    ``Perspective``.

    Settings:

    * ``distortion_scale``: Largest move of a corner, as a fraction of half the side, 0 to 1. Default 0.5.
    * ``probability``: Probability that the image changes, 0 to 1. Default 0.5.
    * ``interpolation``: Interpolation between pixels. Default bilinear.
    * ``fill``: Red, green and blue outside of the image. In TOML also one number for all. Default 0.
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
    * ``max_size``: End of the lengths, above ``min_size``. As in torchvision it is not drawn itself.
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
    """Rotates by an angle that is drawn uniformly: torchvision's ``RandomRotation``. Each angle is as ``Rotate``.

    Settings:

    * ``degrees``: Smallest and largest angle in degrees, counter-clockwise. In TOML also one number n for ``[-n, n]``.
    * ``interpolation``: Interpolation between pixels. Default nearest.
    * ``expand``: Whether the output is enlarged to the whole rotated image. Default false: it has the size of the input.
    * ``center``: Centre of the rotation in pixels, from the upper left corner: columns, rows. Default the centre of the image.
    * ``fill``: Red, green and blue outside of the image. In TOML also one number for all. Default 0.
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
    """Resizes the shorter side to a length that is drawn from a list, or less if the longer side would become too long:
    torchvision's ``RandomShortestSize`` (DETR). Sides have at least one pixel, where torchvision fails.

    Settings:

    * ``min_size``: Lengths of the shorter side, in pixels; each is drawn as often.
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
    """Places the image at random in a larger one of random size: torchvision's ``RandomZoomOut`` (SSD).

    Settings:

    * ``side_range``: Smallest and largest factor of both sides, 1 to 32. Default 1 to 4.
    * ``probability``: Probability that the image changes, 0 to 1. Default 0.5.
    * ``fill``: Red, green and blue of the padding, in the values of the input pixels: 0 to 255, or normalized values after ``normalize``. In TOML also one number for all. Default 0.
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
    """Resizes so that the image covers a size (``longest`` 0), fits into it (1) or something in between: timm's
    ``ResizeKeepRatio``. A random scale and a random aspect ratio can change both sides. Sides have at least one pixel, where
    timm fails.

    Settings:

    * ``width``: Width to cover or to fit into, in pixels.
    * ``height``: Height to cover or to fit into, in pixels.
    * ``longest``: Weight of the side that is larger in proportion, 0 to 1. Default 0: the image covers the size.
    * ``scale_probability``: Probability of a random scale, 0 to 1. Default 0.
    * ``scale``: Smallest and largest scale, 0.01 to 32. Default 0.85 to 1.05.
    * ``scale_is_area``: Whether the scale is that of the area of a crop, as in ``random_resized_crop``: a smaller one makes the image larger. Default false.
    * ``aspect_probability``: Probability of a random aspect ratio, 0 to 1. Default 0.
    * ``aspect``: Smallest and largest change of the aspect ratio, 0.01 to 32. Default 0.9 to 1.11.
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
    """Rotates counter-clockwise: torchvision's ``rotate`` on PIL images, bit for bit (Pillow's ``Image.rotate``).

    Multiples of 90 degrees around the centre of the image only move pixels, if the result has the shape of the rotated
    image: with ``expand``, for square images, and for 180 degrees.

    Settings:

    * ``angle``: Angle in degrees, counter-clockwise.
    * ``interpolation``: Interpolation between pixels. Default nearest.
    * ``expand``: Whether the output is enlarged to the whole rotated image. Default false: it has the size of the input.
    * ``center``: Centre of the rotation in pixels, from the upper left corner: columns, rows. Default the centre of the image.
    * ``fill``: Red, green and blue outside of the image. In TOML also one number for all. Default 0.
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
    """Resizes to the largest size within a target, times a random scale: torchvision's ``ScaleJitter`` (Simple Copy-Paste).
    Sides have at least one pixel, where torchvision fails.

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


class Thumbnail(Operator):
    """Shrinks an image to within a size and preserves its aspect ratio: Pillow's ``Image.thumbnail`` with
    ``reducing_gap=None``. Images that fit are unchanged.

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
    """Mixes the image with the results of several chains of random operations: torchvision's ``AugMix``, whose operations,
    magnitudes, weights and order of draws it has.

    The sum is computed in f32, and its fraction is dropped, as in torchvision. The operations are those of PIL
    images, as in the other policies; torchvision converts a PIL image to a tensor before. Boxes, masks and keypoints
    stay where they are.

    Settings:

    * ``severity``: Strength: the magnitudes are the first ones of ten, 1 to 10. Default 3.
    * ``mixture_width``: Number of chains, 1 to 16. Default 3.
    * ``chain_depth``: Operations of each chain, 1 to 16. Default: 1 to 3, drawn for each chain (torchvision's -1).
    * ``alpha``: Parameter of the distributions of weights (Dirichlet), 0.1 to 1000. Default 1.
    * ``all_ops``: Whether brightness, saturation, contrast and sharpness are among the operations. Default true.
    * ``interpolation``: Interpolation between pixels. Default bilinear.
    * ``fill``: Red, green and blue of what becomes empty. In TOML also one number for all. Default 0.
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
        placement: Placement | None = None,
    ) -> None:
        super().__init__(severity=severity, mixture_width=mixture_width, chain_depth=chain_depth, alpha=alpha, all_ops=all_ops, interpolation=interpolation, fill=fill, placement=placement)


class AutoAugment(Operator):
    """Applies one of 25 pairs of operations, each with its own probability and strength: torchvision's ``AutoAugment``, whose
    operations, magnitudes and order of draws it has. Pixels are those of PIL images.

    Settings:

    * ``policy``: Pairs. Default ``imagenet``.
    * ``interpolation``: Interpolation between pixels. Default nearest.
    * ``fill``: Red, green and blue of what becomes empty. In TOML also one number for all. Default 0.
    """

    OP = "auto_augment"

    def __init__(
        self,
        *,
        policy: Literal["imagenet", "cifar10", "svhn"] | None = None,
        interpolation: Literal["nearest", "bilinear", "bicubic"] | None = None,
        fill: int | Sequence[int] | None = None,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(policy=policy, interpolation=interpolation, fill=fill, placement=placement)


class RandAugment(Operator):
    """Applies operations that are drawn from 14, each with the same strength: torchvision's ``RandAugment``, whose
    operations, magnitudes and order of draws it has. Pixels are those of PIL images.

    Settings:

    * ``num_ops``: Operations per image, 0 to 16. Default 2.
    * ``magnitude``: Number of the magnitude, from 0 to below ``num_magnitude_bins``. Default 9.
    * ``num_magnitude_bins``: Magnitudes per operation, 2 to 1000. Default 31.
    * ``interpolation``: Interpolation between pixels. Default nearest.
    * ``fill``: Red, green and blue of what becomes empty. In TOML also one number for all. Default 0.
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
        placement: Placement | None = None,
    ) -> None:
        super().__init__(num_ops=num_ops, magnitude=magnitude, num_magnitude_bins=num_magnitude_bins, interpolation=interpolation, fill=fill, placement=placement)


class ThreeAugment(Operator):
    """Makes each image gray, solarized from 128 on, or blurred with a radius of 0.1 to 2 pixels: 3-Augment of DeiT III
    (``augment.py`` of facebookresearch/deit). Each is drawn as often. DeiT III continues with ``color_jitter`` of 0.3.

    The blur is Pillow's ``ImageFilter.GaussianBlur``, which approximates a Gaussian by three box filters along each axis.
    """

    OP = "three_augment"

    def __init__(
        self,
        *,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(placement=placement)


class TimmAugMix(Operator):
    """Mixes the image with the results of several chains of random operations, by a text of timm 1.0 such as
    ``augmix-m5-w4-d2``: ``augment_and_mix_transform`` of ``timm/data/auto_augment.py``, whose operations, magnitudes and distributions
    it has.

    Sections of the text: ``m`` magnitude (default 3), ``w`` chains (3), ``d`` operations of each chain (1 to 3, drawn), ``a`` parameter
    of the distributions of weights (1), ``mstd`` standard deviation of the magnitude (default: it is uniform from 0 to ``m``). The sum
    is rounded once, where timm rounds that of the chains before: pixels are within one level of timm's.

    Settings:

    * ``config``: The text.
    * ``translate``: Largest translation at magnitude 10, as a fraction of the side, 0 to 1. Default 0.45; ``create_transform`` of timm has 0.3.
    * ``interpolation``: Interpolation between pixels. Default: bilinear or bicubic, drawn for each operation.
    * ``fill``: Red, green and blue of what becomes empty: in timm the mean of the data. In TOML also one number for all. Default 128.
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
    """Applies operations by a text of timm 1.0, such as ``original-mstd0.5``: ``auto_augment_transform`` of
    ``timm/data/auto_augment.py``, whose operations, magnitudes and distributions it has.

    The text begins with the policy: ``v0`` (EfficientNet), ``original`` (the paper), ``v0r`` and ``originalr`` (the same, where
    posterizing becomes stronger with the magnitude), each one of 25 pairs per image, or ``3a``, one of the three operations of
    DeiT III. ``mstd`` is the standard deviation of the magnitude (0).

    Settings:

    * ``config``: The text.
    * ``interpolation``: Interpolation between pixels. Default: bilinear or bicubic, drawn for each operation.
    * ``fill``: Red, green and blue of what becomes empty: in timm the mean of the data. In TOML also one number for all. Default 128.
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
    """Applies operations by a text of timm 1.0, such as ``rand-m9-mstd0.5-inc1``: ``rand_augment_transform`` of
    ``timm/data/auto_augment.py``, whose operations, magnitudes and distributions it has.

    Sections of the text: ``m`` magnitude (default 10), ``n`` operations per image (2), ``p`` probability of each (0.5), ``mstd``
    standard deviation of the magnitude (0; above 100 it is uniform from 0 to ``m``), ``mmax`` largest magnitude (10),
    ``inc1`` operations that become stronger with the magnitude, ``tweights``, ``t3a`` and ``t3aw`` other sets of operations.

    Settings:

    * ``config``: The text.
    * ``interpolation``: Interpolation between pixels. Default: bilinear or bicubic, drawn for each operation.
    * ``fill``: Red, green and blue of what becomes empty: in timm the mean of the data. In TOML also one number for all. Default 128.
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
    ``TrivialAugmentWide``, whose operations, magnitudes and order of draws it has. Pixels are those of PIL images.

    Settings:

    * ``num_magnitude_bins``: Magnitudes per operation, 2 to 1000. Default 31.
    * ``interpolation``: Interpolation between pixels. Default nearest.
    * ``fill``: Red, green and blue of what becomes empty. In TOML also one number for all. Default 0.
    """

    OP = "trivial_augment_wide"

    def __init__(
        self,
        *,
        num_magnitude_bins: int | None = None,
        interpolation: Literal["nearest", "bilinear", "bicubic"] | None = None,
        fill: int | Sequence[int] | None = None,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(num_magnitude_bins=num_magnitude_bins, interpolation=interpolation, fill=fill, placement=placement)


class Mixup(BatchOperator):
    """Replaces both samples of a pair by ``l * own + (1 - l) * other``, with ``l`` from Beta(``alpha``, ``alpha``), and the targets
    in the same way: mixup (Zhang et al., ICLR 2018), like timm's ``Mixup`` in mode ``pair`` and torchvision's ``MixUp``, which
    draws one ``l`` for the whole batch.

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
    """Exchanges a box between both samples of a pair, and replaces the targets by ``l * own + (1 - l) * other``, where ``l`` is
    the share of the image outside of the box: CutMix (Yun et al., ICCV 2019).

    The box is torchvision's: with ``m`` from Beta(``alpha``, ``alpha``), it extends by ``int(width * sqrt(1 - m) / 2)`` columns
    and ``int(height * sqrt(1 - m) / 2)`` rows to each side of a uniformly drawn pixel, clipped to the image. timm's box is
    up to one pixel larger.

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
    """Mixes a pair by ``Mixup`` or by ``CutMix``: timm's ``Mixup`` in mode ``pair``.

    timm's mode ``batch`` draws once per batch, so its samples depend on the batch size. There is no such mode here.

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
