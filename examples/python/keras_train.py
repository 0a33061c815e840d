"""Trains a small network with Keras 3 on a folder of classes, with any backend.

    KERAS_BACKEND=torch python examples/python/keras_train.py data/train --epochs 4
"""

import argparse

import feedwater as fw
import keras
from feedwater.integrations import keras_dataset
from keras import layers


def main():
    options = arguments()
    keras.utils.set_random_seed(0)
    settings = {"batch_size": options.batch, "layout": "nhwc", "framework": "torch" if keras.backend.backend() == "torch" else "numpy"}
    loader = fw.Loader(options.data, fw.train_recipe(32), seed=0, **settings)
    evaluation = fw.Loader(options.data, fw.eval_recipe(32), **settings)
    model = keras.Sequential(
        [
            layers.Input((32, 32, 3)),
            layers.Conv2D(8, 3, strides=2, padding="same", activation="relu"),
            layers.Conv2D(16, 3, strides=2, padding="same", activation="relu"),
            layers.AveragePooling2D(4),
            layers.Flatten(),
            layers.Dense(len(loader.classes), activation="softmax"),
        ]
    )
    model.compile("adamw", "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.optimizer.learning_rate = 0.01
    model.fit(keras_dataset(loader), epochs=options.epochs, verbose=2)
    _, accuracy = model.evaluate(keras_dataset(evaluation), verbose=0)
    print(f"accuracy {accuracy:.3f} of {evaluation.stats['images']} images")


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("data", help="folder with one sub-folder per class")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=16)
    return parser.parse_args()


if __name__ == "__main__":
    main()
