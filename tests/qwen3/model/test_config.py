"""A checkpoint's JSON: read in full, refused by name."""

from __future__ import annotations

import copy
import dataclasses
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qwen3tts_engine.qwen3.model import config_fields as official_defaults
from qwen3tts_engine.qwen3.model.config import ModelConfig, SpeakerEncoderConfig
from qwen3tts_engine.qwen3.model.config_fields import BadCheckpoint, JsonFields
from qwen3tts_engine.qwen3.model.config_reader import read_config
from qwen3tts_wire.errors import EngineUnavailable
from tests.tiny_models.published import PUBLISHED

FILES = ("config.json", "generation_config.json", "vocab.json", "speech_tokenizer/config.json")
Json = dict[str, Any]


@pytest.fixture
def folder(tiny: dict[str, Path], tmp_path: Path) -> Callable[[str], Path]:
    """A copy of a tiny checkpoint's JSON files, to be spoiled."""

    def make(task: str) -> Path:
        for name in FILES:
            (tmp_path / name).parent.mkdir(exist_ok=True)
            shutil.copy(tiny[task] / name, tmp_path / name)
        return tmp_path

    return make


def change(folder: Path, name: str, edit: Callable[[Json], object]) -> None:
    file = folder / name
    values = json.loads(file.read_text())
    edit(values)
    file.write_text(json.dumps(values))


def at(values: Json, path: str) -> tuple[Json, str]:
    *sections, field = path.split(".")
    for section in sections:
        values = values[section]
    return values, field


def put(path: str, value: object) -> Callable[[Json], None]:
    def edit(values: Json) -> None:
        section, field = at(values, path)
        section[field] = value

    return edit


def complaint(folder: Path) -> str | None:
    try:
        read_config(folder)
    except BadCheckpoint as error:
        return error.message
    return None


def refusal(folder: Path) -> str:
    with pytest.raises(BadCheckpoint) as caught:
        read_config(folder)
    assert caught.value.remedy
    return caught.value.message


def test_all_three_tasks_are_read(tiny_config: Callable[[str], ModelConfig]) -> None:
    named, designed, base = map(tiny_config, ("custom_voice", "voice_design", "base"))
    assert (named.task, designed.task, base.task) == ("custom_voice", "voice_design", "base")
    assert set(named.talker.speakers) == {"serena", "ryan", "uncle_fu", "eric", "dylan"}
    assert named.talker.dialects == {"eric": "sichuan_dialect", "dylan": "beijing_dialect"}
    assert not designed.talker.speakers
    assert not base.talker.speakers
    assert "sichuan_dialect" in named.talker.languages
    assert len(base.talker.languages) == 10
    assert designed.speaker is None
    assert base.speaker is not None
    assert base.speaker.enc_dim == base.talker.layers.hidden
    assert base.speaker.hop_length == 256
    assert base.codec.samples_per_frame == 1920
    assert base.codec.decoder.sliding_window == 72
    assert base.generation.temperature == 0.9
    assert base.generation.max_frames == 8192
    assert base.talker.codes == 2048
    assert base.text_ids.role == (
        base.text_ids.im_start,
        base.text_ids.assistant,
        base.text_ids.newline,
    )


def test_instructions_count_for_the_large_custom_voice_and_for_voice_design() -> None:
    heeding = {name for name, config in PUBLISHED.items() if config.takes_instructions}
    assert heeding == {"1.7b-custom_voice", "1.7b-voice_design"}


def test_tables_cannot_be_changed(tiny_config: Callable[[str], ModelConfig]) -> None:
    config = tiny_config("custom_voice")
    with pytest.raises(TypeError):
        config.talker.speakers["new"] = 1  # type: ignore[index]
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.task = "base"  # type: ignore[misc]


def test_a_published_config_without_the_encoders_own_sizes(
    folder: Callable[[str], Path],
) -> None:
    """The published ``speaker_encoder_config`` holds two fields alone."""
    place = folder("base")
    change(
        place,
        "config.json",
        put("speaker_encoder_config", {"enc_dim": 32, "sample_rate": 24_000}),
    )
    speaker = read_config(place).speaker
    assert speaker is not None
    assert speaker.enc_channels == (512, 512, 512, 512, 1536)
    assert speaker.mel_dim == 128


def test_no_sampling_means_greedy(folder: Callable[[str], Path]) -> None:
    place = folder("base")
    change(place, "generation_config.json", put("do_sample", False))
    change(place, "generation_config.json", put("subtalker_dosample", False))
    generation = read_config(place).generation
    assert (generation.temperature, generation.predictor_temperature) == (0.0, 0.0)


