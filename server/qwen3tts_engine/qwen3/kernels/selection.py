"""Kernels of a model on its GPU: those that compile there and agree with plain torch."""

from __future__ import annotations

import importlib
import logging
from dataclasses import replace

from qwen3tts_engine.qwen3.kernels.persistent_predictor import (
    PredictorRefused,
    persistent_predictor,
)
from qwen3tts_engine.qwen3.kernels.requirements import missing
from qwen3tts_engine.qwen3.model.model import Qwen3Model

log = logging.getLogger(__name__)


def use_triton(model: Qwen3Model) -> list[str]:
    """Give the model Triton's kernels; return notes on those that cannot be used."""
    try:
        # Where there is no Triton, this fails.
        triton = importlib.import_module("qwen3tts_engine.qwen3.kernels.triton_kernels")
        codec = importlib.import_module("qwen3tts_engine.qwen3.kernels.codec_trials")
    except Exception as error:
        log.warning("no Triton", exc_info=error)
        return [f"Triton cannot be used ({type(error).__name__}); it is slower."]
    model.kernels, failed = triton.usable(model)
    decoder = model.decoder
    decoder.kernels, failed_codec = codec.usable(decoder)
    failed |= failed_codec
    lacks = missing() if failed else None
    if lacks is not None:
        return [
            f"Triton cannot build its kernels: {lacks.what}. {lacks.remedy} Until then it is"
            " slower."
        ]
    return [
        f"The kernel {name} cannot be used ({why}); it is slower." for name, why in failed.items()
    ]


def use_persistent(model: Qwen3Model) -> list[str]:
    try:
        predict = persistent_predictor(model)
    except PredictorRefused as error:
        log.warning("no persistent predictor", exc_info=error)
        return [f"The persistent predictor cannot be used ({error})."]
    model.kernels = replace(model.kernels, predict=predict)
    return []
