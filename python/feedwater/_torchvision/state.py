"""Type of the image between two transforms during a conversion, and the table of converters."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from .. import ops
from .._settings import BatchOperator, Operator
from ..errors import ConversionError


class Inconvertible(Exception):
    """Raised for a transform that cannot be converted. The message is the reason."""


class Misplaced(Inconvertible):
    """Raised for a transform that cannot be converted at its place in the list, but could be at another place."""


class Form(enum.Enum):
    """Type of an image between the transforms of torchvision."""

    PIL = "a PIL image"
    BYTES = "a tensor of bytes"
    #: A tensor of floats from 0 to 1.
    SCALED = "a tensor of floats"
    #: A tensor of floats from 0 to 255.
    UNSCALED = "a tensor of floats from 0 to 255"
    NORMALIZED = "a normalized tensor"


class State:
    """State of a conversion after the transforms so far. ``as_pil``: operators may have the pixels of PIL images even
    where torchvision computes on tensors."""

    def __init__(self, as_pil: bool, keep_rest: bool = False) -> None:
        self.as_pil = as_pil
        #: Whether transforms that cannot be converted run in Python.
        self.keep_rest = keep_rest
        self.form = Form.PIL
        #: Number of channels of the image.
        self.channels = 3
        self.dtype = "u8"
        #: Name of the transform that converted the image to a tensor.
        self.tensor_by = ""
        self.operators: list[Operator] = []
        self.batch_operators: list[BatchOperator] = []
        #: Settings of ``[targets]``, which the batch operators need.
        self.targets: dict[str, Any] = {}

    def saved(self) -> tuple[Any, ...]:
        """Returns everything that a transform may change, except the operators."""
        return self.form, self.channels, self.dtype, self.tensor_by, list(self.batch_operators), dict(self.targets)

    def restore(self, saved: tuple[Any, ...]) -> None:
        """Restores a saved state."""
        self.form, self.channels, self.dtype, self.tensor_by, self.batch_operators, self.targets = saved

    def becomes(self, form: Form, dtype: str, by: Any) -> None:
        """Sets the type of the image. ``by`` is the transform that changes it."""
        if self.form is Form.PIL:
            self.tensor_by = name_of(by)
        self.form, self.dtype = form, dtype

    def unit(self) -> float:
        """Factor by which the pixel values of torchvision, after the transforms that are already converted, are multiplied to get
        feedwater's."""
        return 255.0 if self.form is Form.SCALED else 1.0

    def finished(self) -> list[Operator]:
        """Returns the operators of the chain. If torchvision's values end as 0 to 1, adds an operator that scales to 0 to 1."""
        scaling = [ops.Normalize(mean=(0, 0, 0), std=(1, 1, 1))] if self.form is Form.SCALED else []
        return self.operators + scaling

    def needs_view(self) -> None:
        """Fails if ``keep_rest`` is set, because the operator needs a view, and a view runs no transforms in Python."""
        if self.keep_rest:
            raise Inconvertible(
                "it makes several images from one, which a chain with keep_rest=True cannot do; without keep_rest it becomes an operator for fw.view"
            )

    def needs_bytes(self) -> None:
        """Checks that the values are bytes, for operators that work on bytes."""
        if self.form is Form.NORMALIZED:
            raise Misplaced("it follows Normalize, but its operator needs bytes; move it before Normalize")

    def needs_pil_pixels(self, why: str) -> None:
        """Fails for a computation whose pixels differ between tensors and PIL images, if the image is a tensor and
        ``as_pil`` is not set."""
        if self.form is not Form.PIL and not self.as_pil:
            raise Misplaced(f"{why}; move it before {self.tensor_by}, or pass as_pil=True for the pixels of PIL images")

    def needs_colours(self) -> None:
        """Checks that the image has three channels."""
        if self.channels == 1:
            raise Misplaced("it changes colours, but the image has one channel here; put it before Grayscale, or use Grayscale(num_output_channels=3)")

    def rounds(self) -> None:
        """Checks the values for a computation whose results feedwater rounds to bytes. torchvision does not round
        floats. For floats from 0 to 1 the results differ by at most one level of 255."""
        self.needs_bytes()
        if self.form is Form.UNSCALED:
            raise Misplaced(
                f"after {self.tensor_by} and a ToDtype without scale=True the image has floats above 1, which torchvision would limit to 1; use "
                "ToDtype with scale=True"
            )


