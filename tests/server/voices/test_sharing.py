"""Replicas that share a store, and concurrent operations of clients."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import fsspec  # type: ignore[import-untyped]
import pytest

from qwen3tts_engine.base import SynthesisRequest
from qwen3tts_server.service import Service
from qwen3tts_server.settings import ServerSettings, VoiceSettings
from qwen3tts_server.voices.catalogue import VoiceCatalogue
from qwen3tts_server.voices.files import FolderFiles
from qwen3tts_server.voices.library import VoiceLibrary
from qwen3tts_server.voices.stored import StoredVoice, VoiceExists
from qwen3tts_wire.errors import EngineUnavailable, ServerBusy, SpeechError, UnknownVoice
from qwen3tts_wire.formats import AudioFormat
from qwen3tts_wire.messages import ContextOpen
from tests.engine.fake_engine import VOICES
from tests.engine.waiting import until
from tests.server.voices.world import Cloner, catalogue, said, wav

SLOW: dict[str, Any] = {"refresh_s": 3600.0}
"""Replicas that look at the store only when they are asked for what they do not know."""


async def replicas(store: Path | str, **settings: Any) -> tuple[VoiceCatalogue, VoiceCatalogue]:
    both = catalogue(store, **(SLOW | settings)), catalogue(store, **(SLOW | settings))
    for each in both:
        await each.start()
    return both


def cloner(voices: VoiceCatalogue) -> Cloner:
    assert isinstance(voices.inner, Cloner)
    return voices.inner


@pytest.mark.parametrize("url", ["{0}", "file://{0}", "memory://{0}"])
async def test_a_voice_uploaded_to_one_replica_speaks_on_another(tmp_path: Path, url: str) -> None:
    one, other = await replicas(url.format(tmp_path))
    kept = await one.add("Anna", wav(), ref_text="Hello.")
    here = await said(one, "anna")
    for name in ("clone:Anna", kept.content):
        other.check(name, "en")
        assert await said(other, name) == here
    assert cloner(other).computed == 1
    assert cloner(other).made == {kept.voice_id: "Hello."}
    other.check("anna", "en")
    assert other.stored() == one.stored() == (kept,)
    await other.remove("Anna")
    await one.refresh()
    with pytest.raises(UnknownVoice):
        one.check("anna", None)
    for each in (one, other):
        await each.close()


async def test_a_voice_of_a_reference_is_found_by_its_id_on_another_replica(tmp_path: Path) -> None:
    one, other = await replicas(tmp_path)
    made = await one.load_voice(ref_audio=wav(), ref_text="Hello.")
    other.check(made.voice_id, "en")
    assert other.modes(made.voice_id) == ("clause",)
    assert await said(other, made.voice_id)
    assert (await other.load_voice(voice_id=made.voice_id)).ref_text == "Hello."
    again = catalogue(tmp_path, **SLOW)
    await again.start()
    assert (await again.load_voice(voice_id=made.voice_id)).voice_id == made.voice_id
    with pytest.raises(UnknownVoice):
        await said(other, "f" * 64)
    with pytest.raises(UnknownVoice):
        await said(other, "clone:unlisted")
    with pytest.raises(UnknownVoice):
        other.check("unlisted", None)
    assert not again.stored()
    for each in (one, other, again):
        await each.close()


async def test_references_are_not_kept_where_the_settings_say_so(tmp_path: Path) -> None:
    one, other = await replicas(tmp_path, keep_references=False)
    made = await one.load_voice(ref_audio=wav())
    assert await said(one, made.voice_id)
    with pytest.raises(UnknownVoice):
        await said(other, made.voice_id)
    assert not list((tmp_path / "voices").iterdir())
    for each in (one, other):
        await each.close()


async def test_a_plain_name_is_known_after_a_look_at_the_store(tmp_path: Path) -> None:
    one, other = await replicas(tmp_path)
    kept = await one.add("Anna", wav())
    assert await other.find("anna") == kept.voice_id
    with pytest.raises(UnknownVoice):
        await other.find("ben")
    assert (await other.load_voice(voice_id="ANNA")).voice_id == kept.voice_id
    for each in (one, other):
        await each.close()


async def test_replicas_look_at_the_store_by_themselves(tmp_path: Path) -> None:
    one, other = await replicas(tmp_path, refresh_s=0.01)
    await one.add("Anna", wav())
    await until(lambda: bool(other.stored()))
    await one.remove("Anna")
    await until(lambda: not other.stored())
    for each in (one, other):
        await each.close()


async def test_two_uploads_of_one_name_at_once_leave_one_voice(tmp_path: Path) -> None:
    one, other = await replicas(tmp_path)
    results = await asyncio.gather(
        *(each.add("anna", wav(1 + index / 10)) for index, each in enumerate((one, other) * 3)),
        return_exceptions=True,
    )
    (won,) = (each for each in results if isinstance(each, StoredVoice))
    assert sum(isinstance(each, VoiceExists) for each in results) == 5
    for each in (one, other):
        await each.refresh()
        assert each.stored() == (won,)
        assert each.resolve("anna") == won.voice_id
        assert await said(each, "anna")
        await each.close()


async def test_another_checkpoint_makes_its_own_voice_of_a_recording(tmp_path: Path) -> None:
    class Other(Cloner):
        async def load_voice(self, **fields: Any) -> Any:
            if fields.get("ref_audio") is not None and fields.get("ref_text") is None:
                fields["ref_text"] = "another model"
            return await super().load_voice(**fields)

    one = catalogue(tmp_path, **SLOW)
    other = catalogue(tmp_path, Other(), **SLOW)
    await one.start()
    kept = await one.add("anna", wav())
    await other.start()
    for name in ("anna", kept.voice_id, kept.content):
        assert await said(other, name)
    (made,) = cloner(other).made
    assert made != kept.voice_id
    assert other.resolve("anna") == made
    for each in (one, other):
        await each.close()


ORDER: dict[str, Any] = {
    "context_id": "c",
    "context_no": 1,
    "format": AudioFormat("pcm_s16le", 24000),
}


async def test_a_voice_deleted_or_replaced_while_it_speaks_speaks_on() -> None:
    engine = Cloner()
    service = Service(engine, ServerSettings(voices=VoiceSettings(**SLOW)))
    await service.start()
    kept = await service.voices.add("anna", wav())
    order = ContextOpen(**ORDER, voice="anna", lead_ms=3_600_000.0)
    for change in ("replace", "remove"):
        bound = service.voices.resolve("anna")
        async with service.speaking(order, "openai") as speaking:
            speaking.append("One two. ")
            speaking.flush()
            await anext(speaking)
            if change == "replace":
                await service.voices.add("anna", wav(1.5), replace=True)
            else:
                await service.voices.remove("anna")
            speaking.append("Three four.")
            speaking.end()
            assert [item async for item in speaking]
        assert set(engine.spoken_with) == {bound}
        engine.spoken_with.clear()
    with pytest.raises(UnknownVoice):
        async with service.speaking(order, "openai"):
            pass
    assert kept.voice_id in engine.made
    await service.close()
    assert len(engine.forgotten) == 2
    assert not engine.made


async def test_a_deleted_voice_that_is_brought_again_stays() -> None:
    voices = catalogue()
    await voices.start()
    await voices.add("anna", wav())
    await voices.remove("anna")
    kept = await voices.add("anna", wav())
    await voices.close()
    assert kept.voice_id in cloner(voices).made


async def test_a_deleted_voice_leaves_an_engine_without_a_store_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("qwen3tts_server.voices.library.FORGET_AFTER_S", 0.0)
    voices = catalogue(refresh_s=0.001)
    await voices.start()
    await voices.add("anna", wav())
    await voices.remove("anna")
    await until(lambda: bool(cloner(voices).forgotten))
    await voices.close()


async def test_a_deleted_voice_leaves_the_engine_when_nobody_speaks_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qwen3tts_server.voices.library.FORGET_AFTER_S", 0.0)
    one, other = await replicas(tmp_path, refresh_s=0.01)
    await one.add("anna", wav())
    await said(one, "anna")
    await other.remove("anna")
    await until(lambda: bool(cloner(one).forgotten))
    assert not cloner(one).made
    for each in (one, other):
        await each.close()


async def test_a_deleted_voice_that_was_just_used_stays_for_a_while(tmp_path: Path) -> None:
    voices = catalogue(tmp_path, refresh_s=0.001)
    await voices.start()
    await voices.add("anna", wav())
    await voices.remove("anna")
    looks = voices._library._looks
    await until(lambda: voices._library._looks > looks + 3)
    assert not cloner(voices).forgotten
    await voices.close()
    assert len(cloner(voices).forgotten) == 1


async def test_a_store_is_opened_once(tmp_path: Path) -> None:
    voices = catalogue(tmp_path, **SLOW)
    stores = await asyncio.gather(*(voices._library._opened() for _ in range(3)))
    assert stores[0] is stores[1] is stores[2]
    await asyncio.gather(voices.add("anna", wav()), voices.add("ben", wav(1.1)))
    assert [each.name for each in voices.stored()] in (["anna", "ben"], ["ben", "anna"])
    await voices.close()


async def test_a_deletion_is_seen_though_it_is_seen_half_done(tmp_path: Path) -> None:
    one = catalogue(tmp_path, **SLOW)
    await one.start()
    await one.add("anna", wav())
    for folder in ("names", "voices"):
        for file in (tmp_path / folder).iterdir():
            file.unlink()
        await one.refresh()
    assert not one.stored()
    await one.close()
    assert len(cloner(one).forgotten) == 1


async def test_the_event_loop_never_waits_for_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop_thread = threading.get_ident()
    used: set[str] = set()
    for method in ("listed", "read", "write", "remove", "locked"):
        true = getattr(FolderFiles, method)

        def spy(self: Any, *given: Any, _true: Any = true, _method: str = method) -> Any:
            assert threading.get_ident() != loop_thread
            used.add(_method)
            return _true(self, *given)

        monkeypatch.setattr(FolderFiles, method, spy)
    one, other = await replicas(tmp_path)
    kept = await one.add("anna", wav())
    await one.add("anna", wav(1.5), replace=True)
    await one.load_voice(ref_audio=wav(1.7))
    for name in ("clone:anna", kept.voice_id, "unlisted", "tone", None):
        for each in (one, other):
            try:
                each.check(name, "en")
                each.modes(name)
                await said(each, name)
            except SpeechError:
                continue
    one.voices()
    await other.remove("anna")
    for each in (one, other):
        await each.close()
    assert used == {"listed", "read", "write", "remove", "locked"}


async def test_looks_at_the_store_are_shared(tmp_path: Path) -> None:
    looks = 0

    class Counting(FolderFiles):
        def listed(self, folder: str) -> dict[str, int]:
            nonlocal looks
            looks += folder == "names"
            return super().listed(folder)

    settings = VoiceSettings(store=str(tmp_path), **SLOW)
    library = VoiceLibrary(settings, lambda: None, lambda: None)
    await library.start()
    assert library._store is not None
    library._store._files = Counting(tmp_path)
    await asyncio.gather(*(library.refresh() for _ in range(50)))
    assert looks == 2  # The first began before some of the others asked.
    await library.close()


async def test_a_store_that_fails_is_no_end_of_what_is_known(tmp_path: Path) -> None:
    one, other = await replicas(tmp_path)
    await one.add("anna", wav())
    assert await said(one, "anna")
    (tmp_path / "names").rename(tmp_path / "away")
    assert await said(one, "anna")
    await one.load_voice(ref_audio=wav())
    with pytest.raises(SpeechError, match="store"):
        await one.add("ben", wav())
    with pytest.raises(SpeechError, match="store"):
        await other.find("anna")
    (tmp_path / "away").rename(tmp_path / "names")
    assert await other.find("anna")
    for each in (one, other):
        await each.close()


def vanish_folder(folder: Path) -> None:
    shutil.rmtree(folder)


def vanish_bucket(folder: Path) -> None:
    fsspec.filesystem("memory").rm(f"{folder}", recursive=True)


@pytest.mark.parametrize(
    ("url", "vanish"), [("{0}/s", vanish_folder), ("memory://{0}/s", vanish_bucket)]
)
async def test_a_store_that_vanishes_is_busy_and_known_voices_go_on(
    tmp_path: Path, url: str, vanish: Callable[[Path], None]
) -> None:
    store = url.format(tmp_path)
    one, other = catalogue(store, **SLOW), catalogue(store, **SLOW)
    for each in (one, other):
        await each.start()
    await one.add("anna", wav())
    await other.add("ben", wav(1.5))
    await one.refresh()
    vanish(tmp_path / "s")
    with pytest.raises(ServerBusy, match="store"):
        await one.refresh()
    assert [each.name for each in one.stored()] == ["anna", "ben"]
    for known in ("anna", "clone:anna", await one.find("anna")):
        assert await said(one, known)
    busy: list[Coroutine[Any, Any, object]] = [
        said(one, "ben"),
        one.find("carl"),
        one.add("carl", wav(1.7)),
        one.remove("anna"),
        one.remove("carl"),
    ]
    for asked in busy:
        with pytest.raises(ServerBusy, match="store"):
            await asked
    assert await said(one, "anna")
    for each in (one, other):
        await each.close()


async def test_a_bucket_without_voices_is_no_store_that_is_away(tmp_path: Path) -> None:
    url = f"memory://{tmp_path}/empty"
    one, other = catalogue(url, **SLOW), catalogue(url, **SLOW)
    for each in (one, other):
        await each.start()
    await one.add("anna", wav())
    await other.refresh()
    await one.remove("anna")
    # As in an object store: without objects there are no folders.
    for name in ("names", "voices"):
        with contextlib.suppress(FileNotFoundError):
            fsspec.filesystem("memory").rmdir(f"{tmp_path}/empty/{name}")
    await other.refresh()
    assert other.stored() == ()
    with pytest.raises(UnknownVoice):
        await other.find("anna")
    for each in (one, other):
        await each.close()


async def test_a_store_that_is_full_or_away_refuses_no_reference(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    voices = catalogue(tmp_path, max_store_bytes=100, **SLOW)
    await voices.start()
    assert await said(voices, await voices.from_reference(None, audio=wav()))
    assert "full" in caplog.text
    (tmp_path / "voices").rename(tmp_path / "away")
    assert await said(voices, await voices.from_reference(None, audio=wav(1.1)))
    assert "not kept for other replicas" in caplog.text
    await voices.close()


async def test_a_store_that_stays_away_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    voices = catalogue(tmp_path, refresh_s=0.001)
    await voices.start()
    (tmp_path / "names").rename(tmp_path / "away")
    looks = voices._library._looks
    await until(lambda: voices._library._looks > looks + 5)
    (tmp_path / "away").rename(tmp_path / "names")
    await until(lambda: not voices._library._failing)
    await voices.close()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert str(tmp_path) not in caplog.text


async def test_an_engine_that_cannot_forget_is_told_of_in_the_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unable(_: str) -> None:
        raise PermissionError(13, "Permission denied")

    voices = catalogue()
    await voices.start()
    await voices.add("anna", wav())
    monkeypatch.setattr(voices.inner, "forget_voice", unable)
    await voices.remove("anna")
    await voices.close()
    assert "still with the engine" in caplog.text


async def test_a_recording_that_vanished_or_was_damaged_is_unknown(tmp_path: Path) -> None:
    one, other = await replicas(tmp_path)
    kept = await one.add("anna", wav())
    await other.refresh()
    for file in (tmp_path / "voices").iterdir():
        file.write_bytes(b"damaged")
    with pytest.raises(UnknownVoice, match="not stored"):
        await said(other, "anna")
    assert await said(one, "anna")
    assert other.modes(kept.voice_id) == ("clause",)
    for each in (one, other):
        await each.close()


async def test_who_waits_for_a_stored_voice_shares_the_work(tmp_path: Path) -> None:
    one, other = await replicas(tmp_path)
    await one.add("anna", wav())
    cloner(other).gate.clear()
    await other.refresh()
    waiting = [asyncio.create_task(said(other, "anna")) for _ in range(3)]
    turns = other._library._turns
    await until(lambda: [count for _, count in turns._locks.values()] == [3])
    cloner(other).gate.set()
    assert len(set(await asyncio.gather(*waiting))) == 1
    assert cloner(other).computed == 1
    for each in (one, other):
        await each.close()


async def test_a_store_that_cannot_be_used_keeps_the_server_from_starting(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    voices = catalogue(tmp_path / "file")
    with pytest.raises(EngineUnavailable):
        await voices.start()
    assert not cloner(voices).started


async def test_it_can_be_started_again(tmp_path: Path) -> None:
    voices = catalogue(tmp_path, **SLOW)
    for _ in range(2):
        await voices.start()
        await voices.start()
        if not voices.stored():
            await voices.add("anna", wav())
        assert await said(voices, "anna")
        await voices.close()
        await voices.close()


async def test_voices_of_an_engine_and_of_people_are_listed_together(tmp_path: Path) -> None:
    one, other = await replicas(tmp_path, default="clone:Anna")
    await one.add("Anna", wav(), description="calm")
    await other.refresh()
    assert [each.id for each in other.voices()] == ["clone:Anna", *(each.id for each in VOICES)]
    sound = other.synthesize(SynthesisRequest("Hi"))
    assert (await anext(sound)).pcm
    await sound.aclose()
    assert cloner(other).spoken_with == [other.resolve("anna")]
    for each in (one, other):
        await each.close()
