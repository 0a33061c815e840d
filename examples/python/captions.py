"""Trains two small towers on pairs of images and captions, with the loss of CLIP.

    python examples/python/captions.py train.tar      # a WebDataset archive with 000.jpg, 000.txt, 001.jpg, ...
    python examples/python/captions.py train.parquet  # the columns image and caption, as Hugging Face writes them

`tokens` replaces a tokenizer: it numbers the bytes of a caption. Call the tokenizer of your model there, such as `open_clip.tokenize`.
"""

import argparse

import feedwater as fw
import torch
from feedwater import ops
from torch import nn
from torch.nn import functional

#: Mean and standard deviation of CLIP's data.
NORMALIZE = ops.Normalize(mean=[0.48145466, 0.4578275, 0.40821073], std=[0.26862954, 0.26130258, 0.27577711])
#: Tokens of a caption. Longer captions are cut.
TOKENS = 77


def main():
    options = arguments()
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    crop = ops.RandomResizedCrop(width=options.side, height=options.side, scale=(0.9, 1), filter="bicubic")
    train = loader(options.data, [crop, NORMALIZE], batch_size=options.batch, shuffle=True, seed=0)
    towers = Towers().to(device)
    optimizer = torch.optim.AdamW(towers.parameters(), lr=0.01)
    for epoch in range(options.epochs):
        total = 0
        for batch in train:
            optimizer.zero_grad()
            logits = towers(batch["image"], tokens(batch["caption"]).to(device))
            pairs = torch.arange(len(logits), device=device)
            loss = (functional.cross_entropy(logits, pairs) + functional.cross_entropy(logits.T, pairs)) / 2
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(train):.4f}")
    train.close()


def loader(data, chain, **settings):
    # The sets have no class labels, so label is "".
    if str(data).endswith(".parquet"):
        source, field = fw.parquet(data, label=""), "caption"
    else:
        source, field = fw.webdataset(data, label=""), "txt"
    columns = {"caption": fw.text(field, max_len=1000, too_long="truncate")}
    return fw.Loader(source, chain, columns=columns, **settings)


def tokens(captions):
    """Returns a tensor [captions, TOKENS] with the bytes of each caption, plus 1. The padding is 0."""
    rows = [[byte + 1 for byte in caption.encode()[:TOKENS]] for caption in captions]
    return torch.tensor([row + [0] * (TOKENS - len(row)) for row in rows])


class Towers(nn.Module):
    """A tower for images and one for captions, whose results have 32 numbers."""

    def __init__(self):
        super().__init__()
        layers = [nn.Conv2d(3, 16, 4, stride=4), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU()]
        self.images = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 32))
        # The mean of the embeddings of all tokens but the padding.
        self.captions = nn.Sequential(nn.EmbeddingBag(257, 32, padding_idx=0), nn.Linear(32, 32))
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, images, captions):
        """Returns the similarity of each image (row) to each caption (column)."""
        images = functional.normalize(self.images(images))
        captions = functional.normalize(self.captions(captions))
        return self.scale.exp() * images @ captions.T


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("data", help="a .tar or a .parquet, or several in quotes, as in 'train-{000..146}.tar'")
    parser.add_argument("--side", type=int, default=224, help="width and height of the network's input, in pixels")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch", type=int, default=64)
    return parser.parse_args()


if __name__ == "__main__":
    main()
