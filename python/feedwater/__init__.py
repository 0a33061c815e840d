"""feedwater is an image data loader: it reads compressed images and returns batches that are ready for the model, on its device.

    import feedwater as fw

    loader = fw.Loader("data/train", fw.train_recipe(224), batch_size=256, seed=42)
    for images, labels in loader:
        ...

``fw.ops`` has the operators of chains. ``fw.directory``, ``fw.webdataset`` and the other functions of ``fw.sources``
describe sources.
"""

from typing import TYPE_CHECKING, Any

from . import errors, integrations, ops, sources
from ._feedwater import VERSION as __version__
from ._datasets import dataset
from ._settings import BatchOperator, Operator, Samples, Source, concat, mixture, samples
from ._torchvision import from_torchvision
from .batch import Batch
from .columns import Column, Ragged, View, array, boxes, bytes_, image, instances, list_, mask, points, runs, text, texts, view
from .errors import Error
from .loader import Loader
from .objects import Objects
from .recipes import Recipe, eval_recipe, train_recipe
from .report import Report
from .sections import Cache, Decode, Limits, LoaderSettings, Output, Storage, Targets
from .sources import (
    beton,
    coco,
    directory,
    file_list,
    lmdb,
    npy,
    parquet,
    recordio,
    tfrecord,
    webdataset,
)

__all__ = [
    "Batch",
    "BatchOperator",
    "Cache",
    "Column",
    "Decode",
    "Error",
    "Limits",
    "Loader",
    "LoaderSettings",
    "Objects",
    "Operator",
    "Output",
    "Ragged",
    "Recipe",
    "Report",
    "Samples",
    "Source",
    "Storage",
    "Targets",
    "View",
    "__version__",
    "array",
    "beton",
    "boxes",
    "bytes_",
    "coco",
    "concat",
    "dataset",
    "directory",
    "errors",
    "eval_recipe",
    "file_list",
    "from_torchvision",
    "image",
    "instances",
    "integrations",
    "list_",
    "lmdb",
    "mask",
    "mixture",
    "npy",
    "ops",
    "parquet",
    "points",
    "recordio",
    "runs",
    "samples",
    "sources",
    "text",
    "texts",
    "tfrecord",
    "train_recipe",
    "view",
    "webdataset",
]


if TYPE_CHECKING:
    from . import ray as ray


def __getattr__(name: str) -> Any:
    # `feedwater.ray` needs Ray, so it is imported when it is first used.
    if name == "ray":
        import importlib

        return importlib.import_module(".ray", __name__)
    from ._names import nearest

    near = "Loader" if name == "DataLoader" else nearest(name, __all__)
    advice = f"; did you mean {near}?" if near and not name.startswith("_") else ""
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{advice}", name=name)
