"""Carrier's end of a media stream (pure): the side that sends the caller to an agent."""

from __future__ import annotations

import base64
import json
import uuid
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from qwen3tts_codecs.pcm import Pcm
from qwen3tts_codecs.resample import Resampler
from qwen3tts_phone.streams.carriers.adapter import Message
from qwen3tts_phone.streams.carriers.json_media import KEYS, NAME, SOUND, STREAM
from qwen3tts_phone.streams.carriers.messages import DIGITS, object_of, sound_of
from qwen3tts_rehearsal.carrier_dialects import (
    CALL,
    COUNT,
    DIALECTS,
    DIGIT,
    FRAME_MS,
    FRAME_SAMPLES,
    FROM,
    RATE_HZ,
    STAMP,
    TEXT_COUNT,
    TO,
    Template,
)

MAX_QUEUED_S: Final = 600.0
"""Sound of the agent that is queued; what is beyond is refused, as by carriers."""


class PlayoutQueue:
    """Sound and marks of the agent in the order of their playout, one frame at a time."""

    def __init__(self) -> None:
        self.queued_samples = 0
        self._items: deque[Pcm | str] = deque()

    def push(self, pcm: Pcm) -> None:
        if len(pcm):
            self._items.append(pcm)
            self.queued_samples += len(pcm)

    def mark(self, name: str) -> None:
        self._items.append(name)

    def clear(self) -> list[str]:
        names = [each for each in self._items if isinstance(each, str)]
        self._items.clear()
        self.queued_samples = 0
        return names

    def play(self, samples: int) -> tuple[Pcm, list[str]]:
        """Return the next samples, with silence where there are none, and the marks before it."""
        frame = np.zeros(samples, np.int16)
        filled_to, names = 0, list[str]()
        while self._items:
            first = self._items[0]
            if isinstance(first, str):
                names.append(first)
                self._items.popleft()
                continue
            if filled_to == samples:
                break
            part = first[: samples - filled_to]
            frame[filled_to : filled_to + len(part)] = part
            filled_to += len(part)
            if len(part) == len(first):
                self._items.popleft()
            else:
                self._items[0] = first[len(part) :]
        self.queued_samples -= filled_to
        return frame, names


@dataclass(slots=True)
class AgentCounts:
    """Messages of the agent."""

    sound: int = 0
    clears: int = 0
    marks: int = 0
    odd: dict[str, int] = field(default_factory=dict)
    """Messages that a carrier would refuse, by reason."""


