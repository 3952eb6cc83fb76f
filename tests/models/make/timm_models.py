"""Convolutional and vision-transformer networks of timm, batch 1, and PNASNet-5 in its mobile size.

timm has only the large PNASNet-5. The mobile configuration is the published one (TensorFlow models, slim,
``nets/nasnet/pnasnet.py``, ``mobile_imagenet_config``): 9 cells, 54 filters, filter scaling 2, stem multiplier 1,
input 224; reduction cells at 1/3 and 2/3 of the cells; two stem cells at a quarter and half of the filters.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch
from torch import nn

from tests.models.make import torchvision_stub

torchvision_stub.install()

import timm  # noqa: E402  - only importable once torchvision is stood in for
from timm.models.pnasnet import Cell, CellStem0  # noqa: E402

from tests.models.make.common import make_models  # noqa: E402
from tests.models.make.torch_export import export_module  # noqa: E402

# name: side of the square input
SIZES = {
    "resnet50": 224,
    "inception_v3": 299,
    "pnasnet5large": 331,
    "densenet121": 224,
    "efficientnet_b0": 224,
    "nasnetalarge": 331,
    "vit_base_patch16_224": 224,
    "resnet200": 224,
    "inception_v4": 299,
}
PNASNET_MOBILE_SIZE = 224
# Centred by half, so many layers multiply rounding errors: ONNX Runtime's outputs at two optimisation levels differ by
# five and two times the tolerance of a verification. Like this by 0.03 and 0.04, and two inputs' by 1,500 or more.
CENTRE = {"resnet200": 0.15, "inception_v4": 0.15}


class PNASNetMobile(nn.Module):
    """PNASNet-5 (Mobile) from timm's cells."""

    def __init__(self, num_cells: int = 9, filters: int = 54, num_classes: int = 1000) -> None:
        super().__init__()
        stem = 32
        self.conv_0 = nn.Conv2d(3, stem, 3, stride=2, bias=False)
        self.bn_0 = nn.BatchNorm2d(stem, eps=0.001)
        first = filters // 4
        self.cell_stem_0 = CellStem0(stem, first, stem, first)
        # A cell concatenates five branches.
        left, right = stem, 5 * first
        cells = [_cell(left, right, filters // 2, is_reduction=True, match=True)]
        left, right, reduced = right, 5 * (filters // 2), True
        for index in range(num_cells):
            reduction = index in (num_cells // 3, 2 * num_cells // 3)
            filters *= 2 if reduction else 1
            cells.append(_cell(left, right, filters, is_reduction=reduction, match=reduced))
            left, right, reduced = right, 5 * filters, reduction
        self.cells = nn.ModuleList(cells)
        self.last_linear = nn.Linear(right, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        left = self.bn_0(self.conv_0(x))
        right = self.cell_stem_0(left)
        for cell in self.cells:
            left, right = right, cell(left, right)
        return self.last_linear(torch.relu(right).mean((2, 3)))  # type: ignore[no-any-return]


def _cell(left: int, right: int, filters: int, *, is_reduction: bool, match: bool) -> nn.Module:
    """One cell; an odd number of filters is shared unevenly between a factorised reduction's two paths, as in slim."""
    cell: nn.Module = Cell(left, filters, right, filters, is_reduction=is_reduction, match_prev_layer_dims=match)
    if match and filters % 2:
        cell.conv_prev_1x1.path_2.conv = nn.Conv2d(left, filters - filters // 2, 1, bias=False)  # type: ignore[union-attr]
    return cell


def _export(name: str, path: Path) -> None:
    torch.manual_seed(0)
    if name == "pnasnet_mobile":
        module, size = PNASNetMobile(), PNASNET_MOBILE_SIZE
    else:
        module, size = timm.create_model(name), SIZES[name]
    export_module(module, (torch.randn(1, 3, size, size),), path, input_names=["x"], output_names=["y"])


if __name__ == "__main__":
    torch.set_num_threads(1)
    make_models("timm", {name: partial(_export, name) for name in (*SIZES, "pnasnet_mobile")}, centre=CENTRE)
