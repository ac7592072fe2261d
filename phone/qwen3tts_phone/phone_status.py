"""How a phone stands: its addresses, its registrations, its media process."""

from __future__ import annotations

from collections.abc import Mapping

from qwen3tts_phone.media.admission import PacingAdmission
from qwen3tts_phone.media.keeper import MediaKeeper
from qwen3tts_phone.sip.endpoint import SipEndpoint
from qwen3tts_phone.sip.line import Line


class PhoneStatus:
    """The part of a `Phone` that tells how it stands; all of it once the phone is entered."""

    _sip: SipEndpoint
    _media: MediaKeeper

    @property
    def uri(self) -> str:
        """The address at which this phone can be called."""
        return self._sip.uri

    @property
    def port(self) -> int:
        """The bound SIP port."""
        return self._sip.port

    @property
    def tls_port(self) -> int:
        """The bound port for SIP over TLS; 0 where there is none."""
        return self._sip.tls_port

    @property
    def scheduling(self) -> str:
        """How the media process runs: ``fifo``, ``nice`` or ``plain``."""
        return self._media.process.rt

    @property
    def media_pid(self) -> int:
        """The media process, for whoever watches what it uses."""
        return self._media.pid

    @property
    def pacing(self) -> PacingAdmission:
        """Whether calls are sent in time and another one is taken, with its figures and words."""
        return self._media.pacing

    @property
    def registrations(self) -> Mapping[str, Line]:
        """How the accounts stand, by their names."""
        return self._sip.lines

    @property
    def sip(self) -> SipEndpoint:
        """Its signalling."""
        return self._sip
