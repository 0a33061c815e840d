#!/usr/bin/env python3
"""The Python side of `cargo bench --bench operators`: operators and recipes of torchvision on PIL images and on tensors,
Albumentations, OpenCV and DALI on the CPU, with one thread each.

    operators.py FILE:WIDTHxHEIGHT FILE:WIDTHxHEIGHT

Each file contains RGB images one after another. The images in the first file are for operators that
keep the size. Those in the second file are for operators that resize, and for recipes.

The program first prints one line per peer, with the peer's name and the names of its jobs,
separated by tabs. Then it prints an empty line. After that, it reads lines with the names of a peer
and a job. It runs each job on all images for 30 ms, at least twice, and prints the seconds per
image of the fastest pass. It reports peers that are not installed on standard error.

Every job returns the same type as feedwater's job: operators return an image of bytes, and recipes
return a tensor of 32-bit floats.
"""

import math
import random
import sys
import time
from pathlib import Path

import numpy as np

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
CLIP_MEAN, CLIP_STD = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]
CORNERS = [[0, 0], [223, 0], [223, 223], [0, 223]]
MOVED = [[20, 10], [210, 16], [200, 220], [8, 190]]
# Names of the jobs that use the larger images of the second input file. The jobs of RECIPES use these images too.
LARGE = {"resize", "resize_bicubic", "random_resized_crop"}
RECIPES = {"torchvision-resnet", "deit-iii", "clip", "yolo-detection"}


def torchvision(on_tensors):
    import torch
    from PIL import Image
    from torchvision.transforms import v2
    from torchvision.transforms.v2 import functional as F
    torch.set_num_threads(1)
    bilinear, bicubic, nearest = v2.InterpolationMode.BILINEAR, v2.InterpolationMode.BICUBIC, v2.InterpolationMode.NEAREST
    crop, jitter = v2.RandomResizedCrop(224, antialias=True), v2.ColorJitter(0.4, 0.4, 0.4, 0.1)
    elastic, erasing = v2.ElasticTransform(50.0, 5.0), v2.RandomErasing(p=1.0)

    def tensor(mean, std):
        return [v2.PILToTensor()] * (not on_tensors) + [v2.ToDtype(torch.float32, scale=True), v2.Normalize(mean, std)]

    class LetterBox(torch.nn.Module):
        def forward(self, it):
            width, height = F.get_size(it)[::-1]
            scale = min(640 / width, 640 / height)
            width, height = round(width * scale), round(height * scale)
            left, top = (640 - width) // 2, (640 - height) // 2
            it = F.resize(it, [height, width], interpolation=bilinear, antialias=True)
            return F.pad(it, [left, top, 640 - width - left, 640 - height - top], fill=114)

    start = [v2.RandomHorizontalFlip()]
    three = v2.RandomChoice([v2.Grayscale(3), v2.RandomSolarize(128, p=1.0), v2.GaussianBlur(9, (0.1, 2.0))])
    recipes = {
        "torchvision-resnet": [v2.RandomResizedCrop(176, antialias=True), *start, v2.TrivialAugmentWide(interpolation=bilinear),
                               *tensor(MEAN, STD), v2.RandomErasing(p=0.1)],
        "deit-iii": [v2.RandomResizedCrop(224, interpolation=bicubic, antialias=True), *start, three, v2.ColorJitter(0.3, 0.3, 0.3),
                     *tensor(MEAN, STD)],
        "clip": [v2.RandomResizedCrop(224, scale=(0.9, 1.0), interpolation=bicubic, antialias=True), *tensor(CLIP_MEAN, CLIP_STD)],
        "yolo-detection": [v2.ColorJitter(brightness=0.4, saturation=0.7, hue=0.015), LetterBox(),
                           v2.RandomAffine(0, (0.1, 0.1), (0.5, 1.5), interpolation=bilinear, fill=114), *start,
                           *tensor([0.0] * 3, [1.0] * 3)],
    }
    jobs = {
        "brightness": lambda it: F.adjust_brightness(it, 1.3),
        "contrast": lambda it: F.adjust_contrast(it, 1.3),
        "saturation": lambda it: F.adjust_saturation(it, 1.3),
        "hue": lambda it: F.adjust_hue(it, 0.1),
        "color_jitter": jitter,
        "grayscale": lambda it: F.rgb_to_grayscale(it, 3),
        "gamma": lambda it: F.adjust_gamma(it, 1.4),
        "posterize": lambda it: F.posterize(it, 4),
        "solarize": lambda it: F.solarize(it, 128),
        "invert": F.invert,
        "autocontrast": F.autocontrast,
        "equalize": F.equalize,
        "sharpness": lambda it: F.adjust_sharpness(it, 1.7),
        "gaussian_blur": lambda it: F.gaussian_blur(it, [9, 9], [1.5, 1.5]),
        "flip": F.horizontal_flip,
        "pad": lambda it: F.pad(it, [16, 16, 16, 16], padding_mode="reflect"),
        "rotate": lambda it: F.rotate(it, 20.0, interpolation=bilinear),
        "affine": lambda it: F.affine(it, 10.0, [8, 4], 1.1, [5.0, 0.0], interpolation=nearest),
        "perspective": lambda it: F.perspective(it, CORNERS, MOVED, interpolation=bilinear),
        "elastic": elastic,
        "resize": lambda it: F.resize(it, [224, 224], interpolation=bilinear, antialias=True),
        "resize_bicubic": lambda it: F.resize(it, [224, 224], interpolation=bicubic, antialias=True),
        "random_resized_crop": crop,
        "normalize": lambda it: F.normalize(F.to_dtype(it if on_tensors else F.pil_to_tensor(it), torch.float32, scale=True), MEAN, STD),
        **{name: v2.Compose(steps) for name, steps in recipes.items()},
    }
    if on_tensors:
        jobs["gaussian_noise"] = lambda it: F.gaussian_noise(it.to(torch.float32).div_(255), 0.0, 0.1).mul_(255).to(torch.uint8)
        jobs["random_erasing"] = erasing
        jobs["jpeg_distortion"] = lambda it: F.jpeg(it, 50)
        return lambda image: F.pil_to_tensor(Image.fromarray(image)), jobs
    jobs["jpeg_distortion"] = lambda it: F.jpeg(it, 50)
    return Image.fromarray, jobs


