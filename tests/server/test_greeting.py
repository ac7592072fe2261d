"""``session.created`` is written once, and anew when the offer has changed."""

from __future__ import annotations

import json
from collections.abc import Sequence

from qwen3tts_engine.base import Mode, Voice
from qwen3tts_server.dialects.native.greeting import Greeting
from qwen3tts_wire.messages import Limits
from tests.engine.fake_engine import FakeEngine


class Growing(FakeEngine):
    """Counts how often its voices' modes are asked for, and can have one more voice."""

    asked = 0
    extra: tuple[Voice, ...] = ()

    def voices(self) -> tuple[Voice, ...]:
        return (*super().voices(), *self.extra)

    def modes(self, voice: str | None) -> Sequence[Mode]:
        self.asked += 1
        return ("clause",)


def test_the_same_offer_is_written_once() -> None:
    engine = Growing()
    greeting = Greeting(engine, Limits())
    first = greeting.text()
    asked = engine.asked
    assert greeting.text() is first
    assert engine.asked == asked


def test_a_new_voice_and_a_new_model_are_told_to_the_next_client() -> None:
    engine = Growing()
    greeting = Greeting(engine, Limits())
    before = json.loads(greeting.text())
    engine.extra = (Voice("new", "New", "en"),)
    after = json.loads(greeting.text())
    assert [each["id"] for each in after["voices"]] == [
        *(each["id"] for each in before["voices"]),
        "new",
    ]
    engine.model = "other tones"
    assert json.loads(greeting.text())["model"] == "other tones"
