"""Checks that a node of the cluster has the resources that a task needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ray

#: Memory of a worker process of Ray after the imports of a task, in bytes; measured with Ray 2.60.
PROCESS_BYTES = 128 << 20


def require(task: str, options: Mapping[str, Any], advice: str) -> None:
    """Raises ``RuntimeError`` if no node has the resources that a task needs. Without this check, Ray would wait forever for
    such a node."""
    needed = {
        "CPU": options.get("num_cpus") or 0,
        "GPU": options.get("num_gpus") or 0,
        "memory": options.get("memory") or 0,
        **(options.get("resources") or {}),
    }
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if any(all(node.get(name, 0) >= amount for name, amount in needed.items()) for node in nodes):
        return
    most = {name: max((node.get(name, 0) for node in nodes), default=0) for name in needed}
    raise RuntimeError(
        f"{task} needs {_named(needed)}, which no node of the cluster has; its nodes have at most {_named(most, needed)}. {advice}"
    )


def _named(resources: Mapping[str, float], among: Mapping[str, float] | None = None) -> str:
    """Formats resources as text. Only resources with an amount above 0 in ``among`` are included."""
    wanted = [name for name, amount in (among or resources).items() if amount]
    return ", ".join(_amount(name, resources[name]) for name in wanted)


def _amount(name: str, amount: float) -> str:
    return f"{amount / (1 << 20):.0f} MiB of memory" if name == "memory" else f"{amount:g} {name}"
