"""torchvision: ImageFolder, DataLoader with worker processes, and v2 transforms.

On the CPU, two variants are tried: Pillow decodes and crops, or torchvision's own `decode_image`
decodes to tensors. On a GPU, the workers only read files, and `decode_jpeg(device="cuda")` decodes
a whole batch. Crops and all other steps run on the GPU too.
"""

import sys

import job as the_job

NAME = "torchvision"
MODULES = ["torch", "torchvision"]


def candidates(device, cores):
    """Returns the settings to try. The fastest one is used."""
    workers = sorted({max(1, cores // 2), cores, 2 * cores})
    ways = ["cuda"] if device == "gpu" else ["pillow", "tensor"]
    return [{"way": way, "workers": count} for way in ways for count in workers]


def fixed(device, cores):
    """Returns the settings to try with `--fixed`, which replaces the search. They may not be the
    fastest ones."""
    return [{"way": "cuda" if device == "gpu" else "tensor", "workers": cores}]


def peer(job):
    """Returns the versions of the libraries, and a function that builds the loader (see `main` in
    job.py)."""
    import PIL
    import torch
    import torchvision
    from torchvision.transforms import v2

    versions = f"torch {torch.__version__}, torchvision {torchvision.__version__}, Pillow {PIL.__version__}"
    way, workers = job["settings"]["way"], job["settings"]["workers"]
    crop = [v2.RandomResizedCrop(the_job.SIDE, antialias=True), v2.RandomHorizontalFlip(0.5)]
    finish = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(the_job.MEAN, the_job.STD), v2.ToDtype(torch.float16)]

    def loader(dataset, collate=None):
        return torch.utils.data.DataLoader(dataset, batch_size=job["batch"], shuffle=True, num_workers=workers,
                                           prefetch_factor=the_job.PREFETCH, persistent_workers=True, collate_fn=collate)

    def on_cpu():
        if way == "pillow":
            load, chain = torchvision.datasets.folder.pil_loader, [*crop, v2.PILToTensor(), *finish]
        else:
            load, chain = decode, [*crop, *finish]
        batches = loader(torchvision.datasets.ImageFolder(job["data"], v2.Compose(chain), loader=load))
        return (lambda: (name(images) for images, _ in batches)), lambda: None

    def on_gpu():
        batches = loader(torchvision.datasets.ImageFolder(job["data"], loader=torchvision.io.read_file), files)
        each, together = v2.Compose(crop), v2.Compose(finish)

        def epoch():
            for encoded, _ in batches:
                images = torchvision.io.decode_jpeg(encoded, mode=torchvision.io.ImageReadMode.RGB, device="cuda")
                yield name(together(torch.stack([each(image) for image in images])))

        return epoch, torch.cuda.synchronize

    def name(images):
        return images.shape, str(images.dtype).removeprefix("torch.")

    return versions, on_gpu if way == "cuda" else on_cpu


def decode(path):
    """Decodes an image file with torchvision to a tensor of bytes."""
    import torchvision

    return torchvision.io.decode_image(path, mode=torchvision.io.ImageReadMode.RGB)


def files(samples):
    """Collates encoded files to a list, because their lengths differ."""
    return [data for data, _ in samples], [label for _, label in samples]


if __name__ == "__main__":
    the_job.main(peer)
    sys.stdout.flush()