def test_a_byte_order_mark_is_no_matter(folder: Callable[[str], Path]) -> None:
    place = folder("base")
    file = place / "config.json"
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert read_config(place).task == "base"


def paths(values: Json, prefix: str = "") -> Iterator[str]:
    for name, value in values.items():
        if "." in name:
            continue
        yield prefix + name
        if isinstance(value, dict):
            yield from paths(value, f"{prefix}{name}.")


UNREAD = {
    "architectures", "attention_dropout", "initializer_range", "layer_scale_initial_scale",
    "transformers_version", "use_cache", "position_id_per_seconds", "_frame_rate",
    "trim_right_ratio", "upsample_groups", "use_streaming", "num_semantic_quantizers",
    "semantic_codebook_size", "interleaved", "mrope_section", "dtype",
}  # fmt: skip
"""Fields that say nothing the engine needs (num_semantic_quantizers: in the decoder)."""
OPTIONAL = {
    "hidden_act", "attention_bias", "sliding_window", "use_sliding_window", "rope_scaling",
    "rope_type", "type", "assistant_token_id", "audio_channels", "use_causal_conv",
    "use_conv_shortcut", "pad_mode", "input_sample_rate", "model_type", "num_code_groups",
    "max_position_embeddings", "vector_quantization_hidden_dimension",
}  # fmt: skip
"""Fields of which this engine knows one value only, and that may be absent in some place."""


DEFAULTS: dict[str, Mapping[str, object]] = {
    "": official_defaults.TOP | official_defaults.CODEC,
    "talker_config": official_defaults.TALKER | {"head_dim": None},
    "talker_config.code_predictor_config": official_defaults.PREDICTOR,
    "decoder_config": official_defaults.CODEC_DECODER | {"head_dim": None},
    "encoder_config": official_defaults.CODEC_ENCODER | {"head_dim": None},
}


@pytest.mark.parametrize("name", ["config.json", "speech_tokenizer/config.json"])
def test_every_missing_field_is_named(folder: Callable[[str], Path], name: str) -> None:
    place = folder("custom_voice")
    whole = json.loads((place / name).read_text())
    required = optional = 0
    for path in paths(whole):
        spoiled = copy.deepcopy(whole)
        section, field = at(spoiled, path)
        del section[field]
        (place / name).write_text(json.dumps(spoiled))
        parts = path.split(".")
        if path in DEFAULTS:
            # Its fields have defaults; those that have none are named.
            assert f"{path} is missing" not in (complaint(place) or "")
            continue
        if parts[-1] in UNREAD | OPTIONAL or parts[-2:-1] in (["codec_language_id"], ["spk_id"]):
            continue
        if parts[-1] in DEFAULTS.get(".".join(parts[:-1]), {}):
            optional += 1
            # The default may not fit the rest of the tiny checkpoint.
            assert "is missing" not in (complaint(place) or "")
            continue
        message = refusal(place)
        assert str(place / name) in message
        if parts[-1] != "tokenizer_type":
            assert f"{path} is missing" in message
        required += 1
    assert required >= 1
    assert optional > 15


@pytest.mark.parametrize("value", ["absent", None])
@pytest.mark.parametrize(
    ("task", "name", "path"),
    [
        ("base", "config.json", "speaker_encoder_config"),
        ("custom_voice", "config.json", "talker_config.code_predictor_config"),
        ("custom_voice", "speech_tokenizer/config.json", "encoder_config"),
    ],
)
def test_a_section_that_is_absent_or_null_has_the_official_defaults(
    folder: Callable[[str], Path], task: str, name: str, path: str, value: Any
) -> None:
    place = folder(task)

    def official(values: Json) -> None:
        # The rest of the tiny checkpoint fits the defaults.
        talker = values.get("talker_config")
        if talker is not None:
            talker |= {"hidden_size": 1024, "num_code_groups": 32, "vocab_size": 2048 + 1024}
            talker["code_predictor_config"] |= {"num_code_groups": 32}
        else:
            values["encoder_valid_num_quantizers"] = 32
            values["decoder_config"]["num_quantizers"] = 32
            values["encoder_config"]["num_quantizers"] = 32

    def drop(values: Json) -> None:
        section, field = at(values, path)
        section[field] = None
        if value == "absent":
            del section[field]

    for each in ("config.json", "speech_tokenizer/config.json"):
        change(place, each, official)
    change(place, name, drop)
    config = read_config(place)
    if path == "encoder_config":
        assert (config.codec.encoder.num_filters, config.codec.encoder.head_dim) == (64, 64)
    elif path == "speaker_encoder_config":
        assert config.speaker == SpeakerEncoderConfig(enc_dim=1024, sample_rate=24_000)
    else:
        assert (config.predictor.layers.head_dim, config.predictor.layers.layers) == (128, 5)


