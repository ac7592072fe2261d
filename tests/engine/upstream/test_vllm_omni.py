"""The engine in front of a server that speaks vLLM-Omni's WebSocket."""

from __future__ import annotations

import base64

import pytest

from qwen3tts_engine.wrapped import task_of
from qwen3tts_wire.errors import (
    UnknownVoice,
)
from tests.engine.upstream.peers import OmniPeer, Script, Talk, sound_of, upstream
from tests.engine.upstream.speaking import TEXT, chunks_of, heard, is_said
from tests.engine.upstream.test_vllm_omni_faults import refusing
from tests.engine.waiting import until

pytestmark = pytest.mark.network


async def test_a_request_is_one_config_one_text_and_one_stream() -> None:
    peer = OmniPeer()
    async with upstream(peer, model="m", extra='{"task_type": "CustomVoice"}') as engine:
        assert is_said(
            await heard(
                engine,
                voice="Vivian",
                language="zh-CN",
                instructions="calm",
                seed=7,
                initial_codec_chunk_frames=2,
            )
        )
    assert peer.texts == [TEXT]
    assert peer.configs == [
        {
            "type": "session.config",
            "model": "m",
            "response_format": "pcm",
            "stream_audio": True,
            "split_granularity": "none",
            "voice": "vivian",
            "language": "Chinese",
            "instructions": "calm",
            "seed": 7,
            "initial_codec_chunk_frames": 2,
            "task_type": "CustomVoice",
        }
    ]


async def test_one_connection_carries_utterances_one_after_the_other() -> None:
    peer = OmniPeer()
    async with upstream(peer) as engine:
        for voice in ("ryan", "ryan", "vivian"):
            assert is_said(await heard(engine, voice=voice))
        assert len(peer.headers) == 1
        assert [config["voice"] for config in peer.configs] == ["ryan", "vivian"]
    assert peer.closed_politely == 1


