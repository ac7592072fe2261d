"""The worker and the library, in this process."""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

import espeakng_loader
import pytest

from qwen3tts_engine.embedded import worker
from qwen3tts_engine.embedded.library import EspeakLibrary, LibraryMissing, SpeakFailed
from qwen3tts_engine.workers.messages import (
    Decoder,
    Done,
    Failed,
    Message,
    Missing,
    Ready,
    Say,
    Sound,
    Stop,
    encoded,
)
from qwen3tts_wire.child import serving

LIBRARY = Path(espeakng_loader.get_library_path())
DATA = Path(espeakng_loader.get_data_path())
LONG = "many words that go on and on, " * 9


@pytest.fixture(scope="module")
def library() -> EspeakLibrary:
    return EspeakLibrary(LIBRARY, DATA)


def answers(*messages: Say | Stop, library: Path = LIBRARY) -> tuple[int, list[Message]]:
    """What the worker answers to these and the end of its input."""
    given, give = os.pipe()
    take, out = os.pipe()
    os.write(give, b"".join(encoded(message) for message in messages))
    os.close(give)
    said = bytearray()

    def read() -> None:
        while data := os.read(take, 1 << 16):
            said.extend(data)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        status = worker.serve(library, DATA, given, out)
    finally:
        os.close(out)
        reader.join()
        os.close(given)
        os.close(take)
    return status, Decoder().push(bytes(said))


def say(text: str, job: int = 1, voice: str = "gmw/en-US") -> Say:
    return Say(job, text, {"voice": voice, "rate": 175, "pause": True})


def test_a_worker_greets_with_what_it_can_do_and_ends_with_its_input() -> None:
    status, (ready,) = answers()
    assert status == 0
    assert isinstance(ready, Ready)
    assert ready.facts["sample_rate"] == 22050
    assert len(ready.facts["voices"]) == 138
    assert len(ready.facts["variants"]) == 104


def test_a_worker_that_finds_no_library_says_so(tmp_path: Path) -> None:
    status, (missing,) = answers(library=tmp_path / "none.so")
    assert status == 1
    assert isinstance(missing, Missing)
    assert "none.so" in missing.reason


def test_a_library_speaks_after_another_one_of_the_process_is_gone(library: EspeakLibrary) -> None:
    heard: list[bytes] = []

    def on_sound(pcm: bytes, words: list[tuple[int, int]]) -> bool:
        heard.append(pcm)
        return True

    EspeakLibrary(LIBRARY, DATA)
    assert library.speak("One.", "gmw/en-US", 175, False, on_sound)
    assert any(heard)


def test_a_job_that_is_stopped_before_its_first_sound_makes_none() -> None:
    _, messages = answers(say(LONG), Stop(1))
    assert messages[1:] == [Done(1, to_the_end=False)]


def test_the_end_of_the_input_stops_the_job_under_way() -> None:
    _, messages = answers(say(LONG))
    assert messages[-1] == Done(1, to_the_end=False)
    assert not any(isinstance(message, Sound) for message in messages)


def test_a_stop_of_another_job_stops_nothing() -> None:
    status, messages = answers(Stop(7))
    assert status == 0
    assert len(messages) == 1


def test_a_voice_that_the_library_refuses_is_a_failed_job() -> None:
    _, messages = answers(say("Hello", voice="no/such"))
    assert messages[1:] == [Failed(1, "status 2 for voice 'no/such'")]


def test_sound_comes_in_60_ms_and_words_with_the_sound_they_begin_in(
    library: EspeakLibrary,
) -> None:
    got: list[tuple[int, list[tuple[int, int]]]] = []

    def on_sound(pcm: bytes, words: list[tuple[int, int]]) -> bool:
        got.append((len(pcm) // 2, words))
        return True

    assert library.speak("Hello there, you.", "gmw/en-US", 175, True, on_sound)
    assert max(samples for samples, _ in got) <= 0.0601 * library.sample_rate
    at = 0
    for samples, words in got:
        assert all(at <= sample <= at + samples for _, sample in words)
        at += samples
    assert [position for _, words in got for position, _ in words] == [0, 6, 13]


def test_saying_no_ends_the_speaking_at_once(library: EspeakLibrary) -> None:
    calls = []

    def on_sound(pcm: bytes, words: list[tuple[int, int]]) -> bool:
        calls.append(len(pcm))
        return False

    assert not library.speak(LONG, "gmw/en-US", 175, True, on_sound)
    assert len(calls) == 1


def test_what_the_listener_raises_is_raised_where_it_was_asked_to_speak(
    library: EspeakLibrary,
) -> None:
    def on_sound(pcm: bytes, words: list[tuple[int, int]]) -> bool:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        library.speak(LONG, "gmw/en-US", 175, True, on_sound)
    with pytest.raises(SpeakFailed, match="status 2"):
        library.speak("x", "no/such", 175, True, on_sound)
    assert library.speak("fine", "gmw/en-US", 175, True, lambda pcm, words: True)


def test_voices_without_a_dictionary_are_left_out(library: EspeakLibrary) -> None:
    identifiers = {voice.identifier for voice in library.voices()}
    assert {"gmw/en-US", "gmq/nb", "ine/hyw"} <= identifiers
    assert not {"gmq/fo", "trk/kaa", "art/xex"} & identifiers


@pytest.mark.skipif(not hasattr(fcntl, "F_SETPIPE_SZ"), reason="pipes have one size here")
def test_a_pipe_has_room_for_a_clause_and_what_is_no_pipe_is_left_alone(tmp_path: Path) -> None:
    take, out = os.pipe()
    try:
        before = fcntl.fcntl(out, fcntl.F_GETPIPE_SZ)
        serving._widen(out)
        after = fcntl.fcntl(out, fcntl.F_GETPIPE_SZ)
        if after == before:
            pytest.skip("the system allows no larger pipe")
        assert after >= serving.PIPE_BYTES
    finally:
        os.close(take)
        os.close(out)
    with (tmp_path / "file").open("wb") as file:
        serving._widen(file.fileno())


def test_data_that_is_not_there_is_missing(tmp_path: Path) -> None:
    with pytest.raises(LibraryMissing, match="holds no eSpeak NG data"):
        EspeakLibrary(LIBRARY, tmp_path)
