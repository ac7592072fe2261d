"""Where messages go back to: the Via of a request, stamped and followed."""

from __future__ import annotations

from qwen3tts_phone.sip.fields import is_ip, parse_uri, parse_via, uri_parameter
from qwen3tts_phone.sip.hop import Hop
from qwen3tts_phone.sip.message import Request, Response


def stamp_via(request: Request, source: Hop) -> None:
    """Note in the top Via where the request really came from (RFC 3581 section 4)."""
    lines = request.headers.getlist("Via")
    values = request.values("Via")
    via = parse_via(values[0])
    names = {name.lower() for name in via.parameters}
    text = values[0]
    if "rport" in names:
        wanted = next(v for k, v in via.parameters.items() if k.lower() == "rport")
        if not wanted:
            head, _, tail = _split_parameter(text, "rport")
            text = f"{head};rport={source.port}{tail}"
    if "received" not in names and ("rport" in names or via.host.strip("[]") != source.host):
        text += f";received={source.host}"
    lines[:] = [text, *values[1:]]


def _split_parameter(text: str, name: str) -> tuple[str, str, str]:
    """Cut ``;name`` or ``;name=`` out of a header value."""
    parts = text.split(";")
    for index, part in enumerate(parts[1:], 1):
        if part.partition("=")[0].strip().lower() == name:
            tail = ";".join(parts[index + 1 :])
            return ";".join(parts[:index]), part, f";{tail}" if tail else ""
    return text, "", ""


def reply_hop(request: Request, source: Hop) -> Hop:
    """Where the answer goes (RFC 3261 section 18.2.2, RFC 3581 section 4)."""
    via = request.via
    rport = any(name.lower() == "rport" for name in via.parameters)
    if source.reliable:
        # The connection it came by; if that is gone, a new one to the port of Via.
        default = 5061 if source.transport == "tls" else 5060
        port = via.port or default
        secure = request.uri[:5].lower() == "sips:"
        return Hop(source.transport, source.host, port, source.flow, by_flow=True, secure=secure)
    port = source.port if rport else via.port or 5060
    return Hop(source.transport, source.host, port, source.flow)


def loose(uri: str) -> str:
    """A URI for a preloaded Route: with ``lr``, as routers since RFC 3261 want it."""
    return uri if uri_parameter(parse_uri(uri), "lr") is not None else f"{uri};lr"


def bracketed(host: str) -> str:
    """A host as it stands in a URI or Via: IPv6 in brackets."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def at_server(uri: str, server: str) -> str:
    """A URI with another one's scheme, host, port and transport; a telephone number gets them."""
    wanted, other = parse_uri(uri), parse_uri(server)
    user = wanted.user if wanted.scheme != "tel" else uri.partition(":")[2].partition(";")[0]
    port = f":{other.port}" if other.port is not None else ""
    transport = uri_parameter(other, "transport")
    tail = f";transport={transport}" if transport else ""
    return f"{other.scheme}:{f'{user}@' if user else ''}{bracketed(other.host)}{port}{tail}"


def seen_address(response: Response) -> tuple[str, int] | None:
    """Host and port that whoever answered saw our request come from (RFC 3581); None if unsaid."""
    values = response.values("Via")
    via = parse_via(values[0])
    said = {name.lower(): value or "" for name, value in via.parameters.items()}
    host = received_host(values[0]) or (via.host.strip("[]") if "rport" in said else "")
    port = said.get("rport", "")
    if not is_ip(host) or (port and not (port.isascii() and port.isdigit())):
        return None
    number = int(port) if port else via.port or (5061 if via.transport.upper() == "TLS" else 5060)
    return (host, number) if 0 < number < 65536 else None


def received_host(value: str) -> str:
    """The ``received`` parameter of a Via value; empty where there is none."""
    for part in value.split(";")[1:]:
        name, _, host = part.partition("=")
        if name.strip().lower() == "received":
            return host.strip().strip("[]")
    return ""
