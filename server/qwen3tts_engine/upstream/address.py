"""Where an upstream server's routes are."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

OMNI_PATH = "/v1/audio/speech/stream"
SPEECH = "/audio/speech"


@dataclass(frozen=True, slots=True)
class Address:
    """The routes of one server."""

    speech: str
    """Where speech is asked for."""
    base: str
    """What ``/audio/voices`` and ``/models`` are added to."""
    shown: str
    """For people: host and port."""

    @classmethod
    def of(cls, url: str) -> Address:
        """From the configured address: the server's, the API's, or the route's itself."""
        parts = urlsplit(url)
        scheme = parts.scheme.lower()
        path = parts.path.rstrip("/")
        socket = scheme in ("ws", "wss")
        path = path.removesuffix(SPEECH + "/stream").removesuffix(SPEECH) or "/v1"
        base = urlunsplit((scheme.replace("ws", "http"), parts.netloc, path, "", ""))
        if not socket:
            return cls(f"{base}{SPEECH}", base, parts.netloc)
        # A path of another form is taken as it is; its voices may still be where they usually are.
        own = parts.path.rstrip("/")
        if own in ("", "/v1"):
            own = OMNI_PATH
        if not own.endswith(SPEECH + "/stream"):
            base = urlunsplit((scheme.replace("ws", "http"), parts.netloc, "/v1", "", ""))
        return cls(urlunsplit((scheme, parts.netloc, own, "", "")), base, parts.netloc)
