"""Tensors by name, whatever they come from; each refusal names file and tensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NoReturn

from torch import Tensor

from qwen3tts_engine.qwen3.fields import REMEDY, BadCheckpoint


class Weights:
    """The tensors of one model file, read when they are asked for.

    A name is the file's own, less the prefix of ``under``. A tensor is read anew at each
    request, so whoever needs it twice keeps it.
    """

    def __init__(
        self,
        source: str,
        shapes: Mapping[str, tuple[int, ...]],
        load: Callable[[str], Tensor],
        *,
        prefix: str = "",
        used: set[str] | None = None,
        stored: Callable[[str], Tensor] | None = None,
    ) -> None:
        self.source = source
        """What the tensors come from, for messages: a file, as a rule."""
        self._shapes = shapes
        self._load = load
        self._prefix = prefix
        self._used = set[str]() if used is None else used
        self._stored = stored or load

    def __contains__(self, name: str) -> bool:
        return self._prefix + name in self._shapes

    def __getitem__(self, name: str) -> Tensor:
        """A tensor, of whatever shape.

        Raises:
            BadCheckpoint: there is none of that name, or its values are no numbers.
        """
        full = self._prefix + name
        if full not in self._shapes:
            self._refuse(full, "is missing")
        self._used.add(full)
        return self._load(full)

    def take(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """A tensor of exactly this shape.

        Raises:
            BadCheckpoint: there is none of that name, it has another shape, or its values are no
                numbers.
        """
        full = self._prefix + name
        found = self._shapes.get(full)
        if found is not None and found != shape:
            self._refuse(full, f"has shape {list(found)} where {list(shape)} is expected")
        return self[name]

    def take_stored(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Read a tensor as ``take`` does, but in the dtype of its file and on the CPU."""
        here = Weights(
            self.source, self._shapes, self._stored, prefix=self._prefix, used=self._used
        )
        return here.take(name, shape)

    def under(self, prefix: str) -> Weights:
        """The tensors whose names begin so, by the rest of their names."""
        return Weights(
            self.source,
            self._shapes,
            self._load,
            prefix=self._prefix + prefix,
            used=self._used,
            stored=self._stored,
        )

    def names(self) -> list[str]:
        """Names under this prefix, sorted."""
        at = len(self._prefix)
        return sorted(name[at:] for name in self._shapes if name.startswith(self._prefix))

    def unused(self) -> list[str]:
        """Full names under this prefix that nobody asked for yet, sorted."""
        return sorted(
            name
            for name in self._shapes
            if name.startswith(self._prefix) and name not in self._used
        )

    def _refuse(self, name: str, problem: str) -> NoReturn:
        raise BadCheckpoint(f"{self.source}: tensor {name} {problem}.", remedy=REMEDY)
