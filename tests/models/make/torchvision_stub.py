"""A stand-in for torchvision: timm imports it for its data pipelines, which exporting a network never runs.

PyPI's torchvision does not import beside every CPU build of torch; importing this module first makes timm importable
without it.
"""

from __future__ import annotations

import enum
import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Sequence
from typing import Any

import torch

_NAME = "torchvision"


class _Anything(type):
    """A class whose every attribute is itself: whatever timm looks up, it finds."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return cls


class _InterpolationMode(enum.Enum):
    """timm builds a table from these names when it is imported."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


class _Module(types.ModuleType):
    """A module that has every name."""

    __path__: list[str] = []  # noqa: RUF012  - the import system's own attribute, a package has it

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "InterpolationMode":
            return _InterpolationMode
        return _Anything(name, (torch.nn.Module,), {})


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Answers for ``torchvision`` and everything below it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname == _NAME or fullname.startswith(f"{_NAME}."):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = _Module(spec.name)
        if spec.name == _NAME:
            module.__dict__["__version__"] = "0.28.0"
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """There is nothing to run."""


def install() -> None:
    """Make ``import torchvision`` give the stand-in, once."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