def albumentations():
    import albumentations as A
    import cv2
    cv2.setNumThreads(1)
    linear, cubic, area = cv2.INTER_LINEAR, cv2.INTER_CUBIC, cv2.INTER_AREA

    def one(**changed):
        return A.ColorJitter(**{"brightness": (1, 1), "contrast": (1, 1), "saturation": (1, 1), "hue": (0, 0), **changed}, p=1)

    def crop(side, interpolation=linear, **more):
        return A.RandomResizedCrop((side, side), interpolation=interpolation, **more)

    def tensor(mean=MEAN, std=STD):
        from albumentations.pytorch import ToTensorV2
        return [A.Normalize(mean, std), ToTensorV2()]

    # torchvision's TrivialAugmentWide, composed of Albumentations' operators.
    wide = [A.NoOp(), A.Affine(shear={"x": (-45, 45)}, p=1), A.Affine(shear={"y": (-45, 45)}, p=1),
            A.Affine(translate_px={"x": (-32, 32)}, p=1), A.Affine(translate_px={"y": (-32, 32)}, p=1), A.Rotate(135, p=1),
            one(brightness=(0.01, 1.99)), one(saturation=(0.01, 1.99)), one(contrast=(0.01, 1.99)),
            A.Sharpen(p=1), A.Posterize((2, 8), p=1), A.Solarize((0, 1), p=1), A.AutoContrast(p=1), A.Equalize(p=1)]
    three = [A.ToGray(p=1), A.Solarize(p=1), A.GaussianBlur(blur_limit=(9, 9), sigma_limit=(0.1, 2.0), p=1)]
    recipes = {
        "torchvision-resnet": [crop(176), A.HorizontalFlip(), A.OneOf(wide, p=1), *tensor()[:1], A.CoarseDropout(p=0.1), *tensor()[1:]],
        "deit-iii": [crop(224, cubic), A.HorizontalFlip(), A.OneOf(three, p=1), A.ColorJitter(0.3, 0.3, 0.3, 0, p=1), *tensor()],
        "clip": [crop(224, cubic, scale=(0.9, 1.0)), *tensor(CLIP_MEAN, CLIP_STD)],
        "yolo-detection": [A.ColorJitter(0.4, 0, 0.7, 0.015, p=1), A.LongestMaxSize(640), A.PadIfNeeded(640, 640, fill=114),
                           A.Affine(scale=(0.5, 1.5), translate_percent=(-0.1, 0.1), fill=114, p=1), A.HorizontalFlip(),
                           *tensor([0.0] * 3, [1.0] * 3)],
    }
    jobs = {
        "brightness": one(brightness=(1.3, 1.3)),
        "contrast": one(contrast=(1.3, 1.3)),
        "saturation": one(saturation=(1.3, 1.3)),
        "hue": one(hue=(0.1, 0.1)),
        "color_jitter": A.ColorJitter(0.4, 0.4, 0.4, 0.1, p=1),
        "grayscale": A.ToGray(p=1),
        "gamma": A.RandomGamma((140, 140), p=1),
        "posterize": A.Posterize(num_bits=4, p=1),
        "solarize": A.Solarize(p=1),
        "invert": A.InvertImg(p=1),
        "autocontrast": A.AutoContrast(p=1),
        "equalize": A.Equalize(p=1),
        "gaussian_blur": A.GaussianBlur(blur_limit=(9, 9), sigma_limit=(1.5, 1.5), p=1),
        "gaussian_noise": A.GaussNoise(std_range=(0.1, 0.1), p=1),
        "jpeg_distortion": A.ImageCompression(quality_range=(50, 50), p=1),
        "random_erasing": A.Erasing(p=1),
        "flip": A.HorizontalFlip(p=1),
        "pad": A.Pad(16, border_mode=cv2.BORDER_REFLECT_101, p=1),
        "rotate": A.Rotate(limit=(20, 20), p=1),
        "affine": A.Affine(scale=(1.1, 1.1), rotate=(10, 10), shear={"x": (5, 5)}, interpolation=cv2.INTER_NEAREST, p=1),
        "elastic": A.ElasticTransform(50, 5, p=1),
        # Of OpenCV's interpolations, INTER_AREA is the most similar to antialiasing in torchvision and DALI.
        "resize": A.Resize(224, 224, interpolation=area),
        "random_resized_crop": A.RandomResizedCrop((224, 224), interpolation=area),
        "normalize": A.Compose(tensor()),
        **{name: A.Compose(steps) for name, steps in recipes.items()},
    }
    return lambda image: image, {name: lambda it, job=job: job(image=it) for name, job in jobs.items()}