def test_a_decoder_section_that_is_null_misses_only_what_has_no_official_default(
    folder: Callable[[str], Path],
) -> None:
    place = folder("custom_voice")
    change(place, "speech_tokenizer/config.json", lambda values: values.update(decoder_config=None))
    assert "decoder_config.codebook_dim is missing" in refusal(place)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("config.json", "talker_config"),
        ("speech_tokenizer/config.json", "decoder_config"),
        ("speech_tokenizer/config.json", "encoder_config"),
    ],
)
@pytest.mark.parametrize("value", ["absent", None])
def test_heads_without_a_width_share_that_of_the_layer(
    folder: Callable[[str], Path], name: str, path: str, value: str | None
) -> None:
    def drop(values: Json) -> None:
        if value is None:
            values[path]["head_dim"] = None
        else:
            del values[path]["head_dim"]

    place = folder("base")
    change(place, name, drop)
    config = read_config(place)
    layers = config.talker.layers
    if path == "talker_config":
        assert layers.head_dim == layers.hidden // layers.heads
    else:
        codec = config.codec.decoder if path == "decoder_config" else config.codec.encoder
        assert codec.head_dim == codec.hidden_size // codec.num_attention_heads


def test_sampling_that_is_left_out_is_the_official_one(folder: Callable[[str], Path]) -> None:
    place = folder("voice_design")
    (place / "generation_config.json").write_text("{}")
    found = read_config(place).generation
    assert (found.temperature, found.top_k, found.max_frames) == (0.9, 50, 2048)
    assert (found.predictor_temperature, found.predictor_top_p) == (0.9, 1.0)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("config.json", "talker_config.text_vocab_size"),
        ("vocab.json", "assistant"),
        ("vocab.json", "user"),
        ("vocab.json", "\u010a"),
    ],
)
def test_a_missing_field_is_named(folder: Callable[[str], Path], name: str, path: str) -> None:
    place = folder("voice_design")

    def drop(values: Json) -> None:
        section, field = at(values, path)
        del section[field]

    change(place, name, drop)
    assert f"{place / name}: {path} is missing" in refusal(place)


