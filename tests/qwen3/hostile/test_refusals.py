"""What the real server is asked and cannot do: each is answered, and others speak on."""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qwen3tts_engine.qwen3.engine.engine import Qwen3Engine
from qwen3tts_wire.errors import SpeechError
from tests.qwen3.engine.engine_world import recording
from tests.qwen3.hostile.server import engines_of, raw, samples, talking
from tests.qwen3.hostile.world import LAST_BIT, wav

pytestmark = pytest.mark.network


@pytest.fixture(scope="module")
def engines(tiny: dict[str, Path]) -> Iterator[dict[str, Qwen3Engine]]:
    with engines_of(tiny) as made_here:
        yield made_here


BAD_OPENS: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("custom_voice", {"voice": "absent"}, "unknown_voice"),
    ("custom_voice", {"voice": "design"}, "unknown_voice"),
    ("custom_voice", {"voice": "clone:me"}, "unknown_voice"),
    ("custom_voice", {"voice": "\ud800"}, "bad_request"),
    ("custom_voice", {"language": "xx"}, "unknown_voice"),
    ("custom_voice", {"sampling": {"temperature": -1}}, "bad_request"),
    ("custom_voice", {"sampling": {"top_p": 0}}, "bad_request"),
    ("custom_voice", {"sampling": {"temperature": "hot"}}, "bad_request"),
    ("custom_voice", {"seed": -1}, "bad_request"),
    ("custom_voice", {"initial_codec_chunk_frames": 0}, "bad_request"),
    ("custom_voice", {"initial_codec_chunk_frames": 1.5}, "bad_request"),
    ("custom_voice", {"mode": "bogus"}, "bad_request"),
    ("voice_design", {"instructions": "calm", "voice": "ryan"}, "unknown_voice"),
    ("base", {}, "unknown_voice"),
    ("base", {"voice": "ryan"}, "unknown_voice"),
)


@pytest.mark.parametrize("task", ["custom_voice", "voice_design", "base"])
async def test_what_cannot_be_spoken_is_refused_and_others_speak_on(
    engines: dict[str, Qwen3Engine], task: str
) -> None:
    engine = engines[task]
    good: dict[str, Any] = {"sampling": {"temperature": 0}, "instructions": "calm"}
    async with raw(engine) as line:
        if task == "base":
            loaded = await engine.load_voice(ref_audio=recording(), x_vector_only=True)
            good["voice"] = loaded.voice_id
        numbers = iter(range(1, 1000))

        async def speak() -> tuple[int, str]:
            no = next(numbers)
            await line.open(no, **good)
            await line.say("text.append", context_id=f"c{no}", text="Good morning.")
            return no, f"c{no}"

        no, name = await speak()
        await line.say("text.end", context_id=name)
        await line.until("context.done", context_id=name)
        alone = samples(line.sound(no))

        beside, name = await speak()
        expected: dict[str, str] = {}
        for _, fields, code in (each for each in BAD_OPENS if each[0] == task):
            no = next(numbers)
            expected[f"c{no}"] = code
            await line.open(no, **fields)
            await line.say("text.append", context_id=f"c{no}", text="Good morning.")
            await line.say("text.end", context_id=f"c{no}")
        await line.say("text.end", context_id=name)
        await line.until("context.done", context_id=name)
        errors: dict[str, list[dict[str, Any]]] = defaultdict(list)
        while expected.keys() - errors.keys():
            event = next(
                (
                    e
                    for e in line.events
                    if e["type"] == "error"
                    and e["ends"] == "context"
                    and e["context_id"] not in errors
                ),
                None,
            )
            if event is None:
                await line.take()
                continue
            errors[event["context_id"]].append(event)
        for context_id, code in expected.items():
            assert errors[context_id][0]["code"] == code, errors[context_id]
            assert errors[context_id][0]["message"]
            # A bound of a field is its own remedy.
            assert errors[context_id][0]["remedy"] or "must" in errors[context_id][0]["message"]
        found = samples(line.sound(beside))
        assert len(found) == len(alone) > 0
        assert np.abs(found - alone).max() <= LAST_BIT


