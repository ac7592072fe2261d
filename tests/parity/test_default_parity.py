"""Defaults of configuration fields, read from the installed package's source."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

import pytest

from qwen3tts_engine.qwen3.model import config_fields as ours
from tests.conftest import leave_out
from tests.parity.conftest import ROOT

MODEL = "qwen_tts/core/models/configuration_qwen3_tts.py"
CODEC = "qwen_tts/core/tokenizer_12hz/configuration_qwen3_tts_tokenizer_v2.py"
MIMI = "transformers/models/mimi/configuration_mimi.py"


def source(name: str) -> ast.Module:
    found = list((ROOT / ".oracle").glob(f"lib/python*/site-packages/{name}"))
    if not found:
        leave_out("the official package's environment is not there (make oracle)")
    return ast.parse(Path(found[0]).read_text(encoding="utf-8"))


def defaults(tree: ast.Module, name: str) -> dict[str, object]:
    """Defaults of a class's constructor."""
    made = next(each for each in ast.walk(tree) if getattr(each, "name", None) == name)
    init = next(each for each in ast.walk(made) if getattr(each, "name", None) == "__init__")
    assert isinstance(init, ast.FunctionDef)
    values = init.args.defaults
    names = [each.arg for each in init.args.args][-len(values) :]
    return dict(zip(names, map(ast.literal_eval, values), strict=True))


@pytest.mark.parametrize(
    ("file", "name", "table"),
    [
        (MODEL, "Qwen3TTSConfig", ours.TOP),
        (MODEL, "Qwen3TTSTalkerConfig", ours.TALKER),
        (MODEL, "Qwen3TTSTalkerCodePredictorConfig", ours.PREDICTOR),
        (MODEL, "Qwen3TTSSpeakerEncoderConfig", ours.SPEAKER_ENCODER),
        (CODEC, "Qwen3TTSTokenizerV2Config", ours.CODEC),
        (CODEC, "Qwen3TTSTokenizerV2DecoderConfig", ours.CODEC_DECODER),
        (MIMI, "MimiConfig", ours.CODEC_ENCODER),
    ],
)
def test_defaults_are_those_of_the_official_class(
    file: str, name: str, table: Mapping[str, object]
) -> None:
    theirs = defaults(source(file), name)
    for field, value in table.items():
        expected = theirs[field]
        # MimiConfig fills in its own.
        if name == "MimiConfig" and field == "upsampling_ratios":
            expected = [8, 6, 5, 4]
        assert (list(expected) if isinstance(expected, tuple) else expected) == value, field


def test_sampling_falls_back_as_the_official_class_does() -> None:
    tree = source("qwen_tts/inference/qwen3_tts_model.py")
    call = next(
        each.value
        for each in ast.walk(tree)
        if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "hard_defaults"
    )
    assert isinstance(call, ast.Call)
    assert {one.arg: ast.literal_eval(one.value) for one in call.keywords} == ours.GENERATION
