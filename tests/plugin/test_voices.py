"""Voices for calls, at a server that clones and at one that does not."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import threading
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mr_qwen3tts.settings import Settings
from mr_qwen3tts.voices import finder as voice_finder
from mr_qwen3tts.voices import recordings
from mr_qwen3tts.voices.book import RETRY_S, PluginVoices, VoiceRequest, requested_voice
from qwen3tts_engine.base import LoadedVoice
from qwen3tts_server.run import RunningServer, running_server
from qwen3tts_server.settings import ServerSettings
from qwen3tts_wire.client import Resume, SpeechClient, Started
from qwen3tts_wire.errors import BadRequest, SpeechError, UnknownVoice
from tests.engine.fake_engine import CloningEngine, FakeEngine
from tests.fakes import FakeClock, settle
from tests.plugin.test_recordings import RIFF, wav

pytestmark = pytest.mark.network
PATIENT = Settings(voice_wait_ms=10_000)


def here(path: Path) -> Settings:
    """Settings that let personas name recordings beside this one."""
    return replace(PATIENT, recordings_dir=str(path.parent))


class Studio(CloningEngine):
    """A voice's id is a hash of its recording; it knows those that were made here."""

    def __init__(self, *stored: str, hears: bool = True) -> None:
        super().__init__()
        self.here = set(stored)
        self.hears = hears
        """Whether it can find out what is said in a recording."""

    def check(self, voice: str | None, language: str | None) -> None:
        super().check(None if voice in self.here else voice, language)

    async def load_voice(
        self,
        *,
        voice_id: str | None = None,
        ref_audio: bytes | None = None,
        ref_text: str | None = None,
        x_vector_only: bool = False,
    ) -> LoadedVoice:
        await super().load_voice(
            voice_id=voice_id, ref_audio=ref_audio, ref_text=ref_text, x_vector_only=x_vector_only
        )
        if ref_audio is None:
            if voice_id not in self.here:
                raise UnknownVoice(f"No voice {voice_id!r}.", remedy="Load it.")
            return LoadedVoice(str(voice_id), True)
        if ref_text is None and not x_vector_only and not self.hears:
            raise BadRequest("What is said in it cannot be found out.", remedy="Give ref_text.")
        made = f"voice-{hashlib.sha256(ref_audio).hexdigest()[:8]}"
        self.here.add(made)
        return LoadedVoice(made, False, ref_text)

    @property
    def recordings(self) -> list[bytes]:
        """All that were brought."""
        return [audio for _, audio, _, _ in self.loads if audio is not None]


def id_of(audio: bytes) -> str:
    return f"voice-{hashlib.sha256(audio).hexdigest()[:8]}"


class Told(list[str]):
    """Problems as they are told."""

    def __call__(self, what: str, error: BaseException | str) -> None:
        assert what == "voice"
        self.append(str(error))


@asynccontextmanager
async def serving(engine: FakeEngine, port: int = 0) -> AsyncIterator[RunningServer]:
    settings = ServerSettings(drain_timeout_s=0.1)
    async with asyncio.timeout(30), running_server(engine, port=port, settings=settings) as server:
        yield server


@asynccontextmanager
async def studio(engine: FakeEngine | None = None) -> AsyncIterator[tuple[Any, SpeechClient]]:
    engine = engine or Studio()
    async with serving(engine) as server, await SpeechClient.connect(server.url) as client:
        yield engine, client


@pytest.fixture
def anna(tmp_path: Path) -> Path:
    path = tmp_path / "anna.wav"
    path.write_bytes(RIFF + b"anna")
    return path


async def voice_of(
    book: PluginVoices, client: SpeechClient, wish: VoiceRequest | str, settings: Settings = PATIENT
) -> str | None:
    """The voice of an utterance with this wish, which the server takes."""
    if isinstance(wish, str):
        wish = VoiceRequest(wish, otherwise=requested_voice(None, None, settings))
    options = await book.options(client, wish, settings)
    context = await client.open(options.voice, options.language, **options.extra)
    assert isinstance(await anext(context), Started)
    await context.cancel(0)
    return options.voice


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not reached():
            await settle()


# --- names


