"""Live text against an engine that reads it as it comes, in any order of steps."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3tts_wire.formats import AudioFrame
from qwen3tts_wire.messages import MODES
from tests.engine.fake_engine import CHAR_SAMPLES, FakeEngine
from tests.fakes import settle
from tests.server.test_connection import Served

WORDS = ("Hello there. ", "and so ", "it goes on, ", "**Yes!** ", "wo", "rd. ", "Dr. ", "\n- one")
CONTEXTS = [str(no) for no in range(len(MODES))]
STEPS = st.lists(
    st.tuples(
        st.sampled_from([*["append"] * 7, "flush", "end", "cancel", "dry", "cap", "wait", "wait"]),
        st.integers(0, 7),
    ),
    min_size=10,
    max_size=40,
)


class Call:
    """A context in each mode on one connection."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.text = dict.fromkeys(CONTEXTS, "")
        self.open = set(CONTEXTS)
        for no, mode in enumerate(MODES):
            options = {"mode": mode, "pause_flush_ms": 0, "window_ms": 60_000}
            self.say("context.open", str(no), context_no=no + 1, **options)

    def say(self, kind: str, context_id: str, **fields: Any) -> None:
        self.served.socket.say({"type": kind, "context_id": context_id, **fields})

    async def step(self, name: str, value: int) -> None:
        engine, name_of = self.served.engine, CONTEXTS[value % len(CONTEXTS)]
        if name == "dry":
            engine.dry()
        elif name == "wait":
            await settle(value)
        elif name == "cap":
            engine.cap_chars = 20 if value == 0 else None
        elif name_of in self.open:
            if name == "append":
                self.text[name_of] += WORDS[value]
                self.say("text.append", name_of, text=WORDS[value])
            elif name == "flush":
                self.say("text.flush", name_of)
            else:
                self.open.discard(name_of)
                self.say("text.end" if name == "end" else "context.cancel", name_of)

    async def finish(self) -> None:
        """End what is open, and wait until everything is over."""
        for context_id in sorted(self.open):
            self.say("text.end", context_id)
        async with asyncio.timeout(10):
            while self.over() != len(CONTEXTS):
                await settle()

    def over(self) -> int:
        types = self.served.socket.types()
        return types.count("context.done") + types.count("context.cancelled")


async def play(steps: list[tuple[str, int]]) -> None:
    """Take the steps, then look at all that came."""
    async with Served(FakeEngine(live=True, capacity=2)) as served:
        call = Call(served)
        for name, value in steps:
            await call.step(name, value)
        await call.finish()
        assert served.engine.active == 0
    over: set[str] = set()
    samples = dict.fromkeys(CONTEXTS, 0)
    words: dict[str, list[dict[str, Any]]] = {each: [] for each in CONTEXTS}
    for data in served.socket.sent:
        if isinstance(data, bytes):
            frame = AudioFrame.from_bytes(data)
            context_id = str(frame.context_no - 1)
            assert frame.offset == samples[context_id]
            samples[context_id] += len(frame.data) // 2
            assert context_id not in over
            continue
        message = json.loads(data)
        if (context_id := message.get("context_id")) is None:
            continue
        assert message["type"] != "error"
        assert context_id not in over
        text = call.text[context_id]
        if message["type"] == "alignment":
            words[context_id] += message["words"]
        elif message["type"] == "context.cancelled":
            over.add(context_id)
            assert message["text_heard"] + message["text_remaining"] == text
        elif message["type"] == "context.done":
            over.add(context_id)
            if message["reason"] != "frame_cap":
                said = "".join(word["text"] for word in words[context_id])
                assert [c for c in said if c.isalpha()] == [c for c in text if c.isalpha()]
                assert samples[context_id] >= sum(map(str.isalpha, text)) * CHAR_SAMPLES
    for each in words.values():
        places = [word["char_start"] for word in each]
        assert places == sorted(places)


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_no_sound_comes_after_a_cancel_and_all_text_is_said_once(
    steps: list[tuple[str, int]],
) -> None:
    asyncio.run(play(steps))
