"""Addresses as an endpoint writes them: where a URI leads, and what we are called there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from qwen3tts_phone.errors import BadSip
from qwen3tts_phone.sip.message.fields import check_secure, is_ip, parse_uri, uri_parameter
from qwen3tts_phone.sip.message.network import Asks, Hop
from qwen3tts_phone.sip.message.via import bracketed
from qwen3tts_phone.sip.settings import SipSettings

ALLOW = "INVITE, ACK, CANCEL, BYE, OPTIONS, PRACK, UPDATE, INFO, REFER, NOTIFY"


class Addresses:
    """The addresses of one endpoint; ``local`` says host and port by which a hop knows us."""

    def __init__(self, settings: SipSettings, local: Callable[[Hop], tuple[str, int]]) -> None:
        self.settings = settings
        self._local = local

    def hop(self, uri_text: str, flow: int = 0, transport: str = "") -> Hop:
        """Where requests to a URI go; raises BadSip for what we cannot speak.

        ``transport`` is used where the URI names none, and then not looked up.
        """
        uri = parse_uri(uri_text)
        if uri.scheme not in ("sip", "sips"):
            raise BadSip(
                f"{uri_text!r} needs a gateway, which is not available here.",
                remedy="Use a sip: address.",
            )
        check_secure(uri_text)
        secure = uri.scheme == "sips"
        enabled = self.settings.enabled
        named = (uri_parameter(uri, "transport") or transport).lower()
        # RFC 3261 section 26.2.2: sips:...;transport=tcp is TLS over TCP.
        wanted = "tls" if secure and named in ("", "tcp", "tls") else named or enabled[0]
        if wanted not in enabled or (secure and wanted != "tls"):
            raise BadSip(
                f"The transport {wanted!r} of {uri_text!r} is not enabled.",
                remedy="Give the tls settings."
                if wanted == "tls"
                else f"Use one of: {', '.join(enabled)}.",
            )
        host = uri.host.strip("[]").lower()
        asks: Asks = "srv" if named or secure else "naptr"
        if uri.port is not None or is_ip(host):
            asks = "address"
        port = uri.port or (5061 if wanted == "tls" else 5060)
        return Hop(wanted, host, port, flow, name=host, asks=asks, secure=secure, fixed=bool(named))

    def roomier(self, hop: Hop, size: int) -> Hop | None:
        """The hop by TCP for a request that a datagram has no room for; None where it stays.

        RFC 3261 section 18.1.1: larger ones would be cut into fragments, which many NATs lose.
        """
        most = self.settings.udp_most_bytes
        if hop.transport != "udp" or hop.fixed or not most or size <= most:
            return None
        if "tcp" not in self.settings.enabled:
            return None
        asks: Asks = "srv" if hop.asks == "naptr" else hop.asks
        return replace(hop, transport="tcp", flow=max(0, hop.flow), asks=asks, others=())

    def via(self, hop: Hop) -> str:
        """The start of our Via for a hop; the branch is the caller's."""
        host, port = self._local(hop)
        return f"SIP/2.0/{hop.transport.upper()} {bracketed(host)}:{port}"

    def uri(self, hop: Hop, user: str = "") -> str:
        """Our own address as seen from a hop; ``user`` is by default the endpoint's."""
        host, port = self._local(hop)
        scheme = "sips" if hop.secure else "sip"
        return f"{scheme}:{user or self.settings.user}@{bracketed(host)}:{port}"

    def local(self, hop: Hop) -> tuple[str, int]:
        """Host and port by which a hop knows us."""
        return self._local(hop)

    def local_host(self, hop: Hop) -> str:
        """Our own host as seen from a hop."""
        return self._local(hop)[0]

    def contact(self, hop: Hop, *, user: str = "") -> str:
        """Our Contact value for a hop, with its transport where it is not UDP."""
        # Of a sips: address TLS is understood (RFC 3261 section 26.2.2).
        plain = hop.transport == "udp" or hop.secure
        return f"<{self.uri(hop, user)}{'' if plain else f';transport={hop.transport}'}>"

    def named(self, name: str = "") -> str:
        """A display name as it stands before an address, by default ours; empty where none."""
        name = name or self.settings.display_name
        if not name:
            return ""
        return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '" '
