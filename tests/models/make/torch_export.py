"""Export of one torch module to one ONNX file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

OPSET = 20


def vary_constants(module: nn.Module) -> None:
    """Make biases, scales and running statistics differ from channel to channel, as they do after training.

    Exporters drop a bias of zeros and merge all scales of ones into one tensor: the graph would not be that of a
    trained network. Only vectors of one value are changed.
    """
    with torch.no_grad():
        for tensor in (*module.parameters(), *module.buffers()):
            if (
                tensor.ndim == 1
                and tensor.is_floating_point()
                and tensor.numel() > 1
                and bool((tensor == tensor[0]).all())
            ):
                tensor.mul_(1 + 0.1 * torch.rand_like(tensor)).add_(0.1 * torch.rand_like(tensor))


def export_module(module: nn.Module, example: tuple[torch.Tensor, ...], path: Path, **options: Any) -> None:
    """Export in inference mode, weights inside the file.

    Args:
        module: what to export.
        example: inputs, one a parameter of ``forward``; their shapes become the model's.
        path: the file to write.
        options: passed on to ``torch.onnx.export`` (input names, dynamic shapes, ...).
    """
    vary_constants(module)
    program = torch.onnx.export(
        module.eval(), example, dynamo=True, opset_version=OPSET, external_data=False, verbose=False, **options
    )
    assert program is not None
    program.save(str(path), external_data=False)
