"""FFCV: its `Loader` on a `.beton` file that contains the bytes of the same JPEGs.

The `.beton` file is written before the clock starts. It contains the JPEGs unchanged, while FFCV's
own writer would encode them again. FFCV decodes whole images, and resizes windows with OpenCV's
INTER_AREA. Then FFCV converts bytes to f16 with a table of normalized values.
"""

import os
import sys

import job as the_job

NAME = "ffcv"
MODULES = ["ffcv"]
DEVICES = ["cpu"]


def candidates(_device, cores):
    """Returns the settings to try. The fastest one is used. FFCV allows at most as many workers as cores."""
    return [{"workers": count} for count in sorted({max(1, cores // 2), cores})]


def peer(job):
    """Returns the versions of the libraries, and a function that builds the loader (see `main` in
    job.py)."""
    import importlib.metadata

    import cv2
    import numba
    import numpy
    from ffcv.fields.decoders import RandomResizedCropRGBImageDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import NormalizeImage, RandomHorizontalFlip, ToTensor, ToTorchImage

    path = os.path.join(job["scratch"], "train.beton")
    if not os.path.exists(path):
        write(job["data"], path)
    cv2.setNumThreads(1)

    def make():
        mean, std = 255 * numpy.array(the_job.MEAN), 255 * numpy.array(the_job.STD)
        images = [RandomResizedCropRGBImageDecoder((the_job.SIDE, the_job.SIDE)), RandomHorizontalFlip(0.5),
                  NormalizeImage(mean, std, numpy.float16), ToTensor(), ToTorchImage(channels_last=False)]
        loader = Loader(path, batch_size=job["batch"], num_workers=job["settings"]["workers"], os_cache=True, order=OrderOption.RANDOM,
                        seed=1, drop_last=False, batches_ahead=the_job.PREFETCH, pipelines={"image": images},
                        custom_fields={"image": encoded_field()})

        def epoch():
            for images, _labels in loader:
                yield images.shape, str(images.dtype).removeprefix("torch.")

        return epoch, lambda: None

    return f"FFCV {importlib.metadata.version('ffcv')}, numba {numba.__version__}, OpenCV {cv2.__version__}", make


def encoded_field():
    """Returns a class of FFCV image fields that store JPEG files unchanged."""
    import PIL.Image
    import numpy
    from ffcv.fields import RGBImageField
    from ffcv.fields.rgb_image import IMAGE_MODES

    class Encoded(RGBImageField):
        def encode(self, destination, path, malloc):
            with PIL.Image.open(path) as image:
                destination["width"], destination["height"] = image.size
            data = numpy.fromfile(path, numpy.uint8)
            destination["mode"] = IMAGE_MODES["jpg"]
            destination["data_ptr"], storage = malloc(data.nbytes)
            storage[:] = data

    return Encoded


def write(folder, path):
    """Writes the JPEGs of a folder to a `.beton` file."""
    from ffcv.fields import IntField
    from ffcv.writer import DatasetWriter

    fields = {"image": encoded_field()(), "label": IntField()}
    DatasetWriter(path + ".part", fields, num_workers=1).from_indexed_dataset(the_job.samples(folder))
    os.rename(path + ".part", path)


if __name__ == "__main__":
    the_job.main(peer)
    sys.stdout.flush()
