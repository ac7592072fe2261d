"""What the plugin is told, by the environment and by an agent."""

from __future__ import annotations

import os
import re
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mr_qwen3tts.settings
from mr_qwen3tts.settings import BARRIER, Settings, SettingsError


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("MR_"):
            monkeypatch.delenv(name)


def told(**variables: object) -> Settings:
    """The settings of an agent with these variables, without their beginning."""
    return Settings.read({f"MR_QWEN3TTS_{name}": value for name, value in variables.items()})


def test_without_any_variable_everything_has_its_default() -> None:
    assert Settings.read() == Settings()
    assert Settings.read().url == "ws://127.0.0.1:8765/v1/speech"


WRITTEN: dict[str, tuple[str, object]] = {
    "URL": ("wss://tts.example:9/v1/speech", "wss://tts.example:9/v1/speech"),
    "API_KEY": ("k", "k"),
    "FALLBACK_URL": ("ws://b:1/v1/speech", "ws://b:1/v1/speech"),
    "VOICE": ("clone:Anna", "clone:Anna"),
    "LANGUAGE": ("de", "de"),
    "INSTRUCTIONS": ("calmly,\nplease", "calmly,\nplease"),
    "MODE": ("LIVE", "live"),
    "SPEED": ("1.25", 1.25),
    "SEED": ("7", 7),
    "INITIAL_FRAMES": ("4", 4),
    "REF_AUDIO": ("/voices/a.wav", "/voices/a.wav"),
    "REF_TEXT": ("Hello.", "Hello."),
    "RECORDINGS_DIR": ("/voices", "/voices"),
    "PRIVATE_RECORDINGS": ("1", True),
    "VOICE_WAIT_MS": ("0", 0),
    "FREEZE_HEAP": ("0", False),
    "LIVE": ("off", False),
    "LEAD_MS": ("40", 40),
    "WAIT_MS": ("900", 900),
    "RESUME_MS": ("1", 1),
    "STALL_MS": ("2000", 2000),
    "RETURN_AHEAD_MS": ("0", 0),
    "LINGER_MS": ("20", 20),
    "IDLE_S": ("12.5", 12.5),
    "BARRIER": ("hangup, wait", frozenset({"hangup", "wait"})),
    "BARRIER_MS": ("5", 5),
    "PARTIAL_STALL_MS": ("100", 100),
    "STRIP_MARKUP": ("no", False),
    "LOCAL": ("play", "play"),
    "LOCAL_DIR": ("/calls", "/calls"),
    "LOG_TEXT": ("true", True),
    "LATENCY_LOG": ("/a", "/a"),
    "E2E_LOG": ("/b", "/b"),
    "OTEL": ("http://127.0.0.1:4318", "http://127.0.0.1:4318"),
    "SIP_LISTEN": ("0.0.0.0:5060", "0.0.0.0:5060"),
    "SIP_ADVERTISED": ("203.0.113.5", "203.0.113.5"),
    "SIP_RTP_PORTS": ("10000-10100", (10000, 10100)),
    "SIP_SERVER": ("sip:pbx.example;transport=tcp", "sip:pbx.example;transport=tcp"),
    "SIP_USER": ("bob", "bob"),
    "SIP_PASSWORD": ("p w", "p w"),
    "SIP_AGENT": ("Anna", "Anna"),
    "SIP_ALLOW": ("+4930*, sip:*@pbx.example", ("+4930*", "sip:*@pbx.example")),
    "SIP_TRANSFERS": ("accept", "accept"),
    "SIP_ANSWER_S": ("30", 30.0),
    "SIP_MAX_CALLS": ("2", 2),
    "SIP_UNAVAILABLE_FILE": ("/later.wav", "/later.wav"),
    "SIP_STT": ("whisper:small", "whisper:small"),
    "SIP_STT_LANGUAGES": ("en, de", ("en", "de")),
    "SIP_PAUSE_MS": ("800", 800),
    "SIP_OVERLAP": ("duck", "duck"),
    "SIP_SMART_TURN": ("/turn.onnx", "/turn.onnx"),
    "SIP_CALL_BUDGET": ("10, 20, 8000, 0", (10, 20, 8000, 0)),
    "SIP_PROCESS_BUDGET": ("0,0,0,0", (0, 0, 0, 0)),
    "SIP_TOO_MANY": ("Wait.", "Wait."),
    "SIP_USED_UP": ("Enough.", "Enough."),
    "SIP_AUDIO_IN_PIPELINE": ("1", True),
}


