"""Faults of the plugin as a whole that were found by trying it, each as a test."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from lib.providers import ProviderManager
from mr_qwen3tts.host import Host
from mr_qwen3tts.plugin import Plugin
from mr_qwen3tts.settings import Settings
from qwen3tts_codecs.frames import FrameEncoder
from qwen3tts_codecs.g711 import PCMU
from qwen3tts_pacer.slot import Frame, Slot
from qwen3tts_speech.line import VoiceOptions
from qwen3tts_speech.sink import PacerSink
from tests.fakes import FakeClock, settle
from tests.speech.fakes import FakeClient
from tests.speech.speech_servers import MAIN, OTHER, Servers
from tests.wire.pair import GREETING


class Client(FakeClient):
    """A connection that stays."""

    connected = True
    idle = True

    def __init__(self) -> None:
        super().__init__()
        self.session: Any = GREETING

    async def away(self) -> None:
        await asyncio.Event().wait()


def context(log_id: str = "call", **env: str) -> Any:
    return SimpleNamespace(
        log_id=log_id, agent={"persona": {}}, agent_name="Ann", data={}, env=env, username="admin"
    )


def plugin_with(connect: Any, clock: FakeClock, taken: list[bytes] | None = None) -> Plugin:
    services, commands = ProviderManager(), ProviderManager()

    async def nothing() -> None: ...

    async def chunk(audio_chunk: bytes, context: Any = None) -> bool:
        if taken is not None:
            taken.append(audio_chunk)
        return True

    commands.register_function("speak", "mr_qwen3tts", nothing)
    services.register_function("sip_audio_out_chunk", "mr_sip", chunk)
    return Plugin(Host(services, commands), clock=clock, connect=connect)


async def until_done(task: asyncio.Task[Any], clock: FakeClock, most_s: float = 60.0) -> float:
    """Seconds of the clock that it takes."""
    begun = clock.now()
    while not task.done() and clock.now() - begun < most_s:
        await clock.advance(0.1)
        await settle(10)
    assert task.done()
    return clock.now() - begun


async def leave(plugin: Plugin, clock: FakeClock) -> None:
    await until_done(asyncio.create_task(plugin.shutdown()), clock)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


# The longest wait for a server was that of the first agent, for ever.
async def test_the_longest_wait_for_a_server_is_that_of_now_and_of_this_agent(
    clock: FakeClock,
) -> None:
    plugin = plugin_with(Servers().connect, clock)
    first = asyncio.create_task(plugin.speak("Good morning.", None, context("one"), {}))
    assert await until_done(first, clock) >= 1.1
    patient = context("two", MR_QWEN3TTS_WAIT_MS="200")
    second = asyncio.create_task(plugin.speak("Good morning.", None, patient, {}))
    assert await until_done(second, clock) < 0.6
    await leave(plugin, clock)


async def options(*_: Any) -> VoiceOptions:
    return VoiceOptions()


def between(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch, taken: list[bytes] | None = None
) -> tuple[Plugin, dict[str, Client]]:
    """The plugin between a telephone and two servers."""
    clients = {MAIN: Client(), OTHER: Client()}

    async def connect(url: str) -> Any:
        return clients[url]

    plugin = plugin_with(connect, clock, taken)
    monkeypatch.setattr(plugin.voices, "options", options)
    return plugin, clients


async def answer(client: Client) -> None:
    await settle(60)
    if client.contexts:
        client.contexts[-1].sound(40)
        client.contexts[-1].done()


# A conversation stayed with the server that it had begun with.
async def test_a_server_that_is_set_anew_counts_for_sessions_under_way(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin, clients = between(clock, monkeypatch)
    here = context("one")
    for url in (MAIN, OTHER):
        here.env["MR_QWEN3TTS_URL"] = url
        speaking = asyncio.create_task(plugin.speak("Good morning.", None, here, {}))
        await answer(clients[url])
        await until_done(speaking, clock)
        await clock.advance(1.0)
    assert [len(clients[url].contexts) for url in (MAIN, OTHER)] == [1, 1]
    await leave(plugin, clock)


# A server that takes a sentence and never says it costs the sentence, though another
# server is there and nothing of it was heard.
async def test_what_a_deaf_server_has_not_begun_to_say_is_said_by_the_fallback(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin, clients = between(clock, monkeypatch)
    here = context("one", MR_QWEN3TTS_URL=MAIN, MR_QWEN3TTS_FALLBACK_URL=OTHER)
    speaking = asyncio.create_task(plugin.speak("Good morning.", None, here, {}))
    for _ in range(60):
        await clock.advance(0.1)
        await settle(10)
        if clients[OTHER].contexts:
            break
    await answer(clients[OTHER])
    await until_done(speaking, clock)
    assert [each.text for each in clients[MAIN].contexts] == ["Good morning."]
    assert [each.text for each in clients[OTHER].contexts] == ["Good morning."]
    await leave(plugin, clock)


# The SIP side generates a turn again that brings no frame for 1.5 s.
async def test_a_server_that_is_slow_to_begin_does_not_make_the_host_generate_the_turn_again(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[bytes] = []
    plugin, clients = between(clock, monkeypatch, taken)
    here = context("one", MR_QWEN3TTS_URL=MAIN)
    speaking = asyncio.create_task(plugin.speak("Good morning.", None, here, {}))
    for _ in range(14):
        await clock.advance(0.1)
        await settle(10)
    assert taken, "no frame after 1.4 s"
    await answer(clients[MAIN])
    await until_done(speaking, clock)
    await leave(plugin, clock)


# A first frame with fewer samples than the others (the resampler's delay) set the pace
# at which the position was counted: 15 % too slow. So what was heard was told wrongly, `speak` came
# back late, and the server, which took itself to be far ahead, let the caller starve.
async def test_what_is_at_the_callers_ear_is_known_to_the_frame(clock: FakeClock) -> None:
    async def write(payload: bytes, slot: Slot) -> bool:
        return True

    sink = PacerSink(write, silence=PCMU.silent_frame(20), clock=clock)
    begun = clock.now()
    sink.begin(1, "")
    frames, position = [], 0
    for payload, tail, head, samples, silent in FrameEncoder(24_000, PCMU).push(b"\1\0" * 240_000):
        end = position + samples
        frames.append(Frame(payload, tail, head, 1, position, end, silent))
        position = end
    sink.write(frames)
    for _ in range(8):
        await clock.advance(1.0)
        assert abs(sink.position(1) / 24_000 - (clock.now() - begun)) < 0.03
    await sink.close()


# What another plugin said while the model wrote (from its own pipe, or from a task that
# it began there) was taken for the model's command: the rest of the model's sentence was lost.
@pytest.mark.parametrize("where", ["in its pipe", "in a task of its own"])
async def test_what_another_plugin_says_while_the_model_writes_is_not_the_models_command(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    plugin, clients = between(clock, monkeypatch)
    here = context("one", MR_QWEN3TTS_URL=MAIN)

    async def partial(text: str) -> None:
        data = {"command": "speak", "chunk": "", "params": {"text": text}, "cmd_id": "a"}
        await plugin.partial(data, here)

    async def turn() -> None:
        await partial("Good morning to")
        await settle(20)
        other = plugin.speak("One moment please.", None, here, {})
        others = asyncio.create_task(other) if where == "in a task of its own" else None
        if others is None:
            await other
        else:
            await settle(20)
        await partial("Good morning to you all.")
        command = plugin.speak("Good morning to you all.", None, here, {})
        await asyncio.create_task(command)
        if others is not None:
            await others

    async def answer_all() -> None:
        while not running.done():
            await settle(10)
            for each in clients[MAIN].contexts:
                if each.ended and not each.cancelled_at and each not in answered:
                    answered.append(each)
                    each.sound(40)
                    each.done()

    answered: list[Any] = []
    running = asyncio.create_task(turn())
    answering = asyncio.create_task(answer_all())
    await until_done(running, clock)
    await answering
    said = [each.text for each in clients[MAIN].contexts]
    assert said.count("One moment please.") == 1
    said.remove("One moment please.")
    assert "".join(said) == "Good morning to you all."
    await leave(plugin, clock)


# A service of the SIP plugin that breaks before there is any sound took all words away,
# though the frames would have been taken.
@pytest.mark.parametrize("broken", ["sip_is_audio_halted", "sip_start_audio_response"])
async def test_a_service_of_the_sip_plugin_that_breaks_costs_no_word(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    taken: list[bytes] = []
    plugin, clients = between(clock, monkeypatch, taken)

    async def breaks(context: Any = None) -> bool:
        raise RuntimeError("broken")

    services: Any = plugin.host._services
    services.register_function(broken, "mr_sip", breaks)
    here = context("one", MR_QWEN3TTS_URL=MAIN)
    speaking = asyncio.create_task(plugin.speak("Good morning.", None, here, {}))
    await answer(clients[MAIN])
    await until_done(speaking, clock)
    assert taken
    told = [each["error"] for each in plugin.records.snapshot()["problems"]]
    assert any("broken" in each for each in told)
    await leave(plugin, clock)


# An address with a blank in it was taken, and the agent was silent without a reason.
@pytest.mark.parametrize("url", ["http://x y", "ws://a b:8765/v1/speech", "http://a\tb"])
def test_an_address_that_cannot_be_is_told_and_the_default_counts(url: str) -> None:
    settings, problems = Settings.usable({"MR_QWEN3TTS_URL": url})
    assert settings.url == Settings().url
    assert [each.variable for each in problems] == ["MR_QWEN3TTS_URL"]
