"""SRTP (RFC 3711, RFC 7714) by libsrtp, and the protected sockets of a leg.

The library is loaded when the media process starts, so that no call waits for it.
"""

from __future__ import annotations

import importlib
import importlib.util
import socket
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from qwen3tts_phone.media.source import NOWHERE, Address
from qwen3tts_phone.media.types import RemoteMedia, family
from qwen3tts_phone.sdp.crypto import SrtpKey

PROFILES = {
    "AES_CM_128_HMAC_SHA1_80": "SRTP_PROFILE_AES128_CM_SHA1_80",
    "AES_CM_128_HMAC_SHA1_32": "SRTP_PROFILE_AES128_CM_SHA1_32",
    "AEAD_AES_128_GCM": "SRTP_PROFILE_AEAD_AES_128_GCM",
    "AEAD_AES_256_GCM": "SRTP_PROFILE_AEAD_AES_256_GCM",
}
"""Suites of the library by their SDP names."""
OLD_KEY_S = 1.0
"""Time for which the old key is still accepted."""
_MODULES = ("pylibsrtp", "_cffi_backend")


class _Library:
    module: ModuleType | None = None


def available() -> tuple[str, ...]:
    return tuple(PROFILES) if _paths(_MODULES) else ()


def library_paths() -> list[str]:
    """Return the folders that `load` needs in a process without installed packages."""
    return _paths(_MODULES)


def load(paths: Sequence[str] = ()) -> tuple[str, ...]:
    """Import the library, with these folders on the path meanwhile; return its suites."""
    before = list(sys.path)
    sys.path += paths
    try:
        _Library.module = importlib.import_module("pylibsrtp")
    except (ImportError, OSError):
        return ()
    finally:
        sys.path[:] = before
    return tuple(PROFILES)


class SrtpEncryptor:
    """Encrypts RTP and RTCP. Raises ValueError for an unusable suite."""

    def __init__(self, key: SrtpKey) -> None:
        self.key = key
        session, self._error = _session(key, inbound=False)
        self._protect: Callable[[bytes], bytes] = session.protect
        self._protect_rtcp: Callable[[bytes], bytes] = session.protect_rtcp

    def protect(self, packet: bytes) -> bytes:
        """Encrypt an RTP packet. Raises OSError."""
        try:
            return self._protect(packet)
        except (self._error, ValueError) as error:
            raise OSError(f"not encrypted: {error}") from None

    def protect_rtcp(self, packet: bytes) -> bytes:
        """Encrypt an RTCP packet. Raises OSError."""
        try:
            return self._protect_rtcp(packet)
        except (self._error, ValueError) as error:
            raise OSError(f"not encrypted: {error}") from None


class SrtpDecryptor:
    """Authenticates and decrypts RTP and RTCP. Raises ValueError for an unusable suite."""

    def __init__(self, key: SrtpKey) -> None:
        self.key = key
        self.failed = 0
        self.replayed = 0
        """Replayed packets (RFC 3711 section 3.3.2)."""
        self._session, self._error = _session(key, inbound=True)
        self._old: Any = None
        self._old_until = 0.0

    def change(self, key: SrtpKey, now: float) -> None:
        """Change the key; the old one is still accepted for `OLD_KEY_S`."""
        if key == self.key:
            return  # the same session: it knows what has come already
        session, _ = _session(key, inbound=True)
        self._old, self._old_until = self._session, now + OLD_KEY_S
        self._session, self.key = session, key

    def unprotect(self, data: bytes, now: float) -> bytes | None:
        try:
            return self._session.unprotect(data)  # type: ignore[no-any-return]
        except (self._error, ValueError) as error:
            return self._refused(error, partial(_unprotect, data), now)

    def unprotect_rtcp(self, data: bytes, now: float) -> bytes | None:
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


_MAPPED = "::ffff:"


