"""API keys: several, compared in constant time, from the settings and from a file."""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from qwen3tts_wire.errors import BadRequest

from .access import good_key

log = logging.getLogger(__name__)

MAX_KEY_CHARS = 1024
"""A longer key is none."""
MAX_FILE_BYTES = 1 << 20
"""No file of keys is larger."""
LOOK_AGAIN_S = 1.0
"""A changed file is seen after so long."""
_REMARK = re.compile(r"(^|\s)#.*")  # a # within a key belongs to it


class ApiKeys:
    """The keys that are taken now."""

    def __init__(
        self,
        keys: Iterable[str] = (),
        file: Path | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises BadRequest for a file that cannot be read or holds no key."""
        self._fixed = [_digest(key) for key in keys]
        self._file = file
        self._clock = clock
        self._looked = clock()
        self._stamp: tuple[int, int, int] | None = None
        self._from_file: list[bytes] = []
        if file is not None:
            self._stamp, self._from_file = _read(file)

    @property
    def required(self) -> bool:
        """Whether anybody needs a key."""
        return bool(self._fixed) or self._file is not None

    def accepts(self, key: str) -> bool:
        """Whether it is one of them; as slow for a key that is nearly right as for any other."""
        self._look_again()
        if len(key) > MAX_KEY_CHARS:
            return False
        digest, found = _digest(key), False
        for each in (*self._fixed, *self._from_file):
            found |= hmac.compare_digest(each, digest)
        return found

    def reload(self) -> None:
        """Read the file again; what cannot be read leaves the keys as they are."""
        if self._file is None:
            return
        try:
            self._stamp, self._from_file = _read(self._file)
        except BadRequest as error:
            log.warning("%s The keys stay as they are.", error.message)
        else:
            log.info("the file of API keys was read again: %d keys", len(self._from_file))

    def _look_again(self) -> None:
        now = self._clock()
        if self._file is None or now - self._looked < LOOK_AGAIN_S:
            return
        self._looked = now
        try:
            changed = _stamp(os.stat(self._file)) != self._stamp
        except OSError:
            changed = False
        if changed:
            self.reload()


def _digest(key: str) -> bytes:
    # Of one length, so that a comparison tells nothing of the length of a key either.
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def _stamp(of: os.stat_result) -> tuple[int, int, int]:
    return of.st_mtime_ns, of.st_size, of.st_ino


def _read(file: Path) -> tuple[tuple[int, int, int], list[bytes]]:
    """The file's stamp and its keys; a # begins a remark, after a key and a space too."""
    remedy = "It holds one key a line, of visible ASCII characters without spaces."
    try:
        with file.open("rb") as data:
            stamp = _stamp(os.fstat(data.fileno()))
            text = data.read(MAX_FILE_BYTES + 1).decode("ascii")
    except OSError as error:
        raise BadRequest(
            f"The file of API keys {file} cannot be read: {error.strerror or error}.", remedy=remedy
        ) from error
    except UnicodeDecodeError:
        raise BadRequest(f"The file of API keys {file} is not ASCII.", remedy=remedy) from None
    lines = [_REMARK.sub("", line).strip() for line in text.splitlines()]
    keys = [line for line in lines if line]
    if not keys:
        raise BadRequest(f"The file of API keys {file} holds no key.", remedy=remedy)
    if len(text) > MAX_FILE_BYTES or not all(map(good_key, keys)):
        raise BadRequest(f"The file of API keys {file} holds something else.", remedy=remedy)
    return stamp, [_digest(key) for key in keys]
