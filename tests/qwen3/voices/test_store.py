from __future__ import annotations

import asyncio
import logging
import stat
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from qwen3tts_engine.qwen3.model.checkpoint import open_weights
from qwen3tts_engine.qwen3.model.codec_encoder import CodecEncoder
from qwen3tts_engine.qwen3.model.config import ModelConfig, Samples
from qwen3tts_engine.qwen3.model.speaker_encoder import SpeakerEncoder
from qwen3tts_engine.qwen3.model.tokenizer import Tokenizer
from qwen3tts_engine.qwen3.voices import storage as voice_files
from qwen3tts_engine.qwen3.voices.content import ClonedVoice, ModelEncoders, fingerprint
from qwen3tts_engine.qwen3.voices.recording import Recording, ReferenceLimits
from qwen3tts_engine.qwen3.voices.storage import VoiceFiles
from qwen3tts_engine.qwen3.voices.store import VoiceStore
from qwen3tts_wire.errors import (
    BadRequest,
    BadText,
    EngineFailed,
    EngineUnavailable,
    LimitExceeded,
    ServerBusy,
    UnknownVoice,
)
from tests.fakes import settle
from tests.qwen3.model import formula
from tests.qwen3.voices.recordings import wav

VOICE = (formula.voice(24_000), 24_000)
OTHER = (formula.voice(24_000)[::-1].copy(), 24_000)
SIZE = 16 * 4
"""Bytes of a voice of the fake encoders, x-vector only."""


def some_voice(number: int) -> tuple[Samples, int]:
    return formula.voice(24_000 + number), 24_000


