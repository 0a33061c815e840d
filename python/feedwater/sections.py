"""Settings of the loader that few programs need, in groups: the sections of a pipeline file.

    loader = fw.Loader("data/train", fw.train_recipe(224), decode=fw.Decode(prescale=True), limits=fw.Limits(host_memory="4 GiB"))

A setting that is not given, or is ``None``, has its default. Sizes in bytes are numbers, or texts such as ``"1.5 GiB"``. Instead of an
object of these classes, a mapping with the same keys is accepted.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from ._names import nearest
from ._settings import Pixels, Placement, _Settings, given

__all__ = ["Cache", "Decode", "Limits", "LoaderSettings", "Output", "Storage", "Targets"]

Path = str | os.PathLike[str]
#: A size: a number of bytes, or a text such as ``"64 MiB"``.
Bytes = int | str
Route = Literal["nvjpeg-hardware", "feedwater", "nvjpeg-gpu", "nvjpeg-hybrid", "cpu"]


class Section(_Settings):
    """Settings of a section of a pipeline file."""

    #: Name of the section in a pipeline file, and of the parameter of :class:`feedwater.Loader`.
    SECTION: ClassVar[str]

    def settings(self) -> dict[str, Any]:
        """The given settings, by their keys in a pipeline file."""
        return dict(self._settings)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, Section) and self._settings == other._settings

    def __hash__(self) -> int:
        return hash((self.SECTION, repr(self)))


class Decode(Section):
    """How images are decoded: ``fw.Loader(..., decode=fw.Decode(prescale=True))``.

    * ``placement``: ``"cpu"``, ``"gpu"`` or ``"auto"`` (default: the GPU, if it supports one of
      ``routes``).
    * ``routes``: decode routes that are allowed on a GPU, in any order. Default: all
      except ``feedwater``, which no GPU has run yet.
    * ``max_cpu_threads``: maximum number of workers that decode on the CPU at the same time if a
      GPU is used. Default: all workers, or one less while the GPU or its JPEG engines decode.
    * ``hardware_group``: maximum number of images per call of the JPEG engines, 1 to 1024.
      Default: the number that needs 64 MiB of device memory, at least 7 and at most 32.
    * ``prescale``: whether the decoder may halve the sides of a JPEG up to three times before
      resizing, never below the output size. Pixels change slightly. Default: False.
    * ``jpeg``: the decoder of JPEGs on the CPU: ``"feedwater"``, ``"libjpeg"`` (libjpeg-turbo), or
      ``"auto"`` (default: feedwater's decoder, and libjpeg-turbo for JPEGs that it does not
      support). All give the same pixels.
    * ``pixels``: pixel format of the decoded images: ``"u8x3"`` (default), ``"u8"`` (gray),
      ``"u8x4"`` (with alpha), ``"indices"`` (palette indices), ``"u16"``, ``"u16x3"`` or
      ``"u16x4"`` (16 bits, with one, three or four channels), ``"f32"``, ``"f32x3"`` or
      ``"f32x4"`` (numbers as stored, with one, three or four channels). All formats but
      ``"u8x3"`` are processed on the CPU.
    * ``background``: colour over which transparent images are composed: red, green and blue from 0
      to 255. It applies to images that are decoded to ``"u8x3"`` and ``"u8"``. Default: alpha is
      dropped.
    * ``orientation``: whether images are turned upright by their EXIF orientation. Default: True.
    * ``strict``: whether damaged images are errors. Default: True. With False, damaged images that
      Pillow accepts have Pillow's pixels, and are counted.
    """

    SECTION = "decode"

    def __init__(
        self,
        *,
        placement: Placement | None = None,
        routes: Sequence[Route] | None = None,
        max_cpu_threads: int | None = None,
        hardware_group: int | None = None,
        prescale: bool | None = None,
        jpeg: Literal["auto", "feedwater", "libjpeg"] | None = None,
        pixels: Pixels | None = None,
        background: Sequence[int] | None = None,
        orientation: bool | None = None,
        strict: bool | None = None,
    ) -> None:
        super().__init__(
            placement=placement,
            routes=routes,
            max_cpu_threads=max_cpu_threads,
            hardware_group=hardware_group,
            prescale=prescale,
            jpeg=jpeg,
            pixels=pixels,
            background=background,
            orientation=orientation,
            strict=strict,
        )


class Output(Section):
    """Type and layout of the tensors: ``fw.Loader(..., output=fw.Output(layout="nhwc"))``.

    * ``dtype``: ``"f32"`` (default), ``"f16"``, ``"bf16"`` or ``"u8"``, or a type of a framework,
      such as ``torch.bfloat16``. The loader's parameter ``dtype`` is the same setting.
    * ``layout``: order of the axes, ``"nchw"`` (default) or ``"nhwc"``.
    """

    SECTION = "output"

    def __init__(self, *, dtype: Any = None, layout: Literal["nchw", "nhwc"] | None = None) -> None:
        super().__init__(dtype=dtype, layout=layout)


class Targets(Section):
    """Soft targets in place of labels: ``fw.Loader(..., targets=fw.Targets(classes=1000))``.

    * ``classes``: number of classes, 1 to 16777216. The target of each sample then is a row with
      one float per class. Batch operators need this. Default: not set, targets are the labels.
    * ``smoothing``: label smoothing, 0 to 1; needs ``classes``. Default: 0.
    """

    SECTION = "targets"

    def __init__(self, *, classes: int | None = None, smoothing: float | None = None) -> None:
        super().__init__(classes=classes, smoothing=smoothing)


class Cache(Section):
    """Caches in host and device memory: ``fw.Loader(..., cache=fw.Cache(encoded="8 GiB"))``.

    A cache never evicts: if the set is larger than the cache, a part of the set stays cached.
    Sizes are bytes, or texts such as ``"1.5 GiB"``.

    * ``encoded``: maximum size of a cache of encoded files. Default: no cache.
    * ``decoded``: maximum size of a cache of whole decoded images, 3 bytes per pixel. Cannot be
      combined with ``prescale`` of :class:`Decode`. Default: no cache.
    * ``presize``: maximum shorter side of images in the cache ``decoded``, 1 to 32767 pixels.
      Larger images are resized to it, so pixels change. Default: images are not resized.
    * ``device``: device memory for the files of JPEGs that the decode route ``feedwater`` decodes.
      Later epochs neither read nor upload them. No effect without a GPU. Default: no cache.
    * ``row_index``: maximum size of the row indexes of JPEGs, with which crops are decoded faster
      with the same pixels. An image of 500x375 needs 280 to 420 bytes. 0 turns row indexes off.
      Default: the size that all images need, at most 256 MiB.
    """

    SECTION = "cache"

    def __init__(
        self,
        *,
        encoded: Bytes | None = None,
        decoded: Bytes | None = None,
        presize: int | None = None,
        device: Bytes | None = None,
        row_index: Bytes | None = None,
    ) -> None:
        super().__init__(
            encoded=encoded,
            decoded=decoded,
            presize=presize,
            device=device,
            row_index=row_index,
        )


class Limits(Section):
    """Limits of images, memory and threads: ``fw.Loader(..., limits=fw.Limits(max_side=9000))``.

    Sizes of memory are bytes, or texts such as ``"1.5 GiB"``.

    * ``max_pixels``: maximum number of pixels of an image. Default: 178956970, Pillow's limit for
      suspected decompression bombs.
    * ``max_side``: largest width and height of an image, in pixels. Default: 65535.
    * ``max_file_bytes``: maximum size of an encoded sample. Default: 64 MiB.
    * ``max_field_bytes``: maximum size of the text or bytes from which the fields of a sample are
      read for ``columns``. Default: 1 MiB.
    * ``max_outline_points``: maximum number of points of the polygons of an object, for
      ``fw.instances`` and ``fw.runs``. Default: 65536.
    * ``large_image_memory``: host memory that all images share if they need more than the memory
      of their worker. Default: 256 MiB.
    * ``host_memory``: maximum host memory, including page-locked memory. Default: no limit.
    * ``device_memory``: maximum memory on the GPU, without the memory of the driver and its
      libraries. Default: no limit.
    * ``pinned_memory``: maximum page-locked host memory. Default: no limit.
    * ``cpu_threads``: maximum number of threads that prepare samples: the workers, and up to two
      more threads if a GPU is used. Default: no limit.
    * ``overcommit``: whether to start if the plan needs more host memory than is available.
      Default: False.
    """

    SECTION = "limits"

    def __init__(
        self,
        *,
        max_pixels: int | None = None,
        max_side: int | None = None,
        max_file_bytes: Bytes | None = None,
        max_field_bytes: Bytes | None = None,
        max_outline_points: int | None = None,
        large_image_memory: Bytes | None = None,
        host_memory: Bytes | None = None,
        device_memory: Bytes | None = None,
        pinned_memory: Bytes | None = None,
        cpu_threads: int | None = None,
        overcommit: bool | None = None,
    ) -> None:
        super().__init__(
            max_pixels=max_pixels,
            max_side=max_side,
            max_file_bytes=max_file_bytes,
            max_field_bytes=max_field_bytes,
            max_outline_points=max_outline_points,
            large_image_memory=large_image_memory,
            host_memory=host_memory,
            device_memory=device_memory,
            pinned_memory=pinned_memory,
            cpu_threads=cpu_threads,
            overcommit=overcommit,
        )


class Storage(Section):
    """Access to files at URLs and to local files: ``fw.Loader(..., storage=fw.Storage(retries=3))``.

    Sizes are bytes, or texts such as ``"1.5 GiB"``.

    * ``connections``: maximum number of concurrent requests, 1 to 4096. Default: 64.
    * ``retries``: maximum number of retries of a failed request, at most 100. Default: 8, which
      take about 25 seconds.
    * ``timeout``: maximum seconds until an answer, 1 to 3600. For each 64 KiB of the answer one
      second is added. Default: 10.
    * ``open_timeout``: maximum seconds for a request with all its retries while a source is
      opened, 1 to 86400. Default: 60.
    * ``redirects``: allowed HTTP redirects: ``"none"``, ``"same-host"`` (default) or ``"any"``.
    * ``ca_file``: file of certificates (PEM) that are trusted in addition to the system's.
    * ``max_listed``: maximum number of names in a listing. Default: 50000000.
    * ``read_ahead``: maximum host memory for prefetched samples. Default: 256 MiB.
    * ``cache``: maximum size of a cache on disk for files at URLs. Default: 0, no cache.
    * ``cache_directory``: folder of this cache. Several processes may share it. Default: the
      folder ``objects`` in feedwater's cache folder.
    * ``index_files``: where index tables are stored: ``"beside"`` each local file (default),
      ``"cache"`` (in the cache folder), or ``"none"``: files are scanned at every start.
    * ``allow_urls``: hosts and buckets to which URLs in lists, COCO and Parquet files may lead,
      such as ``"images.example.org"`` or ``"s3://bucket"``; ``"*"`` for all. Default: none.
    * ``allow_folders``: folders to which paths in lists, COCO and Parquet files may lead, in
      addition to the folder of the list or file itself. Default: none.
    * ``map``: whether local ``lmdb``, ``beton`` and ``npy`` files are memory-mapped. Default:
      True.
    """

    SECTION = "storage"

    def __init__(
        self,
        *,
        connections: int | None = None,
        retries: int | None = None,
        timeout: int | None = None,
        open_timeout: int | None = None,
        redirects: Literal["none", "same-host", "any"] | None = None,
        ca_file: Path | None = None,
        max_listed: int | None = None,
        read_ahead: Bytes | None = None,
        cache: Bytes | None = None,
        cache_directory: Path | None = None,
        index_files: Literal["beside", "cache", "none"] | None = None,
        allow_urls: Sequence[str] | None = None,
        allow_folders: Sequence[Path] | None = None,
        map: bool | None = None,
    ) -> None:
        super().__init__(
            connections=connections,
            retries=retries,
            timeout=timeout,
            open_timeout=open_timeout,
            redirects=redirects,
            ca_file=ca_file,
            max_listed=max_listed,
            read_ahead=read_ahead,
            cache=cache,
            cache_directory=cache_directory,
            index_files=index_files,
            allow_urls=allow_urls,
            allow_folders=allow_folders,
            map=map,
        )


class LoaderSettings(Section):
    """Order, batches and shards: ``fw.Loader(..., loader=fw.LoaderSettings(repeats=3))``.

    These settings are not parameters of :class:`feedwater.Loader` itself:

    * ``shuffle_window``: a number of samples. Files are shuffled, and then samples are shuffled
      only within groups of this number of consecutive samples. For sources with many samples
      per file; needs ``shuffle``. Default: the whole set is shuffled.
    * ``repeats``: repeated augmentation: how often each sample occurs in a row in the order of all
      shards, 1 to 256, each time with its own random choices. More than 1 needs ``shuffle``.
      Default: 1.
    * ``tune``: whether ``"auto"`` values, automatic placements and the number of prefetched
      samples are adjusted while the loader runs. Default: True.
    * ``shard``: where rank and world size are read from: ``"environment"`` (default: the launcher
      that started the process), ``"torchrun"``, ``"slurm"``, ``"openmpi"``, ``"mpich"``,
      ``"kubernetes"``, or ``"none"``: every process reads the whole set.
    * ``ignore_label``: label of the zeros that ``on_error="substitute"`` puts in place of a
      sample. Default: -100, which losses of PyTorch ignore.

    The other settings are also parameters of :class:`feedwater.Loader`:

    * ``batch_size``: samples per batch, 1 to 1048576. Default: 64.
    * ``num_workers``: number of threads, 1 to 1024, or ``"auto"``. Default: the number of cores.
    * ``prefetch``: batches prepared in advance, 1 to 1024, or ``"auto"``. Default: 2.
    * ``seed``: seed of all random choices, from 0. Default: 0.
    * ``shuffle``: whether each epoch has its own order. Default: False.
    * ``last_batch``: ``"drop"`` (default), ``"pad"`` or ``"partial"``.
    * ``rank``, ``world_size``: rank from 0, and world size. Default: as ``shard`` specifies.
    * ``on_error``: ``"stop"`` (default), ``"skip"``, ``"substitute"`` or ``"drop"``.
    """

    SECTION = "loader"

    def __init__(
        self,
        *,
        shuffle_window: int | None = None,
        repeats: int | None = None,
        tune: bool | None = None,
        shard: Literal["environment", "torchrun", "slurm", "openmpi", "mpich", "kubernetes", "none"] | None = None,
        ignore_label: int | None = None,
        batch_size: int | None = None,
        num_workers: int | Literal["auto"] | None = None,
        prefetch: int | Literal["auto"] | None = None,
        seed: int | None = None,
        shuffle: bool | None = None,
        last_batch: Literal["drop", "pad", "partial"] | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        on_error: Literal["stop", "skip", "substitute", "drop"] | None = None,
    ) -> None:
        super().__init__(
            shuffle_window=shuffle_window,
            repeats=repeats,
            tune=tune,
            shard=shard,
            ignore_label=ignore_label,
            batch_size=batch_size,
            num_workers=num_workers,
            prefetch=prefetch,
            seed=seed,
            shuffle=shuffle,
            last_batch=last_batch,
            rank=rank,
            world_size=world_size,
            on_error=on_error,
        )


#: The class of each section.
SECTIONS: dict[str, type[Section]] = {it.SECTION: it for it in (LoaderSettings, Decode, Output, Targets, Cache, Limits, Storage)}


#: Former names of keys in the section ``[loader]``, with today's names. They are accepted until 1.0.
_FORMER = {"batch": "batch_size", "workers": "num_workers", "last": "last_batch", "world": "world_size"}


def table_of(name: str, section: Section | Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns the given settings of a section as a table. Converts former names of keys to today's."""
    kind = SECTIONS[name]
    if section is None:
        return {}
    if isinstance(section, kind):
        return section.settings()
    if not isinstance(section, Mapping):
        shown = f"the class {section.__name__}, without parentheses" if isinstance(section, type) else repr(section)
        raise TypeError(f"{name} is {shown}; it must be fw.{kind.__name__}(...), or a dictionary with the same keys")
    table: dict[str, Any] = {}
    written: dict[str, Any] = {}
    for key, value in given(section, [*kind.FIELDS, *former_keys(name)]).items():
        today = former_keys(name).get(key, key)
        if today in table:
            raise TypeError(f"{name} has the same setting twice, as {written[today]} and as {key}; give only {today}")
        table[today], written[today] = value, key
    return table


def written_keys(name: str, section: Section | Mapping[str, Any]) -> dict[str, str]:
    """Returns the keys of a section as the program wrote them, by today's names."""
    keys: Any = section.settings() if isinstance(section, Section) else section
    return {former_keys(name).get(key, key): key for key, value in keys.items() if value is not None}


def former_keys(name: str) -> Mapping[str, str]:
    """Returns the former names of a section's keys, with today's."""
    return _FORMER if name == "loader" else {}


def checked_sections(sections: Any) -> dict[str, dict[str, Any]]:
    """Checks the names of the sections of a recipe, and returns the sections as tables."""
    if not isinstance(sections, Mapping):
        raise TypeError(f'sections is {sections!r}; it must be a dictionary of groups of settings, such as {{"loader": {{"shuffle": True}}}}')
    for name in sections:
        if name not in SECTIONS:
            near = nearest(str(name), SECTIONS)
            advice = f"did you mean {near}?" if near else f"the sections are {', '.join(SECTIONS)}"
            raise ValueError(f"a recipe has no section {name!r}; {advice}")
    return {name: table_of(name, section) for name, section in sections.items()}
