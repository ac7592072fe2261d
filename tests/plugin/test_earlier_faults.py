"""The faults of an earlier plugin, the host's traps, and what was good: each has a test.

Faults (facts, section 3), and the tests that fail where ours has them. A name without a file is
below; ``e2e`` are the tests in tests/mindroot_host, in the real host.

==  ===========================================  ==================================================
 1  text is sent when the model has ended        test_conversation: words_are_with_the_server_while…
                                                 e2e test_speaking: words_are_heard_while_the_model…
 2  refuses its own default voice; what `speak`  a_voice_of_the_older_plugin_is_no_error; the_model_
    returns makes the model run again            gets_no_result…; e2e test_speaking: the_model_is_
                                                 not_asked_again…
 3  another provider name than the plugin's      the_host_finds_everything_under_our_own_name
 4  a refused second `speak` breaks the order;   test_conversation_races: words_of_other_plugins_…;
    speaks are refused, not queued               a_late_cancel_…; test_conversation_property
 5  goes on after CancelledError                 test_conversation_stops: a_cancelled_command_…;
                                                 e2e test_stopping: page, cancel_and_wait
 6  audio shorter than its buffer never starts   however_little_sound_comes_the_command_returns
 7  no lead, polling, bursts after an underrun   test_pacer_sink: no_more_than_the_lead…; test_core:
                                                 after_a_stall_one_slot…; test_sip_sink: sound_that_
                                                 comes_in_time…, a_host_that_is_busy…
 8  calls steal each other's sound; one voice    calls_at_once_have_their_own_sound_and_voice;
    for all; GeneratorExit is swallowed          e2e test_speaking: three_calls…; test_stream:
                                                 leaving_the_loop_stops_the_work
 9  old sound is drained by guessing             sound_that_comes_after_a_stop_is_for_nobody;
                                                 test_conversation_stops: stopped_clean in four
10  callers' words in files of /tmp, opened on   what_a_caller_hears_is_in_no_file_and_in_no_log;
    the event loop                               test_records: nothing_is_written_…
11  resampling without a filter; audioop         test_resample_quality; no_module_needs_audioop
12  settings frozen at import; no language       test_settings: a_change_counts…, an_agent_goes_…;
                                                 test_voices: all_settings_of_speech_come_along
13  the next text loses its beginning; no        a_shorter_text_after_a_longer_one_is_said_whole;
    cmd_id; no look at the prefix                test_conversation: stale_partials_…; test_partials
14  errors are silence; waits of 120 s           an_error_is_told_and_keeps_nobody_waiting;
                                                 test_line_stall, test_server_link;
                                                 e2e test_bad_server
15  a hook that nobody fires; versions and       the_end_of_the_host_is_heard_of; test_layout;
    dependencies that do not agree               wheel_check
16  `stream_tts` cannot be called as a service   stream_tts_can_be_called_in_both_ways
==  ===========================================  ==================================================

What is kept: the shape of `speak` and `stream_tts`, the pipe and its priority (below: the shape…,
the host finds…); live partials that can be switched off (test_plugin); skipping while halted
(test_conversation_stops: nothing_is_begun_…); False from a frame (a_frame_that_is_not_wanted_…);
responses begun and ended, where there are such (test_sip_sink, test_host); voices (test_wishes,
test_voices); one speak after the other (test_conversation: a_second_command_follows_…); a clean
next reply (stopped_clean); what partials missed (test_conversation: words_are_with_…, a_command_
without_partials_…); finished commands (stale_partials_…); a stop that waits for nobody (test_
conversation_races: a_stopped_command_returns_…); the barrier (test_plugin: a_barrier_…; e2e
test_speaking: a_command_after_the_words_…); no telephone (test_local_sink; e2e test_telephony);
the older variables (test_settings, test_documents).

Traps of the host (sections 1.2 to 1.6, 2.1): imports and their names (test_layout), another call's
context (test_plugin, test_turn; e2e test_speaking), a context at each call and text by name
(test_host), services that read files (the_services_that_read_files_…), pipes that return nothing
(the_pipe_gives_on_…), hooks that raise (test_plugin_races: an_interruption_that_breaks_…), args of
any shape (test_partials, test_plugin, a_command_with_unknown_arguments_…), a renamed command (the_
command_that_speaks_may_have_another_name), partials that are no prefixes (test_partials, from the
real parser), a turn that goes on though it was interrupted (test_conversation_races), a start that
throws away a tail (test_sip_sink: a_start_never_cuts_…), a timestamp (test_host), who resumes
(the_telephones_own_switches_are_left_alone), a turn without a frame (test_plugin: a_turn_without_
words_…), no startup hook (all tests here: nobody calls it).
"""

