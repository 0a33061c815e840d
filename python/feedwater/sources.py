"""Sources of samples, as functions with the settings of a pipeline file.

Written by ``scripts/python-api --write`` from the doc comments in ``src/source/``. A setting that is ``None`` has its default. Paths
may be URLs, and all paths are relative to the working directory.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Literal

from ._names import suggesting
from ._settings import Source, paths_of

Path = str | os.PathLike[str]

__all__ = [
    "beton",
    "coco",
    "directory",
    "file_list",
    "lmdb",
    "npy",
    "parquet",
    "recordio",
    "tfrecord",
    "webdataset",
]


@suggesting("fw.beton")
def beton(
    *paths: Path | Sequence[Path],
    image: str | None = None,
    label: str | None = None,
    on_bad_shard: Literal["error", "skip"] | None = None,
) -> Source:
    """Images in files that FFCV's ``DatasetWriter`` wrote (version 2 of the format, as in ffcv 1.0.2).

    * A path is a file, a directory (its visible files whose names end in ``.beton``), or a pattern
      such as ``train-*.beton`` (``*`` and ``?`` in the last part). Samples are ordered by path, then file
      name, then position in the file.
    * The image is an ``RGBImageField``. The label is an ``IntField``, or a ``FloatField`` if there is no
      ``IntField``. If several fields qualify, the settings must name one. Without a label field,
      labels are -1. Fields of custom classes are an error, because the file does not contain their
      size.
    * All fields but images are fields of the samples, by the names in the file, which have at most
      16 bytes: numbers, JSON, arrays as flat lists, and a ``BytesField`` as a text if it is UTF-8 and
      otherwise as bytes. The second source of a join needs no image.
    * A label that is stored as a float must be a whole number, as in all sources: ``3.0`` is 3. Any
      other float is an error.
    * An image is a JPEG or raw pixels. The writer chooses for each sample (``write_mode`` of ``jpg``,
      ``raw``, ``smart``, ``proportion``). Raw pixels are returned as PNM: a header of up to 32 bytes,
      then the pixels. Each image is read with one positioned read.
    * Samples are copied from a memory mapping of the file (``storage.map``). If the file is truncated
      while it is used, the sample is an error.
    * The tables of a file are parsed once. The result is stored beside the file (hidden, ending in
      ``.feedwater1``) or in the cache directory. Every image must have an entry in the allocation
      table. The image must lie within one page, after the sample table and before the allocation
      table, and the size of raw pixels must match. If a file violates these rules or is truncated,
      opening it fails with the byte offset of the violation.
    * The format has no checksums, so this source does not detect damaged pixels or labels.

    Settings:

    * ``image``: Field that contains the image. Default: the only ``RGBImageField``.
    * ``label``: Field that contains the label: an ``IntField``, or a ``FloatField`` of whole numbers. ``""`` means no label (-1). Default: the only ``IntField``, else the only ``FloatField``, else no label.
    * ``on_bad_shard``: What happens to a file that is damaged or cannot be opened: ``"error"`` (the default) or ``"skip"``. Bad shards are counted, and the first is named in a warning.
    """
    return Source({"beton": paths_of(paths)}, image=image, label=label, on_bad_shard=on_bad_shard)


@suggesting("fw.coco")
def coco(
    path: Path,
    *,
    images: Path | None = None,
    skip_empty: bool | None = None,
    coordinates: Literal["stored", "upright"] | None = None,
    captions: Path | None = None,
) -> Source:
    """Images with objects from COCO's ``instances_*.json`` (<https://cocodataset.org/#format-data>).

    * The samples are the ``images`` in file order, including images without annotations (``skip_empty``
      skips and counts these). The ``file_name`` of an image is relative to the folder ``images``. This
      folder must exist and contain at least one of the images, except in the second source of a
      join. A missing image is a sample error.
    * ``Annotations::objects`` returns the ``annotations`` of an image in file order: box, category,
      ``iscrowd``, ``area`` (default: the area of the box), ``id``, and polygons or run lengths, including
      pycocotools' compressed form. The label of an object is the position of its category among all
      ``categories``, ordered by ID. ``Source::classes`` returns their names, ``Coco::categories``
      their IDs.
    * The label of a sample is -1, because an image has no class.
    * Numbers are stored exactly. Numbers with at most two decimals, as in COCO, take about two
      bytes.
    * Coordinates refer to the stored pixels unless ``coordinates`` states otherwise. An image whose
      size differs from its ``width`` and ``height`` is a sample error.
    * An ID is a whole number. It may be written as a float (``3.0``) or a text (``"3"``). If an image
      or category has any other text as its ID, all images or all categories must have texts as IDs.
      Categories are then ordered by these texts, and ``Category::id`` is the position in this
      order. For images, ``Coco::image_id`` is then the position in ``images``.
    * As in pycocotools, ``width`` and ``height`` may be floats, and may be 0, -1 or null if unknown.
      ``iscrowd`` may be null. An image without ``file_name`` (LVIS) is named by the last part of its
      ``coco_url``. Annotations whose image is not listed are skipped and counted. Opening fails if no
      annotation refers to a listed image. Annotations with the same ID are all used, with a warning
      (``Notes::warnings``).
    * Opening fails with a message that names the ID in these cases: two images or two categories
      have the same ID; the category of an annotation is not listed; a box does not have four
      numbers or has a negative side; a polygon has an odd number of coordinates; run lengths are
      for an image of another size or exceed the image. Invalid JSON (such as ``NaN``) is an error
      with line and column. A polygon with fewer than three points is dropped. Pixels after the last
      run length are background.
    * Annotations with a ``caption`` and without box and category, as in ``captions_*.json``, are
      captions, not objects.
    * The ``Fields`` of a sample are values of the file, unchanged by the
      operators: ``image_id``, ``file_name``, ``width`` and ``height``; and for each object, in the order of
      the objects and including crowds, ``boxes`` (x, y, width and height), ``categories`` (labels),
      ``category_ids``, ``areas``, ``iscrowd``, ``keypoints`` (x, y and visibility of each point) and
      ``segmentations``; and ``captions``, a list of texts. ``captions`` are read from the file of this
      setting, if it is set. ``segmentations`` has for each object null, a list of polygons, or an
      object with ``size`` and ``counts``, which is always a list.
    * Keypoints and captions are read from the file again, once, if a column needs them. They are
      kept in memory.
    * The file is parsed as a stream, and only the results are kept in memory. A text of more than 4
      MiB, a ``file_name`` of more than 8 KiB, a name of more than 4 KiB and an outline of more than 4
      Mi numbers are errors.

    Settings:

    * ``images``: Folder of the images, absolute or relative to the folder of the JSON file. In a pipeline file, a folder that exists relative to the pipeline file takes precedence. Default: the folder of the JSON file.
    * ``skip_empty``: Whether to skip images without annotations. Default false.
    * ``coordinates``: Image to which coordinates refer: ``stored`` pixels, or the ``upright`` image. Default stored.
    * ``captions``: COCO file with the captions of the images, such as ``captions_train2017.json``, absolute or relative to the folder of the JSON file. In a pipeline file, a path that exists relative to the pipeline file takes precedence. It is read only if a column needs captions. Default: the captions are in the JSON file itself, if it has any.
    """
    return Source({"coco": path}, images=images, skip_empty=skip_empty, coordinates=coordinates, captions=captions)


@suggesting("fw.directory")
def directory(
    path: Path,
    *,
    extensions: Sequence[str] | None = None,
    allow_empty: bool | None = None,
    class_to_index: Mapping[str, int] | None = None,
    side_files: Mapping[str, str] | None = None,
) -> Source:
    """Images in class folders, in the order of torchvision's ``ImageFolder``.

    * Every folder directly in the directory is a class. Classes are numbered in the byte order of
      their names, or by ``class_to_index``. If there are no folders, the samples are the images in
      the directory itself, with label -1.
    * The samples of a class are the images in its folder and in all folders below it. Folders are
      in the byte order of their whole paths (``a``, ``a-b``, ``a/b``), and the files of each folder in
      the byte order of their names. Links are followed, except a link to a folder that contains the
      link.
    * An image is a regular file whose name ends in one of ``extensions``. Its format is detected from
      its content. Other files, pipes, devices, and files next to the class folders are skipped and
      counted (``Notes::excluded``). Images next to the class folders cause a warning.
    * A class without images is an error unless ``allow_empty`` is set, because skipping it would
      shift the labels of later classes.
    * Files and folders whose names begin with a dot are ignored.
    * If the directory contains folders such as ``train/`` and ``val/`` with the class folders inside
      them, ``train`` and ``val`` become the classes, with a warning (``Notes::warnings``).
    * The directory may be a URL that supports listing (``s3://bucket/train``). One listing returns
      the names, lengths and versions of all objects. Each sample is read with one request. An
      object that has changed since the listing is a sample error.
    * The setting ``side_files`` makes ``Fields`` of files beside the images. A
      file ending in ``.json`` is JSON. Any other file is text if it is UTF-8, and bytes otherwise. A
      file that does not exist is a missing value. A file that cannot be read is a sample error.
    * The second source of a join needs no images. Without ``side_files``, the samples there are all
      files, or those with the given ``extensions``, and the contents of a file are the field ``value``.

    Settings:

    * ``extensions``: Extensions of image files, in upper or lower case. ``"*"`` matches every name. Other files are skipped and counted. Default: ``jpg``, ``jpeg``, ``png``, ``ppm``, ``bmp``, ``pgm``, ``tif``, ``tiff``, ``webp``.
    * ``allow_empty``: Whether a class may have no images. Such a class keeps its number. With false, the default, a class without images is an error.
    * ``class_to_index``: Label of each class, from 0 to 1048575. Several classes may share a label. Folders that are not listed here are skipped and counted. Default: classes are numbered in the byte order of their names.
    * ``side_files``: Files beside each image that are fields of its sample: a path for each field, relative to the directory. ``{folder}`` is the folder of the image in the directory, ``{stem}`` its name without extension, and ``{name}`` its name. ``{stem:_rgb=_depth}`` replaces a part of the name, ``{folder:images=masks}`` a folder. Default: none.
    """
    return Source({"directory": path}, extensions=extensions, allow_empty=allow_empty, class_to_index=class_to_index, side_files=side_files)


@suggesting("fw.file_list")
def file_list(
    path: Path,
    *,
    format: Literal["auto", "text", "csv", "tsv", "jsonl"] | None = None,
    image: str | None = None,
    label: str | None = None,
    labels: Literal["auto", "integer", "text"] | None = None,
    separator: str | None = None,
    side_files: Mapping[str, str] | None = None,
) -> Source:
    """Images that are listed in a file, in the order of the list.

    The list is UTF-8. Paths are relative to the folder of the list and lie below it. Absolute
    paths, ``../`` and URLs must be allowed by ``storage.allow_folders`` and ``storage.allow_urls``. A
    missing file is a sample error. Opening the list is an error if 16 evenly spread files are all
    local and missing. ``format`` or the file extension selects the format:

    * ``text``: one image per line: path, tab, integer label. Paths may contain anything but tabs and
      line ends. Without a tab, the label is the text after the last space if it is an integer, as
      in lists of Caffe and DALI. A line without a label has label -1. Empty lines are ignored.
    * ``csv`` (``.csv``) and ``tsv``: a table with column names in the first line. Columns are separated
      by commas, by tabs or by ``separator``. Fields may be quoted as in RFC 4180.
    * ``jsonl`` (``.jsonl``, ``.ndjson``): one object per line.
    * A ``.tsv`` is a table if its first line names a path column, or if ``image``, ``label`` or
      ``separator`` is set. All other files are text.

    In tables and JSON lines, ``image`` names the column (or key) of the path. The default is the
    first of these columns that exists: ``path``, ``image``, ``file``, ``filename``, ``file_name``,
    ``filepath``, ``image_path``. ``label`` names the column of the label. The default is ``label``. Without
    such a column samples have label -1, with a warning if there are columns besides the path.

    * Labels are whole numbers or names. With names, the classes are the names in byte order, and a
      label is the position of its name. Whole numbers may be written as ``3``, ``3.0`` (as pandas
      writes columns with missing values) or ``"3"``. A number with a fraction is an error. A list
      with both numbers and names is an error, unless ``labels = "text"`` makes all labels names.
      Names that are all numbers are sorted numerically.
    * A list is parsed in blocks of 1 MiB, or of a few times its longest line, so the text is never
      completely in memory. A line (in a table: a row) of more than 4 MiB, a path of more than 8 KiB
      and a name of more than 4 KiB are errors. A list at a URL is fetched completely, with one
      request.

    The ``Fields`` of a sample are the columns of its row or the keys of its
    line, and the files beside its image that ``side_files`` names. A side file ending in ``.json`` is
    JSON. Any other side file is text if it is UTF-8, and bytes otherwise. A file that does not
    exist is a missing value. A file that cannot be read is a sample error.

    Settings:

    * ``format``: Format of the file. Default: determined by the file name extension.
    * ``image``: Column (or JSON key) of the path. Default: the first of ``path``, ``image``, ``file``, ``filename``, ``file_name``, ``filepath`` and ``image_path`` that exists.
    * ``label``: Column (or JSON key) of the label; empty for no labels. Default: ``label``, if it exists.
    * ``labels``: Type of the labels. Default: detected from the labels.
    * ``separator``: Column separator of a table, an ASCII character. Default: a comma in CSV, a tab in TSV.
    * ``side_files``: Files beside each image that are fields of its sample, besides the columns: a path for each field, relative to the folder of the list. ``{folder}`` is the folder of the image as the list names it, ``{stem}`` its name without extension, and ``{name}`` its name. ``{stem:_rgb=_depth}`` replaces a part of the name, ``{folder:images=masks}`` a folder. Default: none.
    """
    return Source({"list": path}, format=format, image=image, label=label, labels=labels, separator=separator, side_files=side_files)


@suggesting("fw.lmdb")
def lmdb(
    *paths: Path | Sequence[Path],
    database: str | None = None,
    values: Literal["auto", "datum", "image"] | None = None,
    keys: str | None = None,
    skip_keys: Sequence[str] | None = None,
    on_bad_shard: Literal["error", "skip"] | None = None,
) -> Source:
    """Images in LMDB environments. Each value is an encoded image or a Datum of Caffe.

    * A path is a ``data.mdb`` or another environment that is a single file, a directory (its files
      that end in ``data.mdb``), or a pattern of files. Samples are ordered by path, then by key.
    * Files of LMDB 0.9 and 1.0 from 64-bit little-endian machines are supported, with any page
      size. They are parsed without the library and without a lock. Damaged and malicious files
      cause errors with the byte offset. Samples are copied from a memory mapping of the file
      (``storage.map``). If the file is truncated while it is used, the sample is an error, and the
      process continues.
    * Every value of the configured database whose key is selected is a sample. Keys of named
      databases are ignored. A database with several values per key (DUPSORT) is an error.
    * A Datum contains its image and label. An encoded image has label -1. By default, the first
      value decides whether all values are Datums or encoded images. A Datum of raw pixels (blue,
      green and red planes, or gray) becomes a PNM of RGB or gray. A Datum of floats is an error.
    * The fields of a sample are its ``key``, and ``label``, ``channels``, ``height``, ``width`` and
      ``float_data`` if its Datum has them. In the second source of a join, values need no image, and
      a value that is no Datum is the field ``value``: a text if it is UTF-8, and otherwise bytes.
      When fields of a local file are first read, the keys are read again, and the position of each
      key is stored (8 bytes). For files at URLs, the table contains the keys, and the fields of a
      Datum are requested together with its image.
    * On first use, the pages of keys and the beginning of each value are read. The resulting table
      is stored beside each file (hidden, ending in ``.feedwater1``) or in the cache directory.
      Afterwards each image takes one read. LMDB has no checksums of contents. Damage from before
      the first use is only detected if the image decoder finds it.
    * No program may write to the environment while the source reads it. The source reads the newest
      transaction that was committed when the source was opened. If the file changes afterwards, its
      samples cannot be read.

    Settings:

    * ``database``: Name of the database in the environment. The default, empty, is the unnamed database.
    * ``values``: Type of the values. Default ``auto``.
    * ``keys``: Pattern for the keys that are samples: ``*`` matches any text, ``?`` any byte. Default ``*``.
    * ``skip_keys``: Patterns for keys that are skipped. Default ``["__*__"]``, which matches the lists that scripts for PyTorch store next to the images.
    * ``on_bad_shard``: What happens to a file that is damaged or cannot be opened: ``"error"`` (the default) or ``"skip"``. Bad shards are counted, and the first is named in a warning.
    """
    return Source({"lmdb": paths_of(paths)}, database=database, values=values, keys=keys, skip_keys=skip_keys, on_bad_shard=on_bad_shard)


@suggesting("fw.npy")
def npy(
    *paths: Path | Sequence[Path],
    labels: Path | None = None,
    fields: Mapping[str, Path] | None = None,
) -> Source:
    """Images in ``.npy`` files with many images each, as written by ``np.save`` (format versions 1.0, 2.0
    and 3.0).

    * A path is a file, a directory (its visible files whose names end in ``.npy``, except the files
      of labels and fields), or a pattern such as ``train-*.npy`` (``*`` and ``?`` in the last part).
      Samples are ordered by path, then file name, then index on the first axis.
    * The elements are ``uint8``, ``uint16`` or ``float32``, in C order. Arrays of 16 bits and of floats
      need another pixel format than ``u8x3`` (``decode.pixels``). The shape is (samples, height, width,
      3) for RGB, (samples, height, width, 4) for RGB with alpha, and (samples, height, width) or
      (samples, height, width, 1) for gray. With channels first, it is (samples, 3, height, width),
      (samples, 4, height, width) or (samples, 1, height, width). Ambiguous shapes are read as
      channels last. An array of three axes is an error if its last axis has at most 4 elements,
      because it may be a single image. Errors for other shapes and types suggest a supported form.
    * An image of bytes without alpha is returned as PNM: a header of up to 32 bytes, then the
      pixels. Other images are returned as ``.npy`` files with one image. An image takes one
      positioned read. If an image of bytes with three channels first has more than 16384 pixels, it
      takes three reads per 16384 pixels.
    * Samples are copied from a memory mapping of the file (``storage.map``). If the file is truncated
      while it is used, the sample is an error.
    * The source keeps no table of samples, because the shape of an array determines the offsets of
      its images. Labels have the same size in memory as in their file.
    * The fields of a sample are the values of the arrays in the setting ``fields``. Elements are
      booleans, integers, floats of 16, 32 or 64 bits, or texts (``U``, ``S``), in any byte order. The
      first axis of an array has the samples. An array of texts has no other axis. In the second
      source of a join, no files of images are needed: arrays that are not in ``fields`` are the field
      ``value``.
    * Opening fails with the byte offset if the length of a file does not match its shape. If the
      file changes after opening, its samples are errors. The format has no checksums, so this
      source does not detect damaged pixels.

    Settings:

    * ``labels``: File with one integer label per sample: a ``.npy`` of any integer type and byte order. A pattern can name several such files, whose labels are concatenated. The path is absolute or relative to the folder of the first file of images. In a pipeline file, a path that exists relative to the pipeline file takes precedence. Empty, the default, for no labels (-1).
    * ``fields``: Files with one value per sample and field, by the name of the field. A value is what the first axis of an array selects: a number, a text, or numbers in row-major order. The paths are like those of ``labels``, but no URLs. Default: no fields.
    """
    return Source({"npy": paths_of(paths)}, labels=labels, fields=fields)


@suggesting("fw.parquet")
def parquet(
    *paths: Path | Sequence[Path],
    image: str | None = None,
    label: str | None = None,
    labels: Literal["auto", "integer", "text"] | None = None,
    cache_bytes: int | None = None,
    on_bad_shard: Literal["error", "skip"] | None = None,
) -> Source:
    """Images in a column of Parquet files.

    * A path is a file, a directory (its visible files that end in ``.parquet``), or a pattern such as
      ``train-*.parquet`` (``*`` and ``?`` in the last part). Samples are ordered by path, then file name,
      then row.
    * The image is the value of a binary column. The setting names the column or its field ``bytes``,
      as in Hugging Face's ``image: struct<bytes, path>``. If the value is null, the image is read
      from the file that the field ``path`` names, relative to the Parquet file. A row without both is
      a sample error.
    * The label is a whole number (an integer below 2^63, a float, a boolean, or a text) or a name.
      The metadata of the file may name the classes with Hugging Face's ``ClassLabel``. With text
      names, the classes are the distinct names in byte order. A null label is -1. An invalid label
      is an error with the row. A column that contains both numbers and names is an error too.
    * On first use, only metadata, page headers and labels are read. The first read of a page stores
      the positions of its images, in at most eight bytes per row. Afterwards an image in an
      uncompressed page takes one read of its own bytes.
    * Pages that are decompressed or read completely are cached within ``cache_bytes``, with LRU
      eviction. The limit includes pages that are being read: a thread waits until memory is
      available. In file order every page is decompressed once. In random order, if the decompressed
      pages do not all fit into the cache, nearly every image requires decompressing a whole page.
    * If a page has a checksum, it is verified when the page is read completely. If a page cannot be
      decompressed or is inconsistent, its samples are errors. Damaged metadata and headers are
      errors with the byte offset.
    * Supported compressions: none, snappy, zstd, gzip, brotli, LZ4 (raw). Supported encodings:
      PLAIN, dictionary, DELTA_LENGTH_BYTE_ARRAY (labels: DELTA_BINARY_PACKED), in pages of versions
      1 and 2. Encrypted files, and repeated columns of images or labels are not supported.
    * All columns besides the image are fields, also repeated ones, with all encodings of pages of
      versions 1 and 2 except BIT_PACKED levels. Lists of numbers are flat lists. Structs, maps and
      other lists are JSON. Booleans, dates, times and timestamps are integers in their stored unit
      (``INT96``: nanoseconds since 1970), decimals are exact texts. Nulls are missing values. The
      metadata of a file is read again when its fields are first read. Then the page headers of the
      wanted fields are read, per row group. Lists in pages of version 1 are also decoded once then,
      because these headers do not contain their number of rows.

    Settings:

    * ``image``: Column of the encoded image, or a group with a field ``bytes``. Names from the root are joined by dots. Default ``image``.
    * ``label``: Column of the label; empty for no labels (-1). Default ``label``.
    * ``labels``: Type of text labels: whole numbers or class names. The default ``auto`` selects numbers if all texts are numbers.
    * ``cache_bytes``: Memory limit for pages, in bytes. It must be at least the size of the largest page, compressed plus decompressed. Default 256 MiB.
    * ``on_bad_shard``: What happens to a file that is damaged or cannot be opened: ``"error"`` (the default) or ``"skip"``. Bad shards are counted, and the first is named in a warning.
    """
    return Source({"parquet": paths_of(paths)}, image=image, label=label, labels=labels, cache_bytes=cache_bytes, on_bad_shard=on_bad_shard)


@suggesting("fw.recordio")
def recordio(
    *paths: Path | Sequence[Path],
    label: Literal["one", "first", "none"] | None = None,
    on_bad_shard: Literal["error", "skip", "until_damage"] | None = None,
) -> Source:
    """Images in RecordIO files with MXNet's image header, as written by ``im2rec`` and ``mxnet.recordio``.

    * A path is a ``.rec`` file, a directory (its visible files that end in ``.rec``), or a pattern such
      as ``train-*.rec`` (``*`` and ``?`` in the last part). Samples are ordered by path, then file name,
      then position in the file. The ``.idx`` file is neither needed nor read, because both tools
      write records in the order of the index.
    * A label is an integer that is stored as a float. If records have lists of labels, the settings
      must select one label.
    * The fields of a sample are ``label``, a flat list of one or all of its labels, and ``id``. In the
      second source of a join, records need no image, and their contents are the field ``value``: a
      text if it is UTF-8, and otherwise bytes.
    * Records without an image are skipped and counted
      (``Source::excluded``). InsightFace's files have one such record at
      the start and one for each identity.
    * The headers are read on first use. The resulting table is stored beside each file (hidden,
      ending in ``.feedwater1``) or in the cache directory. Afterwards each image takes one read, even
      if its record has several parts. RecordIO has no checksums. Damage from before the first use
      is only detected if the image decoder finds it.
    * Opening fails with the byte offset if a file is truncated or damaged, or if its records are
      not images with labels.

    Settings:

    * ``label``: Label that is used if records have several. Default ``one``.
    * ``on_bad_shard``: What happens to a file that is damaged or cannot be opened: ``"error"`` (the default) or ``"skip"``. ``"until_damage"`` uses the samples before the damage. Bad shards are counted, and the first is named in a warning.
    """
    return Source({"recordio": paths_of(paths)}, label=label, on_bad_shard=on_bad_shard)


@suggesting("fw.tfrecord")
def tfrecord(
    *paths: Path | Sequence[Path],
    image: str | None = None,
    label: str | None = None,
    on_bad_shard: Literal["error", "skip", "until_damage"] | None = None,
) -> Source:
    """Images in TFRecord files, one per ``tf.train.Example``.

    * A path is a file, a directory (its visible files), or a pattern such as ``train-*`` (``*`` and ``?``
      in the last part) or ``train-{00..15}`` (braces anywhere, as in shells). Samples are ordered by
      path, then file name, then position in the file.
    * The image is the only value of a bytes list. The label is the only value of an integer list,
      or of a float list if it is a whole number. The settings name both features. All features are
      fields, by their names: an integer or float list is a flat list of numbers, a bytes list with
      one value is a text if it is UTF-8 and otherwise bytes, and a bytes list with several values
      is a JSON array of texts. When fields of an uncompressed local file are first read, the start
      of each record is stored (8 bytes). The checksum of a record is verified again if the record
      has at most 64 KiB besides its image.
    * The files are scanned on first use, and every checksum is verified. The resulting table is
      stored beside each file (hidden, ending in ``.feedwater1``) or in the cache directory.
      Afterwards each image takes one read, and its checksum is verified again.
    * The class names (``Source::classes``) are those that ``feedwater pack``
      stored in the feature ``__feedwater_classes__`` of the first record. Other files have no class
      names.
    * A record that does not match its checksum is a sample error (label -1). Opening fails with the
      byte offset if a file is truncated, has damaged lengths, or contains anything but Examples
      with these features.
    * Compressed files (gzip and zlib, as TensorFlow writes them, or zstd) are decompressed while
      they are read. This is fast in sample order. In any other order each read decompresses some
      additional MiB.

    Settings:

    * ``image``: Feature that contains the encoded image. Default ``image/encoded``.
    * ``label``: Feature that contains the label; empty for no labels (-1). Default ``image/class/label``.
    * ``on_bad_shard``: What happens to a file that is damaged or cannot be opened: ``"error"`` (the default) or ``"skip"``. ``"until_damage"`` uses the samples before the damage. Bad shards are counted, and the first is named in a warning.
    """
    return Source({"tfrecord": paths_of(paths)}, image=image, label=label, on_bad_shard=on_bad_shard)


@suggesting("fw.webdataset")
def webdataset(
    *paths: Path | Sequence[Path],
    image: str | None = None,
    label: str | None = None,
    label_key: str | None = None,
    on_bad_shard: Literal["error", "skip", "until_damage"] | None = None,
) -> Source:
    """Images in tar archives as written by WebDataset, readable in any order.

    * A path is an archive, a directory (its visible files that end in ``.tar``, ``.tar.gz`` or
      ``.tar.zst``), or a pattern such as ``train-*.tar`` (``*`` and ``?`` in the last part) or
      ``train-{000..146}.tar`` (braces anywhere, as in shells). Samples are ordered by path, then file
      name, then position in the archive.
    * The key of a file is its name up to the first dot of the last part. Consecutive files with the
      same key are one sample. The text after this dot, in lower case, is the extension. The
      settings name the extensions of image and label. A hard link is read as its target, which must
      precede the link (GNU tar creates such links). Keys without an image, files without a dot or
      without a key, and symbolic links are skipped and counted
      (``Source::excluded``). Files named ``__NAME__`` are ignored.
    * All files of a sample are fields, named by their extensions. An archive with hard links has no
      fields.
    * The class names (``Source::classes``) are those that ``feedwater pack``
      stored in the member ``__feedwater_classes__``. Other archives have no class names.
    * The headers are read on first use, and their checksums are verified. The resulting table is
      stored beside each archive (hidden, ending in ``.feedwater1``) or in the cache directory.
      Afterwards each image takes one read. Tar has no checksums of contents. Damage from before the
      first use is only detected if the image decoder finds it.
    * A file may contain several archives in sequence, as ``cat a.tar b.tar`` writes them. All
      archives are read, as with ``tar -i``. Bytes after the last archive that belong to no archive
      are counted as skipped. Such bytes between two archives are an error.
    * Archives compressed with gzip or zstd are decompressed while they are read, in bounded memory.
      In sample order each archive is decompressed once; several reader threads decompress several
      archives in parallel. In any other order each read decompresses some additional MiB (in a zstd
      file with a single frame, everything before the sample). The source's description states the
      number of compressed files. The first scan decompresses them one additional time and verifies
      the checksums of gzip and zstd.
    * Opening fails if an archive is truncated, damaged, or compressed by anything but gzip and
      zstd, or if its samples have no label. The error contains the byte offset in the decompressed
      contents. For damaged compressed data, the error also contains the offset in the file.

    Settings:

    * ``image``: Extensions of the image, separated by semicolons. The first one that a sample has is used. ``*`` stands for the first file of a sample, whatever its extension. Default ``jpg;jpeg;png;webp;ppm;pgm;pbm;bmp;gif;tif;tiff``.
    * ``label``: Extension of the label file, which contains an integer in digits. Empty for no labels (-1). Default ``cls``.
    * ``label_key``: Key of the integer label if the label file is a JSON object (``label = "json"``). Empty, the default, if it is not JSON.
    * ``on_bad_shard``: What happens to a file that is damaged or cannot be opened: ``"error"`` (the default) or ``"skip"``. ``"until_damage"`` uses the samples before the damage. Bad shards are counted, and the first is named in a warning.
    """
    return Source({"webdataset": paths_of(paths)}, image=image, label=label, label_key=label_key, on_bad_shard=on_bad_shard)