NONSENSE: list[tuple[str, str, object, str]] = [
    ("config.json", "talker_config.hidden_size", "32", "not a whole number"),
    ("config.json", "talker_config.hidden_size", 32.0, "not a whole number"),
    ("config.json", "talker_config.hidden_size", True, "not a whole number"),
    ("config.json", "talker_config.hidden_size", 0, "not from 1"),
    ("config.json", "talker_config.hidden_size", -5, "not from 1"),
    ("config.json", "talker_config.hidden_size", 10**30, "not from 1"),
    ("config.json", "talker_config.rope_theta", "x" * 200, "not a number"),
    ("config.json", "talker_config.rope_theta", False, "not a number"),
    ("config.json", "talker_config.rope_theta", float("nan"), "not a finite number"),
    ("config.json", "talker_config.rope_theta", float("inf"), "not a finite number"),
    ("config.json", "talker_config.rope_theta", 10**400, "not a finite number"),
    ("config.json", "talker_config.rms_norm_eps", -1e-6, "not a finite number"),
    ("config.json", "talker_config.num_key_value_heads", 3, "no divisor of 2 heads"),
    ("config.json", "talker_config.head_dim", 15, "odd"),
    ("config.json", "talker_config.hidden_act", "gelu", "knows only 'silu'"),
    ("config.json", "talker_config.attention_bias", True, "knows only False"),
    ("config.json", "talker_config.attention_bias", 0, "knows only False"),
    ("config.json", "talker_config.use_sliding_window", True, "knows only False"),
    ("config.json", "talker_config.rope_scaling.rope_type", "yarn", "knows only 'default'"),
    ("config.json", "talker_config.rope_scaling", 3, "not an object"),
    ("config.json", "talker_config.code_predictor_config.rope_scaling", {}, "knows only null"),
    ("config.json", "talker_config.code_predictor_config.vocab_size", 7, "has 2048 codes"),
    ("config.json", "talker_config.code_predictor_config.num_code_groups", 8, "knows only 16"),
    ("config.json", "talker_config.codec_eos_token_id", 5, "not from 2048 to 3071"),
    ("config.json", "talker_config.codec_bos_id", 3072, "not from 2048 to 3071"),
    ("config.json", "talker_config.vocab_size", 1024, "not from 1025"),
    ("config.json", "talker_config", [], "not an object"),
    ("config.json", "talker_config.spk_id", {}, "names no speaker"),
    ("config.json", "talker_config.spk_id.ryan", 4000, "not from 0 to 3071"),
    ("config.json", "talker_config.spk_is_dialect.eric", "klingon", "no language of"),
    ("config.json", "talker_config.spk_is_dialect.eric", True, "not a string"),
    ("config.json", "talker_config.codec_language_id.german", None, "not a whole number"),
    ("config.json", "tts_pad_token_id", 507, "not from 0 to 506"),
    ("config.json", "assistant_token_id", 1, "knows only"),
    ("config.json", "tts_model_type", "singing", "not one of custom_voice, voice_design, base"),
    ("config.json", "tts_model_type", 7, "not a string"),
    ("config.json", "tts_model_size", None, "not a string"),
    ("speech_tokenizer/config.json", "encoder_valid_num_quantizers", 8, "decoder has 16 books"),
    ("speech_tokenizer/config.json", "output_sample_rate", 16_000, "not from 24000"),
    ("speech_tokenizer/config.json", "input_sample_rate", 16_000, "knows only 24000"),
    ("speech_tokenizer/config.json", "decode_upsample_rate", 960, "multiply to 1920"),
    ("speech_tokenizer/config.json", "encode_downsample_rate", 960, "not twice the product"),
    ("speech_tokenizer/config.json", "decoder_config.upsample_rates", [], "not a list"),
    ("speech_tokenizer/config.json", "decoder_config.upsample_rates", "8", "not a list"),
    ("speech_tokenizer/config.json", "decoder_config.upsample_rates", [8, 5, 4, "3"], "3 is '3'"),
    ("speech_tokenizer/config.json", "decoder_config.upsample_rates", [1] * 65, "not a list"),
    ("speech_tokenizer/config.json", "decoder_config.decoder_dim", 24, "cannot be halved"),
    ("speech_tokenizer/config.json", "decoder_config.codebook_dim", 15, "odd"),
    ("speech_tokenizer/config.json", "decoder_config.codebook_size", 1024, "has 1024"),
    ("speech_tokenizer/config.json", "decoder_config.head_dim", 7, "odd"),
    ("speech_tokenizer/config.json", "decoder_config.num_key_value_heads", 3, "no divisor"),
    ("speech_tokenizer/config.json", "decoder_config.sliding_window", None, "not a whole number"),
    ("speech_tokenizer/config.json", "encoder_config.codebook_size", 1024, "book has 2048"),
    ("speech_tokenizer/config.json", "encoder_config.codebook_dim", 16, "is not codebook_dim"),
    ("speech_tokenizer/config.json", "encoder_config.use_causal_conv", False, "knows only True"),
    ("speech_tokenizer/config.json", "encoder_config.pad_mode", "reflect", "knows only"),
    ("generation_config.json", "do_sample", 1, "not true or false"),
    ("generation_config.json", "temperature", -1, "not a finite number"),
    ("generation_config.json", "top_p", 1.5, "not a finite number"),
    ("generation_config.json", "top_k", -1, "not from 0"),
    ("generation_config.json", "max_new_tokens", 0, "not from 1"),
]


@pytest.mark.parametrize(("name", "path", "value", "problem"), NONSENSE)
def test_nonsense_is_named(
    folder: Callable[[str], Path], name: str, path: str, value: object, problem: str
) -> None:
    place = folder("custom_voice")
    change(place, name, put(path, value))
    message = refusal(place)
    assert problem in message
    assert str(place / name) in message or "num_code_groups" in message or "vocab_size" in message
    assert len(message) < 400


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        ("enc_dim", 64, "knows only 32"),
        ("sample_rate", 16_000, "knows only 24000"),
        ("enc_channels", [16, 48], "three at least"),
        ("enc_channels", [16, 16, 16, 16, 40], "sum of its inner blocks"),
        ("enc_channels", [16, 16, 16, 24, 56], "sum of its inner blocks"),
        ("enc_channels", [12, 12, 12, 12, 36], "8 does not divide"),
        ("enc_dilations", [1, 2, 3, 4], "three at least"),
        ("mel_dim", "128", "not a whole number"),
    ],
)
def test_a_senseless_speaker_encoder_is_named(
    folder: Callable[[str], Path], path: str, value: object, problem: str
) -> None:
    place = folder("base")
    change(place, "config.json", put(f"speaker_encoder_config.{path}", value))
    message = refusal(place)
    assert problem in message
    assert "speaker_encoder_config" in message


