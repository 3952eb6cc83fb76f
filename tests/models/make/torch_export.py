"""Export of one torch module to one ONNX file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

OPSET = 20


def export_module(module: nn.Module, example: tuple[torch.Tensor, ...], path: Path, **options: Any) -> None:
    """Export in inference mode, weights inside the file.

    Args:
        module: what to export.
        example: inputs, one a parameter of ``forward``; their shapes become the model's.
        path: the file to write.
        options: passed on to ``torch.onnx.export`` (input names, dynamic shapes, ...).
    """
    program = torch.onnx.export(
        module.eval(), example, dynamo=True, opset_version=OPSET, external_data=False, verbose=False, **options
    )
    assert program is not None
    program.save(str(path), external_data=False)
