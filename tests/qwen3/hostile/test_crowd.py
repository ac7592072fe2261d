"""Many concurrent callers of all kinds: each gets the audio it would get alone."""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from qwen3tts_engine.base import SynthesisRequest
from qwen3tts_engine.playout import PlayoutLead
from qwen3tts_engine.qwen3.engine.engine import Qwen3Engine
from qwen3tts_engine.qwen3.engine.jobs import Job, OutputQueue
from qwen3tts_text.growing import LiveText
from qwen3tts_wire.errors import EngineFailed, ServerBusy, SpeechError
from tests.fakes import settle
from tests.qwen3.engine.engine_world import GREEDY, made
from tests.qwen3.hostile.world import Listener, Spoken, same, write

TEXTS = ("Good morning.", "One, two.", "Das ist gut.", "你好。早上好。", "It's 5 o'clock?")


@pytest.fixture(scope="module")
def small(tiny: dict[str, Path]) -> Iterator[Qwen3Engine]:
    """With fewer slots than callers, and readers who soon hold it up."""
    engine = made(tiny["custom_voice"], slots=4, unread_s=0.2, dry_timeout_s=0.05)
    asyncio.run(engine.start())
    yield engine
    asyncio.run(engine.close())


@pytest.fixture
def listener(small: Qwen3Engine, monkeypatch: pytest.MonkeyPatch) -> Listener:
    return Listener(small, monkeypatch)


# A neighbour changes the last bits of a row's scores. That moves no likeliest code, and hardly ever
# one that is drawn.
async def test_dozens_who_come_stall_write_and_leave_change_nothing_for_the_others(
    listener: Listener,
) -> None:
    draw = random.Random(1)
    alone: dict[int, Spoken] = {}
    for index in range(10):
        more = None
        text = TEXTS[index % len(TEXTS)]
        if index % 2:
            more = LiveText()
            more.end()
        alone[index] = await listener.hear(text, more=more, sampling=GREEDY)
    live_dry = 0
    stalled: list[int] = []
    others_spoke = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def loaded_turn() -> None:
        """Let the engine take a turn, and so be somewhere else in what it does."""
        await loop.run_in_executor(None, lambda: None)

    async def caller(number: int) -> None:
        nonlocal live_dry
        index = number % 10
        text = TEXTS[index % len(TEXTS)]
        how: dict[str, Any] = {"sampling": GREEDY}
        kind = draw.choice(["whole", "whole", "whole", "leave", "stall", "dry"])
        for _ in range(draw.randrange(3)):
            await loaded_turn()
        if kind == "leave":
            await listener.hear(text, first=draw.randrange(1, 4), **how)
        elif kind == "dry":
            more = LiveText()
            more.push("Good morning to ", range(17))
            spoken = await listener.hear("", more=more, **how)
            assert spoken.end == "dry"
            live_dry += 1
        elif kind == "stall" and len(stalled) < 2:
            stream = listener.engine.synthesize(SynthesisRequest(text, **how))
            await anext(stream)
            stalled.append(1)
            await others_spoke.wait()
            await stream.aclose()
            assert [chunk async for chunk in stream] == []
        elif index % 2:
            more = LiveText()
            cut = draw.randrange(1, 4)
            pieces = [text[at : at + cut] for at in range(0, len(text), cut)]
            writer = asyncio.create_task(write(more, pieces))
            heard = await listener.hear("", more=more, **how)
            await writer
            # A machine that is busy may let a row run dry: then it is another speech, and says so.
            assert heard.end == "dry" or same(heard, alone[index])
        else:
            lead = PlayoutLead() if draw.random() < 0.5 else None
            assert same(await listener.hear(text, lead=lead, **how), alone[index])
            others_spoke.set()

    async with asyncio.timeout(60), asyncio.TaskGroup() as callers:
        for number in range(22):
            callers.create_task(caller(number))
    assert live_dry
    assert stalled
    await listener.idle()


async def test_who_is_refused_may_come_again(tiny: dict[str, Path]) -> None:
    engine = made(tiny["custom_voice"], slots=2, max_waiting=3)
    await engine.start()
    try:

        async def call() -> int:
            stream = engine.synthesize(SynthesisRequest("Good morning.", sampling=GREEDY))
            return sum([chunk.samples async for chunk in stream])

        first = await call()
        for _ in range(2):
            results = await asyncio.gather(*(call() for _ in range(9)), return_exceptions=True)
            refused = [each for each in results if isinstance(each, BaseException)]
            assert refused
            for each in refused:
                assert isinstance(each, ServerBusy)
                assert each.retryable
                assert each.remedy
            spoken = [each for each in results if not isinstance(each, BaseException)]
            assert set(spoken) == {first}
            assert len(spoken) >= 5
        assert await call() == first
    finally:
        await engine.close()


