"""Models for tests: small ones made here, and a way to give any ONNX model weights that tell inputs apart."""

from __future__ import annotations

from tests.models.interpreter import random_inputs
from tests.models.light import LIGHT_MODELS, light_path
from tests.models.outputs import run_model, tolerances_apart
from tests.models.reweight import reweight
from tests.models.small import (
    SMALL_MODELS,
    nasnet_cell_like,
    residual_chain,
    save,
    tiny_cnn,
    tiny_lstm,
    tiny_mlp,
    tiny_transformer,
)

__all__ = [
    "LIGHT_MODELS",
    "SMALL_MODELS",
    "light_path",
    "nasnet_cell_like",
    "random_inputs",
    "residual_chain",
    "reweight",
    "run_model",
    "save",
    "tiny_cnn",
    "tiny_lstm",
    "tiny_mlp",
    "tiny_transformer",
    "tolerances_apart",
]
