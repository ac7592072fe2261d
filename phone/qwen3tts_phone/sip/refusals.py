"""What a request is refused for before anybody looks at what it wants: RFC 3261 section 8.2."""

from __future__ import annotations

from collections.abc import Callable

from qwen3tts_phone.errors import BadSip
from qwen3tts_phone.sip.addresses import ALLOW
from qwen3tts_phone.sip.dialog import new_tag
from qwen3tts_phone.sip.fields import check_secure, parse_address, parse_uri
from qwen3tts_phone.sip.hop import Hop
from qwen3tts_phone.sip.message import Request, Response, reply
from qwen3tts_phone.sip.session_timer import MIN_SE_S, too_brief

EXTENSIONS = frozenset({"timer", "100rel", "replaces", "norefersub"})
"""What a request may require of us."""
_KNOWN = {
    *("INVITE", "ACK", "CANCEL", "BYE", "OPTIONS", "REGISTER", "PRACK", "UPDATE", "INFO"),
    *("SUBSCRIBE", "NOTIFY", "PUBLISH", "MESSAGE", "REFER"),
}


def refuse(request: Request, status: int, *headers: tuple[str, str]) -> Response:
    """A refusal outside any dialog, with a tag of its own."""
    response = reply(request, status, to_tag=new_tag())
    for name, value in headers:
        response.add(name, value)
    return response


def refusal(request: Request, local: Callable[[Hop], tuple[str, int]]) -> Response | None:
    """The answer to a request that is not looked into further, or None; raises BadSip (400).

    ``local`` says which of our addresses and ports a hop knows us by.
    """
    method = request.method
    if method not in ALLOW.split(", "):
        return refuse(request, 405 if method in _KNOWN else 501, ("Allow", ALLOW))
    if request.uri.partition(":")[0].lower() not in ("sip", "sips", "tel"):
        return refuse(request, 416)
    parse_uri(request.uri)
    if request.uri[:5].lower() == "sips:" and request.via.transport.upper() == "UDP":
        # Section 26.2.2: sips: is TLS on each hop.
        return refuse(request, 416)
    for name in ("Contact", "Route", "Record-Route"):
        for value in request.values(name):
            if "sips:" in value.lower():
                check_secure(parse_address(value).uri)
    forwards = request.get("Max-Forwards")
    if forwards is not None:
        if not (forwards.isascii() and forwards.isdigit() and len(forwards) <= 5):
            raise BadSip("Max-Forwards is not a number.")
        # Section 16.3: a request that has used up its hops and is for somebody else.
        if int(forwards) == 0 and not _is_ours(request, local):
            return refuse(request, 483)
    required = [name for name in request.values("Require") if name.lower() not in EXTENSIONS]
    if required and method != "CANCEL":
        return refuse(request, 420, ("Unsupported", ", ".join(required)))
    if method in ("INVITE", "UPDATE") and too_brief(request):
        return refuse(request, 422, ("Min-SE", str(MIN_SE_S)))
    encoding = request.get("Content-Encoding")
    if encoding and encoding.strip().lower() != "identity":
        return refuse(request, 415, ("Accept-Encoding", "identity"))
    return None


def _is_ours(request: Request, local: Callable[[Hop], tuple[str, int]]) -> bool:
    uri = parse_uri(request.uri)
    via = request.via
    host, port = local(Hop(via.transport.lower(), via.host, via.port or 5060))
    return uri.host.strip("[]").lower() == host and (uri.port or 5060) == port