class CarrierEnd:
    """One call of a carrier; all sound is 8 kHz, 20 ms a frame.

    Args:
        line: a name of `DIALECTS`.
        from_number: the caller.
        to_number: the called party.
        call_id: empty = random.
    """

    def __init__(
        self, line: str, *, from_number: str = "", to_number: str = "", call_id: str = ""
    ) -> None:
        self.dialect = DIALECTS[line]()
        self.hung_up = False
        """True if the agent ended the call by a message."""
        self.keys_sent = ""
        """Keys that the agent asked for."""
        self.counts = AgentCounts()
        payload = self.dialect.payload
        self._decoder = payload.decoder()
        self._up = Resampler(RATE_HZ, payload.sample_hz)
        self._down = Resampler(payload.sample_hz, RATE_HZ)
        self._encode = payload.encoder(FRAME_MS).encode
        self._frame = payload.frame_samples(FRAME_MS)
        self._queue = PlayoutQueue()
        self._count = 0
        self._frames = 0
        self._identity: dict[str, object] = {
            STREAM: uuid.uuid4().hex,
            CALL: call_id or str(uuid.uuid4()),
            FROM: from_number or "anonymous",
            TO: to_number or "rehearsal",
        }

    @property
    def queued_s(self) -> float:
        """Sound of the agent that has come and is not played."""
        return self._queue.queued_samples / RATE_HZ

    # --- to the agent

    def begin(self) -> list[Message]:
        return [self._message(each) for each in self.dialect.opening]

    def audio(self, pcm: Pcm) -> Message:
        """Return the message of one frame of the caller, shape [160]."""
        wide = self._up.push(pcm)
        if len(wide) < self._frame:  # the first frame of a resampler is short by its delay
            wide = np.concatenate([np.zeros(self._frame - len(wide), np.int16), wide])
        data = self._encode(wide[: self._frame])
        message: Message = data
        if self.dialect.media is not None:
            sound = base64.b64encode(data).decode("ascii")
            message = self._message(self.dialect.media, {SOUND: sound})
        self._frames += 1
        return message

    def key(self, digit: str) -> Message:
        """Return the message of a pressed key. Raises ValueError."""
        if digit not in DIGITS:
            raise ValueError(f"{digit[:10]!r} is no key of a telephone")
        return self._message(self.dialect.key, {DIGIT: digit})

    def stop(self) -> list[Message]:
        return [] if self.dialect.stop is None else [self._message(self.dialect.stop)]

    def play(self) -> tuple[Pcm, list[Message]]:
        """Return the agent's next 20 ms, and marks that have been played."""
        frame, names = self._queue.play(FRAME_SAMPLES)
        return frame, [self._message(self.dialect.played, {NAME: name}) for name in names]

    # --- from the agent

    def receive(self, message: Message) -> list[Message]:
        dialect = self.dialect
        if isinstance(message, bytes):
            if dialect.agent_media is not None:
                return self._odd("a binary message")
            return self._sound(message)
        found = object_of(message)
        if found is None:
            return self._odd("no JSON object")
        if dialect.agent_media is not None and _same_kind(dialect.agent_media, found):
            sound = sound_of(_value(dialect.agent_media, found, SOUND))
            return self._odd("sound that is no base64") if sound is None else self._sound(sound)
        if _same_kind(dialect.agent_mark, found):
            name = _value(dialect.agent_mark, found, NAME)
            if not isinstance(name, str):
                return self._odd("a mark without a name")
            self.counts.marks += 1
            self._queue.mark(name)
            return []
        if _same_kind(dialect.agent_clear, found):
            return self._clear()
        if dialect.agent_hang_up is not None and _same_kind(dialect.agent_hang_up, found):
            self.hung_up = True
            return []
        if dialect.agent_keys is not None and _same_kind(dialect.agent_keys, found):
            keys = str(_value(dialect.agent_keys, found, KEYS))
            self.keys_sent += "".join(each for each in keys if each in DIGITS)
            return []
        known = any(_same_kind(each, found) for each in dialect.agent_ignored)
        return [] if known else self._odd("an unknown event")

    def _sound(self, data: bytes) -> list[Message]:
        size = self.dialect.payload.sample_bytes or 1
        if not data or len(data) % size:
            return self._odd("half a sample" if data else "media without sound")
        if self.queued_s > MAX_QUEUED_S:
            return self._odd("more sound than is queued")
        self.counts.sound += 1
        self._queue.push(self._down.push(self._decoder.decode(data)))
        return []

    def _clear(self) -> list[Message]:
        self.counts.clears += 1
        self._down.reset()
        # Twilio's way: marks that will never be played return as well.
        answers = [self._message(self.dialect.played, {NAME: name}) for name in self._queue.clear()]
        cleared = self.dialect.cleared
        return [*answers, *([] if cleared is None else [self._message(cleared)])]

    def _odd(self, what: str) -> list[Message]:
        self.counts.odd[what] = self.counts.odd.get(what, 0) + 1
        return []

    def _message(self, template: Template, values: Mapping[str, object] | None = None) -> str:
        self._count += 1
        known = {
            **self._identity,
            COUNT: self._count,
            TEXT_COUNT: str(self._count),
            STAMP: str(self._frames * FRAME_MS),
            **(values or {}),
        }
        return json.dumps(_filled(template, known), separators=(",", ":"))


def _filled(template: object, values: Mapping[str, object]) -> object:
    if isinstance(template, Mapping):
        return {name: _filled(value, values) for name, value in template.items()}
    if isinstance(template, list):
        return [_filled(each, values) for each in template]
    if not isinstance(template, str) or "\0" not in template:
        return template
    if template in values:
        return values[template]
    for name, value in values.items():
        template = template.replace(name, str(value))
    return template


def _same_kind(template: Template, found: Mapping[str, object]) -> bool:
    """Return True if the first fixed field, the message's kind, is the same."""
    name, kind = next(iter(template.items()))
    return bool(found.get(name) == kind)


def _value(template: Template, found: Mapping[str, object], placeholder: str) -> object:
    """Return what stands in place of the placeholder, or None."""
    for name, value in template.items():
        inner = found.get(name)
        if value == placeholder:
            return inner
        if isinstance(value, Mapping) and isinstance(inner, Mapping):
            deeper = _value(value, inner, placeholder)
            if deeper is not None:
                return deeper
    return None
