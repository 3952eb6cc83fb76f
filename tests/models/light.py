"""The nine classification networks that the onnx package ships without their weights."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import onnx.backend.test

LIGHT_MODELS: Final = (
    "bvlc_alexnet",
    "densenet121",
    "inception_v1",
    "inception_v2",
    "resnet50",
    "shufflenet",
    "squeezenet",
    "vgg19",
    "zfnet512",
)


def light_path(name: str) -> Path:
    """File of a light model, as shipped: every weight is one value, made by ConstantOfShape."""
    return Path(onnx.backend.test.__file__).parent / "data" / "light" / f"light_{name}.onnx"
