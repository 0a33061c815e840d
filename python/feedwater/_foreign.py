"""Names of other libraries that feedwater does not have, and what to write instead."""

from __future__ import annotations


def _each(names: str, advice: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), advice)


#: Parameters of other libraries' loaders, in PyTorch, DALI, Grain, tf.data and others.
PARAMETERS = {
    "collate_fn": 'leave it out: batches are single tensors; framework="batch" returns objects with the labels, indices and other data of all samples',
    "sampler": "write shuffle=True for a new order in each epoch, or source.select(subset=[...]) for samples in an order of your own",
    "batch_sampler": "write batch_size=, and shuffle=True for a new order in each epoch",
    "pin_memory": "leave it out: batches for a GPU are made on the GPU",
    "pin_memory_device": 'write device="cuda:0"; batches are made there',
    "prefetch_factor": "write prefetch=, the number of batches of the whole loader; prefetch_factor of PyTorch counts them for each worker",
    "persistent_workers": "leave it out: worker threads live as long as the loader",
    "multiprocessing_context": "leave it out: workers are threads, not processes",
    "worker_init_fn": "leave it out: workers are threads without state in Python, and all random numbers depend on seed",
    "timeout": "write storage=fw.Storage(timeout=10) for requests; no other wait has a limit",
    "in_order": "leave it out: batches always come in order",
    "deterministic": "leave it out: batches always come in order, and all random choices depend on seed",
    "reshuffle_each_iteration": "leave it out: with shuffle=True each epoch has its own order",
    "pad_last_batch": 'write last_batch="pad"',
    "shard_options": "write rank= and world_size=; by default both come from the launcher",
    "read_options": "write num_workers= and prefetch=",
    "take": "write source.select(take=1000)",
    "skip": "write source.select(skip=1000)",
    "repeat": "write epochs=, or source.select(repeat=2) for a source that has each sample more than once",
    "num_classes": "write classes=, for soft targets; labels need no number of classes",
    "label_smoothing": "write smoothing=, and classes=",
    **_each("generator random_seed random_state manual_seed rng", "write seed=0"),
    **_each("device_id gpu_id gpu cuda", 'write device="cuda:0"'),
    **_each("precision half fp16 amp", 'write dtype="f16"'),
    **_each("subset indices", "write source.select(subset=[...])"),
    **_each("class_names class_to_idx", "write classes_of="),
    **_each("drop_remainder drop_incomplete", "write drop_last="),
    **_each("num_epochs max_epochs", "write epochs="),
    **_each("num_replicas shard_count process_count", "write world_size="),
    **_each("shard_index process_index global_rank", "write rank="),
    **_each("mixup cutmix batch_transform batch_transforms", "write batch_operators=, such as fw.ops.Mixup with soft targets (classes=)"),
    **_each("num_parallel_calls num_parallel_reads num_proc threads n_threads nthreads n_jobs max_workers", "write num_workers=, the number of threads"),
    **_each("worker_buffer_size queue_size prefetch_size", "write prefetch=, the number of batches of the whole loader"),
    **_each("exec_async exec_pipelined", "leave it out: batches are always prefetched"),
    **_each(
        "initial_fill shuffle_buffer_size shuffle_buffer buffer_size",
        "write shuffle=True for the whole set, or loader=fw.LoaderSettings(shuffle_window=4096) for files of many samples",
    ),
    **_each("memory_format channels_last data_format", 'write layout="nhwc" for tensors whose last axis is the channels'),
    **_each("dataset data data_dir data_source file_root root path image_dir", "write source=, or pass the path as the first argument"),
    **_each("resume resume_from checkpoint state state_dict", "leave it out, and call loader.load_state_dict(state) after the loader is built"),
    **_each("image_size img_size input_size crop_size resize", "write transform=, such as fw.train_recipe(224) for images of 224x224 pixels"),
    **_each("operations operators augment augmentation augmentations preprocess", "write transform=[...], a list of operators of fw.ops"),
}

#: Settings of operators and sources, with the names that they have here. The first that exists is suggested.
SETTINGS = {
    "drop_last": ("last_batch",),
    "p": ("probability", "horizontal"),
    "size": ("shorter", "width"),
    "interpolation": ("filter",),
    "root": ("path",),
    "class_to_idx": ("class_to_index",),
}

_SOMETIMES = "fw.ops.RandomApply([...], probability=0.5)"
#: Transforms whose operator has another name here.
OPERATORS = {
    **_each("RandomHorizontalFlip HorizontalFlip", "write fw.ops.Flip(horizontal=0.5)"),
    **_each("RandomVerticalFlip VerticalFlip", "write fw.ops.Flip(vertical=0.5)"),
    **_each("Compose Sequential", "a chain is a list of operators: transform=[...]"),
    **_each("ToImage ToTensorV2", "leave it out: batches are tensors"),
    "ToTensor": "leave it out: batches are tensors, and fw.ops.Normalize divides by 255",
    "ToDtype": "write dtype= of the loader; fw.ops.Normalize divides by 255",
    "RandomChoice": "write fw.ops.OneOf([...])",
    "RandomSolarize": f"write fw.ops.Solarize in {_SOMETIMES}",
    "RandomPosterize": f"write fw.ops.Posterize in {_SOMETIMES}",
    "RandomInvert": f"write fw.ops.Invert in {_SOMETIMES}",
    "RandomEqualize": f"write fw.ops.Equalize in {_SOMETIMES}",
    "RandomAutocontrast": f"write fw.ops.Autocontrast in {_SOMETIMES}",
    "RandomAdjustSharpness": f"write fw.ops.Sharpness in {_SOMETIMES}",
    "ElasticTransform": "write fw.ops.Elastic",
    "MixUp": "write fw.ops.Mixup in batch_operators",
    "CoarseDropout": "write fw.ops.Cutout",
}