from __future__ import annotations

import ast
import asyncio
import builtins
import inspect
import io
import logging
import os
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lib.pipelines.pipe import pipeline_manager
from lib.providers.commands import command_manager
from lib.providers.hooks import hook_manager
from lib.providers.services import service_manager
from mr_qwen3tts import mod
from qwen3tts_speech.line import VoiceOptions
from qwen3tts_wire.errors import EngineFailed
from tests.fakes import settle
from tests.plugin.test_plugin import TEXT, World, context, problems

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """As in test_plugin; the host's functions in `mod` use it."""
    made = World()
    monkeypatch.setattr(mod, "plugin", made.plugin)
    yield made
    closing = asyncio.create_task(made.plugin.shutdown())
    await made.clock.advance(1.0)
    await closing


def by_us(manager: Any, name: str) -> Any:
    """Our implementation, as the host keeps it."""
    found = [each for each in manager.functions[name] if each["provider"] == "mr_qwen3tts"]
    return found[0]["implementation"]


# --- 2


async def test_a_voice_of_the_older_plugin_is_no_error(world: World) -> None:
    speaking = world.speak(TEXT, context(MR_QWEN3TTS_VOICE="Vivian"))
    await world.answer()
    assert speaking.done()
    assert world.chunks
    assert [each.outcome for each in world.plugin.records.last] == ["said"]


@pytest.mark.parametrize("how", ["said", "failed", "halted", "nothing", "interrupted"])
async def test_the_model_gets_no_result_whatever_became_of_the_words(
    world: World, how: str
) -> None:
    async def halted(context: Any) -> bool:
        return how == "halted"

    world.plugin.host.halted = halted  # type: ignore[method-assign]
    here = context()
    running = asyncio.create_task(
        command_manager.execute("speak", text="" if how == "nothing" else TEXT, context=here)
    )
    await settle(30)
    if how == "failed":
        world.client.contexts[0].fail(EngineFailed("It broke."))
    elif how == "interrupted":
        await hook_manager.on_interrupt(context=here)
    elif how == "said":
        await world.answer()
    await world.clock.advance(1.0)
    assert running.done()
    assert running.result() is None


# --- 3, and the shape


def test_the_host_finds_everything_under_our_own_name() -> None:
    assert by_us(command_manager, "speak") is mod.speak
    assert by_us(service_manager, "stream_tts") is mod.stream_tts
    [pipe] = [
        each
        for each in pipeline_manager.pipes["partial_command"]
        if each["implementation"] is mod.partial_command
    ]
    assert pipe["priority"] == 10
    for name in ("on_interrupt", "startup"):
        hooks = [each["implementation"] for each in hook_manager.hooks[name]]
        assert getattr(mod, name) in hooks
        assert all(map(inspect.iscoroutinefunction, hooks)), "the host awaits them"


def test_the_shape_of_what_others_call_is_kept() -> None:
    speak = list(inspect.signature(mod.speak).parameters)
    assert speak[:3] == ["text", "voice_id", "context"]
    stream = list(inspect.signature(mod.stream_tts).parameters)
    assert stream[:5] == ["text", "voice_id", "model_id", "output_format", "context"]
    for each in (mod.speak, mod.stream_tts):
        assert inspect.signature(each).parameters["kwargs"].kind is inspect.Parameter.VAR_KEYWORD


async def test_a_command_with_unknown_arguments_is_said(world: World) -> None:
    running = asyncio.create_task(mod.speak(TEXT, context=context(), emotion="glad", pause=3))
    await world.answer()
    assert running.done()
    assert world.client.contexts[0].text == TEXT