async def test_without_a_wish_the_server_chooses_and_nothing_is_asked() -> None:
    async with studio() as (engine, client):
        book = PluginVoices()
        assert await voice_of(book, client, VoiceRequest()) is None
        assert engine.loads == []
        assert book.problems == {}


async def test_all_settings_of_speech_come_along() -> None:
    async with studio() as (_, client):
        settings = Settings(mode="clause", speed=1.5, instructions="Calmly.", seed=7)
        options = await PluginVoices().options(client, VoiceRequest("tone"), settings)
        assert options.voice == "tone"
        assert options.extra == {
            "mode": "clause",
            "speed": 1.5,
            "instructions": "Calmly.",
            "seed": 7,
        }
        assert (await PluginVoices().options(client, VoiceRequest(), Settings())).extra == {
            "mode": "auto"
        }


@pytest.mark.parametrize("name", ["tone", "TONE", "Tones", "fail_late", "Fails late"])
async def test_a_listed_voice_goes_by_id_or_name_in_any_case(name: str) -> None:
    async with studio() as (engine, client):
        told = Told()
        book = PluginVoices(told)
        assert await voice_of(book, client, name) in ("tone", "fail-late")
        assert engine.loads == []
        assert [str(each) for each in book.known] == [name]
        assert told == []


async def test_a_voice_that_the_server_has_stored_is_made_ready_once() -> None:
    async with studio(Studio("anna")) as (engine, client):
        book = PluginVoices()
        assert [await voice_of(book, client, "anna") for _ in range(3)] == ["anna"] * 3
        assert engine.loads == [("anna", None, None, False)]


@pytest.mark.parametrize("engine", [FakeEngine, Studio])
async def test_a_name_that_the_server_knows_and_does_not_list_is_asked_for(engine: Any) -> None:
    async with studio(engine()) as (_, client):
        # One of OpenAI's names, which the server spreads over the voices it has.
        assert await voice_of(PluginVoices(), client, "alloy") is not None


@pytest.mark.parametrize("engine", [FakeEngine, Studio])
async def test_an_unknown_name_speaks_with_the_next_best_and_is_told_once(engine: Any) -> None:
    async with studio(engine()) as (_, client):
        told = Told()
        book = PluginVoices(told)
        assert await voice_of(book, client, "Violet") is None
        settings = Settings(voice="tone-de", voice_wait_ms=10_000)
        assert await voice_of(book, client, "Violet", settings) == "tone-de"
        assert len(told) == 1
        assert told[0].startswith("Voice Violet: it cannot be used: No voice")
        assert list(book.problems) == [VoiceRequest("Violet")]


@pytest.mark.parametrize("name", ["x" * 300, "a\nb", "clone:", "../../etc", "0" * 64, "\ud83d"])
async def test_a_name_that_cannot_be_one_costs_no_sentence(name: str) -> None:
    async with studio() as (_, client):
        told = Told()
        assert await voice_of(PluginVoices(told), client, name) is None
        assert len(told) == 1


async def test_a_name_is_asked_for_again_after_a_while() -> None:
    clock = FakeClock()
    async with studio() as (engine, client):
        told = Told()
        book = PluginVoices(told, clock=clock)
        assert await voice_of(book, client, "anna") is None
        engine.here.add("anna")
        assert await voice_of(book, client, "anna") is None
        await clock.advance(RETRY_S)
        assert await voice_of(book, client, "anna") == "anna"
        assert book.problems == {}
        assert len(told) == 1


async def test_a_voice_that_the_server_took_away_is_looked_for_again() -> None:
    async with studio(Studio("anna")) as (engine, client):
        book = PluginVoices()
        assert await voice_of(book, client, "anna") == "anna"
        engine.here.remove("anna")
        book.refused(client, "anna")
        assert await voice_of(book, client, "anna") is None


# --- languages


async def test_a_language_that_the_voice_has_is_passed_on() -> None:
    async with studio() as (_, client):
        settings = Settings(language="de", voice="tone", voice_wait_ms=10_000)
        options = await PluginVoices().options(
            client, requested_voice(None, None, settings), settings
        )
        assert (options.voice, options.language) == ("tone", "de")


