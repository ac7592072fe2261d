"""``session.created``, the first message."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Sequence

from qwen3tts_engine.base import Engine, Voice
from qwen3tts_engine.text_plan import LAYOUTS
from qwen3tts_engine.wrapped import cloning, task_of
from qwen3tts_server.keys import Grant, Role
from qwen3tts_server.voices.catalogue import VoiceCatalogue
from qwen3tts_wire.fields import encode
from qwen3tts_wire.formats import FORMATS
from qwen3tts_wire.messages import FEATURES, MODES, PROTOCOL, Limits, SessionCreated, VoiceInfo

GREETINGS_KEPT = 64
"""Owners with an encoded greeting."""


def features(engine: Engine) -> tuple[str, ...]:
    has = {
        # A Base checkpoint's voices are brought later; some of them take live text.
        "live_text": task_of(engine) == "base" or _live_now(engine),
        "alignment": engine.alignment == "exact",
        "estimated_alignment": engine.alignment == "estimated",
        "playout_steering": "lead" in engine.options,
        "voice_loading": cloning(engine) is not None,
    }
    return tuple(name for name in FEATURES if has[name])


def _live_now(engine: Engine) -> bool:
    voices = (None, *(each.id for each in engine.voices()))
    return any("live" in engine.modes(each) for each in voices)


def _modes(engine: Engine) -> tuple[str, ...]:
    live, layout = _live_now(engine), "layout" in engine.options
    return tuple(
        mode for mode in MODES if mode == "clause" or (layout if mode in LAYOUTS else live)
    )


class Greeting:
    """``session.created``, encoded once an offer: 140 voices take 2 ms."""

    def __init__(
        self, engine: Engine, limits: Limits, voices: Callable[[], Sequence[Voice]] | None = None
    ) -> None:
        self._engine = engine
        self._voices = voices or engine.voices
        self._limits = limits
        self._offer: object = None
        self._text = ""

    def text(self) -> str:
        engine = self._engine
        offer = (engine.name, engine.model, engine.alignment, engine.options, *self._voices())
        if offer != self._offer:
            self._text = encode(self._message())
            self._offer = offer
        return self._text

    def _message(self) -> SessionCreated:
        engine = self._engine
        able = features(engine)
        return SessionCreated(
            protocol=PROTOCOL,
            engine=engine.name,
            model=engine.model,
            voices=tuple(
                VoiceInfo(each.id, each.name, each.language, each.gender, each.description)
                for each in self._voices()
            ),
            formats=FORMATS,
            limits=self._limits,
            modes=_modes(engine),
            features=able,
        )


class Greetings:
    """Greeting by owner of voices; the least recent is evicted."""

    def __init__(self, voices: VoiceCatalogue, limits: Limits) -> None:
        self._voices = voices
        self._limits = limits
        self._by_owner: OrderedDict[str | None, Greeting] = OrderedDict()

    def of(self, grant: Grant) -> Greeting:
        owner = None if grant.role >= Role.VOICES else grant.owner
        greeting = self._by_owner.get(owner)
        if greeting is None:
            listed = functools.partial(self._voices.voices_for, grant)
            greeting = self._by_owner[owner] = Greeting(self._voices, self._limits, listed)
        self._by_owner.move_to_end(owner)
        while len(self._by_owner) > GREETINGS_KEPT:
            self._by_owner.popitem(last=False)
        return greeting
