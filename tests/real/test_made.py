"""Models made from architectures by ``make models``: convolutional nets, cells, transformers, recurrent nets."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.real.support import Real, applied, planned, split_plans, telling

pytestmark = pytest.mark.long

_TOKENS = {"input_ids": (2, 32)}
MODELS = {
    "timm_resnet50": {},
    "timm_inception_v3": {},
    "timm_densenet121": {},
    "timm_efficientnet_b0": {},
    "timm_pnasnet_mobile": {},
    "timm_pnasnet5large": {},
    "timm_nasnetalarge": {},
    "timm_inception_v4": {},
    "timm_resnet200": {},
    "timm_vit_base_patch16_224": {},
    "keras_NASNetMobile": {},
    "keras_InceptionV3": {},
    "transformers_bert_base": {},
    "transformers_gpt2": {},
    "transformers_bert_base_dynamic": _TOKENS,
    "transformers_gpt2_dynamic": _TOKENS,
    "transformers_llama_small": {},
    "recurrent_ptb_lstm": {},
    "recurrent_ptb_lstm_unrolled": {},
    "recurrent_gnmt": {},
}


def _real(models_dir: Path, name: str) -> Real:
    path = models_dir / f"{name}.onnx"
    if not path.exists():
        pytest.skip(f"{name} is not there: run `make models`")
    return Real(path, MODELS[name], {})


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("devices", ["cpus 2", "cpus 3", "gpus 4"])
def test_planned(name: str, devices: str, models_dir: Path, tmp_path: Path) -> None:
    real = _real(models_dir, name)
    kind, _, count = devices.partition(" ")
    plan = planned(real, tmp_path, **{kind: count})
    result = applied(plan, real, on_cpu=kind == "gpus")
    assert result.verified, result.comparison
    # How far two inputs' outputs are apart, in tolerances.
    assert telling(plan, real) > 100


@pytest.mark.parametrize("name", MODELS)
def test_whole_graph_splits(name: str, models_dir: Path) -> None:
    real = _real(models_dir, name)
    for way, plan in split_plans(real, 2).items():
        assert applied(plan, real).verified, way