async def test_the_command_that_speaks_may_have_another_name(world: World) -> None:
    here = context(MR_SPEAK_CMD="talk")
    world.commands.register_function("talk", "mr_qwen3tts", world.nothing)
    await world.partial(here, "Good morning. How", name="talk")
    assert [each.text for each in world.client.contexts] == ["Good morning. "]


# --- 6, 9, and a False


@pytest.mark.parametrize("ms", [0, 1, 10, 20, 21])
async def test_however_little_sound_comes_the_command_returns(world: World, ms: int) -> None:
    speaking = world.speak(TEXT, context())
    await settle(30)
    [one] = world.client.contexts
    if ms:
        one.sound(ms)
    one.done()
    await world.clock.advance(0.5)
    assert speaking.done()
    assert bool(world.chunks) is bool(ms)
    assert not world.plugin.conversations["call"].busy


async def test_sound_that_comes_after_a_stop_is_for_nobody(world: World) -> None:
    here = context()
    first = world.speak(TEXT, here)
    await settle(30)
    [old] = world.client.contexts
    old.sound(200)
    await settle(20)
    first.cancel()
    await settle(20)
    before = len(world.chunks)
    second = world.speak("It is fine now.", here)
    await settle(30)
    old.sound(1000)
    old.done()
    await world.clock.advance(1.0)
    assert len(world.chunks) == before
    await world.answer(2, ms=20)
    assert second.done()
    # 20 ms of sound, and what the filter of the new reply adds to its ends.
    assert 1 <= len(world.chunks) - before <= 3


async def test_a_frame_that_is_not_wanted_stops_the_work_at_once(world: World) -> None:
    async def refuse(audio_chunk: bytes, context: Any = None) -> bool:
        world.chunks.append((context.log_id, audio_chunk))
        return False

    world.services.functions["sip_audio_out_chunk"][0]["implementation"] = refuse
    speaking = world.speak(TEXT, context())
    await settle(30)
    world.client.contexts[0].sound(2000)
    await settle(30)
    assert speaking.done()
    assert world.client.contexts[0].cancelled_at
    await world.clock.advance(1.0)
    assert len(world.chunks) == 1


async def test_the_telephones_own_switches_are_left_alone(world: World) -> None:
    used: list[str] = []
    for name in ("sip_halt_audio", "sip_resume_audio", "sip_clear_audio_queue"):

        async def switch(context: Any = None, name: str = name) -> bool:
            used.append(name)
            return True

        world.services.register_function(name, "mr_sip", switch)
    here = context()
    speaking = world.speak(TEXT, here)
    await settle(30)
    world.client.contexts[0].sound(500)
    await settle(20)
    await world.plugin.interrupt(here)
    await world.clock.advance(1.0)
    assert speaking.done()
    assert not used


# --- 8


