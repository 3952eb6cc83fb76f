"""ONNX in and out: a file becomes operators, shapes and handles on weights; operators become a model again."""

from planner.model.load import load_model
from planner.model.options import LoadOptions, RecordedRun
from planner.model.serialize import build_model
from planner.model.simplify import SIMPLIFICATION_VERSION
from planner.model.types import LoadedModel, Weight

__all__ = [
    "SIMPLIFICATION_VERSION",
    "LoadOptions",
    "LoadedModel",
    "RecordedRun",
    "Weight",
    "build_model",
    "load_model",
]
