"""Plays a conversation that is written down in a file to an adapter."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from qwen3tts_codecs.payload import Payload
from qwen3tts_phone.streams.carriers.adapter import (
    Message,
    StreamAdapter,
    StreamAudio,
    StreamCleared,
    StreamEvent,
    StreamKey,
    StreamLost,
    StreamMark,
    StreamOddity,
    StreamStarted,
    StreamStopped,
)
from qwen3tts_phone.streams.carriers.exotel import EXOTEL
from qwen3tts_phone.streams.carriers.jambonz import JambonzAdapter
from qwen3tts_phone.streams.carriers.json_media import JsonMediaAdapter
from qwen3tts_phone.streams.carriers.plivo import PLIVO
from qwen3tts_phone.streams.carriers.telnyx import TELNYX
from qwen3tts_phone.streams.carriers.twilio import TWILIO
from qwen3tts_phone.streams.carriers.vonage import VonageAdapter

FOLDER = Path(__file__).parent / "fixtures"
DIALECTS = {each.line: each for each in (TWILIO, TELNYX, PLIVO, EXOTEL)}
LINES = (*DIALECTS, "vonage", "jambonz")


def adapter_of(line: str) -> StreamAdapter:
    """A new adapter with nothing settled differently from the defaults."""
    if line in DIALECTS:
        return JsonMediaAdapter(DIALECTS[line])
    return VonageAdapter() if line == "vonage" else JambonzAdapter()


def script(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return found


def first_messages(line: str) -> list[Message]:
    """What the carrier sends until its sound may begin."""
    messages: list[Message] = []
    for step in script(line)["steps"]:
        messages.append(step["from"])
        if any("started" in each for each in step["events"]):
            return messages
    raise AssertionError("the fixture has no start")


def started(line: str) -> StreamAdapter:
    """An adapter whose stream has begun."""
    adapter = adapter_of(line)
    for message in first_messages(line):
        adapter.receive(message, 0.0)
    return adapter


def sound_message(line: str, payload: str, chunk: int = 1) -> Message:
    """A message of the carrier's with sound in it, ``payload`` in base64."""
    for step in script(line)["steps"]:
        if any("audio" in each for each in step.get("events", ())):
            if "from_bytes" in step:
                return base64.b64decode(payload)
            message = json.loads(step["from"])
            message["media"]["payload"] = payload
            message["media"]["chunk"] = str(chunk)
            return json.dumps(message)
    raise AssertionError("the fixture has no sound")


def played(step: dict[str, Any], adapter: StreamAdapter) -> list[Message]:
    """What the adapter sends in a step of ours."""
    if "audio" in step:
        return list(adapter.audio(base64.b64decode(step["audio"])))
    if "mark" in step:
        return list(adapter.mark(step["mark"]))
    if "keys" in step:
        return list(adapter.keys(step["keys"]))
    if "flush" in step:
        return [each for _ in range(step["flush"]) for each in adapter.flush()]
    return list(adapter.hang_up() if "hang_up" in step else adapter.clear())


def shown(event: StreamEvent) -> dict[str, Any]:
    """An event as the fixtures write it."""
    match event:
        case StreamStarted():
            return {
                "started": {
                    "call_id": event.call_id,
                    "stream_id": event.stream_id,
                    "from_uri": event.from_uri,
                    "to_uri": event.to_uri,
                    "direction": event.direction,
                    "sends": _named(event.payload_in),
                    "plays": _named(event.payload),
                    "parameters": dict(event.parameters),
                }
            }
        case StreamAudio():
            sound = base64.b64encode(event.data).decode()
            return {"audio": sound, "timestamp_ms": event.timestamp_ms}
        case StreamLost():
            return {"lost_ms": event.duration_ms}
        case StreamKey():
            return {"key": event.digit, "duration_ms": event.duration_ms}
        case StreamMark():
            return {"mark": event.name}
        case StreamCleared():
            return {"cleared": True}
        case StreamStopped():
            return {"stopped": event.cause, "error": event.error}
        case StreamOddity():
            return {"odd": event.what}
    raise AssertionError(f"no such event: {event}")


def _named(payload: Payload | None) -> str | None:
    return None if payload is None else f"{payload.name}/{payload.sample_hz}"