def canonical_host(host: str) -> str:
    kind = family(host)
    if kind is None:
        return host
    return plain_host(socket.inet_ntop(kind, socket.inet_pton(kind, host)))


def plain_host(host: str) -> str:
    return host[7:] if host.startswith(_MAPPED) and "." in host else host


class RtpTransport:
    """Transport of one leg: bound RTP and RTCP sockets of one family, plain or SRTP."""

    def __init__(self, rtp: socket.socket, rtcp: socket.socket) -> None:
        self.rtp = rtp
        self.rtcp = rtcp
        self.sendto: Callable[[bytes, Any], int] = rtp.sendto
        """Sends an RTP packet. Raises OSError."""
        self.direct = rtp.family == socket.AF_INET
        """Whether datagrams need no `open`."""
        self.bare = True
        """Whether inbound packets are not encrypted."""
        self._six = rtp.family == socket.AF_INET6
        # One of them alone, or both families (it is bound to :: then).
        self._both = self._six and not rtp.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
        # Kept when encryption ends, too: should the key come back, no number is used twice.
        self._encryptor: SrtpEncryptor | None = None
        self._encrypting = False
        self._decryptor: SrtpDecryptor | None = None

    def update(self, remote: RemoteMedia, now: float) -> None:
        """Apply keys and family. Raises ValueError, and then nothing has changed."""
        if remote.host not in NOWHERE:
            self.target((remote.host, remote.port))
        key, encryptor = remote.srtp_send, self._encryptor
        if key is not None and (encryptor is None or encryptor.key != key):
            encryptor = SrtpEncryptor(key)
        if remote.srtp_receive is not None:
            if self._decryptor is not None:
                self._decryptor.change(remote.srtp_receive, now)
            else:
                self._decryptor = SrtpDecryptor(remote.srtp_receive)
        self.bare = remote.srtp_receive is None
        self.direct = self.bare and not self._six
        self._encryptor, self._encrypting = encryptor, key is not None
        # No method of its own: a cycle would never be collected in this process.
        self.sendto = self.rtp.sendto
        if key is not None and encryptor is not None:
            self.sendto = partial(_send_protected, self.rtp.sendto, encryptor.protect)

    def target(self, address: Address) -> Address:
        """Return the socket address of a host. Raises ValueError for one of another family."""
        host, port = address
        version = family(host)
        if version == socket.AF_INET:
            if not self._six:
                return address
            if self._both:
                return _MAPPED + host, port
        elif self._six:
            return address
        raise ValueError(
            f"host={host!r} is of another family than {self.rtp.getsockname()[0]}, where this "
            "call's sockets are bound; open the leg on an address of its family, or on ::"
        )

    def open(
        self, data: bytes, address: tuple[Any, ...], now: float, *, report: bool
    ) -> tuple[bytes, Address] | None:
        """Return the packet in a datagram and its source; None = dropped, and counted."""
        source = (plain_host(address[0]), address[1]) if self._six else (address[0], address[1])
        decryptor = self._decryptor
        if self.bare or decryptor is None:
            return data, source
        opened = decryptor.unprotect_rtcp(data, now) if report else decryptor.unprotect(data, now)
        return None if opened is None else (opened, source)

    def send_report(self, data: bytes, address: Address, *, muxed: bool) -> None:
        """Send RTCP on the port of RTP or on its own. Raises OSError."""
        if self._encrypting and self._encryptor is not None:
            data = self._encryptor.protect_rtcp(data)
        (self.rtp if muxed else self.rtcp).sendto(data, self.target(address))

    @property
    def failed(self) -> int:
        return self._decryptor.failed if self._decryptor is not None else 0

    @property
    def replayed(self) -> int:
        return self._decryptor.replayed if self._decryptor is not None else 0


def _send_protected(
    sendto: Callable[[bytes, Any], int],
    protect: Callable[[bytes], bytes],
    packet: bytes,
    address: Any,
) -> int:
    return sendto(protect(packet), address)