Convert = Callable[[Any, State], list[Operator]]
CONVERTERS: dict[str, Convert] = {}


def converts(*names: str) -> Callable[[Convert], Convert]:
    """Registers a function for transforms of these names."""

    def register(convert: Convert) -> Convert:
        CONVERTERS.update(dict.fromkeys(names, convert))
        return convert

    return register


def name_of(step: Any) -> str:
    """Returns a transform's name for messages. For a function or a class this is its own name, for any other object the name of its class."""
    if isinstance(step, type) or not hasattr(step, "__name__"):
        inner = getattr(step, "func", None)
        if inner is not None and type(step).__name__ == "partial":
            return f"partial({name_of(inner)})"
        return step.__qualname__ if isinstance(step, type) else type(step).__name__
    return str(step.__name__)


def origin_of(step: Any) -> str:
    """Returns module and name of a function, or of the class of an object."""
    owner = step if hasattr(step, "__qualname__") else type(step)
    return f"{getattr(owner, '__module__', None) or 'builtins'}.{owner.__qualname__}"


def library(step: Any) -> str:
    """Returns the name of a transform's library."""
    return type(step).__module__.split(".")[0]


def is_v2(step: Any) -> bool:
    """Whether a transform of torchvision is one of ``torchvision.transforms.v2``."""
    return ".v2" in type(step).__module__


def inner_of(transform: Any) -> Iterable[Any] | None:
    """Returns the transforms that a sequence runs one after another, or ``None`` if ``transform`` is not a sequence."""
    if isinstance(transform, (list, tuple)):
        return transform
    kind = type(transform).__name__
    # Compare the name of the class, because a subclass may use its transforms in another way.
    if kind == "Compose" and library(transform) in ("torchvision", "timm") and is_unchanged(transform):
        inner: Iterable[Any] = transform.transforms
        return inner
    if kind in ("Sequential", "ModuleList") and library(transform) == "torch" and is_unchanged(transform):
        children: Iterable[Any] = transform.children()
        return children
    return None


def is_unchanged(transform: Any) -> bool:
    """Whether this object behaves as its class, without a hook of PyTorch and without a replaced function."""
    hooks = ("_forward_hooks", "_forward_pre_hooks")
    own = getattr(transform, "__dict__", {})
    return not any(getattr(transform, hook, None) for hook in hooks) and not any(name in own for name in ("forward", "__call__"))


def flat(transform: Any) -> Iterator[Any]:
    """Returns the transforms inside of a ``Compose``, a ``Sequential`` or a list, also inside of nested ones."""
    yield from _flat(transform, ())


def _flat(transform: Any, around: tuple[int, ...]) -> Iterator[Any]:
    if id(transform) in around:
        raise ConversionError(f"the {type(transform).__name__} contains itself, so it cannot be converted", problems=[])
    inner = inner_of(transform)
    if inner is None:
        yield transform
        return
    for step in inner:
        yield from _flat(step, (*around, id(transform)))


#: Functions that convert an image to RGB. feedwater's images are RGB already.
_TO_RGB = {"_convert_image_to_rgb", "_convert_to_rgb"}


def converted(step: Any, state: State) -> list[Operator]:
    """Returns the operators of one transform."""
    if getattr(step, "__name__", None) in _TO_RGB and origin_of(step).split(".")[0] in ("clip", "open_clip"):
        return []
    if library(step) == "torch" and type(step).__name__ == "Identity":
        return []
    if library(step) not in ("torchvision", "timm"):
        raise Inconvertible(f"it is {origin_of(step)}, which is a transform of neither torchvision nor timm")
    if not is_unchanged(step):
        raise Inconvertible("it has a hook or a replaced forward, which feedwater would not run")
    convert = CONVERTERS.get(type(step).__name__)
    if type(step).__name__ == "Lambda":
        raise Inconvertible(f"it calls {origin_of(step.lambd)}, a Python function, which feedwater cannot run as an operator")
    if type(step).__name__ == "SanitizeBoundingBoxes":
        raise Inconvertible(_unsanitized(step))
    if convert is None:
        raise Inconvertible(_REFUSED.get(type(step).__name__, "feedwater has no operator for it"))
    if state.batch_operators:
        raise Misplaced(
            "it follows a transform that mixes the samples of a batch; put it before that transform, or choose between mixing transforms by "
            "RandomChoice"
        )
    return convert(step, state)


