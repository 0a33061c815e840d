"""NVIDIA DALI: reader, decoder, resize and crop_mirror_normalize in one pipeline.

Two pipelines are tried. With `image_random_crop` and `resize`, DALI decodes only the crop's window.
With `image` and `random_resized_crop`, it decodes the whole image. The search also covers the
number of threads and, on a GPU, the share of images that the hardware engines decode
(`hw_decoder_load`). `shuffle_after_epoch` shuffles all files. It starts sooner than
`random_shuffle`, which must fill a buffer first.
"""

import sys

import job as the_job

NAME = "dali"
MODULES = ["nvidia.dali"]
HARDWARE_LOADS = [0.0, 0.12, 0.3, 0.65, 0.9, 1.0]


def candidates(device, cores):
    """Returns the settings to try. The fastest one is used."""
    threads = sorted({max(1, cores // 2), cores, 2 * cores})
    forms = ["image_random_crop", "image"]
    loads = HARDWARE_LOADS if device == "gpu" else [None]
    return [{"form": form, "threads": count, "hw_decoder_load": load}
            for form in forms for count in threads for load in loads]


def fixed(device, cores):
    """Returns the settings to try with `--fixed`, which replaces the search. They may not be the
    fastest ones."""
    loads = [0.65, 0.9] if device == "gpu" else [None]
    crops = [{"form": "image_random_crop", "threads": cores, "hw_decoder_load": load} for load in loads]
    return crops + [{"form": "image", "threads": cores, "hw_decoder_load": loads[0]}]


def peer(job):
    """Returns the versions of the libraries, and a function that builds the pipeline (see `main` in
    job.py)."""
    import nvidia.dali as dali
    from nvidia.dali import fn, types

    settings, gpu = job["settings"], job["device"] == "gpu"
    decode_on, rest_on = ("mixed", "gpu") if gpu else ("cpu", "cpu")

    @dali.pipeline_def(batch_size=job["batch"], num_threads=settings["threads"], device_id=0 if gpu else None,
                       prefetch_queue_depth=the_job.PREFETCH, seed=1)
    def pipeline():
        encoded, labels = fn.readers.file(file_root=job["data"], shuffle_after_epoch=True, name="reader")
        options = {"hw_decoder_load": settings["hw_decoder_load"]} if gpu else {}
        if settings["form"] == "image_random_crop":
            images = fn.decoders.image_random_crop(encoded, device=decode_on, output_type=types.RGB, **options)
            images = fn.resize(images, device=rest_on, resize_x=the_job.SIDE, resize_y=the_job.SIDE)
        else:
            images = fn.decoders.image(encoded, device=decode_on, output_type=types.RGB, **options)
            images = fn.random_resized_crop(images, device=rest_on, size=(the_job.SIDE, the_job.SIDE))
        images = fn.crop_mirror_normalize(
            images, device=rest_on, dtype=types.FLOAT16, output_layout="CHW", mirror=fn.random.coin_flip(),
            mean=[255 * it for it in the_job.MEAN], std=[255 * it for it in the_job.STD])
        return images, labels

    def make():
        pipe = pipeline()
        pipe.build()
        batches = -(-pipe.epoch_size("reader") // job["batch"])

        def epoch():
            # `run` returns only when the batch is finished, so the peer's function that waits for the GPU (`lambda: None`) has nothing to do.
            for _ in range(batches):
                images, _ = pipe.run()
                sizes = images.shape()
                yield [len(sizes), *sizes[0]], str(images.dtype).rpartition(".")[2].lower()

        return epoch, lambda: None

    return f"DALI {dali.__version__}", make


if __name__ == "__main__":
    the_job.main(peer)
    sys.stdout.flush()
