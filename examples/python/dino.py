"""Trains a small network without labels, by self-distillation as in DINO (Caron et al., 2021), on a folder of classes.

    python examples/python/dino.py IMAGES --epochs 10

Each image is decoded once, for two large and six small crops. The teacher sees the large crops, and the student sees all crops. The program
then tests the teacher: it predicts the class of each image from its nearest neighbour among the other images.
"""

import argparse
import copy

import feedwater as fw
import torch
from feedwater import ops
from torch import nn
from torch.nn import functional

OUTPUTS = 64


def main():
    options = arguments()
    torch.manual_seed(0)
    normalize = ops.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225])

    def crop(side, scale, blur):
        jitter = ops.ColorJitter(brightness=0.4, contrast=0.4, saturation=0.2, hue=0.1)
        colours = [
            ops.RandomApply([jitter], probability=0.8),
            ops.RandomGrayscale(probability=0.2),
            ops.RandomApply([ops.GaussianBlur(kernel_size=9, sigma=(0.1, 2.0))], probability=blur),
        ]
        return [ops.RandomResizedCrop(width=side, height=side, scale=scale, filter="bicubic"), ops.Flip(horizontal=0.5), *colours, normalize]

    columns = {
        "large": fw.view(crop(options.side, (0.4, 1.0), 0.5), count=2),
        "small": fw.view(crop(options.side // 2, (0.05, 0.4), 0.5), count=6),
    }
    loader = fw.Loader(options.images, columns=columns, batch_size=options.batch, shuffle=True, seed=0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    student = network().to(device)
    teacher = copy.deepcopy(student).requires_grad_(False)
    optimizer = torch.optim.AdamW(student.parameters(), lr=0.003)
    centre = torch.zeros(OUTPUTS, device=device)
    for epoch in range(options.epochs):
        for batch in loader:
            # One call of the network per size: [samples, count, 3, height, width] becomes [samples * count, 3, height, width].
            large, small = (batch[name].to(device).flatten(0, 1) for name in ("large", "small"))
            targets = teacher(large).view(-1, 2, OUTPUTS)
            outputs = torch.cat([student(large).view(-1, 2, OUTPUTS), student(small).view(-1, 6, OUTPUTS)], 1)
            logs = functional.log_softmax(outputs / 0.1, -1)
            wanted = functional.softmax((targets - centre) / 0.04, -1)
            pairs = [(wanted[:, view] * logs[:, crop]).sum(-1) for view in range(2) for crop in range(8) if crop != view]
            loss = -torch.stack(pairs).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                centre = 0.9 * centre + 0.1 * targets.mean((0, 1))
                for mine, its in zip(teacher.parameters(), student.parameters()):
                    mine.lerp_(its, 0.04)
        print(f"epoch {epoch}: loss {loss.item():.4f}")
    test = fw.Loader(options.images, [ops.Resize(width=options.side, height=options.side), normalize], batch_size=options.batch, drop_last=False, epochs=1)
    features, labels = zip(*((functional.normalize(teacher[0](images.to(device)), dim=-1), labels) for images, labels in test))
    features, labels = torch.cat(features), torch.cat(labels)
    likeness = (features @ features.T).fill_diagonal_(-1)
    right = (labels[likeness.argmax(1).cpu()] == labels).float().mean().item()
    print(f"accuracy {right:.3f} of {len(labels)} images")


def network():
    """Returns a network of two parts: one computes features of an image of any size, and the other one maps them to the outputs."""
    features = [nn.Conv2d(3, 16, 5, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(nn.Sequential(*features), nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, OUTPUTS)))


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("images", help="folder with one folder of images per class")
    parser.add_argument("--side", type=int, default=96, help="width and height of the large crops, in pixels; small crops have half of it")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=16)
    return parser.parse_args()


if __name__ == "__main__":
    main()
