"""Converters for transforms that run other transforms, and for transforms that mix the samples of a batch."""

from __future__ import annotations

from typing import Any

from .. import ops
from .._settings import BatchOperator, Operator
from .state import Inconvertible, State, converts, each, name_of, sequence


@converts("RandomApply")
def _apply(step: Any, state: State) -> list[Operator]:
    if is_of_batches(step.transforms):
        return _mixes(step, state)
    operators = sequence(step.transforms, state)
    return [ops.RandomApply(operators, probability=step.p)] if operators else []


@converts("RandomChoice")
def _choice(step: Any, state: State) -> list[Operator]:
    if is_of_batches(step.transforms):
        return _mixes(step, state)
    # Stands in for a transform without operators. `Flip()` without probabilities does not flip.
    nothing = ops.RandomApply([ops.Flip()], probability=1.0)
    return [ops.OneOf([operator or nothing for operator in each(step.transforms, state)], weights=_weights(step))]


def _weights(step: Any) -> list[float] | None:
    weights = getattr(step, "p", None) or getattr(step, "probabilities", None)
    return None if weights is None else [float(weight) for weight in weights]


@converts("RandomOrder")
def _order(step: Any, state: State) -> list[Operator]:
    operators = [operator for operator in each(step.transforms, state) if operator is not None]
    return [ops.RandomOrder(operators)] if operators else []


def is_of_batches(transforms: Any) -> bool:
    """Whether any of these transforms mixes the samples of a batch."""

    def mixes(step: Any) -> bool:
        name = type(step).__name__
        return name in _OF_BATCHES or (name in ("RandomApply", "RandomChoice") and is_of_batches(step.transforms))

    return any(mixes(step) for step in transforms)


_OF_BATCHES = ("MixUp", "CutMix", "Mixup", "FastCollateMixup")


@converts("MixUp", "CutMix")
def _mix(step: Any, state: State) -> list[Operator]:
    return _mixes(step, state)


def _mixes(step: Any, state: State) -> list[Operator]:
    """Converts torchvision's transforms of batches. torchvision draws one weight per batch, feedwater one per pair of
    samples."""
    shares: dict[str, tuple[float, Any]] = {}
    for share, inner in _choices(step):
        name = type(inner).__name__
        if name == "Identity":
            continue
        if name not in ("MixUp", "CutMix") or name in shares:
            raise Inconvertible(
                f"it chooses between MixUp or CutMix and {name_of(inner)}; only MixUp, CutMix and Identity can be combined, each "
                "once"
            )
        shares[name] = share, inner
    classes = {inner.num_classes for _, inner in shares.values()}
    if len(classes) != 1 or None in classes:
        raise Inconvertible("its num_classes is missing, or differs between MixUp and CutMix; soft targets need one number of classes")
    state.targets["classes"] = classes.pop()
    probability = sum(share for share, _ in shares.values())
    operator: BatchOperator
    if len(shares) == 2:
        cutmix_share, cutmix = shares["CutMix"]
        operator = ops.MixupOrCutMix(
            mixup_alpha=shares["MixUp"][1].alpha, cutmix_alpha=cutmix.alpha, probability=min(probability, 1.0), cutmix_probability=cutmix_share / probability
        )
    else:
        name, (_, inner) = next(iter(shares.items()))
        kind = ops.Mixup if name == "MixUp" else ops.CutMix
        operator = kind(alpha=inner.alpha, probability=min(probability, 1.0))
    state.batch_operators.append(operator)
    return []


def _choices(step: Any) -> list[tuple[float, Any]]:
    """Returns the inner transforms of a random choice, each with its probability."""
    if type(step).__name__ == "RandomApply":
        inner = list(step.transforms)
        if len(inner) != 1:
            raise Inconvertible("it applies several transforms to a batch, but feedwater can apply only one")
        return [(step.p * share, found) for share, found in _choices(inner[0])]
    if type(step).__name__ == "RandomChoice":
        weights = _weights(step) or [1.0] * len(step.transforms)
        shares = [(weight / sum(weights), inner) for weight, inner in zip(weights, step.transforms)]
        return [(share * part, found) for share, inner in shares for part, found in _choices(inner)]
    return [(1.0, step)]


@converts("Mixup", "FastCollateMixup")
def _timm_mixup(step: Any, state: State) -> list[Operator]:
    """Converts timm's mixup."""
    if step.mode == "elem":
        raise Inconvertible("its mode is elem, which draws a weight for each sample; feedwater draws one for each pair, so use mode='pair'")
    if step.cutmix_minmax is not None:
        raise Inconvertible("its cutmix_minmax is set, which feedwater does not support; leave it at None")
    if not step.correct_lam:
        raise Inconvertible("its correct_lam is False, which feedwater does not support; use True")
    state.targets["classes"] = step.num_classes
    if step.label_smoothing:
        state.targets["smoothing"] = step.label_smoothing
    operator: BatchOperator
    if step.mixup_alpha > 0 and step.cutmix_alpha > 0:
        operator = ops.MixupOrCutMix(
            mixup_alpha=step.mixup_alpha, cutmix_alpha=step.cutmix_alpha, probability=step.mix_prob, cutmix_probability=step.switch_prob
        )
    elif step.cutmix_alpha > 0:
        operator = ops.CutMix(alpha=step.cutmix_alpha, probability=step.mix_prob)
    else:
        operator = ops.Mixup(alpha=step.mixup_alpha, probability=step.mix_prob)
    state.batch_operators.append(operator)
    return []
