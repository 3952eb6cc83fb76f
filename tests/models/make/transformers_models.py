"""Transformers by their published configurations with random weights: nothing is downloaded.

``*_dynamic`` have a symbolic batch and sequence length, the others batch 1 and the length in ``LENGTHS``.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers
from torch import nn

from tests.models.make.common import make_models
from tests.models.make.torch_export import export_module

LENGTHS = {"bert_base": 128, "gpt2": 128, "llama_small": 128}
NAMES = ("bert_base", "gpt2", "bert_base_dynamic", "gpt2_dynamic", "llama_small")


class _TokensOnly(nn.Module):
    """The model as a function of token ids alone."""

    def __init__(self, model: nn.Module, result: str) -> None:
        super().__init__()
        self.model = model
        self.result = result

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return getattr(self.model(input_ids=input_ids, use_cache=False), self.result)  # type: ignore[no-any-return]


def _build(name: str) -> tuple[nn.Module, int]:
    """The network and its vocabulary size. Eager attention: the exporter then writes MatMul and Softmax."""
    if name == "bert_base":
        config = transformers.BertConfig(attn_implementation="eager")
        return _TokensOnly(transformers.BertModel(config), "last_hidden_state"), config.vocab_size
    if name == "gpt2":
        config = transformers.GPT2Config(attn_implementation="eager")
        return _TokensOnly(transformers.GPT2LMHeadModel(config), "logits"), config.vocab_size
    config = transformers.LlamaConfig(
        vocab_size=8000,
        hidden_size=512,
        intermediate_size=1376,
        num_hidden_layers=8,
        num_attention_heads=8,
        num_key_value_heads=4,
        attn_implementation="eager",
    )
    return _TokensOnly(transformers.LlamaForCausalLM(config), "logits"), config.vocab_size


def _export(name: str, path: Path) -> None:
    torch.manual_seed(0)
    dynamic = name.endswith("_dynamic")
    base = name.removesuffix("_dynamic")
    module, vocabulary = _build(base)
    names = {"input_names": ["input_ids"], "output_names": ["y"]}
    if not dynamic:
        export_module(module, (torch.randint(0, vocabulary, (1, LENGTHS[base])),), path, **names)
        return
    # Sizes of 1 would be taken for constants.
    dims = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    export_module(module, (torch.randint(0, vocabulary, (2, 64)),), path, dynamic_shapes=(dims,), **names)


if __name__ == "__main__":
    torch.set_num_threads(1)
    make_models("transformers", {name: partial(_export, name) for name in NAMES})
