from __future__ import annotations

import asyncio
import io
import sys
import wave
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from qwen3tts_engine.qwen3.voices.recording import Recording
from qwen3tts_engine.qwen3.voices.transcribe import WhisperTranscriber, check_whisper
from qwen3tts_engine.recogniser import LanguageUnknown
from qwen3tts_wire.errors import BadRequest, EngineUnavailable, LimitExceeded
from qwen3tts_wire.whisper.guards import UnknownLanguage
from qwen3tts_wire.whisper.model import Segment, WhisperModel
from tests.agent.recognition.real_whisper import real_whisper, said
from tests.conftest import require_package
from tests.qwen3.model import formula

SECOND = Recording(formula.voice(24_000), 24_000)


@pytest.fixture(scope="module")
def whisper() -> WhisperTranscriber:
    require_package("faster_whisper", "pip install faster-whisper")
    return WhisperTranscriber(real_whisper())


@pytest.fixture(scope="module")
def question() -> Recording:
    (samples,) = asyncio.run(said("What time do you open tomorrow?"))
    return Recording(samples.astype(np.float32) / 32768.0, 16_000)


class FakeWhisper(WhisperModel):
    """Hears these segments."""

    def __init__(self, *segments: Segment) -> None:
        self.segments = segments
        self.asked: list[str] = []

    def recording(self, samples: NDArray[np.float32], language: str = "") -> Iterator[Segment]:
        self.asked.append(language)
        if language == "yue":
            raise UnknownLanguage(language)
        yield from self.segments


def listening(*segments: Segment) -> WhisperTranscriber:
    listener = WhisperTranscriber("fake")
    listener._loaded = FakeWhisper(*segments)
    return listener


WORDS = (Segment(0.0, 0.5, "Guten Tag.", -0.2, 0.1), Segment(0.5, 1.0, "Ja?", -0.2, 0.1))
SUBTITLE = Segment(0.0, 1.0, "Thanks for watching!", -1.2, 0.9)


def test_words_are_heard(whisper: WhisperTranscriber, question: Recording) -> None:
    assert "open tomorrow" in whisper.transcribe(question).lower()


def test_what_was_not_said_is_left_out() -> None:
    assert listening(*WORDS, SUBTITLE).transcribe(SECOND) == "Guten Tag. Ja?"


def test_nothing_is_loaded_before_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faster_whisper", None)
    listener = WhisperTranscriber("small", language="de")
    assert listener.name == "whisper small de"
    with pytest.raises(BadRequest, match="needs the package faster-whisper") as caught:
        listener.transcribe(SECOND)
    for word in ("ref_text", "x_vector_only=true", "mr_qwen3tts[stt]"):
        assert word in caught.value.remedy


def test_the_name_tells_the_language() -> None:
    assert WhisperTranscriber("tiny").name == "whisper tiny auto"


def test_a_model_that_is_missing_or_of_another_kind(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(BadRequest, match="for PyTorch") as caught:
        WhisperTranscriber(str(tmp_path)).transcribe(SECOND)
    assert "ref_text" in caught.value.remedy
    assert "ct2-transformers-converter" in caught.value.remedy
    with pytest.raises(EngineUnavailable, match="for PyTorch"):
        check_whisper(str(tmp_path))


def test_a_recording_without_words() -> None:
    with pytest.raises(BadRequest, match="No words were recognised") as caught:
        listening(SUBTITLE).transcribe(SECOND)
    assert "x_vector_only" in caught.value.remedy


def wav(seconds: float) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setparams((1, 2, 16_000, 0, "NONE", "NONE"))
        samples = formula.voice(round(16_000 * seconds), 16_000)
        out.writeframes(np.round(8000 * samples).astype("<i2").tobytes())
    return file.getvalue()


def going_on() -> bool:
    return False


@pytest.mark.parametrize(
    ("language", "code"), [(None, ""), ("en", "en"), ("German", "de"), ("de-AT", "de")]
)
def test_a_sound_file_is_heard(language: str | None, code: str) -> None:
    listener = listening(*WORDS)
    seconds, heard = listener.hear(wav(1), language, max_s=2, stopped=going_on)
    assert seconds == 1
    assert [(each.start_s, each.end_s) for each in heard] == [(0, 0.5), (0.5, 1)]
    assert [each.text for each in heard] == ["Guten Tag.", "Ja?"]
    fake = listener._loaded
    assert isinstance(fake, FakeWhisper)
    assert fake.asked == [code]


@pytest.mark.parametrize("language", ["Klingon", "yue"])
def test_an_unknown_language_is_refused(language: str) -> None:
    with pytest.raises(LanguageUnknown):
        listening(*WORDS).hear(wav(1), language, max_s=2, stopped=going_on)


@pytest.mark.parametrize("language", ["de", "German", "fr-CA"])
def test_a_model_for_english_alone_refuses_other_languages(
    whisper: WhisperTranscriber, language: str
) -> None:
    with pytest.raises(LanguageUnknown):
        whisper.hear(wav(1), language, max_s=2, stopped=going_on)


@pytest.mark.parametrize("language", [None, "en", "EN", "en-US", "English"])
def test_a_model_for_english_alone_hears_english_by_any_of_its_names(
    whisper: WhisperTranscriber, language: str | None
) -> None:
    assert whisper.hear(wav(1), language, max_s=2, stopped=going_on)[0] == 1


def test_silence_has_no_words_and_what_is_not_wanted_is_not_heard(
    whisper: WhisperTranscriber,
) -> None:
    silent = wav(1)[:44] + bytes(32_000)
    assert whisper.hear(silent, None, max_s=2, stopped=going_on) == (1, [])
    listener = listening(*WORDS)
    assert listener.hear(wav(1), None, max_s=2, stopped=lambda: True) == (1, [])
    answers = iter([False, True])
    _, heard = listener.hear(wav(1), None, max_s=2, stopped=lambda: next(answers))
    assert len(heard) == 1


@pytest.mark.parametrize(
    ("audio", "kind"), [(b"RIFF", BadRequest), (wav(3), LimitExceeded), (wav(0.01), BadRequest)]
)
def test_what_is_no_recording_is_refused_with_what_to_send(
    audio: bytes, kind: type[BadRequest]
) -> None:
    with pytest.raises(kind) as caught:
        WhisperTranscriber("fake").hear(audio, None, max_s=2, stopped=going_on)
    assert "0.1 to 2 s" in caught.value.remedy
    assert "reference" not in f"{caught.value}"


def test_a_recogniser_that_cannot_be_loaded_names_the_setting(tmp_path: Path) -> None:
    with pytest.raises(EngineUnavailable) as caught:
        WhisperTranscriber(str(tmp_path)).hear(wav(1), None, max_s=2, stopped=going_on)
    assert "whisper" in caught.value.remedy