async def test_text_beyond_the_bounds_ends_its_context_alone(
    engines: dict[str, Qwen3Engine],
) -> None:
    async with raw(engines["custom_voice"]) as line:
        await line.open(1, seed=1)
        await line.say("text.append", context_id="c1", text="Good day.")
        await line.open(2, mode="clause")
        await line.say("text.append", context_id="c2", text="x" * 16_385)
        error = await line.until("error", context_id="c2")
        assert (error["ends"], bool(error["remedy"])) == ("context", True)
        # A word without an end is cut into what a generation can hold.
        await line.open(3, seed=1, mode="clause")
        await line.say("text.append", context_id="c3", text="x" * 16_384)
        await line.say("text.end", context_id="c3")
        await line.until("audio", no=3)
        await line.say("context.cancel", context_id="c3", played=0)
        answer = await line.until("context.cancelled", context_id="c3")
        assert answer["text_remaining"] == "x" * 16_384
        # Nothing to say ends immediately.
        await line.open(4)
        await line.say("text.append", context_id="c4", text=" \r\n\t...")
        await line.say("text.end", context_id="c4")
        assert (await line.until("context.done", context_id="c4"))["samples"] == 0
        await line.say("text.end", context_id="c1")
        if not any(e["type"] == "context.done" and e["samples"] for e in line.events):
            await line.until("context.done", context_id="c1")


# --- voices ---


async def test_a_voice_is_loaded_and_speaks_while_others_fail_to_load(
    engines: dict[str, Qwen3Engine],
) -> None:
    tone, rate = recording(1.5, 170.0)
    bad: dict[str, dict[str, Any]] = {
        "short": {"ref_audio": wav(tone[:2400]), "ref_text": "x"},
        "long": {"ref_audio": wav(np.tile(tone[::6], 45), 4000), "ref_text": "x"},
        "silent": {"ref_audio": wav(tone * 0), "ref_text": "x"},
        "no audio": {"ref_audio": b"certainly no sound" * 99, "ref_text": "x"},
        "cut off": {"ref_audio": wav(tone)[:200], "ref_text": "x"},
        "no words": {"ref_audio": wav(tone)},
        "blank words": {"ref_audio": wav(tone), "ref_text": " \n"},
        "unknown": {"voice_id": "clone:absent"},
        "neither": {},
    }
    async with raw(engines["base"]) as line:

        async def load(name: str, **fields: Any) -> dict[str, Any]:
            if "ref_audio" in fields:
                fields["ref_audio"] = base64.b64encode(fields["ref_audio"]).decode()
            await line.say("voice.load", request_id=name, **fields)
            while True:
                event = await line.take()
                if event.get("request_id") == name:
                    return event

        ready = await load("good", ref_audio=wav(tone, rate), ref_text="A buzz.")
        assert ready["type"] == "voice.ready"
        await line.open(1, voice=ready["voice_id"], mode="auto", seed=1)
        await line.say("text.append", context_id="c1", text="Good morning. And more.")
        for name, fields in bad.items():
            event = await load(name, **fields)
            assert event["type"] == "error", name
            assert event["ends"] == "none", name
            assert event["remedy"] or "needs" in event["message"], name
            assert event["code"] in ("bad_request", "limit_exceeded", "unknown_voice"), name
        await line.say("text.end", context_id="c1")
        if not any(e["type"] == "context.done" for e in line.events):
            await line.until("context.done", context_id="c1")
        (started,) = [e for e in line.events if e["type"] == "context.started"]
        assert started["mode"] == "clause"
        assert len(line.sound(1)) > 0
        again = await load("again", ref_audio=wav(tone, rate), ref_text="A buzz.")
        assert (again["cached"], again["voice_id"]) == (True, ready["voice_id"])


@pytest.mark.parametrize("task", ["custom_voice", "voice_design"])
async def test_a_checkpoint_that_clones_nothing_says_so(
    engines: dict[str, Qwen3Engine], task: str
) -> None:
    async with talking(engines[task]) as client:
        with pytest.raises(SpeechError, match="clone") as caught:
            await client.load_voice(wav(), "A buzz.")
        assert "Base" in caught.value.remedy