async def test_calls_at_once_have_their_own_sound_and_voice(world: World) -> None:
    async def options(client: object, request: Any, settings: object) -> VoiceOptions:
        return VoiceOptions(voice=request.name)

    world.plugin.voices.options = options  # type: ignore[method-assign]
    names = ["anna", "bert", "cleo"]
    for name in names:
        here = context(name)
        here.agent = {"persona": {"voice_id": name}}
        world.speak(f"This is {name}.", here)
    await settle(60)
    assert [each["voice"] for each in world.client.options] == names
    assert [each.text for each in world.client.contexts] == [f"This is {each}." for each in names]
    # Each has another length, and the last one's sound comes first.
    for number, one in reversed(list(enumerate(world.client.contexts, 1))):
        one.sound(100 * number)
        one.done()
    await world.clock.advance(1.0)
    counts = [sum(log_id == name for log_id, _ in world.chunks) for name in names]
    # One frame more each: what the filter adds to the end.
    assert [count // 5 for count in counts] == [1, 2, 3]


# --- 10, 11


async def test_what_a_caller_hears_is_in_no_file_and_in_no_log(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    opened: list[object] = []
    for module, name in ((builtins, "open"), (io, "open"), (os, "open")):
        real = getattr(module, name)

        def noted(path: object, *args: Any, real: Any = real, **kwargs: Any) -> Any:
            opened.append(path)
            return real(path, *args, **kwargs)

        monkeypatch.setattr(module, name, noted)
    caplog.set_level(logging.DEBUG)
    here = context()
    await world.partial(here, "Quetzal xylophone. How")
    speaking = world.speak("Quetzal xylophone. How are you?", here)
    await world.answer()
    again = world.speak("Quetzal xylophone, once more.", here)
    await settle(30)
    world.client.contexts[1].fail(EngineFailed("It broke."))
    await world.clock.advance(1.0)
    assert speaking.done()
    assert again.done()
    assert opened == []
    assert "uetzal" not in caplog.text
    assert "uetzal" not in str(world.plugin.records.snapshot())


def test_no_module_needs_audioop() -> None:
    for folder in ("mr_qwen3tts", "codecs", "pacer", "phone", "server"):
        for file in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
                if isinstance(node, ast.ImportFrom):
                    names = [str(node.module)]
                assert "audioop" not in names, file


# --- 13, 14


async def test_a_shorter_text_after_a_longer_one_is_said_whole(world: World) -> None:
    here = context()
    texts = ["Good morning. How are you on this fine day?", "Good evening.", "Good. Bye."]
    for number, text in enumerate(texts, 1):
        await world.partial(here, text[: len(text) // 2], cmd_id=text)
        await world.partial(here, text, cmd_id=text)
        # The command runs in the host's own task, where the pipe has left its name.
        speaking = world.speak(text, here)
        await world.answer(number)
        assert speaking.done()
    assert [each.text for each in world.client.contexts] == texts


async def test_an_error_is_told_and_keeps_nobody_waiting(world: World) -> None:
    speaking = world.speak(TEXT, context())
    await settle(30)
    world.client.contexts[0].fail(EngineFailed("It broke."))
    await settle(30)
    assert speaking.done()
    assert [each["error"] for each in problems(world)] == ["It broke."]


# --- 15, 16


async def test_the_end_of_the_host_is_heard_of(world: World) -> None:
    routers: list[object] = []
    app = SimpleNamespace(router=SimpleNamespace(on_shutdown=[]), include_router=routers.append)
    await mod.on_load(app)
    assert len(routers) == 1
    # No hook tells of it: `quit` is never fired.
    assert app.router.on_shutdown == [world.plugin.shutdown]
    assert not {"quit", "on_shutdown"} & set(hook_manager.hooks)


@pytest.mark.parametrize("way", ["service", "function"])
async def test_stream_tts_can_be_called_in_both_ways(world: World, way: str) -> None:
    async def service() -> list[bytes]:
        stream = await service_manager.stream_tts(text=TEXT, context=context())
        return [chunk async for chunk in stream]

    async def function() -> list[bytes]:
        return [chunk async for chunk in mod.stream_tts(TEXT, context=context())]

    taking = asyncio.create_task(service() if way == "service" else function())
    await settle(30)
    [one] = world.client.contexts
    assert (one.text, one.ended) == (TEXT, True)
    one.done()
    await settle(30)
    assert taking.done()


# --- traps


async def test_the_pipe_gives_on_what_it_got_whatever_it_is(world: World) -> None:
    data = {"command": "speak", "params": {"text": "Good morning. How"}, "cmd_id": "a"}
    given: list[Any] = [data, None, [], {"command": None}, {"params": 5, "command": "speak"}]
    for each in given:
        assert await mod.partial_command(each, context()) is each
        assert await mod.partial_command(each, None) is each


async def test_the_services_that_read_files_are_not_asked_for_each_frame(world: World) -> None:
    asked: list[str] = []
    execute = world.services.execute

    async def counted(name: str, *args: Any, **kwargs: Any) -> Any:
        asked.append(name)
        return await execute(name, *args, **kwargs)

    world.services.execute = counted  # type: ignore[method-assign]
    speaking = world.speak(TEXT, context())
    await world.answer(ms=900)
    await world.clock.advance(1.0)
    assert speaking.done()
    assert asked.count("sip_audio_out_chunk") >= 45
    others = [name for name in asked if name != "sip_audio_out_chunk"]
    assert len(others) <= 5, others