def field_of(variable: str) -> str:
    (name,) = (
        each.name
        for each in fields(Settings)
        if each.metadata and each.metadata["ask"](str) == variable
    )
    return name


@pytest.mark.parametrize("variable", WRITTEN)
def test_each_variable_sets_its_field(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text, value = WRITTEN[variable]
    monkeypatch.setenv(f"MR_QWEN3TTS_{variable}", text)
    settings = Settings.read()
    name = field_of(f"MR_QWEN3TTS_{variable}")
    assert getattr(settings, name) == value
    others = [each.name for each in fields(Settings) if each.name != name]
    assert {each: getattr(settings, each) for each in others} == {
        each: getattr(Settings(), each) for each in others
    }


def test_every_field_has_a_variable_and_is_tried_above() -> None:
    variables = {each.metadata["ask"](str) for each in fields(Settings) if each.metadata}
    assert variables - {"MR_SPEAK_CMD"} == {f"MR_QWEN3TTS_{name}" for name in WRITTEN}
    assert {each.name for each in fields(Settings) if not each.metadata} == {"ignored", "unknown"}


def test_the_hosts_editor_of_variables_finds_every_one() -> None:
    # coreplugins/env_manager/mod.py of the host: the lines that grep takes, then this pattern.
    folder = Path(mr_qwen3tts.settings.__file__).parent
    source = "\n".join(each.read_text() for each in folder.glob("*.py"))
    found = set(re.findall(r"(?<!os\.)getenv\(['\"]([A-Za-z0-9_]+)['\"]", source))
    assert {f"MR_QWEN3TTS_{name}" for name in WRITTEN} | {"MR_SPEAK_CMD"} <= found


@pytest.mark.parametrize(
    ("variable", "text", "remedy"),
    [
        ("LEAD_MS", "50", "from 20 to 200, a multiple of 20"),
        ("LEAD_MS", "0", "from 20 to 200"),
        ("LEAD_MS", "sixty", "whole number"),
        ("LEAD_MS", "9" * 5000, "whole number"),
        ("SPEED", "3", "from 0.5 to 2.5"),
        ("SPEED", "nan", "from 0.5 to 2.5"),
        ("LIVE", "maybe", "1 or 0"),
        ("MODE", "fast", "auto, clause, live"),
        ("LOCAL", "mp3", "wav, play, off"),
        ("URL", "http://", "ws://127.0.0.1:8765/v1/speech"),
        ("URL", "localhost:8765", "ws://127.0.0.1:8765/v1/speech"),
        ("URL", "ws://[::1", "ws://127.0.0.1:8765/v1/speech"),
        ("URL", "ws://host:99999999", "ws://127.0.0.1:8765/v1/speech"),
        ("VOICE", "a\x00b", "printable"),
        ("VOICE", "a" * 5000, "4096"),
        ("INSTRUCTIONS", "a\ud83d", "4096"),
        ("IDLE_S", "inf", "from 1 to"),
        ("SEED", "-1", "whole number"),
        ("SIP_LISTEN", "0.0.0.0:70000", "HOST:PORT"),
        ("SIP_LISTEN", "sip:me@here", "HOST:PORT"),
        ("SIP_ADVERTISED", "sip:host", "no scheme"),
        ("SIP_RTP_PORTS", "20000", "LOW-HIGH"),
        ("SIP_RTP_PORTS", "20000-10000", "LOW-HIGH"),
    ],
)
def test_what_cannot_be_names_the_variable_and_what_is_right(
    variable: str, text: str, remedy: str
) -> None:
    with pytest.raises(SettingsError) as raised:
        told(**{variable: text})
    error = raised.value
    assert isinstance(error, ValueError)
    assert error.variable == f"MR_QWEN3TTS_{variable}"
    assert str(error).startswith(f"MR_QWEN3TTS_{variable}=")
    assert remedy in error.remedy
    assert len(str(error)) < 250


def test_one_wrong_variable_leaves_all_others_in_force() -> None:
    wrong = {"MR_QWEN3TTS_LEAD_MS": "50", "MR_QWEN3TTS_SPEED": "9", "MR_QWEN3TTS_VOICE": "Anna"}
    settings, problems = Settings.usable(wrong)
    assert (settings.voice, settings.lead_ms, settings.speed) == ("Anna", 60, None)
    assert [each.variable for each in problems] == ["MR_QWEN3TTS_SPEED", "MR_QWEN3TTS_LEAD_MS"]


@pytest.mark.parametrize("name", ["API_KEY", "SIP_PASSWORD"])
def test_a_secret_is_never_shown(name: str) -> None:
    assert "hunter2" not in repr(told(**{name: "hunter2"}))
    with pytest.raises(SettingsError) as raised:
        told(**{name: "hunter2\nx"})
    assert "hunter2" not in str(raised.value)


def test_made_by_hand_it_is_checked_as_well() -> None:
    with pytest.raises(ValueError, match="MR_QWEN3TTS_LEAD_MS=30 cannot be"):
        Settings(lead_ms=30)
    with pytest.raises(ValueError, match="MR_QWEN3TTS_URL"):
        Settings(url="http://nowhere")
    with pytest.raises(ValueError, match="MR_QWEN3TTS_LIVE"):
        Settings(live=1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="MR_QWEN3TTS_URL"):
        Settings(url=None)  # type: ignore[arg-type]


def test_empty_is_not_set() -> None:
    assert told(VOICE="", LEAD_MS="  ", URL="") == Settings()


# --- addresses


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("ws://host", "ws://host/v1/speech"),
        ("ws://host:1/", "ws://host:1/v1/speech"),
        ("http://host:1", "ws://host:1/v1/speech"),
        ("HTTPS://host", "wss://host/v1/speech"),
        ("wss://host/elsewhere", "wss://host/elsewhere"),
        ("ws://[::1]:8765", "ws://[::1]:8765/v1/speech"),
    ],
)
def test_what_is_missing_of_an_address_is_filled_in(written: str, meant: str) -> None:
    assert told(URL=written).url == meant


