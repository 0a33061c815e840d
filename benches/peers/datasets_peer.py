"""Hugging Face `datasets`: its `imagefolder` on the local files with torchvision's transforms, in PyTorch's
`DataLoader`.

Two variants are tried: `datasets` decodes with Pillow, or torchvision's `decode_image` decodes the
files to tensors. `datasets` writes its table of the files before the clock starts.
"""

import os
import sys

import job as the_job

NAME = "datasets"
MODULES = ["datasets", "torch", "torchvision"]
DEVICES = ["cpu"]


def candidates(_device, cores):
    """Returns the settings to try. The fastest one is used."""
    workers = sorted({max(1, cores // 2), cores, 2 * cores})
    return [{"way": way, "workers": count} for way in ("pillow", "tensor") for count in workers]


def peer(job):
    """Returns the versions of the libraries, and a function that builds the loader (see `main` in
    job.py)."""
    # Makes `datasets` work offline, so that it asks no server for newer versions.
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": os.path.join(job["scratch"], "hugging-face")}
    import datasets
    import torch
    import torchvision
    from torchvision.transforms import v2

    way, workers = job["settings"]["way"], job["settings"]["workers"]
    datasets.disable_progress_bars()
    table = datasets.load_dataset("imagefolder", data_dir=job["data"], split="train")
    crop = [v2.RandomResizedCrop(the_job.SIDE, antialias=True), v2.RandomHorizontalFlip(0.5)]
    finish = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(the_job.MEAN, the_job.STD), v2.ToDtype(torch.float16)]
    chain = v2.Compose([*crop, v2.PILToTensor(), *finish] if way == "pillow" else [*crop, *finish])

    def pixels(image):
        if way == "pillow":
            return image.convert("RGB")
        return torchvision.io.decode_image(image["path"], mode=torchvision.io.ImageReadMode.RGB)

    def transformed(samples):
        return {"image": [chain(pixels(image)) for image in samples["image"]], "label": samples["label"]}

    def make():
        images = table.cast_column("image", datasets.Image(decode=way == "pillow")).with_transform(transformed)
        batches = torch.utils.data.DataLoader(images, batch_size=job["batch"], shuffle=True, num_workers=workers,
                                              prefetch_factor=the_job.PREFETCH, persistent_workers=True)

        def epoch():
            for batch in batches:
                yield batch["image"].shape, str(batch["image"].dtype).removeprefix("torch.")

        return epoch, lambda: None

    return f"datasets {datasets.__version__}, torch {torch.__version__}, torchvision {torchvision.__version__}", make


if __name__ == "__main__":
    the_job.main(peer)
    sys.stdout.flush()
