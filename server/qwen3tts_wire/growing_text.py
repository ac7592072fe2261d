"""A text that comes in pieces."""

from __future__ import annotations


class GrowingText:
    """Joins its pieces only when it is read: each costs the same, however long the text is."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._length = 0

    def __str__(self) -> str:
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    def __len__(self) -> int:
        """Code points."""
        return self._length

    def add(self, piece: str) -> None:
        """The next piece."""
        if piece:
            self._pieces.append(piece)
            self._length += len(piece)