@pytest.mark.parametrize(
    ("older", "url"),
    [
        ({"WS_URL": "ws://gpu:8765/ws"}, "ws://gpu:8765/v1/speech"),
        ({"OPENAI_URL": "https://gpu/v1/audio/speech"}, "wss://gpu/v1/speech"),
        ({"API_URL": "http://[::1]:8000"}, "ws://[::1]:8000/v1/speech"),
        ({"API_URL": "gpu:8000"}, "ws://gpu:8000/v1/speech"),
        ({"OPENAI_URL": "http://a", "WS_URL": "ws://b"}, "ws://a/v1/speech"),
        (
            {"OPENAI_URL": "http://a", "WS_URL": "ws://b", "BACKEND": "websocket"},
            "ws://b/v1/speech",
        ),
        ({"OPENAI_URL": "http://a", "BACKEND": "vllm"}, "ws://a/v1/speech"),
        ({"URL": "ws://new", "WS_URL": "ws://old"}, "ws://new/v1/speech"),
    ],
)
def test_the_older_addresses_name_our_protocol_at_the_same_server(
    older: dict[str, str], url: str
) -> None:
    assert told(**older).url == url


def test_an_older_address_that_is_none_is_told_under_its_own_name() -> None:
    with pytest.raises(SettingsError, match="MR_QWEN3TTS_WS_URL='ftp://x'"):
        told(WS_URL="ftp://x")


# --- the older plugin's other variables


def test_the_older_names_of_settings_still_count() -> None:
    settings = told(
        REALTIME_STREAM="0", INITIAL_TOKENS="2", VOICE="Vivian", REF_AUDIO="/a.wav", REF_TEXT="A."
    )
    assert (settings.live, settings.initial_codec_chunk_frames) == (False, 2)
    assert (settings.voice, settings.ref_audio, settings.ref_text) == ("Vivian", "/a.wav", "A.")
    assert settings.ignored == ()


def test_the_newer_name_goes_before_the_older() -> None:
    settings = told(LIVE="1", REALTIME_STREAM="0")
    assert settings.live
    assert settings.ignored == ("MR_QWEN3TTS_REALTIME_STREAM",)


def test_no_initial_tokens_leave_it_to_the_server() -> None:
    assert told(INITIAL_TOKENS="0").initial_codec_chunk_frames is None


