"""The Python API beside the official one: the codec, names, and what maps to what."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import fields

import numpy as np
import pytest

from qwen3tts_engine.qwen3.api import Qwen3TTS, StreamOptions
from tests.parity.cases import DECODE, LISTEN
from tests.parity.conftest import ROOT, Oracle
from tests.parity.test_default_parity import source

MODEL = "qwen_tts/inference/qwen3_tts_model.py"
TOKENIZER = "qwen_tts/inference/qwen3_tts_tokenizer.py"
CLASSES = ((MODEL, "Qwen3TTSModel"), (TOKENIZER, "Qwen3TTSTokenizer"))


@pytest.mark.parametrize("model", ["base", "custom_voice", "wide"])
def test_the_codec_gives_the_official_codes_and_sound(model: str, oracle: Oracle) -> None:
    with Qwen3TTS.load(str(oracle.folders[model])) as tts:
        for name, _, reference in (case for case in LISTEN if case[1] == model):
            codes = tts.encode(oracle.inputs[reference], 24_000)
            np.testing.assert_array_equal(codes, oracle.arrays(name)["codes"])
        for name, _, given in (case for case in DECODE if case[1] == model):
            sound, _ = tts.decode(oracle.inputs[given])
            np.testing.assert_allclose(sound, oracle.arrays(name)["sound"], atol=1e-4, rtol=0)


@pytest.mark.parametrize("model", ["base", "custom_voice", "voice_design"])
def test_languages_and_speakers_are_the_official_ones(model: str, oracle: Oracle) -> None:
    official = oracle.supported(model)
    with Qwen3TTS.load(str(oracle.folders[model])) as tts:
        assert sorted(tts.supported_languages()) == official["languages"]
        assert tts.supported_speakers() == official["speakers"]


def body(file: str, name: str) -> list[ast.stmt]:
    tree = source(file)
    return next(
        each.body for each in ast.walk(tree) if isinstance(each, ast.ClassDef) and each.name == name
    )


def parameters(made: ast.FunctionDef) -> list[str]:
    given = [*made.args.args, *made.args.kwonlyargs]
    return [each.arg for each in given if each.arg not in ("self", "cls", "kwargs")]


def official_names() -> Iterator[str]:
    """``Class.method`` and ``Class.method(parameter)``; fields; named ``**kwargs``."""
    for file, name in CLASSES:
        for method in body(file, name):
            if isinstance(method, ast.FunctionDef) and not method.name.startswith("_"):
                yield f"{name}.{method.name}"
                for parameter in parameters(method):
                    yield f"{name}.{method.name}({parameter})"
            elif getattr(method, "name", "") == "_merge_generate_kwargs":
                assert isinstance(method, ast.FunctionDef)
                yield from parameters(method)
    for field in body(MODEL, "VoiceClonePromptItem"):
        if isinstance(field, ast.AnnAssign):
            yield f"VoiceClonePromptItem.{ast.unparse(field.target)}"


def table() -> dict[str, str]:
    """What is here, by official name; a cell may hold several, parameters are in brackets."""
    page = (ROOT / "docs" / "engine.md").read_text(encoding="utf-8")
    rows = page.split("## Beside the official package")[1].split("\n## ")[0].splitlines()
    found: dict[str, str] = {}
    for row in rows:
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        if row.startswith("|") and len(cells) == 2:
            for name in re.findall(r"`([^`]+)`", cells[0]):
                method, _, given = name.rstrip(")").partition("(")
                names = [f"{method}({each})" for each in given.split(", ")] if given else [method]
                found |= dict.fromkeys(names, cells[1])
    return found


def test_the_page_maps_every_official_method_parameter_and_field() -> None:
    official = set(official_names())
    assert len(official) > 50
    assert set(table()) == official


def test_what_the_page_maps_to_is_there() -> None:
    calls = re.findall(r"`(\w+)\(([^`]*)\)`", " ".join(table().values()))
    names = {name for name, _ in calls}
    assert {"encode", "decode", "clone_prompt", "create_voice_from", "stream"} <= names
    for name, given in calls:
        if name[0].isupper():
            continue
        known = set(inspect.signature(getattr(Qwen3TTS, name)).parameters)
        if "how" in known:
            known |= {field.name for field in fields(StreamOptions)}
        for keyword in re.findall(r"(\w+)=", re.sub(r"\([^)]*\)", "", given)):
            assert keyword in known or "settings" in known, (name, keyword)