def opencv():
    import cv2
    cv2.setNumThreads(1)
    levels = np.arange(256)
    tables = {
        "brightness": np.clip(levels * 1.3, 0, 255),
        "gamma": 255 * (levels / 255) ** 1.4,
        "posterize": levels & 0xF0,
        "solarize": np.where(levels < 128, levels, 255 - levels),
    }
    tables = {name: table.astype(np.uint8) for name, table in tables.items()}
    turned = cv2.getRotationMatrix2D((112, 112), 20.0, 1.0)
    sheared = np.array([[1.08, 0.19, 8.0], [-0.19, 1.08, 4.0]])
    moved = cv2.getPerspectiveTransform(np.float32(CORNERS), np.float32(MOVED))
    smooth = np.array([[1, 1, 1], [1, 5, 1], [1, 1, 1]], np.float32) / 13

    def hue(it):
        hsv = cv2.cvtColor(it, cv2.COLOR_RGB2HSV_FULL)
        hsv[..., 0] += 26
        return cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB_FULL)

    def gray(it):
        return cv2.cvtColor(cv2.cvtColor(it, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB)

    def contrast(it):
        mean = round(cv2.mean(cv2.cvtColor(it, cv2.COLOR_RGB2GRAY))[0])
        return cv2.LUT(it, np.clip(mean + 1.3 * (levels - mean), 0, 255).astype(np.uint8))

    def autocontrast(it):
        channels = []
        for channel in cv2.split(it):
            low, high, _, _ = cv2.minMaxLoc(channel)
            scale = 255 / max(high - low, 1)
            channels.append(cv2.convertScaleAbs(channel, alpha=scale, beta=-low * scale))
        return cv2.merge(channels)

    def crop(it):
        height, width = it.shape[:2]
        for _ in range(10):
            area, ratio = height * width * random.uniform(0.08, 1), math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
            w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < w <= width and 0 < h <= height:
                break
        else:
            w, h = width, height
        x, y = random.randint(0, width - w), random.randint(0, height - h)
        return cv2.resize(it[y:y + h, x:x + w], (224, 224), interpolation=cv2.INTER_AREA)

    def noise(it):
        drawn = np.empty(it.shape, np.int16)
        cv2.randn(drawn, 0, 25.5)
        return cv2.add(it, drawn, dtype=cv2.CV_8U)

    def normalize(it):
        scaled = (it.astype(np.float32) - 255 * np.float32(MEAN)) / (255 * np.float32(STD))
        return np.ascontiguousarray(scaled.transpose(2, 0, 1))

    return lambda image: image, {
        **{name: lambda it, table=table: cv2.LUT(it, table) for name, table in tables.items()},
        "contrast": contrast,
        "saturation": lambda it: cv2.addWeighted(it, 1.3, gray(it), -0.3, 0),
        "hue": hue,
        "grayscale": gray,
        "invert": cv2.bitwise_not,
        "autocontrast": autocontrast,
        "equalize": lambda it: cv2.merge([cv2.equalizeHist(channel) for channel in cv2.split(it)]),
        "sharpness": lambda it: cv2.addWeighted(it, 1.7, cv2.filter2D(it, -1, smooth), -0.7, 0),
        "gaussian_blur": lambda it: cv2.GaussianBlur(it, (9, 9), 1.5),
        "gaussian_noise": noise,
        "jpeg_distortion": lambda it: cv2.imdecode(cv2.imencode(".jpg", it, [cv2.IMWRITE_JPEG_QUALITY, 50])[1], cv2.IMREAD_COLOR),
        "flip": lambda it: cv2.flip(it, 1),
        "pad": lambda it: cv2.copyMakeBorder(it, 16, 16, 16, 16, cv2.BORDER_REFLECT_101),
        "rotate": lambda it: cv2.warpAffine(it, turned, (224, 224), flags=cv2.INTER_LINEAR),
        "affine": lambda it: cv2.warpAffine(it, sheared, (224, 224), flags=cv2.INTER_NEAREST),
        "perspective": lambda it: cv2.warpPerspective(it, moved, (224, 224), flags=cv2.INTER_LINEAR),
        # Of OpenCV's interpolations, INTER_AREA is the most similar to antialiasing in torchvision and DALI.
        "resize": lambda it: cv2.resize(it, (224, 224), interpolation=cv2.INTER_AREA),
        "random_resized_crop": crop,
        "normalize": normalize,
    }


def dali(batches):
    """Creates one DALI pipeline per job. One call of a pipeline processes all images with one
    thread."""
    from nvidia.dali import fn, pipeline_def, types

    def normalize(it, mean, std, **more):
        mean, std = [255 * value for value in mean], [255 * value for value in std]
        return fn.crop_mirror_normalize(it, mean=mean, std=std, dtype=types.FLOAT, output_layout="CHW", **more)

    def crop(it, side, interpolation, **more):
        return fn.random_resized_crop(it, size=side, interp_type=interpolation, **more)

    def coin(probability=0.5):
        return fn.random.coin_flip(probability=probability)

    def wide(it):
        from nvidia.dali.auto_aug import trivial_augment
        return trivial_augment.trivial_augment_wide(it)

    linear, cubic = types.INTERP_LINEAR, types.INTERP_CUBIC
    uniform = lambda low, high: fn.random.uniform(range=(low, high))
    twist = lambda it, b, s, h: fn.color_twist(it, brightness=uniform(1 - b, 1 + b), contrast=uniform(1 - b, 1 + b),
                                               saturation=uniform(1 - s, 1 + s), hue=uniform(-h, h))
    jobs = {
        "brightness": lambda it: fn.brightness(it, brightness=1.3),
        "contrast": lambda it: fn.contrast(it, contrast=1.3),
        "saturation": lambda it: fn.saturation(it, saturation=1.3),
        "hue": lambda it: fn.hue(it, hue=36.0),
        "color_jitter": lambda it: twist(it, 0.4, 0.4, 36.0),
        "grayscale": lambda it: fn.color_space_conversion(
            fn.color_space_conversion(it, image_type=types.RGB, output_type=types.GRAY), image_type=types.GRAY, output_type=types.RGB),
        "gaussian_blur": lambda it: fn.gaussian_blur(it, window_size=9, sigma=1.5),
        "gaussian_noise": lambda it: fn.noise.gaussian(it, stddev=25.5),
        "jpeg_distortion": lambda it: fn.jpeg_compression_distortion(it, quality=50),
        "flip": lambda it: fn.flip(it, horizontal=1),
        "rotate": lambda it: fn.rotate(it, angle=20.0, keep_size=True, interp_type=linear),
        "affine": lambda it: fn.warp_affine(it, matrix=[1.08, 0.19, 8.0, -0.19, 1.08, 4.0], interp_type=types.INTERP_NN),
        "resize": lambda it: fn.resize(it, resize_x=224, resize_y=224, interp_type=linear, antialias=True),
        "resize_bicubic": lambda it: fn.resize(it, resize_x=224, resize_y=224, interp_type=cubic, antialias=True),
        "random_resized_crop": lambda it: crop(it, 224, linear),
        "normalize": lambda it: normalize(it, MEAN, STD),
        "torchvision-resnet": lambda it: normalize(
            wide(fn.flip(crop(it, 176, linear), horizontal=coin())), MEAN, STD),
        "clip": lambda it: normalize(
            crop(it, 224, cubic, random_area=[0.9, 1.0]), CLIP_MEAN, CLIP_STD),
    }

    def make(step, arrays):
        @pipeline_def(batch_size=len(arrays), num_threads=1, device_id=None, exec_async=False, exec_pipelined=False,
                      enable_conditionals=step is jobs["torchvision-resnet"])
        def pipe():
            return step(fn.external_source(lambda: arrays, batch=True, no_copy=True, layout="HWC"))
        made = pipe()
        made.build()
        return made.run

    made = {}
    for name, step in jobs.items():
        try:
            made[name] = make(step, batches[name in LARGE | RECIPES])
        except Exception as error:
            print(f"DALI: {name} is skipped: {error}", file=sys.stderr)
    return None, made


def images(argument):
    file, size = argument.rsplit(":", 1)
    width, height = map(int, size.split("x"))
    return list(np.fromfile(Path(file), np.uint8).reshape(-1, height, width, 3))


def main():
    batches = [images(argument) for argument in sys.argv[1:3]]
    peers = {}
    for name, make in {
        "torchvision-PIL": lambda: torchvision(False), "torchvision-tensor": lambda: torchvision(True),
        "Albumentations": albumentations, "OpenCV": opencv, "DALI": lambda: dali(batches),
    }.items():
        try:
            convert, jobs = make()
        except Exception as error:
            print(f"{name} is skipped: {error}", file=sys.stderr)
            continue
        inputs = convert and [[convert(image) for image in batch] for batch in batches]
        for job, call in list(jobs.items()):
            try:
                call(*(inputs[job in LARGE | RECIPES][:1] if inputs else []))
            except Exception as error:
                print(f"{name}: {job} is skipped: {error}", file=sys.stderr)
                del jobs[job]
        peers[name] = inputs, jobs
        print("\t".join([name, *jobs]))
    print(flush=True)
    for line in sys.stdin:
        name, job = line.rstrip("\n").split("\t")
        inputs, jobs = peers[name]
        call, count = jobs[job], len(batches[job in LARGE | RECIPES])
        times, end = [], time.perf_counter() + 0.03
        while len(times) < 2 or time.perf_counter() < end:
            begin = time.perf_counter()
            if inputs is None:
                call()
            else:
                for image in inputs[job in LARGE | RECIPES]:
                    call(image)
            times.append(time.perf_counter() - begin)
        print(min(times) / count, flush=True)


main()
