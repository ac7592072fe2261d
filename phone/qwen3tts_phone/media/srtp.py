"""Encrypted media (RFC 3711, RFC 7714) by libsrtp: what is sealed to send and opened when it comes.

The library is loaded once, when the media process starts, so that no call waits for it.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from qwen3tts_phone.sdp.crypto import SrtpKey

PROFILES = {
    "AES_CM_128_HMAC_SHA1_80": "SRTP_PROFILE_AES128_CM_SHA1_80",
    "AES_CM_128_HMAC_SHA1_32": "SRTP_PROFILE_AES128_CM_SHA1_32",
    "AEAD_AES_128_GCM": "SRTP_PROFILE_AEAD_AES_128_GCM",
    "AEAD_AES_256_GCM": "SRTP_PROFILE_AEAD_AES_256_GCM",
}
"""The suites that the library has, by the name that session descriptions give them."""
OLD_KEY_S = 1.0
"""So long after a new key was agreed the old one is still taken: packets are on their way."""
_MODULES = ("pylibsrtp", "_cffi_backend")


class _Library:
    """The loaded module, or None."""

    module: ModuleType | None = None


def available() -> tuple[str, ...]:
    """The suites that can be used here; none when pylibsrtp is not installed."""
    return tuple(PROFILES) if _paths(_MODULES) else ()


def library_paths() -> list[str]:
    """The folders that `load` needs in a process that knows of no installed packages."""
    return _paths(_MODULES)


def load(paths: Sequence[str] = ()) -> tuple[str, ...]:
    """Import the library, with these folders added to the path meanwhile; the suites it has."""
    before = list(sys.path)
    sys.path += paths
    try:
        _Library.module = importlib.import_module("pylibsrtp")
    except (ImportError, OSError):
        return ()
    finally:
        sys.path[:] = before
    return tuple(PROFILES)


class Sealer:
    """Encrypts what is sent. Raises ValueError for a suite that cannot be used here."""

    def __init__(self, key: SrtpKey) -> None:
        self.key = key
        session, self._error = _session(key, inbound=False)
        self._protect: Callable[[bytes], bytes] = session.protect
        self._protect_rtcp: Callable[[bytes], bytes] = session.protect_rtcp

    def seal(self, packet: bytes) -> bytes:
        """An RTP packet as it goes out; OSError when it cannot be encrypted."""
        try:
            return self._protect(packet)
        except (self._error, ValueError) as error:
            raise OSError(f"not encrypted: {error}") from None

    def seal_report(self, packet: bytes) -> bytes:
        """The same for RTCP."""
        try:
            return self._protect_rtcp(packet)
        except (self._error, ValueError) as error:
            raise OSError(f"not encrypted: {error}") from None


class Opener:
    """Authenticates and decrypts what comes; counts what it drops. ValueError as for `Sealer`."""

    def __init__(self, key: SrtpKey) -> None:
        self.key = key
        self.failed = 0
        """Packets that did not authenticate."""
        self.replayed = 0
        """Packets that had come before, or are too old to know (RFC 3711 section 3.3.2)."""
        self._session, self._error = _session(key, inbound=True)
        self._old: Any = None
        self._old_until = 0.0

    def change(self, key: SrtpKey, now: float) -> None:
        """Another key was agreed. The one before is still taken for a moment."""
        if key == self.key:
            return  # the same session: it knows what has come already
        session, _ = _session(key, inbound=True)
        self._old, self._old_until = self._session, now + OLD_KEY_S
        self._session, self.key = session, key

    def open(self, data: bytes, now: float) -> bytes | None:
        """The RTP packet in a datagram; None = it is none of ours."""
        try:
            return self._session.unprotect(data)  # type: ignore[no-any-return]
        except (self._error, ValueError) as error:
            return self._refused(error, partial(_unprotect, data), now)

    def open_report(self, data: bytes, now: float) -> bytes | None:
        """The same for RTCP."""
        try:
            return self._session.unprotect_rtcp(data)  # type: ignore[no-any-return]
        except (self._error, ValueError) as error:
            return self._refused(error, partial(_unprotect_rtcp, data), now)

    def _refused(self, error: Exception, again: Callable[[Any], bytes], now: float) -> bytes | None:
        # "replay check failed": authentic as far as is known, and here before.
        replayed = str(error).startswith("replay")
        if self._old is not None and not replayed:
            if now < self._old_until:
                try:
                    return again(self._old)
                except (self._error, ValueError) as old_error:
                    replayed = str(old_error).startswith("replay")
            else:
                self._old = None
        if replayed:
            self.replayed += 1
        else:
            self.failed += 1
        return None


def _unprotect(data: bytes, session: Any) -> bytes:
    return session.unprotect(data)  # type: ignore[no-any-return]


def _unprotect_rtcp(data: bytes, session: Any) -> bytes:
    return session.unprotect_rtcp(data)  # type: ignore[no-any-return]


def _session(key: SrtpKey, *, inbound: bool) -> tuple[Any, type[Exception]]:
    module = _Library.module
    if module is None:
        raise ValueError(
            "media encryption (SRTP) needs the package pylibsrtp: install mr_qwen3tts[phone]"
        )
    if key.suite not in PROFILES:
        raise ValueError(f"SRTP suite {key.suite} is not in this libsrtp: {', '.join(PROFILES)}")
    policy_type = module.Policy
    policy = policy_type(
        key=key.raw,
        # A peer may begin another stream (SSRC); the session makes a context for each.
        ssrc_type=policy_type.SSRC_ANY_INBOUND if inbound else policy_type.SSRC_ANY_OUTBOUND,
        srtp_profile=getattr(policy_type, PROFILES[key.suite]),
    )
    return module.Session(policy=policy), module.Error


def _paths(names: Sequence[str]) -> list[str]:
    folders = []
    for name in names:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            return []
        origin = Path(spec.origin)
        folders.append(str(origin.parent.parent if origin.name == "__init__.py" else origin.parent))
    return list(dict.fromkeys(folders))
