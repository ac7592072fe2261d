"""Text that grows while it is read."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate


class GrowingText:
    """Text joined when read, so that each piece costs the same."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._length = 0

    def __str__(self) -> str:
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    def __len__(self) -> int:
        return self._length

    def add(self, piece: str) -> None:
        if piece:
            self._pieces.append(piece)
            self._length += len(piece)


TextPart = tuple[str, tuple[int, ...]]
"""Some text, and where it stands in the context's original text: one position per code point, and
one past the last."""


class LiveText:
    """Rest of one generation's text, written by the event loop and read by the engine's thread.

    Every method is thread-safe and none blocks. Each piece that ``push`` accepted is returned by
    ``take`` once, in order.

    >>> text = LiveText()
    >>> text.push("one ", (0, 1, 2, 3, 4)), text.take(), text.take()
    (True, [('one ', (0, 1, 2, 3, 4))], [])
    >>> text.push("two", (4, 5, 6, 7)), text.close(), text.push("three", (7, 8, 9, 10, 11, 12))
    (True, True, False)
    >>> text.take(), text.ended
    ([('two', (4, 5, 6, 7))], True)
    """

    def __init__(self) -> None:
        self.on_change: Callable[[], None] | None = None
        """Called after each ``push`` that brought something and after ``end``, on the writer's
        thread and outside the lock. The setter looks once itself: what came before it was set
        does not call."""
        self._lock = threading.Lock()
        self._parts: list[TextPart] = []
        self._end = False
        self._closed = False

    # Writing

    def push(self, text: str, offsets: Sequence[int]) -> bool:
        """Add text; False: the reader has closed, nothing was taken.

        ``offsets`` has one entry more than ``text``; the last is replaced by the first of what
        follows.

        Raises:
            ValueError: ``offsets`` does not fit ``text``, or the text has ended.
        """
        if len(offsets) != len(text) + 1:
            raise ValueError(
                f"{len(offsets)} offsets for a text of {len(text)} code points; "
                "there must be one more than code points"
            )
        with self._lock:
            if self._closed:
                return False
            if self._end:
                raise ValueError("the text has been ended; nothing may follow")
            if not text:
                return True
            self._parts.append((text, tuple(offsets)))
        self._changed()
        return True

    def end(self) -> None:
        """End the text; idempotent."""
        with self._lock:
            if self._end or self._closed:
                return
            self._end = True
        self._changed()

    @property
    def closed(self) -> bool:
        with self._lock:
            return self._closed

    # Reading

    def take(self, most: int | None = None) -> list[TextPart]:
        """Return new pieces in order.

        Beyond ``most`` bytes of UTF-8 the beginning only, up to a blank if there is one.
        """
        with self._lock:
            parts, self._parts = self._parts, []
            if most is None:
                return parts
            taken: list[TextPart] = []
            for index, (text, offsets) in enumerate(parts):
                size = utf8_bytes(text)
                if size > most:
                    fits = bisect_right(list(accumulate(map(utf8_bytes, text))), most)
                    cut = text.rfind(" ", 0, fits) + 1 or fits
                    taken += [(text[:cut], offsets[: cut + 1])] if cut else []
                    self._parts = [(text[cut:], offsets[cut:]), *parts[index + 1 :]]
                    break
                taken.append((text, offsets))
                most -= size
        return taken

    def put_first(self, text: str, offsets: Sequence[int]) -> None:
        with self._lock:
            self._parts.insert(0, (text, tuple(offsets)))

    @property
    def ended(self) -> bool:
        """True when all was taken and nothing more can come."""
        with self._lock:
            return (self._end or self._closed) and not self._parts

    def close(self) -> bool:
        """Refuse further text; what is here stays.

        Returns:
            False: the text had ended, or was closed already.
        """
        with self._lock:
            if self._end or self._closed:
                return False
            self._closed = True
            return True

    def _changed(self) -> None:
        on_change = self.on_change
        if on_change is not None:
            on_change()


def utf8_bytes(text: str) -> int:
    """Return the UTF-8 length; a token has one byte at least."""
    return len(text.encode("utf-8", "surrogatepass"))
