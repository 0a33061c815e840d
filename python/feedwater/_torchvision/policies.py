"""Converters for augmentation policies of torchvision and timm, such as AutoAugment."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .. import ops
from .._settings import Operator
from .geometry import warping
from .state import Inconvertible, State, converts, is_v2, library


def _policy(step: Any, state: State) -> None:
    state.rounds()
    if library(step) == "timm":
        state.needs_pil_pixels("timm's policies take PIL images only")
    else:
        state.needs_pil_pixels("torchvision warps tensors by another formula than PIL images")


def _version(step: Any) -> dict[str, Any]:
    return {} if is_v2(step) else {"version": "v1"}


@converts("RandAugment")
def _rand_augment(step: Any, state: State) -> list[Operator]:
    _policy(step, state)
    if library(step) == "timm":
        return [_timm_rand_augment(step)]
    sizes = {name: getattr(step, name) for name in ("num_ops", "magnitude", "num_magnitude_bins")}
    return [ops.RandAugment(**sizes, **_version(step), **warping(step, state))]


@converts("TrivialAugmentWide")
def _trivial(step: Any, state: State) -> list[Operator]:
    _policy(step, state)
    return [ops.TrivialAugmentWide(num_magnitude_bins=step.num_magnitude_bins, **_version(step), **warping(step, state))]


@converts("AutoAugment")
def _auto_augment(step: Any, state: State) -> list[Operator]:
    _policy(step, state)
    if library(step) == "timm":
        return [_timm_auto_augment(step)]
    return [ops.AutoAugment(policy=step.policy.value, **_version(step), **warping(step, state))]


@converts("AugMix")
def _aug_mix(step: Any, state: State) -> list[Operator]:
    _policy(step, state)
    sizes = {name: getattr(step, name) for name in ("severity", "mixture_width", "alpha", "all_ops")}
    depth = step.chain_depth if step.chain_depth > 0 else None
    return [ops.AugMix(**sizes, chain_depth=depth, **_version(step), **warping(step, state))]


@converts("AugMixAugment")
def _timm_aug_mix(step: Any, state: State) -> list[Operator]:
    """Converts timm's AugMix to its configuration text."""
    from timm.data import auto_augment

    _policy(step, state)
    first = _common(step.ops, auto_augment.augmix_ops())
    if step.blended:
        raise Inconvertible("it blends each chain separately (b1 in timm's config), which feedwater does not support; leave b1 out")
    if any(it.prob != 1.0 or it.magnitude != first.magnitude for it in step.ops):
        raise Inconvertible("its operations have different probabilities or magnitudes, but feedwater has one for all")
    config = f"augmix-m{_whole(first.magnitude)}-w{step.width}-a{step.alpha}"
    if step.depth > 0:
        config += f"-d{step.depth}"
    if first.magnitude_std != math.inf:
        config += f"-mstd{float(first.magnitude_std)}"
    return [ops.TimmAugMix(config=config, translate=_translate(first), **_timm_warping(first))]


def _timm_auto_augment(step: Any) -> Operator:
    """Converts timm's AutoAugment to its configuration text."""
    from timm.data import auto_augment

    def entries(policy: Any) -> Any:
        return [[(it.name, it.prob, it.magnitude) for it in entry] for entry in policy]

    given = entries(step.policy)
    names = ("v0", "v0r", "original", "originalr", "3a")
    found = next((name for name in names if entries(auto_augment.auto_augment_policy(name)) == given), None)
    if found is None:
        raise Inconvertible(f"its policy is not one of timm's policies {', '.join(names)}")
    operations = [it for entry in step.policy for it in entry]
    first = _common(operations, operations)
    if _translate(first) != 0.45:
        raise Inconvertible("its translate_pct is not timm's default, the only value that feedwater supports")
    config = found
    if first.magnitude_std:
        if first.magnitude_std == math.inf:
            raise Inconvertible("its magnitudes are uniform")
        config += f"-mstd{float(first.magnitude_std)}"
    return ops.TimmAutoAugment(config=config, **_timm_warping(first))


def _timm_rand_augment(step: Any) -> Operator:
    """Converts timm's RandAugment to its configuration text."""
    from timm.data import auto_augment

    names = [it.name for it in step.ops]
    sets = {
        "": auto_augment.rand_augment_choices("", increasing=False),
        "-inc1": auto_augment.rand_augment_choices("", increasing=True),
        "-t3a": auto_augment.rand_augment_choices("3a"),
        "-tweights": auto_augment.rand_augment_choices("weights"),
        "-t3aw": auto_augment.rand_augment_choices("3aw"),
    }
    suffix = next((suffix for suffix, known in sets.items() if list(known) == names and isinstance(known, dict) == (step.choice_weights is not None)), None)
    if suffix is None:
        raise Inconvertible("its list of operations is not one of timm's lists")
    known = sets[suffix]
    if isinstance(known, dict):
        shares = [weight / sum(known.values()) for weight in known.values()]
        if any(abs(share - given) > 1e-9 for share, given in zip(shares, step.choice_weights)):
            raise Inconvertible("the weights of its operations are not timm's")
    first = _common(step.ops, step.ops)
    if any((it.prob, it.magnitude) != (first.prob, first.magnitude) for it in step.ops):
        raise Inconvertible("its operations have different probabilities or magnitudes, but feedwater has one for all")
    if _translate(first) != 0.45:
        raise Inconvertible("its translate_pct is not timm's default, the only value that feedwater supports")
    deviation = 101 if first.magnitude_std == math.inf else first.magnitude_std
    config = f"rand-m{_whole(first.magnitude)}-n{step.num_layers}-p{first.prob}-mstd{deviation}"
    if first.magnitude_max is not None:
        config += f"-mmax{_whole(first.magnitude_max)}"
    return ops.TimmRandAugment(config=config + suffix, **_timm_warping(first))


def _whole(number: float) -> int:
    if number != int(number):
        raise Inconvertible(f"its magnitude is {number}, but feedwater supports only whole numbers")
    return int(number)


def _common(operations: Sequence[Any], named: Sequence[Any]) -> Any:
    """Returns the first operation, after a check that all operations have the same settings."""
    if [it.name for it in operations] != [it.name for it in named]:
        raise Inconvertible("its list of operations is not one of timm's lists")
    first = operations[0]

    def settings(it: Any) -> Any:
        return it.magnitude_std, it.magnitude_max, _translate(it), it.kwargs

    if any(settings(it) != settings(first) for it in operations):
        raise Inconvertible("its operations have different settings, but feedwater has one setting for all")
    return first


def _translate(operation: Any) -> float:
    return float(operation.hparams.get("translate_pct", 0.45))


def _timm_warping(operation: Any) -> dict[str, Any]:
    """Returns the interpolation, and the colour outside of the image."""
    resample = operation.kwargs["resample"]
    filters = {0: "nearest", 2: "bilinear", 3: "bicubic"}
    if isinstance(resample, (list, tuple)):
        if [filters.get(int(it)) for it in resample] != ["bilinear", "bicubic"]:
            raise Inconvertible(f"its interpolations are {resample}")
        fixed = None
    else:
        fixed = filters.get(int(resample))
        if fixed is None:
            raise Inconvertible(f"its interpolation is {resample}, which feedwater's warps do not support")
    return {"interpolation": fixed, "fill": [int(value) for value in operation.kwargs["fillcolor"]]}
