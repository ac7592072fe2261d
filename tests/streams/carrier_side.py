"""A carrier's end of a media stream: reads what it is sent, plays it in real time, answers.

Pure; time is an argument. The tests run it on a fake clock, the benchmark on the real one.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any

from qwen3tts_phone.streams.carriers.adapter import Message
from tests.streams.carrier_fixtures import first_messages, script, sound_message

SOUND_EVENTS = ("media", "playAudio")
MARK_EVENTS = ("mark", "checkpoint")
CLEARS = ({"event": "clear"}, {"event": "clearAudio"}, {"action": "clear"}, {"type": "killAudio"})
BYTES_S = {"twilio": 8000, "telnyx": 8000, "plivo": 8000, "exotel": 16000}
"""Bytes of a second; the other lines have 16 kHz in the fixtures."""


@dataclass(frozen=True)
class Piece:
    """Sound in the carrier's queue; times in seconds."""

    begins: float
    ends: float
    data: bytes


class CarrierSide:
    """One call's."""

    def __init__(self, line: str) -> None:
        self.line = line
        self.bytes_s = BYTES_S.get(line, 32000)
        self.pieces: list[Piece] = []
        """All that was, or will be, played."""
        self.most_queued_s = 0.0
        self.cleared_at: list[float] = []
        self.came: list[tuple[float, str, int]] = []
        """When what came: ``sound``, ``mark``, ``clear`` or ``other``, and how many bytes of it."""
        self._free_at = 0.0
        self._marks: list[tuple[float, str]] = []

    def begin(self) -> list[Message]:
        """What is sent until its sound may begin."""
        return first_messages(self.line)

    def says(self, data: bytes, number: int = 1) -> Message:
        """The caller's sound."""
        return sound_message(self.line, base64.b64encode(data).decode(), number)

    def stops(self) -> Message | None:
        """The end; None for a plain close."""
        for step in script(self.line)["steps"]:
            if any("stopped" in each for each in step.get("events", ())):
                message: str = step["from"]
                return message
        return None

    def take(self, message: Message, now: float) -> None:
        """A message of ours has come."""
        if isinstance(message, bytes):
            return self._sound(message, now)
        found: dict[str, Any] = json.loads(message)
        if found.get("event") in SOUND_EVENTS:
            return self._sound(base64.b64decode(found["media"]["payload"], validate=True), now)
        if name := self._mark_in(found):
            self.came.append((now, "mark", 0))
            self._marks.append((max(now, self._free_at), name))
        elif any(clear.items() <= found.items() for clear in CLEARS):
            self.came.append((now, "clear", 0))
            self._clear(now)
        else:
            self.came.append((now, "other", 0))
        return None

    def answers(self, now: float) -> list[Message]:
        """Marks that have been played by ``now``."""
        due = [name for at, name in self._marks if at <= now + 1e-9]
        self._marks = [each for each in self._marks if each[1] not in due]
        return [self._mark_back(name) for name in due]

    def played_s(self, now: float) -> float:
        """Sound that was played by ``now``."""
        return sum(max(0.0, min(each.ends, now) - each.begins) for each in self.pieces)

    def queued_s(self, now: float) -> float:
        return max(0.0, self._free_at - now)

    # --- inside

    def _sound(self, data: bytes, now: float) -> None:
        self.came.append((now, "sound", len(data)))
        begins = max(now, self._free_at)
        self._free_at = begins + len(data) / self.bytes_s
        self.pieces.append(Piece(begins, self._free_at, data))
        self.most_queued_s = max(self.most_queued_s, self._free_at - now)

    def _clear(self, now: float) -> None:
        self.cleared_at.append(now)
        self.pieces = [
            Piece(each.begins, min(each.ends, now), each.data)
            for each in self.pieces
            if each.begins < now
        ]
        self._free_at = now
        # Twilio's way, the hardest one: marks that will never be played come back as well.
        self._marks = [(now, name) for _, name in self._marks]

    def _mark_in(self, found: dict[str, Any]) -> str:
        if found.get("action") == "notify":
            return str(found["payload"]["name"])
        if found.get("type") == "mark":
            return str(found["data"]["name"])
        if found.get("event") in MARK_EVENTS:
            return str(found["mark"]["name"] if "mark" in found else found["name"])
        return ""

    def _mark_back(self, name: str) -> Message:
        for step in script(self.line)["steps"]:
            if any("mark" in each for each in step.get("events", ())):
                message: str = step["from"]
                return message.replace('"q1"', json.dumps(name))
        raise AssertionError("the fixture has no mark")
