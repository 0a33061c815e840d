"""SPDL: a pipeline of threads that demultiplex, decode and filter each image with FFmpeg, and build batches.

Two variants of FFmpeg filters are tried. The variant `rgb` converts the whole image to RGB, and
then crops and resizes it, like the other peers. The variant `planes` crops and resizes the YCbCr
planes. Then windows begin at even pixels, and chroma is resized from half the resolution. The
thread that decodes a batch also normalizes it, with PyTorch.
"""

import itertools
import random
import sys

import job as the_job

NAME = "spdl"
MODULES = ["spdl.io", "spdl.pipeline", "torch"]
DEVICES = ["cpu"]


def candidates(_device, cores):
    """Returns the settings to try. The fastest one is used."""
    threads = sorted({max(1, cores // 2), cores, 2 * cores})
    return [{"filter": on, "threads": count} for on in ("rgb", "planes") for count in threads]


def peer(job):
    """Returns the versions of the libraries, and a function that builds the pipeline (see `main` in
    job.py)."""
    import importlib.metadata

    import spdl.io
    import spdl.pipeline
    import torch

    settings, batch = job["settings"], job["batch"]
    torch.set_num_threads(1)
    mean = 255 * torch.tensor(the_job.MEAN).reshape(3, 1, 1)
    std = 255 * torch.tensor(the_job.STD).reshape(3, 1, 1)

    def image(path):
        packets = spdl.io.demux_image(path)
        return spdl.io.decode_packets(packets, filters(settings["filter"], packets.width, packets.height))

    def images(samples):
        buffer = spdl.io.convert_frames([image(path) for path, _label in samples])
        pixels = spdl.io.to_torch(buffer).permute(0, 3, 1, 2)
        normalized = pixels.to(torch.float32, memory_format=torch.contiguous_format).sub_(mean).div_(std)
        return normalized.to(torch.float16), torch.tensor([label for _path, label in samples])

    def make():
        files = the_job.samples(job["data"])
        batches = -(-len(files) // batch)

        def shuffled():
            for seed in itertools.count():
                order = random.Random(seed).sample(files, len(files))
                yield from (order[first:first + batch] for first in range(0, len(order), batch))

        built = spdl.pipeline.PipelineBuilder().add_source(shuffled()) \
            .pipe(images, concurrency=settings["threads"], output_order="input").add_sink(the_job.PREFETCH) \
            .build(num_threads=settings["threads"], max_failures=0)
        built.start()
        made = iter(built)

        def epoch():
            for pixels, _labels in itertools.islice(made, batches):
                yield pixels.shape, str(pixels.dtype).removeprefix("torch.")

        return epoch, lambda: None

    return f"SPDL {importlib.metadata.version('spdl')}, torch {torch.__version__}", make


def filters(on, width, height):
    """Returns the FFmpeg filters for one image."""
    x, y, across, down = the_job.window(random, width, height)
    flip = ",hflip" if random.random() < 0.5 else ""
    rest = f"crop={across}:{down}:{x}:{y},scale={the_job.SIDE}:{the_job.SIDE}:flags=bilinear{flip}"
    return f"format=rgb24,{rest}" if on == "rgb" else f"{rest},format=rgb24"


if __name__ == "__main__":
    the_job.main(peer)
    sys.stdout.flush()
