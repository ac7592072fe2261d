from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lib.providers import ProviderManager
from mr_qwen3tts import plugin as plugin_module
from mr_qwen3tts.caller import SILENCE
from mr_qwen3tts.connection import LinkState
from mr_qwen3tts.host import Host
from mr_qwen3tts.plugin import Plugin
from mr_qwen3tts.settings import Settings
from qwen3tts_speech.line import VoiceOptions
from qwen3tts_speech.link import SpeechLink
from qwen3tts_wire.errors import BadRequest, ConnectionLost, SpeechError
from qwen3tts_wire.process import DUE, Heap
from tests.fakes import FakeClock, settle
from tests.speech.fakes import FakeClient
from tests.wire.test_process import Ring

TEXT = "Good morning. How are you today?"


def context(log_id: str | None = "call", **env: str) -> Any:
    return SimpleNamespace(
        log_id=log_id, agent={"persona": {}}, agent_name="Ann", data={}, env=env, username="admin"
    )


class World:
    """The plugin between a SIP service that keeps what it gets and a server that a test plays."""

    def __init__(self) -> None:
        self.services, self.commands = ProviderManager(), ProviderManager()
        self.commands.register_function("speak", "mr_qwen3tts", self.nothing)
        self.services.register_function("sip_audio_out_chunk", "mr_sip", self.chunk)
        self.chunks: list[tuple[str, bytes]] = []
        self.client = FakeClient()
        self.clock = FakeClock()
        self.plugin = Plugin(Host(self.services, self.commands), clock=self.clock)

        async def connect(url: str) -> FakeClient:
            return self.client

        link = SpeechLink("ws://test", connect=cast(Any, connect))
        link.state = SimpleNamespace(using_fallback=False, voices=("Vivian",))  # type: ignore[attr-defined]
        self.plugin.links.of = lambda settings: link  # type: ignore[assignment, method-assign, return-value]

        async def options(*_: Any) -> VoiceOptions:
            return VoiceOptions()

        self.plugin.voices.options = options  # type: ignore[method-assign, assignment]

    async def nothing(self) -> None: ...

    async def chunk(self, audio_chunk: bytes, context: Any = None) -> bool:
        self.chunks.append((context.log_id, audio_chunk))
        return True

    async def partial(
        self, where: Any, text: object, cmd_id: str = "a", name: str = "speak"
    ) -> None:
        params = {"text": text}
        data = {"command": name, "chunk": "", "params": params, "cmd_id": cmd_id}
        await self.plugin.partial(data, where)
        await settle(20)

    def speak(
        self, text: object, where: Any, voice_id: object = None, **more: object
    ) -> asyncio.Task[str | None]:
        return asyncio.create_task(self.plugin.speak(text, voice_id, where, more))

    async def answer(self, number: int = 1, ms: int = 40) -> None:
        """The server says all of it."""
        await settle(30)
        one = self.client.contexts[number - 1]
        one.sound(ms)
        one.done()
        await settle(20)
        await self.clock.advance(1.0)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    closing = asyncio.create_task(made.plugin.shutdown())
    await made.clock.advance(1.0)
    await closing


async def test_words_go_to_the_server_at_once_and_sound_to_the_call(world: World) -> None:
    here = context()
    await world.partial(here, "Good morning. How")
    assert [each.text for each in world.client.contexts] == ["Good morning. "]
    speaking = world.speak(TEXT, here)
    await world.answer()
    assert speaking.done()
    assert world.client.contexts[0].text == TEXT
    assert world.chunks
    assert {(log_id, len(chunk)) for log_id, chunk in world.chunks} == {("call", 160)}
    assert [(each.outcome, each.heard) for each in world.plugin.records.last] == [("said", None)]
    heard = world.plugin.heard(here)
    assert heard is not None
    assert heard["heard"] + heard["remaining"] == TEXT
    assert not heard["interrupted"]
    assert world.plugin.heard(context("another")) is None


