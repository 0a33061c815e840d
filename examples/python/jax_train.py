"""Trains a small network with JAX on a folder of classes.

    python examples/python/jax_train.py data/train --epochs 4

The loader returns images and labels as JAX arrays on its own device, so `device_put` is not needed.
"""

import argparse

import feedwater as fw
import jax
from jax import numpy


def main():
    options = arguments()
    loader = fw.Loader(options.data, fw.train_recipe(32), batch_size=options.batch, seed=0, framework="jax")
    weights = initial(jax.random.key(0), len(loader.classes))
    momentum = jax.tree.map(numpy.zeros_like, weights)
    for epoch in range(options.epochs):
        for images, labels in loader:
            weights, momentum, loss = step(weights, momentum, images, labels)
        print(f"epoch {epoch}: loss {float(loss):.4f}")
    evaluation = fw.Loader(options.data, fw.eval_recipe(32), batch_size=options.batch, framework="jax")
    right = seen = 0
    for images, labels in evaluation:
        right += int((scores(weights, images).argmax(1) == labels).sum())
        seen += len(labels)
    print(f"accuracy {right / seen:.3f} of {seen} images")


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("data", help="folder with one sub-folder per class")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=16)
    return parser.parse_args()


def initial(key, classes):
    first, second, third = jax.random.split(key, 3)
    normal = jax.random.normal
    return {
        "first": normal(first, (8, 3, 3, 3)) * (2 / 27) ** 0.5,
        "second": normal(second, (16, 8, 3, 3)) * (2 / 72) ** 0.5,
        "last": normal(third, (16, classes)) * 0.1,
    }


def scores(weights, images):
    for name in ("first", "second"):
        images = jax.nn.relu(jax.lax.conv_general_dilated(images, weights[name], (2, 2), "SAME"))
    return images.mean(axis=(2, 3)) @ weights["last"]


@jax.jit
def step(weights, momentum, images, labels):
    def loss_of(weights):
        return -numpy.take_along_axis(jax.nn.log_softmax(scores(weights, images)), labels[:, None], axis=1).mean()

    loss, gradients = jax.value_and_grad(loss_of)(weights)
    momentum = jax.tree.map(lambda mean, gradient: 0.9 * mean + gradient, momentum, gradients)
    return jax.tree.map(lambda weight, mean: weight - 0.05 * mean, weights, momentum), momentum, loss


if __name__ == "__main__":
    main()