@pytest.mark.parametrize("voice", [None, "tone"])
async def test_a_language_that_nobody_speaks_is_left_out_and_told_once(voice: str | None) -> None:
    async with studio() as (_, client):
        told = Told()
        book = PluginVoices(told)
        settings = Settings(language="xx", voice=voice, voice_wait_ms=10_000)
        for _ in range(2):
            options = await book.options(client, requested_voice(None, None, settings), settings)
            assert (options.voice, options.language) == (voice, None)
        assert len(told) == 1
        assert "without the language 'xx'" in told[0]


async def test_a_language_is_told_with_the_voice_as_it_was_wished_for(anna: Path) -> None:
    async with studio() as (_, client):
        told = Told()
        settings = Settings(language="xx", voice_wait_ms=10_000)
        await voice_of(PluginVoices(told), client, str(anna), settings)
        assert told[0].startswith(f"Voice {anna}: it speaks without the language")


# --- recordings


async def test_a_recording_is_made_a_voice_once_for_all_calls(anna: Path) -> None:
    anna.with_suffix(".txt").write_text("Hello.")
    async with studio() as (engine, client):
        book = PluginVoices()
        made = id_of(anna.read_bytes())
        calls = [voice_of(book, client, str(anna)) for _ in range(10)]
        assert await asyncio.gather(*calls) == [made] * 10
        assert engine.loads == [(None, RIFF + b"anna", "Hello.", False)]
        assert [str(each) for each in book.known] == [str(anna)]


async def test_the_same_recording_in_two_places_is_brought_once(anna: Path) -> None:
    other = anna.with_name("other.wav")
    other.write_bytes(anna.read_bytes())
    async with studio() as (engine, client):
        book = PluginVoices()
        voices = await asyncio.gather(*(voice_of(book, client, str(p)) for p in (anna, other)))
        assert len(set(voices)) == 1
        assert len(engine.recordings) == 1


async def test_where_nobody_can_hear_the_words_only_the_colour_is_taken(anna: Path) -> None:
    async with studio(Studio(hears=False)) as (engine, client):
        told = Told()
        assert await voice_of(PluginVoices(told), client, str(anna)) == id_of(anna.read_bytes())
        assert [only for *_, only in engine.loads] == [False, True]
        assert told == []


async def test_words_with_half_an_emoji_can_be_sent(anna: Path) -> None:
    async with studio() as (engine, client):
        wish = requested_voice(None, {"voice_id": str(anna), "ref_text": "Hi \ud83d."}, here(anna))
        assert await voice_of(PluginVoices(), client, wish) == id_of(anna.read_bytes())
        assert engine.loads[0][2] == "Hi ?."


async def test_the_first_recording_of_a_persona_that_can_be_used_counts(anna: Path) -> None:
    missing = str(anna.with_name("a.wav"))
    wish = requested_voice(None, {"voice_samples": [str(anna), missing]}, here(anna))
    async with studio() as (_, client):
        told = Told()
        assert await voice_of(PluginVoices(told), client, wish) == id_of(anna.read_bytes())
        assert told == [
            f"Voice {missing}: it cannot be used: it cannot be read: No such file or directory"
        ]


async def test_an_engine_that_clones_nothing_speaks_with_its_own_voice(anna: Path) -> None:
    async with studio(FakeEngine()) as (_, client):
        told = Told()
        book = PluginVoices(told)
        settings = replace(here(anna), voice="tone-de")
        wish = requested_voice(None, {"voice_samples": [str(anna)]}, settings)
        for _ in range(3):
            assert await voice_of(book, client, wish, settings) == "tone-de"
        alone = VoiceRequest(str(anna), access=wish.access)
        assert await voice_of(book, client, alone) is None
        assert len(told) == 1
        assert "makes no voices of recordings" in told[0]
        assert "Base checkpoint" in told[0]


async def test_what_is_no_sound_never_leaves_the_machine(tmp_path: Path) -> None:
    secret = tmp_path / "secret.wav"
    secret.write_bytes(b"password=hunter2")
    async with studio() as (engine, client):
        told = Told()
        assert await voice_of(PluginVoices(told), client, str(secret)) is None
        assert engine.recordings == []
        assert "hunter2" not in told[0]