def test_two_books_more_than_the_talker_has_codes(folder: Callable[[str], Path]) -> None:
    place = folder("custom_voice")
    change(place, "speech_tokenizer/config.json", put("encoder_valid_num_quantizers", 14))
    change(place, "speech_tokenizer/config.json", put("decoder_config.num_quantizers", 14))
    assert "num_code_groups is 16, but the speech tokenizer has 14" in refusal(place)


def test_fewer_codes_than_the_talker_draws(folder: Callable[[str], Path]) -> None:
    place = folder("custom_voice")
    for part in ("decoder_config", "encoder_config"):
        change(place, "speech_tokenizer/config.json", put(f"{part}.codebook_size", 1024))
    assert "vocab_size leaves 2048 codes, but the speech tokenizer has 1024" in refusal(place)


def test_no_rope_scaling_is_ordinary_rope(folder: Callable[[str], Path]) -> None:
    place = folder("custom_voice")
    change(place, "config.json", put("talker_config.rope_scaling", None))
    assert read_config(place).talker.layers.rope_theta == 1_000_000


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("model_type", "qwen3"),
        ("model_type", 5),
        ("tokenizer_type", "qwen3_tts_tokenizer_25hz"),
        ("tokenizer_type", None),
    ],
)
def test_another_kind_of_model_is_one_clear_error(
    folder: Callable[[str], Path], path: str, value: object
) -> None:
    place = folder("base")
    change(place, "config.json", put(path, value))
    with pytest.raises(BadCheckpoint) as caught:
        read_config(place)
    assert path in caught.value.message
    if value != 5:
        assert "of another kind of model" in caught.value.message
        assert "12 Hz" in caught.value.remedy


def test_a_25_hz_speech_tokenizer_is_another_kind(folder: Callable[[str], Path]) -> None:
    place = folder("base")
    name = "speech_tokenizer/config.json"
    change(place, name, put("model_type", "qwen3_tts_tokenizer_25hz"))
    assert "25hz" in refusal(place)


def test_what_is_no_checkpoint_says_so(tmp_path: Path, tiny: dict[str, Path]) -> None:
    assert "holds no config.json" in refusal(tmp_path)
    assert "is not a folder" in refusal(tmp_path / "absent")
    assert "is not a folder" in refusal(tiny["base"] / "config.json")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is not JSON"),
        (b"{", "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b"[1]", "holds no JSON object"),
        (b"[" * 200_000, "is not JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}", "is not JSON"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes, problem: str) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(content)
    message = refusal(tmp_path)
    assert problem in message
    assert str(file) in message


def test_a_file_that_is_missing_or_cannot_be_read(folder: Callable[[str], Path]) -> None:
    place = folder("base")
    (place / "generation_config.json").unlink()
    assert "generation_config.json is missing" in refusal(place)
    (place / "generation_config.json").mkdir()
    assert "cannot be read" in refusal(place)


def test_the_error_is_the_engines(folder: Callable[[str], Path]) -> None:
    assert issubclass(BadCheckpoint, EngineUnavailable)
    assert BadCheckpoint.code == "engine_unavailable"


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5000)
    | st.integers()
    | st.floats()
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_whatever_stands_in_a_field_is_read_or_refused(
    tiny: dict[str, Path], tmp_path: Path, data: st.DataObject
) -> None:
    task = data.draw(st.sampled_from(sorted(tiny)))
    name = data.draw(st.sampled_from(FILES))
    whole = json.loads((tiny[task] / name).read_text())
    path = data.draw(st.sampled_from(sorted(paths(whole))))
    put(path, data.draw(VALUES))(whole)
    place = tmp_path
    (place / "speech_tokenizer").mkdir(exist_ok=True)
    for other in FILES:
        shutil.copy(tiny[task] / other, place / other)
    (place / name).write_text(json.dumps(whole))
    try:
        config = read_config(place)
    except BadCheckpoint as error:
        remedy = error.remedy
    else:
        remedy = "none needed"
        assert config.task == task or path == "tts_model_type"
    assert remedy


def test_what_a_section_has_may_be_asked(tmp_path: Path) -> None:
    fields = JsonFields(tmp_path, "", {"here": 1, "null": None})
    assert "here" in fields
    assert "null" not in fields
    assert "absent" not in fields