@pytest.mark.parametrize("language", ["Auto", "auto", "AUTO"])
def test_the_automatic_language_is_no_language(language: str) -> None:
    assert told(LANGUAGE=language).language is None


def test_variables_that_mean_nothing_here_are_named_and_do_no_harm() -> None:
    settings = told(
        BACKEND="openai",
        MODEL="tts-1",
        SEND_TIMESTAMPS="1",
        HTTP_CHUNK_SIZE="x",
        USE_PACER="1",
        PRE_BUFFER_MS="400",
        STREAM_TOKENS="8",
        WS_URL="ws://a",
        URL="ws://b",
    )
    assert settings.ignored == tuple(
        f"MR_QWEN3TTS_{name}"
        for name in (
            "BACKEND",
            "HTTP_CHUNK_SIZE",
            "MODEL",
            "PRE_BUFFER_MS",
            "SEND_TIMESTAMPS",
            "STREAM_TOKENS",
            "USE_PACER",
            "WS_URL",
        )
    )
    assert settings.unknown == ()


def test_a_variable_that_is_none_is_told_with_the_one_that_may_be_meant() -> None:
    assert told(VOCE="Anna", ZZZ="1").unknown == (
        "MR_QWEN3TTS_VOCE (did you mean MR_QWEN3TTS_VOICE?)",
        "MR_QWEN3TTS_ZZZ",
    )


def test_the_command_lines_variables_are_none_of_ours_and_not_wrong() -> None:
    names = ("SERVER", "CONFIG", "CHECKPOINT", "LLM_KEY")
    assert told(**dict.fromkeys(names, "x")) == Settings()


# --- lists


def test_the_barrier_may_be_all_or_nothing() -> None:
    assert told(BARRIER="*").barrier == {"*"}
    assert told(BARRIER="none").barrier == frozenset()
    assert told().barrier == BARRIER
    assert "hangup" in BARRIER


def test_the_command_that_speaks_may_be_renamed() -> None:
    assert Settings.read().commands == {"speak"}
    assert Settings.read({"MR_SPEAK_CMD": "say"}).commands == {"speak", "say"}


# --- agents


def agent(**env: object) -> Any:
    return SimpleNamespace(env={f"MR_QWEN3TTS_{name}": value for name, value in env.items()})


def test_an_agent_goes_before_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MR_QWEN3TTS_VOICE", "Process")
    monkeypatch.setenv("MR_QWEN3TTS_LEAD_MS", "40")
    settings = Settings.read(agent(VOICE="Agent"))
    assert (settings.voice, settings.lead_ms) == ("Agent", 40)
    assert Settings.read().voice == "Process"


def test_an_agents_empty_value_takes_the_processs_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MR_QWEN3TTS_VOICE", "Process")
    assert Settings.read(agent(VOICE="")).voice is None
    assert Settings.read(agent(VOICE=None)).voice is None


def test_a_change_counts_at_the_next_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MR_QWEN3TTS_VOICE", "A")
    assert Settings.read().voice == "A"
    monkeypatch.setenv("MR_QWEN3TTS_VOICE", "B")
    assert Settings.read().voice == "B"
    monkeypatch.delenv("MR_QWEN3TTS_VOICE")
    assert Settings.read().voice is None


def test_where_nothing_has_changed_nothing_is_parsed() -> None:
    context = agent(VOICE="A")
    assert Settings.read(context) is Settings.read(agent(VOICE="A"))


def test_an_error_is_told_each_time_it_is_read() -> None:
    errors = []
    for _ in range(2):
        with pytest.raises(SettingsError) as raised:
            told(LEAD_MS="1")
        errors.append(raised.value)
    assert errors[0] is not errors[1]
    assert str(errors[0]) == str(errors[1])


ANYTHING = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.text())
)


@given(st.dictionaries(st.sampled_from([*WRITTEN, "WS_URL", "INITIAL_TOKENS", "X"]), ANYTHING))
def test_whatever_is_written_there_are_settings(variables: dict[str, object]) -> None:
    context = {f"MR_QWEN3TTS_{name}": value for name, value in variables.items()}
    settings, problems = Settings.usable(context)
    assert isinstance(settings, Settings)
    assert all(each.variable in context for each in problems)
    assert all(len(str(each)) < 300 for each in problems)
