"""The model of `turns.py`: what it answers, how fast, and when its words are heard."""

from __future__ import annotations

import re

from qwen3tts_engine.base import SynthesisRequest
from qwen3tts_engine.embedded.engine import EmbeddedEngine
from qwen3tts_text.segmenter import Segmenter
from tests.agent.endpoint import Answer, Request, Sleeps, Step

NAME = r"\w+ call \d+ turn \d+"
"""Text of every turn in the recogniser's script."""
FIRST_S, TOKEN_S = 0.3, 0.02
"""Delay of the model's first words, and of each further one."""
NUMBERS = "one two three four five six seven eight nine ten eleven twelve"
REPLIES = (
    ("Of course I can help you with that, ", f"{NUMBERS}."),
    ("Let me see what we have for you, ", f"{NUMBERS}."),
    ("Thank you very much for your patience, ", f"{NUMBERS}."),
)
LONG = ("I will gladly read it all to you, ", ". ".join([NUMBERS.capitalize()] * 6) + ".")


def deltas_of(reply: tuple[str, str]) -> list[str]:
    """A reply as the model writes it: the first clause, then word by word."""
    return [reply[0], *re.findall(r"\S+\s*", reply[1])]


class Model:
    """Understands "call 3 turn 5", and answers."""

    def __init__(self) -> None:
        self.requests: dict[str, Request] = {}
        """The last one for each turn."""

    def __call__(self, request: Request) -> Answer:
        """The answer to one request."""
        said = [text for role, text in request.said if role == "user"][-1]
        name = re.findall(NAME, said)[-1]
        self.requests[name] = request
        first, *rest = deltas_of(reply_to(name))
        steps: list[Step] = [Sleeps(FIRST_S), first, rest[0]]
        for delta in rest[1:]:
            steps += [Sleeps(TOKEN_S), delta]
        return Answer(steps)


def reply_to(name: str) -> tuple[str, str]:
    """Answer of the model to this turn."""
    return LONG if name.startswith("long") else REPLIES[int(name.split()[-1]) % len(REPLIES)]


async def middles_of(reply: tuple[str, str]) -> list[int]:
    """The middle of each word of a reply, samples at 24 kHz, by the engine alone."""
    engine, segmenter = EmbeddedEngine(), Segmenter()
    pieces = [each for delta in deltas_of(reply) for each in segmenter.push(delta)]
    await engine.start()
    middles: list[int] = []
    base = 0
    try:
        for piece in [*pieces, *segmenter.end()]:
            length = 0
            async for chunk in engine.synthesize(SynthesisRequest(piece.text, final=piece.final)):
                length += chunk.samples
                middles += [base + (word.start + word.end) // 2 for word in chunk.words]
            base += length
    finally:
        await engine.close()
    return middles
