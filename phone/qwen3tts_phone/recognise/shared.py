"""The recognisers that calls ask for by name or function: each is made once, and all share it."""

from __future__ import annotations

from importlib import import_module
from typing import Final, cast

from qwen3tts_phone.recognise.base import Recognise, Recogniser
from qwen3tts_wire.errors import BadRequest

RECOGNITION: Final = "qwen3tts_phone.recognise.kinds"
"""Module with ``recogniser_of``. It is above this package, which imports it by this name when a
call first names a recogniser, as `logging.config` does with handlers."""


class SharedRecognisers:
    """One for all calls of a phone; what it has made ends with it."""

    def __init__(self) -> None:
        self._made: dict[str | Recognise, Recogniser] = {}

    def chosen(self, given: Recogniser | Recognise | str | None) -> Recogniser | None:
        """A recogniser as it is; or the one of a name (`recogniser_named`) or of a function.

        It loads its model, or connects, with the first turn. Raises BadRequest for a name or a
        thing that is none.
        """
        if given is None or hasattr(given, "open"):
            return cast("Recogniser | None", given)
        if not (isinstance(given, str) or callable(given)):
            raise BadRequest(
                f"A {type(given).__name__} is no recogniser.",
                remedy="Give a name such as whisper, a function, or a Recogniser.",
            )
        if given not in self._made:
            self._made[given] = import_module(RECOGNITION).recogniser_of(given)
        return self._made[given]

    async def close(self) -> None:
        """End all of them."""
        made = list(self._made.values())
        self._made.clear()
        for each in made:
            await each.close()
