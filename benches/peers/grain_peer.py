"""Grain: a `MapDataset` of the files. Pillow decodes and resizes, and NumPy normalizes, in threads or processes.

Grain has no image operators. `Image.resize` with a box crops and resizes in one call.
"""

import random
import sys

import job as the_job

NAME = "grain"
MODULES = ["grain", "PIL", "numpy"]
DEVICES = ["cpu"]


def candidates(_device, cores):
    """Returns the settings to try. The fastest one is used."""
    threads = [{"threads": count, "processes": 0} for count in (cores, 2 * cores, 16)]
    return threads + [{"threads": 1, "processes": count} for count in sorted({max(1, cores // 2), cores, 2 * cores})]


def peer(job):
    """Returns the versions of the libraries, and a function that builds the pipeline (see `main` in
    job.py)."""
    import importlib.metadata

    import absl.flags
    import grain
    import numpy
    import PIL
    import PIL.Image

    # Grain's processes read absl's command line flags, which fails unless they are marked as parsed.
    absl.flags.FLAGS.mark_as_parsed()
    settings = job["settings"]
    scale = (1 / (255 * numpy.array(the_job.STD, numpy.float32))).reshape(3, 1, 1)
    shift = (-numpy.array(the_job.MEAN, numpy.float32) / numpy.array(the_job.STD, numpy.float32)).reshape(3, 1, 1)

    def load(sample, generator):
        path, label = sample
        chance = random.Random(int(generator.integers(2**63)))
        with PIL.Image.open(path) as file:
            image = file.convert("RGB")
        x, y, width, height = the_job.window(chance, *image.size)
        image = image.resize((the_job.SIDE, the_job.SIDE), PIL.Image.Resampling.BILINEAR, (x, y, x + width, y + height))
        if chance.random() < 0.5:
            image = image.transpose(PIL.Image.Transpose.FLIP_LEFT_RIGHT)
        pixels = numpy.asarray(image).transpose(2, 0, 1) * scale
        pixels += shift
        return pixels.astype(numpy.float16), label

    def make():
        files = the_job.samples(job["data"])
        batches = -(-len(files) // job["batch"])
        # Without `repeat`, Grain would start new processes for each epoch.
        samples = grain.MapDataset.source(files).seed(1).shuffle().repeat().random_map(load)
        # The last batch of an epoch is not smaller: samples of the next epoch fill it up.
        dataset = samples.batch(job["batch"]).to_iter_dataset(
            grain.ReadOptions(num_threads=settings["threads"], prefetch_buffer_size=the_job.PREFETCH * job["batch"]))
        if settings["processes"]:
            dataset = dataset.mp_prefetch(grain.MultiprocessingOptions(settings["processes"], per_worker_buffer_size=the_job.PREFETCH))
        made = iter(dataset)

        def epoch():
            for _ in range(batches):
                images, _labels = next(made)
                yield images.shape, str(images.dtype)

        return epoch, lambda: None

    return f"Grain {importlib.metadata.version('grain')}, Pillow {PIL.__version__}", make


if __name__ == "__main__":
    the_job.main(peer)
    sys.stdout.flush()