async def test_a_command_that_got_another_calls_context_is_heard_by_its_own_caller(
    world: World,
) -> None:
    mine, another = context("mine"), context("another")

    async def turn() -> None:
        await world.partial(mine, "Good morning.")
        await world.speak(TEXT, another)

    running = asyncio.create_task(turn())
    await settle(60)
    await world.answer()
    assert running.done()
    assert {log_id for log_id, _ in world.chunks} == {"mine"}
    assert world.plugin.records.snapshot()["counts"]["mixups"] == 1


async def test_a_path_as_voice_is_told_to_the_model_once_and_the_words_are_said(
    world: World,
) -> None:
    here = context()
    for number, (voice, told) in enumerate(
        [("/etc/a.wav", True), ("/etc/a.wav", False), ("Vivian", False), ("http://h/a", True)], 1
    ):
        speaking = world.speak(TEXT, here, voice)
        await world.answer(number)
        answer = speaking.result()
        assert (answer is not None) == told
        if answer is not None:
            assert voice in answer
            assert "do not repeat" in answer
            assert "(Vivian)" in answer
        assert world.client.contexts[number - 1].text == TEXT


def test_a_path_as_voice_of_a_stream_is_refused(world: World) -> None:
    with pytest.raises(BadRequest, match="no name of a voice"):
        world.plugin.stream(TEXT, "file:///etc/a.wav", "ulaw_8000", context())


async def test_another_agents_voice_plugin_is_left_to_speak(world: World) -> None:
    world.commands.register_function("speak", "mr_other", world.nothing)
    here = context()
    here.agent["preferred_providers"] = ["mr_other"]
    await world.partial(here, "Good morning. How")
    assert not world.client.contexts


async def test_partials_can_be_switched_off_for_one_agent(world: World) -> None:
    here = context(MR_QWEN3TTS_REALTIME_STREAM="0")
    await world.partial(here, "Good morning. How")
    assert not world.client.contexts
    speaking = world.speak(TEXT, here)
    await world.answer()
    assert speaking.done()
    assert world.client.contexts[0].text == TEXT


@pytest.mark.parametrize("nothing", [None, "", "   ", [], {}, "**", "<p></p>", "\ud83d"])
async def test_a_turn_without_words_is_no_failure_to_the_sip_side(
    world: World, nothing: object
) -> None:
    await world.speak(nothing, context())
    assert not world.client.contexts
    assert world.chunks == [("call", SILENCE)]


@pytest.mark.parametrize(
    ("strange", "said"), [(["Good", "morning."], "Good morning."), (42, "42"), (4.5, "4.5")]
)
async def test_what_is_not_quite_a_text_is_said(world: World, strange: object, said: str) -> None:
    speaking = world.speak(strange, context())
    await world.answer()
    assert speaking.done()
    assert world.client.contexts[0].text.split() == said.split()


async def test_the_text_may_have_another_name(world: World) -> None:
    speaking = world.speak(None, context(), markdown="Good morning.")
    await world.answer()
    assert speaking.done()
    assert world.client.contexts[0].text == "Good morning."


async def test_wrong_settings_are_told_and_the_call_goes_on(world: World) -> None:
    here = context(MR_QWEN3TTS_LEAD_MS="soon")
    speaking = world.speak(TEXT, here)
    await world.answer()
    assert speaking.done()
    assert world.chunks
    assert any("MR_QWEN3TTS_LEAD_MS" in each["error"] for each in problems(world))


def problems(world: World) -> list[dict[str, Any]]:
    return list(world.plugin.records.snapshot()["problems"])