@pytest.mark.parametrize("broken", ["prefill", "frame_step", "decoder"])
async def test_a_device_out_of_memory_in_mid_batch_is_its_rows_own_affair(
    listener: Listener, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    """Raised wherever the row at fault takes part, as an allocation for it would be."""
    alone = [await listener.hear(TEXTS[0], seed=seed, sampling=GREEDY) for seed in range(3)]
    loaded = listener.engine._started().loaded
    runner = loaded.runner
    bad = 666
    frames = 0

    def is_bad(slots: Any) -> bool:
        jobs = listener.engine._started().worker._batch.jobs
        return any(job.seed == bad and job.slot in slots for job in jobs)

    name = {"prefill": "prefill", "frame_step": "step", "decoder": "decode"}[broken]
    work = getattr(runner, name)

    def without_room(rows: Any) -> Any:
        nonlocal frames
        hit = (
            any(row.seed == bad for row in rows)
            if broken == "prefill"
            else is_bad([row.slot for row in rows])
        )
        if hit:
            frames += 1
            if broken == "prefill" or frames > 4:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        return work(rows)

    def no_replay(*given: Any) -> Any:
        if is_bad([given[0]]):
            raise torch.OutOfMemoryError("CUDA out of memory")
        return replay(*given)

    replay = runner.replay
    monkeypatch.setattr(runner, name, without_room)
    monkeypatch.setattr(runner, "replay", no_replay)
    results = await asyncio.gather(
        *(listener.hear(TEXTS[0], seed=seed, sampling=GREEDY) for seed in (0, 1)),
        listener.hear("One two three, four, five, six.", seed=bad),
        listener.hear(TEXTS[0], seed=2, sampling=GREEDY),
        return_exceptions=True,
    )
    error = results.pop(2)
    assert isinstance(error, EngineFailed)
    assert "out of memory" in error.message
    assert error.remedy
    assert error.retryable
    for spoken, before in zip(results, alone, strict=True):
        assert isinstance(spoken, Spoken)
        assert same(spoken, before)
    monkeypatch.undo()
    await listener.idle()


async def test_a_fault_of_no_row_fails_what_is_under_way_and_nothing_later(
    small: Qwen3Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener = Listener(small, monkeypatch)
    alone = await listener.hear(TEXTS[0], sampling=GREEDY)
    runner = small._started().loaded.runner
    with pytest.MonkeyPatch.context() as patch:

        def broken(_rows: Any) -> Any:
            raise torch.OutOfMemoryError("CUDA out of memory")

        patch.setattr(runner, "step", broken)
        results = await asyncio.gather(
            *(listener.hear(TEXTS[0], seed=seed, sampling=GREEDY) for seed in range(3)),
            return_exceptions=True,
        )
    for each in results:
        assert isinstance(each, SpeechError)
        assert "out of memory" in each.message
    assert same(await listener.hear(TEXTS[0], sampling=GREEDY), alone)
    await listener.idle()


async def test_bad_requests_in_a_full_batch_disturb_no_other(listener: Listener) -> None:
    alone = await listener.hear(TEXTS[1], sampling=GREEDY)
    bad: list[dict[str, Any]] = [
        {"text": "half \ud800 a pair"},
        {"text": "x" * 5001},
        {"text": "one two three " * 300},
        {"text": "absent", "voice": "absent"},
        {"text": "no such language", "language": "xx"},
        {"text": "designed", "voice": "design"},
        {"text": "long manners", "instructions": "calm " * 4000},
        {"text": "   "},
        {"text": ""},
    ]

    async def refused(fields: dict[str, Any]) -> None:
        if fields["text"].strip():
            with pytest.raises(SpeechError) as caught:
                await listener.hear(**fields)
            assert caught.value.message
            assert caught.value.remedy
        else:
            assert (await listener.hear(**fields)).chunks == []

    async with asyncio.TaskGroup() as callers:
        heard = [callers.create_task(listener.hear(TEXTS[1], sampling=GREEDY)) for _ in range(3)]
        for fields in bad * 3:
            callers.create_task(refused(fields))
    assert all(same(each.result(), alone) for each in heard)
    await listener.idle()


async def test_nothing_is_kept_of_calls_that_are_over(listener: Listener) -> None:
    kinds = (Job, OutputQueue, LiveText, PlayoutLead)
    gc.collect()
    before = [each for each in gc.get_objects() if type(each) in kinds]
    for seed in range(3):
        await asyncio.gather(
            listener.hear("Good morning.", first=1, seed=seed),
            listener.hear("Yes.", lead=PlayoutLead(), seed=seed),
            listener.hear("x" * 6000),
            return_exceptions=True,
        )
    await listener.idle()
    listener.forget()
    await settle()
    gc.collect()
    known = {id(each) for each in before}
    kept = [each for each in gc.get_objects() if type(each) in kinds and id(each) not in known]
    assert kept == []