#: Transforms that make several images of one.
SEVERAL = ("FiveCrop", "TenCrop")
#: Reasons why transforms that change only boxes and points cannot be converted, by the name of the transform.
_OF_BOXES = {
    "ConvertBoundingBoxFormat": "it changes the format of boxes, but batch.objects() always returns left, top, right and bottom; remove it, and "
    "convert the boxes in the training loop",
    "ClampBoundingBoxes": "it changes boxes, which batch.objects() returns, already clipped to the image; remove it",
    "SetClampingMode": "it changes how boxes are clipped, but batch.objects() always clips them to the image; remove it",
    "ClampKeyPoints": "it changes keypoints, which columns of fw.points return; remove it, and clip the points in the training loop",
    "SanitizeKeyPoints": "it removes keypoints, which columns of fw.points return; remove it: a point outside of the image keeps its entry, with the "
    "visibility 0",
}
#: Transforms that change only boxes and points.
OF_BOXES = (*_OF_BOXES, "SanitizeBoundingBoxes")
_VIDEO = "it is for videos"
#: Reasons why transforms cannot be converted, by the name of the transform.
_REFUSED = {
    **_OF_BOXES,
    "VideoClassification": _VIDEO,
    "UniformTemporalSubsample": _VIDEO,
    "OpticalFlow": "it takes two images",
    "StereoMatching": "it takes two images",
    "RandomCropOrPad": "it places smaller images at random positions; use CenterCropOrPad, or train_crop_mode='rkrc'",
    "RandomPad": "it pads to a random size, which no operator does",
    "LinearTransformation": "it multiplies the whole image by a matrix",
    "TrimBorder": "it cuts pixels from each side, which no operator does",
}


def _unsanitized(step: Any) -> str:
    """Returns the reason why a ``SanitizeBoundingBoxes`` cannot be converted, with what replaces its settings."""
    sizes = [f"{name}={value:g}" for name in ("min_size", "min_area") if (value := getattr(step, name, 1)) != 1]
    if not sizes:
        return "it changes boxes, which batch.objects() returns; remove it, because batch.objects() leaves out boxes outside of the image"
    return (
        f"it changes boxes, which batch.objects() returns; remove it. Nothing replaces {' and '.join(sizes)}, so leave out small boxes in the "
        "training loop, by the sides of objects.boxes. batch.objects(visible=...) leaves out boxes by their visible share, not by their size"
    )


def sequence(transforms: Any, state: State) -> list[Operator]:
    """Returns the operators of inner transforms, which must not change the type of the image."""
    operators = []
    before = state.saved()
    for step in flat(transforms):
        try:
            operators += converted(step, state)
        except Inconvertible as problem:
            raise Inconvertible(f"it contains {name_of(step)}, which cannot be converted: {problem}") from None
        if state.saved() != before:
            state.restore(before)
            raise Inconvertible(f"it contains {name_of(step)}, which changes the type or the number of channels of the image, or mixes the samples of a batch; move {name_of(step)} out of it")
    return operators


def each(transforms: Any, state: State) -> list[Operator | None]:
    """Returns one operator per inner transform, also for a ``Compose`` inside of a ``RandomOrder``. ``None`` stands for
    a transform without an effect."""
    steps = inner_of(transforms)
    grouped: list[Operator | None] = []
    for step in list(transforms) if steps is None else list(steps):
        operators = sequence([step], state)
        several = len(operators) > 1
        grouped.append(ops.RandomApply(operators, probability=1.0) if several else operators[0] if operators else None)
    return grouped
