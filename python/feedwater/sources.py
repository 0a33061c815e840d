"""Sources of samples, as functions with the settings of a pipeline file.

Written by ``scripts/python-api --write`` from the doc comments in ``src/source/``. A setting that is ``None`` has its default. Paths
may be URLs, and all paths are relative to the working directory.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Literal

from ._settings import Source

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


def beton(
    *paths: Path,
    image: str | None = None,
    label: str | None = None,
    on_bad_shard: Literal["error", "skip"] | None = None,
) -> Source:
    """Images in files written by FFCV's ``DatasetWriter`` (version 2 of the format, as in ffcv 1.0.2).

    * A path is a file, a directory (its visible files whose names end in ``.beton``), or a pattern such as ``train-*.beton`` (``*`` and
      ``?`` in the last part). Samples are ordered by path, then file name, then position in the file.
    * The image is an ``RGBImageField``. The label is an ``IntField``, or a ``FloatField`` if there is none. If there are several, the
      settings must name one. Without a label field, labels are -1. Other fields are ignored, except custom classes: the file does
      not contain their size, so they are an error.
    * A label stored as a float must be a whole number, as in all sources: ``3.0`` is 3. Any other float is an error.
    * An image is a JPEG or raw pixels, as the writer chose for each sample (``write_mode`` of ``jpg``, ``raw``, ``smart``, ``proportion``).
      Raw pixels are returned as PNM: a header of up to 32 bytes, and the pixels. Each is one positioned read.
    * Samples are copied from a memory mapping of the file (``storage.map``); if the file is truncated meanwhile, it is a sample
      error.
    * The tables of a file are parsed once and stored next to it (a hidden file that ends in ``.feedwater1``) or in the cache
      directory. Every image must have an entry in the allocation table, with the size of its pixels if raw, within one page,
      after the sample table and before the allocation table. A file that violates this, or is truncated, is an error with the
      byte offset.
    * The format has no checksums: damaged pixels or labels are not detected here.

    Settings:

    * ``image``: Field of the image. Default: the only ``RGBImageField``.
    * ``label``: Field of the label, an ``IntField`` or a ``FloatField`` of whole numbers; ``""`` for no label (-1). Default: the only ``IntField``, otherwise the only ``FloatField``, otherwise no label.
    * ``on_bad_shard``: What happens to a file that is damaged or cannot be opened: ``"error"`` (the default) or ``"skip"``. Bad shards are counted, and the first is named in a warning.
    """
    return Source({"beton": list(paths)}, image=image, label=label, on_bad_shard=on_bad_shard)


def coco(
    path: Path,
    *,
    images: Path | None = None,
    skip_empty: bool | None = None,
    coordinates: Literal["stored", "upright"] | None = None,
) -> Source:
    """Images with objects from COCO's ``instances_*.json`` (<https://cocodataset.org/#format-data>).

    * The samples are the ``images`` in file order, including those without annotations (``skip_empty`` skips and counts them). The
      ``file_name`` of an image is relative to the folder ``images``. That folder must exist and contain at least one of the images; a
      missing image is a sample error.
    * ``Annotations::objects`` are the ``annotations`` of an image in file order: box, category, ``iscrowd``, ``area`` (default: that of
      the box), ``id``, and polygons or run lengths, including pycocotools' compressed form. The label of an object is the position
      of its category among all ``categories`` ordered by ID; ``Source::classes`` has the names, ``Coco::categories`` the IDs.
    * The label of a sample is -1: an image has no class.
    * Numbers are stored exactly. Numbers with at most two decimals, as in COCO, take about two bytes.
    * Coordinates refer to the stored pixels unless ``coordinates`` says otherwise. An image whose size differs from its ``width`` and
      ``height`` is a sample error.
    * An ID is a whole number, which may be written as a float (``3.0``) or a text (``"3"``). If the IDs of a kind are other texts,
      all must be: categories are then ordered by them, and ``Category::id`` and ``Coco::image_id`` return the position in this
      order or in ``images``.
    * As in pycocotools: ``width`` and ``height`` may be floats, and 0, -1 or null if they are not known; ``iscrowd`` may be null; an
      image without ``file_name`` (LVIS) has the last part of its ``coco_url``; annotations of images that are not listed are skipped
      and counted, unless all are; annotations with the same ID are all used, with a warning (``Notes::warnings``).
    * Errors, with the ID: duplicate IDs of images or categories; an annotation of a missing category; a box without four numbers or
      with a negative side; a polygon with an odd number of coordinates; run lengths for another size or beyond it. Invalid JSON
      (such as ``NaN``) is an error with line and column. A polygon with fewer than three points is dropped; pixels not covered by run
      lengths are background.
    * The file is parsed as a stream; only the results are in memory. A text of more than 4 MiB, a ``file_name`` of more than 8 KiB,
      a name of more than 4 KiB and an outline of more than 4 Mi numbers are errors.

    Settings:

    * ``images``: Folder of the images, absolute or relative to the folder of the JSON file. In a pipeline file, a path relative to that file takes precedence if the folder exists. Default: the folder of the JSON file.
    * ``skip_empty``: Whether to skip images without annotations. Default false.
    * ``coordinates``: Image to which coordinates refer: ``stored`` pixels, or the ``upright`` image. Default stored.
    """
    return Source({"coco": path}, images=images, skip_empty=skip_empty, coordinates=coordinates)


def directory(
    path: Path,
    *,
    extensions: Sequence[str] | None = None,
    allow_empty: bool | None = None,
    class_to_index: Mapping[str, int] | None = None,
) -> Source:
    """Images in class folders, listed as torchvision's ``ImageFolder`` does.

    * Every folder directly in the directory is a class. Classes are numbered in the byte order of their names, or by
      ``class_to_index``. Without folders, the images in the directory itself are the samples, with label -1.
    * The samples of a class are the images in its folder and in all folders below it: the folders in the byte order of their whole
      paths (``a``, ``a-b``, ``a/b``), and the files of each in the byte order of their names. Links are followed, except a link to a folder
      above itself.
    * An image is a regular file whose name ends in one of ``extensions``; its format is detected from its content. Other files,
      pipes and the like, and files next to the class folders are skipped and counted (``Notes::excluded``).
    * A class without images is an error unless ``allow_empty`` is set: it would shift the labels of later classes.
    * Names that begin with a dot are ignored.
    * Folders that contain the class folders (``train/`` and ``val/``) are classes too, with a warning (``Notes::warnings``).
    * The directory may be a URL that supports listing (``s3://bucket/train``). One listing returns names, lengths and versions of
      all objects, and each sample is one request. An object that has changed since the listing is a sample error.

    Settings:

    * ``extensions``: Extensions of image files, in any case; ``"*"`` matches every name. Other files are skipped and counted. Default: ``jpg``, ``jpeg``, ``png``, ``ppm``, ``bmp``, ``pgm``, ``tif``, ``tiff``, ``webp``.
    * ``allow_empty``: Whether a class may have no images; it keeps its number. Default false: such a class is an error.
    * ``class_to_index``: Label of each class, from 0 to 1048575; several classes may share a label. Folders that it does not list are skipped and counted. Default: classes are numbered in the byte order of their names.
    """
    return Source({"directory": path}, extensions=extensions, allow_empty=allow_empty, class_to_index=class_to_index)


def file_list(
    path: Path,
    *,
    format: Literal["auto", "text", "csv", "tsv", "jsonl"] | None = None,
    image: str | None = None,
    label: str | None = None,
    labels: Literal["auto", "integer", "text"] | None = None,
    separator: str | None = None,
) -> Source:
    """Images listed in a file, in its order.

    Paths are relative to the folder of the list and below it; the list is UTF-8. Absolute paths, ``../`` and URLs must be allowed by
    ``storage.allow_folders`` and ``storage.allow_urls``. A missing file is a sample error, unless
    16 evenly spread files are all local and missing: then opening the list is an error. Formats, by ``format`` or the file
    extension:

    * ``text``: one image per line: path, tab, integer label. Paths may contain anything but tabs and line ends. Without a tab, the
      label is the text after the last space if that is an integer, as in lists of Caffe and DALI; a line without a label has
      label -1. Empty lines are ignored.
    * ``csv`` (``.csv``) and ``tsv``: a table with column names in the first line, separated by commas or tabs or by ``separator``; fields
      may be quoted as in RFC 4180.
    * ``jsonl`` (``.jsonl``, ``.ndjson``): one object per line.
    * A ``.tsv`` is a table if its first line names a column of paths, or if ``image``, ``label`` or ``separator`` is set. All other files
      are text.

    In tables and JSON lines, ``image`` names the column (or key) of the path; the default is the first existing of ``path``, ``image``,
    ``file``, ``filename``, ``file_name``, ``filepath``, ``image_path``. ``label`` names that of the label; the default is ``label``, and
    without it samples have label -1, with a warning if there are other columns.

    * Labels are whole numbers or names. With names, the classes are the names in byte order, and a label is the position of its
      name. Whole numbers may be written as ``3``, ``3.0`` (as pandas writes columns with missing values) or ``"3"``. A number with a
      fraction is an error, and so are both numbers and names in one list, unless ``labels = "text"`` makes all of them names. Names
      that are all numbers are sorted numerically.
    * A list is parsed in blocks of 1 MiB, or a few times its longest line, so its text is never whole in memory. A line (in a
      table: a row) of more than 4 MiB, a path of more than 8 KiB and a name of more than 4 KiB are errors. A list behind a URL is
      fetched whole, in one request.

    Settings:

    * ``format``: Format of the file. Default: by its extension.
    * ``image``: Column (or key) of the path. Default: the first existing of the usual names.
    * ``label``: Column (or key) of the label; empty for no labels. Default: ``label``, if it exists.
    * ``labels``: Type of the labels. Default: detected.
    * ``separator``: Column separator of a table, an ASCII character. Default: a comma in CSV, a tab in TSV.
    """
    return Source({"list": path}, format=format, image=image, label=label, labels=labels, separator=separator)


def lmdb(
    *paths: Path,
    database: str | None = None,
    values: Literal["auto", "datum", "image"] | None = None,
    keys: str | None = None,
    skip_keys: Sequence[str] | None = None,
    on_bad_shard: Literal["error", "skip"] | None = None,
) -> Source:
    """Images in LMDB environments: each value is an encoded image, or a Datum of Caffe.

    * A path is a ``data.mdb`` or another environment of one file, a directory (its files that end in ``data.mdb``), or a pattern of
      files. Samples are ordered by path, then by key.
    * Supported are files of LMDB 0.9 or 1.0 from 64-bit little-endian machines, of any page size. They are parsed without the
      library and without a lock; damaged and malicious files end in errors with the byte offset. Samples are copied from a memory
      mapping of the file (``storage.map``); if the file is truncated meanwhile, it is a sample error and does not end the process.
    * Every value of the configured database with a selected key is a sample. Keys of named databases are ignored. A database with
      several values per key (DUPSORT) is rejected.
    * A Datum contains its image and label; an encoded image has label -1. If the settings do not say which of both the values
      are, the first value decides. A Datum of raw pixels, in planes with blue first or gray, becomes a PNM of RGB or gray; one of
      floats is an error.
    * On first use, the pages of keys and the beginning of each value are read. The resulting table is stored next to each file (a
      hidden file that ends in ``.feedwater1``) or in the cache directory. Each image is then one read. LMDB has no checksums of
      contents, so earlier damage is detected only by the image format.
    * The environment must not be written to meanwhile. The newest transaction committed when it was opened is read; if the file
      changes afterwards, its samples cannot be read.

    Settings:

    * ``database``: Name of the database in the environment. Default empty: the unnamed database.
    * ``values``: Type of the values. Default ``auto``.
    * ``keys``: Pattern of the keys that are samples: ``*`` is any text, ``?`` any byte. Default ``*``.
    * ``skip_keys``: Patterns of keys to skip. Default ``["__*__"]``, the lists that scripts for PyTorch store next to the images.
    * ``on_bad_shard``: What happens to a file that is damaged or cannot be opened: ``"error"`` (the default) or ``"skip"``. Bad shards are counted, and the first is named in a warning.
    """
    return Source({"lmdb": list(paths)}, database=database, values=values, keys=keys, skip_keys=skip_keys, on_bad_shard=on_bad_shard)


def npy(
    *paths: Path,
    labels: Path | None = None,
) -> Source:
    """Images in ``.npy`` files with many images each, as ``np.save`` writes them (format versions 1.0, 2.0 and 3.0).

    * A path is a file, a directory (its visible files whose names end in ``.npy``, except those of the labels), or a pattern such
      as ``train-*.npy`` (``*`` and ``?`` in the last part). Samples are ordered by path, then file name, then index on the first axis.
    * The elements are ``uint8``, 0 to 255, in C order. The shape is (samples, height, width, 3) for RGB, (samples, height, width)
      or (samples, height, width, 1) for gray, or channels first: (samples, 3, height, width) and (samples, 1, height, width).
      Ambiguous shapes are read as channels last. An array of three axes whose last has at most 4 elements is rejected, because it
      may be one image. Errors for other shapes and types say what to write instead.
    * An image is returned as PNM: a header of up to 32 bytes, and the pixels. It is one positioned read. With channels first,
      larger images take three reads per 16384 pixels.
    * Samples are copied from a memory mapping of the file (``storage.map``); if the file is truncated meanwhile, it is a sample
      error.
    * There is no table of samples: their offsets follow from the shape. Labels are stored as in their file.
    * A file whose length does not match its shape is an error with the byte offset. If it changes after opening, reads are sample
      errors. The format has no checksums: damaged pixels are not detected here.

    Settings:

    * ``labels``: File with one integer label per sample, a ``.npy`` of any integer type and byte order, or a pattern for several such files, whose labels are concatenated. Absolute, or relative to the folder of the first stack; in a pipeline file, a path relative to that file takes precedence if it exists. Empty (the default) for no labels (-1).
    """
    return Source({"npy": list(paths)}, labels=labels)


def parquet(
    *paths: Path,
    image: str | None = None,
    label: str | None = None,
    labels: Literal["auto", "integer", "text"] | None = None,
    cache_bytes: int | None = None,
    on_bad_shard: Literal["error", "skip"] | None = None,
) -> Source:
    """Images in a column of Parquet files.

    * A path is a file, a directory (its visible files that end in ``.parquet``), or a pattern such as ``train-*.parquet`` (``*`` and
      ``?`` in the last part). Samples are ordered by path, then file name, then row.
    * The image is the value of a binary column, which the settings name: the column itself or its field ``bytes``, as in Hugging
      Face's ``image: struct<bytes, path>``. If it is null, the image is read from the file named by the field ``path``, relative to
      the Parquet file; a row with neither is a sample error.
    * The label is a whole number (an integer below 2^63, a float, a boolean, or a text) or a name. Class names come from Hugging Face's
      ``ClassLabel`` in the file's metadata; with text names, the classes are the distinct names in byte order. A null label is -1.
      An invalid label, or both numbers and names in one column, is an error with the row.
    * On first use only metadata, page headers and labels are read. The positions of the images in a page are recorded on its
      first read, at most eight bytes per row. After that, an image in an uncompressed page is one read of its own bytes.
    * Decompressed and fully read pages are cached within ``cache_bytes``, with LRU eviction. This limit includes pages being read:
      a thread that gets no memory waits. In file order every page is decompressed once. In random order, with compressed files
      larger than the cache, nearly every image costs a page.
    * The checksum of a page, if any, is verified when the page is read whole. If a page fails to decompress or is inconsistent,
      its samples are sample errors. Damaged metadata and headers are errors with the byte offset.
    * Supported compressions: none, snappy, zstd, gzip, brotli, LZ4 (raw). Supported encodings: PLAIN, dictionary,
      DELTA_LENGTH_BYTE_ARRAY (labels: DELTA_BINARY_PACKED), in pages of versions 1 and 2. Encrypted files and repeated columns
      are not supported.

    Settings:

    * ``image``: Column of the encoded image, with names from the root joined by dots, or its field ``bytes`` if it has one. Default ``image``.
    * ``label``: Column of the label; empty for no labels (-1). Default ``label``.
    * ``labels``: Type of text labels: whole numbers, or class names. Default ``auto``: numbers if all of them are.
    * ``cache_bytes``: Memory limit for pages, in bytes; at least the size of the largest page, compressed plus decompressed. Default 256 MiB.
    * ``on_bad_shard``: What happens to a file that is damaged or cannot be opened: ``"error"`` (the default) or ``"skip"``. Bad shards are counted, and the first is named in a warning.
    """
    return Source({"parquet": list(paths)}, image=image, label=label, labels=labels, cache_bytes=cache_bytes, on_bad_shard=on_bad_shard)


def recordio(
    *paths: Path,
    label: Literal["one", "first", "none"] | None = None,
    on_bad_shard: Literal["error", "skip", "until_damage"] | None = None,
) -> Source:
    """Images in RecordIO files with MXNet's image header, as ``im2rec`` and ``mxnet.recordio`` write them.

    * A path is a ``.rec`` file, a directory (its visible files that end in ``.rec``), or a pattern such as ``train-*.rec`` (``*`` and ``?``
      in the last part). Samples are ordered by path, then file name, then position in the file. An ``.idx`` file is neither needed
      nor read: both tools write records in index order.
    * A label is an integer stored as a float. For records with a list of labels, the settings must select one.
    * Records without an image are skipped and counted (``Source::excluded``): InsightFace's files have
      one at the start and one for each identity.
    * The headers are read on first use. The resulting table is stored next to each file (a hidden file that ends in
      ``.feedwater1``) or in the cache directory. Each image is then one read, even if its record has several parts. RecordIO has no
      checksums, so earlier damage is detected only by the image format.
    * A truncated or damaged file, or one whose records are not images with labels, is an error with the byte offset.

    Settings:

    * ``label``: Label to use. Default ``one``.
    * ``on_bad_shard``: What happens to a file that is damaged or cannot be opened: ``"error"`` (the default) or ``"skip"``. ``"until_damage"`` uses the samples before the damage. Bad shards are counted, and the first is named in a warning.
    """
    return Source({"recordio": list(paths)}, label=label, on_bad_shard=on_bad_shard)


def tfrecord(
    *paths: Path,
    image: str | None = None,
    label: str | None = None,
    on_bad_shard: Literal["error", "skip", "until_damage"] | None = None,
) -> Source:
    """Images in TFRecord files, each in a ``tf.train.Example``.

    * A path is a file, a directory (its visible files), or a pattern such as ``train-*`` (``*`` and ``?`` in the last part) or
      ``train-{00..15}`` (braces anywhere, as in shells). Samples are ordered by path, then file name, then position in the file.
    * The image is the only value of a bytes list. The label is the only value of an integer list, or of a float list if it is a
      whole number. The settings name both features; others are ignored.
    * The files are scanned on first use, and every checksum is verified. The resulting table is stored next to each file (a
      hidden file that ends in ``.feedwater1``) or in the cache directory. Each image is then one read, which is verified again.
    * The names of the classes (``Source::classes``) are those that ``feedwater pack`` stored, in the feature
      ``__feedwater_classes__`` of the first record. Other files have none.
    * A record that does not match its checksum is a sample error (label -1). A file with damaged lengths, that is truncated, or
      that contains anything but Examples with these features, is an error with the byte offset.
    * Compressed files (gzip and zlib, as TensorFlow writes them, or zstd) are decompressed while they are read. This is fast in
      sample order; in any other order each read decompresses some MiB more.

    Settings:

    * ``image``: Feature of the encoded image. Default ``image/encoded``.
    * ``label``: Feature of the label; empty for no labels (-1). Default ``image/class/label``.
    * ``on_bad_shard``: What happens to a file that is damaged or cannot be opened: ``"error"`` (the default) or ``"skip"``. ``"until_damage"`` uses the samples before the damage. Bad shards are counted, and the first is named in a warning.
    """
    return Source({"tfrecord": list(paths)}, image=image, label=label, on_bad_shard=on_bad_shard)


def webdataset(
    *paths: Path,
    image: str | None = None,
    label: str | None = None,
    label_key: str | None = None,
    on_bad_shard: Literal["error", "skip", "until_damage"] | None = None,
) -> Source:
    """Images in tar archives as WebDataset writes them, readable in any order.

    * A path is an archive, a directory (its visible files that end in ``.tar``, ``.tar.gz`` or ``.tar.zst``), or a pattern such as
      ``train-*.tar`` (``*`` and ``?`` in the last part) or ``train-{000..146}.tar`` (braces anywhere, as in shells). Samples are ordered
      by path, then file name, then position in the archive.
    * Consecutive files whose names are equal up to the first dot of the last part (the key) are one sample. The rest after that
      dot, in lower case, is the extension; the settings name those of image and label. Hard links are read as their targets,
      which must precede them (GNU tar creates such links). Keys without an image, files without a dot or without a key, and
      symbolic links are skipped and counted (``Source::excluded``). Files named ``__NAME__`` are ignored.
    * The names of the classes (``Source::classes``) are those that ``feedwater pack`` stored, in the member
      ``__feedwater_classes__``. Other archives have none.
    * The headers are read on first use, and their checksums verified. The resulting table is stored next to each archive (a
      hidden file that ends in ``.feedwater1``) or in the cache directory. Each image is then one read. Tar has no checksums of
      contents, so earlier damage is detected only by the image format.
    * A file may hold several archives one after another, as ``cat a.tar b.tar`` makes it; all are read, as by ``tar -i``. Bytes after
      the last archive that are no archive are counted as skipped. Such bytes between two archives are an error.
    * Archives compressed with gzip or zstd are decompressed while they are read, in bounded memory. In sample order each is
      decompressed once, several in parallel with several reader threads. In any other order each read decompresses some MiB more
      (of a zstd file with a single frame, everything before it); the source's description states the number of compressed files.
      The first scan decompresses them once more and verifies the checksums of gzip and zstd.
    * An archive that is truncated, damaged, compressed in another way, or whose samples have no label, is an error with the byte
      offset (of the decompressed contents; for damaged compressed data also in the file).

    Settings:

    * ``image``: Extensions of the image, separated by semicolons; the first that a sample has is used. Default ``jpg;jpeg;png;webp;ppm;pgm;pbm;bmp;gif;tif;tiff``.
    * ``label``: Extension of the label, a file with an integer in digits; empty for no labels (-1). Default ``cls``.
    * ``label_key``: Key of the integer label, if the label file is a JSON object (``label = "json"``). Default empty: no JSON.
    * ``on_bad_shard``: What happens to a file that is damaged or cannot be opened: ``"error"`` (the default) or ``"skip"``. ``"until_damage"`` uses the samples before the damage. Bad shards are counted, and the first is named in a warning.
    """
    return Source({"webdataset": list(paths)}, image=image, label=label, label_key=label_key, on_bad_shard=on_bad_shard)