async def test_an_error_of_ours_is_no_result_for_the_model(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(world.plugin, "_caller", broken)
    await world.speak(TEXT, context())
    await world.partial(context(), "Good morning. How")
    assert {each["what"] for each in problems(world)} == {"speak", "partial"}


async def test_a_barrier_waits_only_for_commands_that_would_cut_the_sound(world: World) -> None:
    here = context()
    speaking = world.speak(TEXT, here)
    await settle(30)
    world.client.contexts[0].sound(200)
    await settle(20)
    await world.partial(here, "", cmd_id="b", name="look_up")
    hangup = asyncio.create_task(world.partial(here, "", cmd_id="c", name="hangup"))
    await world.clock.advance(1.0)
    assert not hangup.done()
    world.client.contexts[0].done()
    await world.clock.advance(1.0)
    assert hangup.done()
    assert speaking.done()


async def test_callers_who_have_long_been_silent_are_forgotten(world: World) -> None:
    speaking = world.speak(TEXT, context("first"))
    await world.answer()
    assert speaking.done()
    await world.clock.advance(601)
    speaking = world.speak(TEXT, context("second"))
    await world.answer(2)
    assert speaking.done()
    assert list(world.plugin.conversations) == ["second"]


async def test_on_interrupt_stops_its_own_caller_only(world: World) -> None:
    one, two = world.speak(TEXT, context("one")), world.speak(TEXT, context("two"))
    await settle(40)
    for each in world.client.contexts:
        each.sound(1000)
    await settle(20)
    await world.plugin.interrupt(context("one"))
    await settle(20)
    assert one.done()
    assert not two.done()
    assert world.client.contexts[0].cancelled_at
    assert not world.client.contexts[1].cancelled_at
    await world.plugin.interrupt(None)


async def test_without_a_telephone_the_commands_of_one_say_so(world: World) -> None:
    for name in ("call", "hangup", "send_dtmf"):
        assert await world.plugin.at_desk(name, "1", context()) == "There is no telephone here."


async def test_the_plugin_leaves_a_hosts_own_telephone_alone(world: World) -> None:
    assert not world.plugin.open_desk(cast(Any, None))


async def test_the_heap_is_held_from_start_to_end_and_swept_in_silence(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector, collections, ring = Heap(), {"collections": 0}, Ring()
    monkeypatch.setattr(plugin_module, "heap", collector)
    monkeypatch.setattr(gc, "get_stats", lambda: [{}, {}, collections])
    gone = weakref.ref(ring)
    world.plugin.start()
    world.plugin.start()
    assert collector.held
    del ring
    here = context()
    speaking = world.speak(TEXT, here)
    await world.answer()
    assert speaking.done()
    collections["collections"] += DUE
    speaking = world.speak(TEXT, here)
    await world.answer(2)
    assert speaking.done()
    assert gone() is not None, "its end may be still on its way"
    await world.clock.advance(2.0)
    await settle(20)
    assert gone() is None
    closing = asyncio.create_task(world.plugin.shutdown())
    await world.clock.advance(1.0)
    await closing
    assert not collector.held


async def test_the_heap_is_held_from_the_first_words_where_the_host_never_ran_our_start(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector = Heap()
    monkeypatch.setattr(plugin_module, "heap", collector)
    speaking = world.speak(TEXT, context())
    await world.answer()
    assert speaking.done()
    assert collector.held
    closing = asyncio.create_task(world.plugin.shutdown())
    await world.clock.advance(1.0)
    await closing
    assert not collector.held


async def test_a_host_may_keep_its_collector_to_itself(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MR_QWEN3TTS_FREEZE_HEAP", "0")
    monkeypatch.setattr(plugin_module, "heap", None)
    world.plugin.start()
    speaking = world.speak(TEXT, context())
    await world.answer()
    assert speaking.done()


def link_state(*, up: bool, since: float, error: SpeechError | None = None) -> LinkState:
    url = Settings().url
    return LinkState(url, up, since, error, "fake", "", (), using_fallback=False, attempts=0)


async def test_voices_are_made_ready_for_each_server_that_comes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    warmed: list[int] = []

    async def warm(client: Any, wishes: Any, settings: Settings) -> None:
        warmed.append(len(list(wishes)))

    async def personas() -> list[dict[str, str]]:
        return [{"voice_id": "one"}, {"voice_id": "two"}]

    monkeypatch.setattr(world.plugin.voices, "warm", warm)
    monkeypatch.setattr(world.plugin.host, "personas", personas)
    world.plugin.start()
    for state in (
        link_state(up=True, since=1.0),
        link_state(up=True, since=1.0),
        link_state(up=False, since=2.0, error=ConnectionLost("It is away.", remedy="Start it.")),
        link_state(up=True, since=3.0),
    ):
        world.plugin._link_changed(Settings(), state)
        await settle(20)
    assert warmed == [2, 2]
    assert [(each["what"], each["remedy"]) for each in problems(world)] == [("server", "Start it.")]
