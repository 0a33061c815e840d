"""feedwater on a Ray cluster: machines without a GPU can preprocess images for GPU machines, run a model on a data set, or pack a data set into
shards.

    import feedwater as fw

    dataset = fw.ray.read("/data/train", fw.train_recipe(224), batch_size=256, seed=42, epochs=90)
    for batch in dataset.select_columns(["image", "label"]).iter_torch_batches(batch_size=256):
        ...

Needs Ray Data: ``pip install "ray[data]"``. All machines must see the source at the same path.
"""

try:
    import ray.data
except ImportError as problem:
    raise ImportError(f'feedwater.ray needs Ray Data, which cannot be imported ({problem}); pip install "ray[data]"') from problem

from ._model import map_batches
from ._pack import pack
from ._read import Datasource, read

__all__ = ["Datasource", "map_batches", "pack", "read"]
