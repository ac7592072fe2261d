"""Scripts: a scenario's steps with their sounds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from qwen3tts_codecs.wav import wav_bytes
from qwen3tts_rehearsal.scenario import scenario_of
from qwen3tts_rehearsal.script import (
    JOIN_S,
    Action,
    Await,
    HangUp,
    Pause,
    PressKeys,
    Say,
    SayOver,
    ScriptMaker,
)
from qwen3tts_rehearsal.sounds import SoundBook
from qwen3tts_settings.entries import BadConfiguration, from_yaml
from qwen3tts_wire.errors import BadText
from tests.rehearsal.callers import tone


class Voice:
    """Says a tone of 0.1 s a letter, and counts how often it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str]] = []

    async def __call__(self, text: str, voice: str, language: str) -> tuple[NDArray[np.int16], int]:
        self.asked.append((text, voice, language))
        silence = np.zeros(0 if text == "?" else 2400, np.int16)
        letters = sum(map(str.isalpha, text))
        return np.concatenate((silence, tone(letters / 10, rate_hz=24_000), silence)), 24_000


def maker(steps: str, folder: Path = Path(), voice: Voice | None = None) -> ScriptMaker:
    entry = from_yaml(f"language: de\nvoice: ann\nsteps:\n{steps}", "t")
    return ScriptMaker(scenario_of(entry, "t"), folder / "t.yaml", SoundBook(voice or Voice()))


async def actions(steps: str, folder: Path = Path(), rate_hz: int = 8000) -> list[Action]:
    return await maker(steps, folder).actions(rate_hz)


async def test_what_is_said_without_a_wait_is_one_turn_with_its_hesitations() -> None:
    made = await actions(
        "  - say: abcde\n  - hesitate: 0.5\n  - say: fghij\n  - say: klmno\n  - wait: quiet\n"
    )
    say, wait, end = made
    assert isinstance(say, Say)
    assert isinstance(wait, Await)
    assert isinstance(end, HangUp)
    assert say.utterance.text == "abcde … fghij klmno"
    assert say.answered
    first, last = say.utterance.voiced
    around = 4 * 0.02  # what the trimmed sounds keep before and after
    assert (last - first) / 8000 == pytest.approx(1.5 + 0.5 + JOIN_S + around, abs=0.02)


async def test_only_what_is_followed_by_a_wait_for_speech_is_answered() -> None:
    made = await actions("  - say: a\n  - wait: 2\n  - say: b\n  - wait: speech\n  - keys: '1'\n")
    assert [each.answered for each in made if isinstance(each, Say | PressKeys)] == [
        False,
        True,
        False,
    ]
    assert made[1] == Pause(2.0, 1)


@pytest.mark.parametrize("kind", ["barge_in", "backchannel"])
async def test_what_is_talked_over_is_an_answer(kind: str) -> None:
    made = await actions(f"  - say: a\n  - {kind}: {{say: b}}\n")
    assert isinstance(made[0], Say)
    assert made[0].answered


async def test_what_is_said_over_the_agent_is_no_turn_of_its_own() -> None:
    made = await actions(
        "  - barge_in: {say: stop, after_s: 0.5}\n  - wait: quiet\n"
        "  - backchannel: {say: mhm}\n  - wait: quiet\n  - hang_up: true\n"
    )
    over = [each for each in made if isinstance(each, SayOver)]
    assert [(each.kind, each.after_s, each.answered) for each in over] == [
        ("barge_in", 0.5, True),
        ("backchannel", 1.0, False),
    ]
    assert [each for each in made if isinstance(each, HangUp)] == [HangUp(4)]


@pytest.mark.parametrize("rate_hz", [8000, 16_000, 48_000])
async def test_sounds_have_the_rate_and_the_level_of_the_call(rate_hz: int) -> None:
    say = (await actions("  - say: abcdefghij\n", rate_hz=rate_hz))[0]
    assert isinstance(say, Say)
    assert len(say.utterance.samples) / rate_hz == pytest.approx(1.04, abs=0.02)
    loud = say.utterance.samples[rate_hz // 4 : rate_hz // 2].astype(float)
    level = 20 * np.log10(np.sqrt(np.mean(loud**2)) / 32768)
    assert level == pytest.approx(-22.0, abs=0.5)


async def test_each_text_is_synthesised_once() -> None:
    voice = Voice()
    made = maker("  - say: abc\n  - say: abc\n  - backchannel: {say: mhm}\n", voice=voice)
    await made.prepare()
    await made.actions(8000)
    await made.actions(16_000)
    await made.sounds(8000)
    assert voice.asked == [("abc", "ann", "de"), ("mhm", "ann", "de")]


async def test_recordings_are_taken_from_beside_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "hello.wav").write_bytes(wav_bytes(tone(1.0, rate_hz=16_000), 16_000))
    say = (await actions("  - wav: hello.wav\n", tmp_path))[0]
    assert isinstance(say, Say)
    assert say.utterance.text == "(hello.wav)"
    assert len(say.utterance.samples) == pytest.approx(8000, abs=100)


@pytest.mark.parametrize("content", [b"", b"RIFF", wav_bytes(np.zeros(80, np.int16), 8000)])
async def test_a_recording_that_cannot_be_used_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.wav").write_bytes(content)
    with pytest.raises(BadConfiguration, match=r"x\.wav"):
        await maker("  - wav: x.wav\n", tmp_path).prepare()


async def test_a_text_that_makes_no_sound_is_an_error() -> None:
    with pytest.raises(BadText, match="made no sound"):
        await maker("  - say: '?'\n").prepare()
