"""feedwater from Python: `fw.Loader` with its defaults in a `for` loop over tensors of PyTorch."""

import sys

import job as the_job

NAME = "feedwater_python"
MODULES = ["feedwater", "torch"]


def candidates(_device, _cores):
    """Returns only the default settings."""
    return [{}]


def peer(job):
    """Returns the versions of the libraries, and a function that builds the loader (see `main` in
    job.py)."""
    import feedwater as fw
    import torch
    from feedwater import ops

    def make():
        chain = [ops.RandomResizedCrop(width=the_job.SIDE, height=the_job.SIDE), ops.Flip(horizontal=0.5),
                 ops.Normalize(mean=the_job.MEAN, std=the_job.STD)]
        loader = fw.Loader(job["data"], chain, batch_size=job["batch"], prefetch=the_job.PREFETCH, shuffle=True, last_batch="partial",
                           dtype="f16", device="cuda" if job["device"] == "gpu" else "cpu")

        def epoch():
            for images, _labels in loader:
                yield images.shape, str(images.dtype).removeprefix("torch.")

        return epoch, torch.cuda.synchronize if job["device"] == "gpu" else lambda: None

    return f"feedwater {fw.__version__} (Python), torch {torch.__version__}", make


if __name__ == "__main__":
    the_job.main(peer)
    sys.stdout.flush()