async def test_a_recording_that_the_server_refuses_is_told(anna: Path) -> None:
    async with studio() as (engine, client):
        engine.error = BadRequest("The recording is silent.", remedy="Record it again.")
        told = Told()
        assert await voice_of(PluginVoices(told), client, str(anna)) is None
        assert told[0].endswith("The recording is silent. Record it again.")


async def test_a_bug_of_the_engine_costs_no_sentence(
    anna: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with studio() as (engine, client):
        engine.error = RuntimeError("a bug")
        told = Told()
        assert await voice_of(PluginVoices(told), client, str(anna)) is None
        assert len(told) == 1


async def test_a_file_that_has_changed_is_another_voice_soon(anna: Path) -> None:
    async with studio() as (engine, client):
        book = PluginVoices()
        first = await voice_of(book, client, str(anna))
        anna.write_bytes(RIFF + b"another")
        second = await voice_of(book, client, str(anna))
        assert second in (first, id_of(RIFF + b"another"))
        while await voice_of(book, client, str(anna)) == first:
            pass  # made ready beside what is being said
        assert engine.recordings == [RIFF + b"anna", RIFF + b"another"]


async def test_a_file_that_goes_away_or_breaks_leaves_the_voice(anna: Path) -> None:
    async with studio() as (_, client):
        told = Told()
        book = PluginVoices(told)
        first = await voice_of(book, client, str(anna))
        anna.write_bytes(b"broken")
        while not told:
            assert await voice_of(book, client, str(anna)) == first
        assert "no sound file" in told[0]
        anna.unlink()
        for _ in range(3):
            assert await voice_of(book, client, str(anna)) == first
        assert len(told) == 1


async def test_a_long_recording_is_brought_in_a_form_that_fits(tmp_path: Path) -> None:
    path = tmp_path / "long.wav"
    path.write_bytes(wav(20, 48_000, 2))
    async with studio() as (engine, client):
        assert await voice_of(PluginVoices(), client, str(path)) is not None
        assert [len(each) for each in engine.recordings] == [44 + 2 * 20 * 24_000]


async def test_an_older_name_below_voice_is_one_of_the_server() -> None:
    async with studio(Studio("anna")) as (_, client):
        assert await voice_of(PluginVoices(), client, "/voice/anna.wav") == "anna"


async def test_an_address_is_fetched_once_and_its_key_not_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    class Fetch:
        def __init__(self, *, private: bool) -> None: ...

        def run(self, url: str) -> bytes:
            asked.append(url)
            return RIFF if "good" in url else b"<html>"

    monkeypatch.setattr(recordings, "_Fetch", Fetch)
    async with studio() as (engine, client):
        told = Told()
        book = PluginVoices(told)
        for _ in range(3):
            assert await voice_of(book, client, "https://h/good.wav?key=k") == id_of(RIFF)
        assert await voice_of(book, client, "https://h/bad.wav?key=k") is None
        assert len(asked) == 2
        assert len(engine.recordings) == 1
        assert told == ["Voice https://h/bad.wav: it cannot be used: it is no sound file"]


# --- time


async def test_a_voice_that_takes_too_long_is_there_for_the_next_sentence(anna: Path) -> None:
    clock = FakeClock()
    async with studio() as (engine, client):
        told = Told()
        book = PluginVoices(told, clock=clock)
        engine.gate.clear()
        settings = Settings(voice="tone-de", voice_wait_ms=500)
        wish = VoiceRequest(str(anna), otherwise=requested_voice(None, None, settings))
        waiting = asyncio.create_task(book.options(client, wish, settings))
        await until(lambda: bool(engine.recordings))
        await clock.advance(0.49)
        assert not waiting.done()
        await clock.advance(0.01)
        assert (await waiting).voice == "tone-de"
        # Nobody waits for it a second time.
        assert (await book.options(client, wish, settings)).voice == "tone-de"
        assert len(told) == 1
        engine.gate.set()
        await until(lambda: not book.problems)
        assert await voice_of(book, client, wish, settings) == id_of(anna.read_bytes())
        assert len(engine.recordings) == 1


async def test_a_sentence_that_is_stopped_leaves_the_voice_in_the_making(anna: Path) -> None:
    async with studio() as (engine, client):
        book = PluginVoices()
        engine.gate.clear()
        stopped = asyncio.create_task(book.options(client, VoiceRequest(str(anna)), PATIENT))
        await until(lambda: bool(engine.recordings))
        stopped.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopped
        engine.gate.set()
        assert await voice_of(book, client, str(anna)) == id_of(anna.read_bytes())
        assert len(engine.recordings) == 1


async def test_a_file_system_that_hangs_holds_up_nothing_but_the_voice(
    anna: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hang = threading.Event()

    def hanging(where: str, access: recordings.Access) -> recordings.Recording:
        hang.wait(20)
        return recordings.read(where, access)

    monkeypatch.setattr(voice_finder, "read", hanging)
    async with studio() as (_, client):
        settings = Settings(voice_wait_ms=0)
        book = PluginVoices()
        for _ in range(50):
            assert await voice_of(book, client, VoiceRequest(str(anna)), settings) is None
        hang.set()
        assert await voice_of(book, client, "tone") == "tone"


# --- warming, and other connections


async def test_warmed_voices_are_there_at_once(anna: Path) -> None:
    async with studio(Studio("bob")) as (engine, client):
        told = Told()
        book = PluginVoices(told)
        wishes = [
            VoiceRequest(str(anna)),
            VoiceRequest("bob"),
            VoiceRequest("nobody"),
            VoiceRequest(),
        ]
        await book.warm(client, wishes, Settings(language="en"))
        loads = len(engine.loads)
        assert await voice_of(book, client, str(anna)) == id_of(anna.read_bytes())
        assert await voice_of(book, client, "bob") == "bob"
        assert len(engine.loads) == loads
        assert len(told) == 1
        assert [str(each) for each in book.known] == [str(anna), "bob"]


async def test_at_another_connection_the_voice_is_asked_for_by_its_id(anna: Path) -> None:
    engine = Studio()
    async with serving(engine) as server:
        book = PluginVoices()
        for _ in range(2):
            async with await SpeechClient.connect(server.url) as client:
                assert await voice_of(book, client, str(anna)) == id_of(anna.read_bytes())
        assert len(engine.recordings) == 1


async def test_a_server_that_has_started_anew_gets_the_recording_again(anna: Path) -> None:
    book = PluginVoices()
    engine = Studio()
    async with serving(engine) as server:
        port = server.port
        client = await SpeechClient.connect(server.url, resume=Resume(within_s=20))
        assert await voice_of(book, client, str(anna)) == id_of(anna.read_bytes())
    again = Studio()
    async with serving(again, port), client:
        # The same client: it has connected again by itself.
        assert await voice_of(book, client, VoiceRequest(str(anna))) == id_of(anna.read_bytes())
        assert again.recordings == [RIFF + b"anna"]


async def test_a_server_that_dies_meanwhile_leaves_the_sentence_to_the_connection(
    anna: Path,
) -> None:
    told = Told()
    book = PluginVoices(told)
    engine = Studio()
    engine.gate.clear()
    async with serving(engine) as server:
        client = await SpeechClient.connect(server.url)
        waiting = asyncio.create_task(book.options(client, VoiceRequest(str(anna)), PATIENT))
        await until(lambda: bool(engine.recordings))
        await client.close()
        options = await waiting
        assert options.voice is None
        with pytest.raises(SpeechError):
            await client.open(options.voice)
        engine.gate.set()
    assert told == []


async def test_connections_that_are_over_are_forgotten(anna: Path) -> None:
    async with serving(Studio()) as server:
        book = PluginVoices()
        client = await SpeechClient.connect(server.url)
        await voice_of(book, client, str(anna))
        await voice_of(book, client, "nobody")
        await client.close()
        gone = weakref.ref(client.protocol)
        del client
        await until(lambda: gc.collect() >= 0 and gone() is None)


async def test_any_number_of_names_is_remembered_within_bounds() -> None:
    async with studio() as (_, client):
        book = PluginVoices()
        for number in range(300):
            await book.options(client, VoiceRequest(f"nobody {number}"), PATIENT)
        (shelf,) = book._shelves.values()
        assert len(shelf.searches) == 256
        assert len(book.problems) == 256


def test_the_words_beside_a_recording_fit_into_its_message() -> None:
    # The server's bound for one message has to hold the recording and 4096 escaped characters.
    assert voice_finder.ENVELOPE_BYTES > 4096 * 6 + 1000
