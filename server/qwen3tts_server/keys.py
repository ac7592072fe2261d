"""API keys: several, compared in constant time, from the settings and from a file."""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from qwen3tts_server.access import AccessSettings, good_key
from qwen3tts_server.roles import WORDS, Grant, Role, owner_of
from qwen3tts_settings.key_files import readable_by_others
from qwen3tts_wire.errors import BadRequest

log = logging.getLogger(__name__)

MAX_KEY_CHARS = 1024
"""A longer key is none."""
MAX_FILE_BYTES = 1 << 20
"""No file of keys is larger."""
LOOK_AGAIN_S = 1.0
"""A changed file is seen after so long."""
_REMARK = re.compile(r"(^|\s)#.*")  # a # within a key belongs to it


class ApiKeys:
    """The keys that are taken now, each with its role."""

    def __init__(
        self,
        keys: Iterable[str] | Mapping[str, Role] = (),
        file: Path | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take keys, of the role ``speak`` where none is given, and those of a file.

        Raises:
            BadRequest: the file cannot be read or holds no key.
        """
        roles = keys if isinstance(keys, Mapping) else dict.fromkeys(keys, Role.SPEAK)
        self._fixed = [(_digest(key), role) for key, role in roles.items()]
        self._file = file
        self._clock = clock
        self._looked = clock()
        self._stamp: tuple[int, int, int] | None = None
        self._from_file: list[tuple[bytes, Role]] = []
        if file is not None:
            self._stamp, self._from_file = _read(file)

    @property
    def required(self) -> bool:
        """Whether anybody needs a key."""
        return bool(self._fixed) or self._file is not None

    @classmethod
    def of(cls, access: AccessSettings) -> ApiKeys:
        """Return the keys of a server's settings; raises what the constructor raises."""
        roles: dict[str, Role] = {}
        # Of a key that stands in several lists the highest role counts.
        roles |= dict.fromkeys(access.api_keys, Role.SPEAK)
        roles |= dict.fromkeys(access.voices_keys, Role.VOICES)
        roles |= dict.fromkeys(access.admin_keys, Role.ADMIN)
        return cls(roles, access.api_key_file)

    def accepts(self, key: str) -> bool:
        """Whether it is one of them; as slow for a key that is nearly right as for any other."""
        return self.grant(key) is not None

    def grant(self, key: str) -> Grant | None:
        """Return what a key may do; None for one that is not taken. In constant time, as
        ``accepts``."""
        self._look_again()
        if len(key) > MAX_KEY_CHARS:
            return None
        digest, found = _digest(key), 0
        for each, role in (*self._fixed, *self._from_file):
            found = max(found, role * hmac.compare_digest(each, digest))
        return Grant(Role(found), owner_of(digest)) if found else None

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


def _read(file: Path) -> tuple[tuple[int, int, int], list[tuple[bytes, Role]]]:
    """The file's stamp and its keys; a # begins a remark, after a key and a space too."""
    remedy = (
        "It holds one key a line, of visible ASCII characters without spaces, and behind it"
        f" {', '.join(WORDS)} where its role is not speak."
    )
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
    if who := readable_by_others(file):
        log.warning("the file of API keys %s can be read by %s; chmod 600", file, who)
    lines = [_REMARK.sub("", line).strip() for line in text.splitlines()]
    keys = [line.split() for line in lines if line]
    if not keys:
        raise BadRequest(f"The file of API keys {file} holds no key.", remedy=remedy)
    if len(text) > MAX_FILE_BYTES or not all(map(_good_line, keys)):
        raise BadRequest(f"The file of API keys {file} holds something else.", remedy=remedy)
    return stamp, [(_digest(key), WORDS[role[0]] if role else Role.SPEAK) for key, *role in keys]


def _good_line(words: list[str]) -> bool:
    key, *role = words
    return good_key(key) and len(role) <= 1 and all(each in WORDS for each in role)
