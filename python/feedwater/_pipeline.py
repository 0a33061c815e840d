"""The parameters of a loader as a pipeline file."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from . import _toml
from ._checks import batch_operators_of, check_pixels, check_section, dtype_name, operators_of
from ._classes import names_of
from ._datasets import as_source
from ._settings import Given, written
from ._torchvision.rest import moving, way_out
from .columns import loader_settings_of_views, operators_of_views, shuffling_view, tables
from .sections import SECTIONS, checked_sections, table_of, written_keys

#: Parameters of the loader that are settings of a section in a pipeline file, by section.
_DIRECT = {
    "loader": ("batch_size", "num_workers", "prefetch", "seed", "shuffle", "last_batch", "on_error", "rank", "world_size"),
    "output": ("dtype", "layout"),
    "targets": ("classes", "smoothing"),
}

_log = logging.getLogger("feedwater")


class PipelineFile(NamedTuple):
    """A pipeline file that the parameters of a loader describe."""

    #: Text of the pipeline file.
    text: str
    #: The sources of :func:`feedwater.samples` that the text names.
    own: dict[str, Given]
    #: Tables of the columns in the pipeline file, and those of the views.
    columns: list[dict[str, Any]]
    views: list[dict[str, Any]]
    #: Transforms that run in Python after the chain.
    rest: Sequence[Callable[[Any], Any]]


def pipeline_file(source: Any, transform: Any, framework: str, device: Any, given: Mapping[str, Any], wrote: Mapping[str, str]) -> PipelineFile:
    """Returns the pipeline file of a loader. Raises ``TypeError`` or ``ValueError`` if parameters exclude each other. ``given``: the
    other parameters by name. ``wrote``: for each of them the name that the program wrote."""
    recipe = checked_sections(getattr(transform, "sections", {}))
    sections = {}
    has_dtype = False
    for name in SECTIONS:
        section = table_of(name, given.get(name))
        direct = {key: given[key] for key in _DIRECT.get(name, ()) if key in given}
        for key in sorted(direct.keys() & section.keys()):
            inner = written_keys(name, given[name])[key]
            raise TypeError(f"{key} is given twice, as {wrote[key]} and as {inner} in {name}; give it once")
        written_here = {**section, **direct}
        if name == "output":
            has_dtype = "dtype" in written_here
        if name == "loader" and not transform:
            written_here = {**loader_settings_of_views(given.get("columns")), **written_here}
        sections[name] = {**recipe.get(name, {}), **written_here}
        view = shuffling_view(given.get("columns")) if name == "loader" and "shuffle" not in written_here else None
        if view is not None and not sections[name].get("shuffle"):
            _log.warning("the recipe of the view %r shuffles, but the loader delivers the samples in their order: set shuffle", view)
        check_section(name, sections[name])
    sections["output"]["dtype"] = dtype_name(sections["output"].get("dtype"))
    # `device` may also be a `torch.device`, whose text is the setting.
    lines = [] if device is None else [f"device = {_toml.value(str(device))}"]
    source = as_source(source)
    names = names_of(given.get("classes_of"))
    table, own = written(source if names is None else source.with_classes(names))
    lines.append(f"source = {table}")
    texts = {name: _toml.table(section) for name, section in sections.items()}
    lines += [f"{name} = {table}" for name, table in texts.items() if table != "{}"]
    operators = operators_of(transform)
    lines.append(f"chain = {_toml.value(operators)}")
    pixels = sections["decode"].get("pixels")
    check_pixels([*operators, *operators_of_views(given.get("columns"))], pixels, "decode.pixels")
    blends = batch_operators_of(given.get("batch_operators", getattr(transform, "batch_operators", ())))
    columns, views = tables(given["columns"], has_dtype) if "columns" in given else ([], [])
    if views:
        lines.append(f"view = {_toml.value(views)}")
    if columns:
        lines.append(f"column = {_toml.value(columns)}")
    if blends:
        lines.append(f"batch_operators = {_toml.value(blends)}")
    rest = getattr(transform, "rest", [])
    if rest and blends:
        raise ValueError(
            "the recipe has transforms that stay Python (keep_rest), and they would run after the batch operators, which mix finished "
            "images; remove these transforms or the batch operators, or mix the images in the training loop"
        )
    if rest and framework != "torch":
        raise ValueError(f'the recipe has transforms that stay Python, which need framework="torch"; it is {framework!r}')
    if rest and sections["output"].get("layout") == "nhwc":
        raise ValueError(
            'layout is "nhwc", but the recipe has transforms that stay Python (keep_rest), which take and return channels first; remove layout, '
            "or permute the axes in the training loop"
        )
    following = [column["name"] for column in columns if column["kind"] in ("mask", "points", "boxes", "runs", "instances")]
    moved_by = moving(rest)
    if moved_by and following:
        raise ValueError(
            f"the recipe has transforms that stay Python (keep_rest), and {', '.join(moved_by)} may move the images without the column "
            f"{following[0]!r}; {way_out(len(moved_by) > 1)}"
        )
    return PipelineFile("\n".join(lines) + "\n", own, columns, views, rest)