async def test_the_key_goes_along(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QWEN3TTS_UPSTREAM_API_KEY", "s3cret")
    peer = OmniPeer()
    async with upstream(peer) as engine:
        assert peer.headers[0]["Authorization"] == "Bearer s3cret"
        assert any("unencrypted" in note for note in engine.notes)
        assert "s3cret" not in repr(engine.settings)


async def start_with_the_sound(talk: Talk) -> None:
    """The handler of another version."""
    await talk.start(channels=1)
    await talk.sound()
    await talk.done()
    await talk.over()


async def sentences_then_the_end(talk: Talk) -> None:
    """The server of March: sentences always, then it hangs up."""
    half = len(sound_of(talk.text)) // 2
    for unit, data in enumerate((sound_of(talk.text)[:half], sound_of(talk.text)[half:])):
        await talk.start(unit)
        await talk.sound(data)
        await talk.done(unit)
    await talk.over(2)
    await talk.socket.close()


async def the_end_without_session_done(talk: Talk) -> None:
    await talk.start()
    await talk.sound()
    await talk.done()
    await talk.socket.close()


async def no_start_and_things_unknown(talk: Talk) -> None:
    await talk.tell("session.created", id="x")
    await talk.sound()
    await talk.tell("audio.level", value=3)
    await talk.done()
    await talk.over()


async def sound_as_base64(talk: Talk) -> None:
    await talk.start(word_timestamps=True)
    audio = base64.b64encode(sound_of(talk.text)).decode()
    await talk.tell("audio.chunk", audio_b64=audio, sample_rate=24_000, timestamps=None)
    await talk.tell("audio.chunk", audio_b64="", timestamps=[])
    await talk.done()
    await talk.over()


@pytest.mark.parametrize(
    "script",
    [
        start_with_the_sound,
        sentences_then_the_end,
        the_end_without_session_done,
        no_start_and_things_unknown,
        sound_as_base64,
    ],
)
async def test_every_version_is_understood(script: Script) -> None:
    async with upstream(OmniPeer(script)) as engine:
        assert is_said(await heard(engine))
        assert is_said(await heard(engine))


async def test_the_voices_are_those_that_the_server_lists() -> None:
    peer = OmniPeer()
    async with upstream(peer, voice="ryan") as engine:
        assert [voice.id for voice in engine.voices()] == ["ryan", "vivian", "mine"]
        assert engine.model == "Qwen/Qwen3-TTS"
        await heard(engine)
        assert peer.configs[-1]["voice"] == "ryan"


async def test_a_voice_uploaded_later_is_found() -> None:
    peer = OmniPeer()
    async with upstream(peer, voices_refresh_s=0.001) as engine:
        with pytest.raises(UnknownVoice):
            engine.check("latest", None)
        peer.voices = b'{"voices": ["latest"]}'

        def known() -> bool:
            try:
                engine.check("latest", None)
            except UnknownVoice:
                return False
            return True

        await until(known)
        peer.voices = b"<html>"
        with pytest.raises(UnknownVoice):
            engine.check("other", None)


@pytest.mark.parametrize("answer", [b"<html>", b"{}", b'{"voices": "x"}', b"[" * 50_000])
async def test_a_server_without_a_list_judges_names_itself(answer: bytes) -> None:
    peer = OmniPeer(refusing("Unknown speaker: nobody"), voices=answer)
    async with upstream(peer) as engine:
        assert [voice.id for voice in engine.voices()] == ["default"]
        assert any("lists no voices" in note for note in engine.notes)
        engine.check("anything", None)
        with pytest.raises(UnknownVoice, match="nobody"):
            await heard(engine, voice="nobody")
        await heard(engine, voice="somebody")
        await heard(engine, voice="default")
        assert [config.get("voice") for config in peer.configs[-2:]] == ["somebody", None]


async def test_voices_that_are_not_listed_may_be_allowed() -> None:
    peer = OmniPeer()
    async with upstream(peer, voices=("*",)) as engine:
        assert [voice.id for voice in engine.voices()] == ["vivian", "ryan", "mine"]
        await heard(engine, voice="de+f2")
        assert peer.configs[-1]["voice"] == "de+f2"


async def test_the_voices_may_be_set() -> None:
    peer = OmniPeer()
    async with upstream(peer, voices=("a", "b"), task="custom_voice") as engine:
        await heard(engine)
        assert peer.configs[-1]["voice"] == "a"
        assert task_of(engine) == "custom_voice"
    async with upstream(OmniPeer(), voices=("a", "b"), voice="b") as engine:
        assert [voice.id for voice in engine.voices()] == ["b", "a"]
        with pytest.raises(UnknownVoice):
            engine.check("ryan", None)


async def test_what_it_cannot_do_is_said() -> None:
    async with upstream(OmniPeer()) as engine:
        assert engine.options == {"instructions", "seed", "initial_codec_chunk_frames", "speed"}
        assert engine.alignment == "estimated"
        assert engine.modes(None) == ("clause",)


async def test_a_speed_that_it_does_not_have_is_made_of_its_sound() -> None:
    async with upstream(OmniPeer()) as engine:
        usual = await chunks_of(engine)
    for speed in (0.5, 2.0):
        # The rate of an engine's voice is learned.
        async with upstream(OmniPeer()) as engine:
            chunks = await chunks_of(engine, speed=speed)
            length = sum(chunk.samples for chunk in chunks)
            assert length == pytest.approx(sum(c.samples for c in usual) / speed, abs=800)
            given = 0
            for chunk in chunks:
                given += chunk.samples
                assert all(word.end <= given for word in chunk.words)
            words = [word for chunk in chunks for word in chunk.words]
            before = [word for chunk in usual for word in chunk.words]
            assert [word.text for word in words] == [word.text for word in before]
            for word, old in zip(words, before, strict=True):
                assert word.start == pytest.approx(old.start / speed, abs=800)


async def test_silence_at_the_start_is_left_out() -> None:
    async def late(talk: Talk) -> None:
        await talk.start()
        await talk.sound(bytes(48_000))
        await talk.sound()
        await talk.done()
        await talk.over()

    async with upstream(OmniPeer(late, late)) as engine:
        whole = len(sound_of(TEXT))
        assert 0 <= len(await heard(engine)) - whole <= 2 * 480
        assert 0 <= len(await heard(engine, continued=True)) - whole <= 2 * 2880