@dataclass
class FakeEncoders:
    """Count what they compute; may wait, or fail."""

    identity: str = "one"
    computed: int = 0
    error: BaseException | None = None
    vector: Tensor = field(default_factory=lambda: torch.arange(16.0))
    begun: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.go_on.set()

    def x_vector(self, samples: Samples) -> Tensor:
        self.computed += 1
        self.begun.set()
        assert self.go_on.wait(30)
        if self.error is not None:
            raise self.error
        assert samples.dtype == np.float32
        return self.vector

    def codes(self, samples: Samples) -> Tensor:
        return torch.full((-(-len(samples) // 1920), 16), 7)

    def text_ids(self, transcript: str) -> list[int]:
        return [ord(one) for one in transcript]


class FakeTranscriber:
    def __init__(self, name: str = "ear", words: str = "what was said") -> None:
        self.name = name
        self.words = words
        self.heard = 0

    def transcribe(self, recording: Recording) -> str:
        assert recording.rate == 24_000
        self.heard += 1
        return self.words


@dataclass(frozen=True)
class FakeSnapshot:
    bytes: int


Make = Callable[..., VoiceStore]


@pytest.fixture
def make() -> Iterator[Make]:
    stores: list[VoiceStore] = []

    def one(bound: int = 1 << 20, encoders: Any = None, **options: Any) -> VoiceStore:
        stores.append(VoiceStore(bound, encoders or FakeEncoders(), **options))
        return stores[-1]

    yield one
    for store in stores:
        store.close()


# --- what a voice is made of ---


async def test_a_voice_for_in_context_cloning(make: Make) -> None:
    voice = await make().create(VOICE, ref_text="  Hello. ")
    assert len(voice.id) == 64
    assert torch.equal(voice.x_vector, torch.arange(16.0))
    assert voice.transcript == "Hello."
    assert voice.reference is not None
    assert voice.reference.text_ids == tuple(map(ord, "Hello."))
    assert voice.reference.codes == ((7,) * 16,) * 13
    assert voice.name is None
    assert voice.bytes > 16 * 4 + 13 * 16 * 32


async def test_a_voice_of_its_colour_alone(make: Make) -> None:
    store = make()
    voice = await store.create(VOICE, x_vector_only=True)
    assert (voice.reference, voice.transcript) == (None, None)
    assert voice.bytes == SIZE
    again = await store.prepare(VOICE, "words that do not matter", x_vector_only=True)
    assert again.voice is voice
    assert again.cached


async def test_a_vector_in_the_models_type_is_kept_as_float32_on_its_own(make: Make) -> None:
    encoders = FakeEncoders(vector=torch.ones(16, dtype=torch.bfloat16))
    voice = await make(encoders=encoders).create(VOICE, x_vector_only=True)
    assert voice.x_vector.dtype == torch.float32
    encoders = FakeEncoders(vector=torch.ones(16))
    voice = await make(encoders=encoders).create(VOICE, x_vector_only=True)
    encoders.vector.zero_()
    assert voice.x_vector.sum() == 16


async def test_words_that_are_missing_are_heard_once(make: Make) -> None:
    ear = FakeTranscriber()
    store = make(transcriber=ear)
    voice = await store.create(VOICE)
    assert voice.transcript == "what was said"
    assert await store.create(VOICE, ref_text=" \n") is voice
    assert ear.heard == 1
    assert await store.create(VOICE, ref_text="what was said") is not voice
    assert ear.heard == 1


async def test_without_words_and_without_a_transcriber(make: Make) -> None:
    with pytest.raises(BadRequest, match="without its words") as caught:
        await make().create(VOICE)
    for word in ("ref_text", "x_vector_only=true", "Whisper"):
        assert word in caught.value.remedy


async def test_words_beyond_the_bound(make: Make) -> None:
    with pytest.raises(LimitExceeded, match="4097 characters"):
        await make().create(VOICE, ref_text="a" * 4097)


async def test_a_recording_that_is_refused(make: Make) -> None:
    store = make(limits=ReferenceLimits(max_s=1.0))
    with pytest.raises(BadRequest, match="silent"):
        await store.create((np.zeros(24_000), 24_000), x_vector_only=True)
    with pytest.raises(LimitExceeded):
        await store.create(some_voice(1), x_vector_only=True)
    assert len(store.cache) == 0


# --- the id ---


async def test_the_id_is_of_the_whole_content(make: Make) -> None:
    store = make(transcriber=FakeTranscriber())
    changed = VOICE[0].copy()
    changed[-1] += 1e-6
    ids = [
        (await one.create(source, **options)).id
        for one, source, options in (
            (store, VOICE, {"ref_text": "a"}),
            (store, VOICE, {"ref_text": "b"}),
            (store, VOICE, {"x_vector_only": True}),
            (store, VOICE, {}),
            (store, (changed, 24_000), {"ref_text": "a"}),
            (store, (VOICE[0], 23_999), {"ref_text": "a"}),
            (make(encoders=FakeEncoders("two")), VOICE, {"ref_text": "a"}),
            (make(transcriber=FakeTranscriber("another ear")), VOICE, {}),
            (store, VOICE, {"ref_text": "heard by ear"}),
        )
    ]
    assert len(set(ids)) == len(ids)


async def test_the_same_sound_is_the_same_voice_however_it_comes(
    make: Make, tmp_path: Path
) -> None:
    store = make()
    file = tmp_path / "voice.wav"
    file.write_bytes(wav(VOICE[0]))
    voice = await store.create(file, x_vector_only=True)
    assert await store.create(file.read_bytes(), x_vector_only=True) is voice
    whole = np.rint(VOICE[0] * 32768).astype(np.int16)
    assert await store.create((whole, 24_000), x_vector_only=True) is voice


# --- computed once ---


async def test_concurrent_requests_compute_a_voice_once(make: Make) -> None:
    encoders = FakeEncoders()
    encoders.go_on.clear()
    store = make(encoders=encoders)
    first = asyncio.ensure_future(store.prepare(VOICE, x_vector_only=True))
    await asyncio.to_thread(encoders.begun.wait, 30)
    second = asyncio.ensure_future(store.prepare(VOICE, x_vector_only=True, name="second"))
    other = store.submit(OTHER, None, True)  # runs when the second begins to wait, or after it
    encoders.go_on.set()
    one, two = await asyncio.gather(first, second)
    assert one.voice is two.voice
    assert (one.cached, two.cached) == (False, True)
    await asyncio.wrap_future(other)
    assert encoders.computed == 2


async def test_those_who_wait_for_a_voice_that_fails_fail_with_it(make: Make) -> None:
    encoders = FakeEncoders(error=BadRequest("no"))
    encoders.go_on.clear()
    store = make(encoders=encoders)
    waiting = [asyncio.ensure_future(store.create(VOICE, x_vector_only=True)) for _ in range(2)]
    await asyncio.to_thread(encoders.begun.wait, 30)
    encoders.go_on.set()
    for result in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(result, BadRequest)
    encoders.error = None
    assert await store.create(VOICE, x_vector_only=True) is not None


async def test_one_who_gives_up_does_not_take_the_voice_from_the_others(make: Make) -> None:
    encoders = FakeEncoders()
    encoders.go_on.clear()
    store = make(encoders=encoders)
    first = asyncio.ensure_future(store.create(VOICE, x_vector_only=True))
    await asyncio.to_thread(encoders.begun.wait, 30)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    second = asyncio.ensure_future(store.create(VOICE, x_vector_only=True))
    encoders.go_on.set()
    assert await second is not None
    assert encoders.computed == 1


async def test_too_many_who_wait_are_refused(make: Make) -> None:
    encoders = FakeEncoders()
    encoders.go_on.clear()
    store = make(encoders=encoders, max_waiting=3)
    waiting = [store.submit(some_voice(n), None, True) for n in range(3)]
    with pytest.raises(ServerBusy, match="3 voices"):
        store.submit(VOICE, None, True)
    encoders.go_on.set()
    for one in waiting:
        assert not one.result(30).cached
    assert not store.submit(OTHER, None, True).result(30).cached


async def test_a_store_that_was_closed(make: Make) -> None:
    store = make(max_waiting=1)
    store.close()
    for _ in range(2):
        with pytest.raises(EngineFailed, match="closed"):
            store.submit(VOICE, None, True)


# --- what fails ---


async def test_those_who_wait_when_the_store_is_closed_are_told(make: Make) -> None:
    encoders = FakeEncoders()
    store = make(encoders=encoders, workers=1)
    encoders.go_on.clear()
    under_way = asyncio.create_task(store.create(VOICE, x_vector_only=True))
    assert await asyncio.to_thread(encoders.begun.wait, 30)
    waits = asyncio.create_task(store.create(some_voice(2), x_vector_only=True))
    gives_up = asyncio.create_task(store.create(some_voice(3), x_vector_only=True))
    await settle()
    gives_up.cancel()
    closing = asyncio.create_task(asyncio.to_thread(store.close))
    with pytest.raises(EngineFailed, match="closed"):
        await waits
    with pytest.raises(asyncio.CancelledError):
        await gives_up
    encoders.go_on.set()
    await under_way
    await closing


async def test_a_closed_store_looks_into_no_folder(make: Make, tmp_path: Path) -> None:
    store = make(folder=tmp_path)
    store.close()
    with pytest.raises(EngineFailed, match="closed"):
        await store.load("a" * 64)


async def test_a_device_out_of_memory_is_reported_and_passes(make: Make) -> None:
    encoders = FakeEncoders(error=torch.OutOfMemoryError("out"))
    store = make(encoders=encoders)
    with pytest.raises(EngineFailed, match="out of memory"):
        await store.create(VOICE, x_vector_only=True)
    encoders.error = None
    assert await store.create(VOICE, x_vector_only=True) is not None


async def test_code_that_fails_is_reported_without_its_words(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    store = make(encoders=FakeEncoders(error=RuntimeError("shapes")))
    with pytest.raises(EngineFailed) as caught:
        await store.create(VOICE, ref_text="a secret")
    assert "shapes" not in str(caught.value)
    assert "shapes" in caplog.text
    assert "a secret" not in caplog.text


async def test_a_vector_that_is_not_finite(make: Make) -> None:
    store = make(encoders=FakeEncoders(vector=torch.tensor([float("nan")])))
    with pytest.raises(EngineFailed, match="not finite"):
        await store.create(VOICE, x_vector_only=True)


async def test_words_that_are_no_text(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: FakeEncoders, transcript: str) -> list[int]:
        raise BadText("half")

    monkeypatch.setattr(FakeEncoders, "text_ids", refuse)
    with pytest.raises(BadText, match="half"):
        await make().create(VOICE, ref_text="\ud800")


# --- memory ---


async def test_the_least_recently_used_voice_goes(make: Make) -> None:
    store = make(3 * SIZE)
    voices = [await store.create(some_voice(n), x_vector_only=True) for n in range(3)]
    assert store.cache.bytes == 3 * SIZE
    assert store.find(voices[0].id) is voices[0]
    await store.create(some_voice(3), x_vector_only=True)
    assert [one.id in store.cache for one in voices] == [True, False, True]
    assert store.cache.bytes == 3 * SIZE


async def test_voices_in_use_do_not_go(make: Make) -> None:
    store = make(2 * SIZE)
    one, two = [await store.create(some_voice(n), x_vector_only=True) for n in range(2)]
    with store.using(one), store.using(one):
        with store.using(two):
            with pytest.raises(ServerBusy, match="in use"):
                await store.create(some_voice(2), x_vector_only=True)
            assert len(store.cache) == 2
        await store.create(some_voice(2), x_vector_only=True)
        assert one.id in store.cache
        assert two.id not in store.cache
    await store.create(some_voice(3), x_vector_only=True)
    await store.create(some_voice(4), x_vector_only=True)
    assert one.id not in store.cache


async def test_a_voice_that_went_comes_back_when_it_is_used(make: Make) -> None:
    store = make(SIZE)
    one = await store.create(some_voice(0), x_vector_only=True)
    two = await store.create(some_voice(1), x_vector_only=True)
    with store.using(one) as used:
        assert used is one
        assert two.id not in store.cache
    # Another object of the same voice may have been made since; that one is used.
    again = ClonedVoice(one.id, one.content)
    with store.using(again) as used:
        assert used is one


async def test_a_voice_larger_than_the_bound(make: Make) -> None:
    with pytest.raises(LimitExceeded, match=f"takes {SIZE} bytes") as caught:
        await make(SIZE - 1).create(VOICE, x_vector_only=True)
    assert "voices_bytes" in caught.value.remedy


async def test_snapshots_count(make: Make) -> None:
    store = make(3 * SIZE + 150)
    other = await store.create(OTHER, x_vector_only=True)
    voice = await store.create(VOICE, x_vector_only=True)
    cache = store.cache
    assert cache.keep_kv(voice, "english", FakeSnapshot(100))
    assert cache.keep_kv(voice, "english", FakeSnapshot(1000)), "it is kept already"
    assert cache.keep_codec(voice, FakeSnapshot(50))
    assert cache.keep_codec(voice, FakeSnapshot(5000)), "it is kept already"
    assert cache.bytes == 2 * SIZE + 150
    assert voice.bytes == SIZE + 150
    assert voice.codec == FakeSnapshot(50)
    # Room comes from others, never from the voice itself.
    assert cache.keep_kv(voice, "german", FakeSnapshot(2 * SIZE))
    assert other.id not in cache
    assert cache.bytes == cache.bound_bytes
    assert not cache.keep_kv(voice, "french", FakeSnapshot(1))
    assert set(voice.kv) == {"english", "german"}
    await store.create(OTHER, x_vector_only=True)
    assert cache.bytes == SIZE


async def test_a_voice_that_went_does_not_grow(make: Make) -> None:
    store = make()
    voice = await store.create(VOICE, x_vector_only=True)
    store.forget(voice.id)
    assert not store.cache.keep_kv(voice, "english", FakeSnapshot(1))
    assert not store.cache.keep_codec(voice, FakeSnapshot(1))
    assert (voice.kv, voice.codec) == ({}, None)


async def test_a_forgotten_voices_pins_are_not_another_ones(make: Make) -> None:
    store = make()
    old = await store.create(VOICE, x_vector_only=True)
    store.cache.pin(old)
    store.forget(old.id)
    new = await store.create(VOICE, x_vector_only=True)
    assert new is not old
    store.cache.pin(new)
    store.cache.unpin(old)
    store.cache.unpin(old)
    assert store.cache._entries[new.id].pins == 1
    store.cache.unpin(new)
    store.cache.unpin(new)
    assert store.cache._entries[new.id].pins == 0


# --- names ---


async def test_a_voice_is_found_by_name_and_by_id(make: Make) -> None:
    store = make()
    voice = await store.create(VOICE, x_vector_only=True, name="Anna")
    assert voice.name == "Anna"
    assert store.names == {"Anna": voice.id}
    for name in ("clone:Anna", voice.id):
        assert store.find(name) is voice
        assert await store.load(name) is voice
    other = await store.create(OTHER, x_vector_only=True, name="Anna")
    assert store.find("clone:Anna") is other


async def test_an_unknown_voice(make: Make) -> None:
    store = make()
    await store.create(VOICE, x_vector_only=True, name="Anna")
    with pytest.raises(UnknownVoice, match="clone:Ana") as caught:
        store.find("clone:Ana")
    assert "clone:Anna" in caught.value.remedy
    for name in ("0" * 64, "", "clone:", "zzz"):
        with pytest.raises(UnknownVoice):
            await store.load(name)
        with pytest.raises(UnknownVoice):
            store.forget(name)


@pytest.mark.parametrize("name", ["", " a", "a ", "a\nb", "x" * 65, "\ud800"])
async def test_names_that_cannot_be(make: Make, name: str) -> None:
    with pytest.raises(BadRequest, match="name"):
        await make().create(VOICE, x_vector_only=True, name=name)


async def test_a_name_goes_with_its_voice(make: Make) -> None:
    store = make(SIZE)
    await store.create(some_voice(0), x_vector_only=True, name="Anna")
    await store.create(some_voice(1), x_vector_only=True)
    assert store.names == {}
    with pytest.raises(UnknownVoice):
        store.find("clone:Anna")


# --- the folder ---


async def test_voices_outlive_the_process(make: Make, tmp_path: Path) -> None:
    folder = tmp_path / "a" / "voices"
    first = await make(folder=folder).create(VOICE, ref_text="Grüße\n♥", name="Ännchen/1")
    encoders = FakeEncoders()
    store = make(encoders=encoders, folder=folder)
    assert store.names == {"Ännchen/1": first.id}
    voice = await store.load("clone:Ännchen/1")
    assert voice.name == "Ännchen/1"
    assert torch.equal(voice.x_vector, first.x_vector)
    assert voice.reference == first.reference
    assert voice.transcript == "Grüße\n♥"
    prepared = await store.prepare(VOICE, "Grüße\n♥")
    assert prepared.cached
    assert prepared.voice is voice
    assert encoders.computed == 0


async def test_another_process_finds_what_was_named_since(make: Make, tmp_path: Path) -> None:
    reader = make(folder=tmp_path)
    voice = await make(folder=tmp_path).create(VOICE, x_vector_only=True, name="Anna")
    with pytest.raises(UnknownVoice):
        reader.find("clone:Anna")
    found = await reader.load("clone:Anna")
    assert found.id == voice.id
    assert found.reference is None
    assert (await make(folder=tmp_path).load(voice.id)).id == voice.id
    encoders = FakeEncoders()
    assert (await make(encoders=encoders, folder=tmp_path).prepare(VOICE, None, True)).cached
    assert encoders.computed == 0


async def test_what_the_folder_holds_is_its_owners(make: Make, tmp_path: Path) -> None:
    folder = tmp_path / "voices"
    await make(folder=folder).create(VOICE, x_vector_only=True, name="Anna")
    for one in [folder, *folder.rglob("*")]:
        mode = stat.S_IMODE(one.stat().st_mode)
        assert mode == (0o700 if one.is_dir() else 0o600), one
    assert len(list(folder.rglob("*"))) == 3


@pytest.mark.parametrize("damage", ["cut", "flipped", "other", "empty", "folder"])
async def test_a_damaged_file_is_computed_again_and_logged(
    make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    voice = await make(folder=tmp_path).create(VOICE, ref_text="hello")
    file = tmp_path / f"{voice.id}.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    if damage == "folder":
        file.unlink()
        file.mkdir()
    else:
        wrong: dict[str, bytes | bytearray] = {
            "cut": data[:-9],
            "flipped": data,
            "other": b"{}" * 40,
            "empty": b"",
        }
        file.write_bytes(wrong[damage])
    encoders = FakeEncoders()
    store = make(encoders=encoders, folder=tmp_path)
    prepared = await store.prepare(VOICE, "hello")
    assert not prepared.cached
    assert prepared.voice.reference == voice.reference
    assert encoders.computed == 1
    assert f"{voice.id}.safetensors" in caplog.text
    if damage != "folder":
        again = make(encoders=encoders, folder=tmp_path)
        assert (await again.prepare(VOICE, "hello")).cached


async def test_a_folder_that_cannot_be_written_is_reported(
    make: Make,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    store = make(folder=tmp_path)
    monkeypatch.setattr(Path, "replace", full)
    voice = await store.create(VOICE, x_vector_only=True, name="Anna")
    assert store.find("clone:Anna") is voice
    assert caplog.text.count("No space left on device") == 2
    assert [one.name for one in tmp_path.rglob("*")] == ["names"]


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EngineUnavailable, match="cannot be used: Not a directory") as caught:
        VoiceFiles(tmp_path / "file" / "voices")
    assert "settings" in caught.value.remedy


async def test_a_folder_that_is_full_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, make: Make
) -> None:
    voice = await make().create(VOICE, x_vector_only=True)
    files = VoiceFiles(tmp_path, bound_bytes=350)
    assert files.save(voice.id, voice.content)
    assert not files.save("0" * 64, voice.content)
    assert "folder is full" in caplog.text


async def test_damaged_names_are_left_out(make: Make, tmp_path: Path) -> None:
    voice = await make(folder=tmp_path).create(VOICE, x_vector_only=True, name="Anna")
    (name,) = (tmp_path / "names").iterdir()
    for index, text in enumerate(
        ["{", "[]", "{}", '{"name": "B", "id": "../../x"}', name.read_text()]
    ):
        (tmp_path / "names" / f"{index}.json").write_text(text)
    assert make(folder=tmp_path).names == {"Anna": voice.id}


async def test_a_voice_is_forgotten_with_its_file_and_names(make: Make, tmp_path: Path) -> None:
    store = make(folder=tmp_path)
    voice = await store.create(VOICE, x_vector_only=True, name="Anna")
    await store.create(VOICE, x_vector_only=True, name="Anne")
    other = await store.create(OTHER, x_vector_only=True, name="Berta")
    store.forget("clone:Anna")
    assert store.names == {"Berta": other.id}
    assert sorted(one.suffix for one in tmp_path.rglob("*.*")) == [".json", ".safetensors"]
    with pytest.raises(UnknownVoice):
        await store.load(voice.id)
    # One that is in the folder alone.
    make(folder=tmp_path).forget(other.id)
    assert list(tmp_path.rglob("*.*")) == []
    with pytest.raises(UnknownVoice):
        store.forget(voice.id)


def test_ids_lead_nowhere_else(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="64 hexadecimal"):
        VoiceFiles(tmp_path).load("../../etc/passwd")


def test_the_bound_of_a_file_is_small() -> None:
    assert voice_files._FILE_MAX < 1 << 30


# --- with the encoders of a checkpoint ---


async def test_a_voice_of_a_tiny_checkpoint(
    make: Make, tiny: dict[str, Path], tiny_config: Callable[[str], ModelConfig]
) -> None:
    config = tiny_config("base")
    assert config.speaker is not None
    model = open_weights(tiny["base"] / "model.safetensors")
    codec = open_weights(tiny["base"] / "speech_tokenizer" / "model.safetensors")
    parts = model.under("speaker_encoder."), codec.under("encoder.")
    identity = fingerprint(*parts)
    assert identity == fingerprint(*parts) != fingerprint(parts[1])
    encoders = ModelEncoders(
        SpeakerEncoder.from_weights(config.speaker, model),
        CodecEncoder.from_weights(config.codec, codec),
        Tokenizer(tiny["base"]),
        identity,
    )
    store = make(encoders=encoders)
    voice = await store.create(wav(VOICE[0], 24_000), ref_text="Hello.", name="Anna")
    assert voice.x_vector.shape == (config.talker.layers.hidden,)
    assert voice.reference is not None
    assert len(voice.reference.codes) == 13
    assert {len(frame) for frame in voice.reference.codes} == {config.codec.quantizers}
    assert voice.reference.text_ids == tuple(Tokenizer(tiny["base"]).encode("Hello."))


def test_nothing_is_logged_when_all_is_well(
    make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    future: Future[Any] = make(folder=tmp_path).submit(VOICE, "hello", False, "Anna")
    assert future.result(30).voice.name == "Anna"
    assert caplog.text == ""
