"""Keras applications through tf2onnx: channels-last graphs full of Transpose, batch 1."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import keras
import numpy as np
import tensorflow as tf
import tf2onnx

from tests.models.make.common import make_models

# name: side of the square input
SIZES = {"NASNetMobile": 224, "InceptionV3": 299}
OPSET = 18


def _disturb_norms(model: keras.Model) -> None:
    """Statistics as after training: the exporter folds untrained ones away, and with them every convolution's bias."""
    random = np.random.default_rng(0)
    draws = {
        "gamma": lambda z: 1 + 0.1 * z,
        "beta": lambda z: 0.1 * z,
        "moving_mean": lambda z: 0.1 * z,
        "moving_variance": lambda z: 1 + 0.2 * np.abs(z),
    }
    for layer in model.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            for weight in layer.weights:
                weight.assign(draws[weight.name](random.standard_normal(weight.shape)))


def _export(name: str, path: Path) -> None:
    keras.utils.set_random_seed(0)
    model = getattr(keras.applications, name)(weights=None)
    _disturb_norms(model)
    signature = [tf.TensorSpec((1, SIZES[name], SIZES[name], 3), tf.float32, name="x")]
    function = tf.function(lambda x: model(x, training=False), input_signature=signature)
    tf2onnx.convert.from_function(function, input_signature=signature, opset=OPSET, output_path=str(path))


if __name__ == "__main__":
    make_models("keras", {name: partial(_export, name) for name in SIZES})
