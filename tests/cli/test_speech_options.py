from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import typer
from typer.testing import CliRunner

from qwen3tts_cli import answer, call, say, voices
from qwen3tts_cli.main import app, run
from qwen3tts_cli.options.common import option_groups
from qwen3tts_cli.options.speech import Mode, SpeechOptions, note_ignored_options, note_text_mode
from qwen3tts_wire.messages import Sampling, VoiceReady


class Cloner:
    """A connection whose server makes voices."""

    def __init__(self) -> None:
        self.asked: list[tuple[bytes, str | None, bool]] = []

    async def load_voice(
        self, ref_audio: bytes, ref_text: str | None = None, *, x_vector_only: bool = False
    ) -> VoiceReady:
        self.asked.append((ref_audio, ref_text, x_vector_only))
        return VoiceReady("v1", "abc", ref_text=ref_text or "heard")


def taken(*arguments: str) -> SpeechOptions:
    """The speech_options that a command line says."""
    got: list[SpeechOptions] = []

    def command(*, speech_options: SpeechOptions) -> None:
        got.append(speech_options)

    probe = typer.Typer()
    probe.command()(option_groups(speech_options=SpeechOptions)(command))
    result = CliRunner().invoke(probe, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return got[0]


def test_what_is_not_given_is_left_to_the_server() -> None:
    assert taken() == SpeechOptions()
    assert SpeechOptions().options == {}


def test_every_option_reaches_the_context() -> None:
    speech_options = taken(
        *("-v", "ryan", "-l", "de", "--speed", "1.5", "--mode", "live", "--seed", "7"),
        *("--instructions", "Calmly.", "--temperature", "0"),
    )
    assert (speech_options.voice, speech_options.language) == ("ryan", "de")
    assert speech_options.options == {
        "speed": 1.5,
        "mode": "live",
        "seed": 7,
        "instructions": "Calmly.",
        "sampling": Sampling(temperature=0.0),
    }


@pytest.mark.parametrize("module", [say, call, answer])
def test_the_three_commands_that_speak_have_the_same_options(module: Any) -> None:
    name = module.__name__.rpartition(".")[2]
    command = typer.main.get_command(app)
    shown = {option for each in cast(Any, command).commands[name].params for option in each.opts}
    wanted = {"--voice", "--language", "--speed", "--mode", "--instructions", "--seed"}
    assert wanted | {"--temperature", "--clone", "--ref-text", "--x-vector-only"} <= shown


@pytest.mark.parametrize(
    "wrong", [["--ref-text", "x"], ["--x-vector-only"], ["--voice", "a", "--clone", __file__]]
)
def test_options_that_contradict_each_other_are_refused(
    wrong: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["say", "Hello.", "--out", "-", *wrong]) == 2
    assert "--clone" in capsys.readouterr().err


async def test_a_recording_becomes_a_voice_that_the_server_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recording = tmp_path / "me.wav"
    recording.write_bytes(b"sound")
    client = Cloner()
    speech_options = await SpeechOptions(clone=recording, seed=3).voiced(cast(Any, client))
    assert speech_options == SpeechOptions(voice="abc", seed=3)
    speech_options = await SpeechOptions(clone=recording, ref_text="My words.").voiced(
        cast(Any, client)
    )
    assert speech_options.voice == "abc"
    assert client.asked == [(b"sound", None, False), (b"sound", "My words.", False)]
    told = capsys.readouterr().err
    assert "--voice abc" in told
    assert told.count("Transcript: heard") == 1
    assert await SpeechOptions(voice="ryan").voiced(cast(Any, client)) == SpeechOptions(
        voice="ryan"
    )
    assert await SpeechOptions(voice="ryan").voiced_at("ws://nobody") == SpeechOptions(voice="ryan")


def test_what_a_voice_cannot_do_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    note_ignored_options(())
    note_text_mode(None, "clause")
    note_text_mode(Mode.LIVE, "live")
    assert capsys.readouterr().err == ""
    note_ignored_options(("sampling", "seed"))
    note_text_mode(Mode.LIVE, "clause")
    told = capsys.readouterr().err
    assert "not support temperature, seed" in told
    assert "mode live" in told


def test_a_server_without_voices_tells_how_to_get_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    session = SimpleNamespace(engine="qwen3", model="Base", voices=())
    monkeypatch.setattr(voices, "run", lambda asked: asked.close() or session)
    voices.voices(language=None, as_json=False, server="ws://nobody")
    assert "--clone FILE" in capsys.readouterr().err
