"""Valid examples for the targets of the telephone's signalling, and its keywords."""

from __future__ import annotations

OFFER = (
    "v=0\r\no=- 1 1 IN IP4 192.0.2.9\r\ns=-\r\nc=IN IP4 192.0.2.9\r\nt=0 0\r\n"
    "m=audio 40000 RTP/AVP 0 8 101\r\na=rtpmap:0 PCMU/8000\r\na=rtpmap:8 PCMA/8000\r\n"
    "a=rtpmap:101 telephone-event/8000\r\na=fmtp:101 0-15\r\na=ptime:20\r\na=sendrecv\r\n"
)
HELD = OFFER.replace("sendrecv", "sendonly").replace("o=- 1 1", "o=- 1 2")
RICH = (
    "v=0\r\no=them 77 3 IN IP6 2001:db8::1\r\ns=A call\r\nb=AS:64\r\nt=0 0\r\na=recvonly\r\n"
    "m=video 5000/2 RTP/AVPF 96\r\nc=IN IP4 192.0.2.9/127\r\na=rtpmap:96 H264/90000\r\n"
    "m=audio 5004 RTP/AVP 97 8\r\nc=IN IP6 2001:db8::1\r\na=rtpmap:97 opus/48000/2\r\n"
    "a=maxptime:30\r\na=inactive\r\nm=application 0 TCP/MSRP *\r\n"
)
DESCRIPTIONS = (OFFER.encode(), HELD.encode(), RICH.encode(), OFFER.replace("\r\n", "\n").encode())
SDP_WORDS = (
    *(b"000000000", b"%0", b"IP6 "),
    *(b"v=0\r\n", b"o=- 1 1 IN IP4 ", b"c=IN IP4 ", b"c=IN IP6 ::1", b"m=audio ", b"m=video 0 "),
    *(b"RTP/AVP", b"RTP/SAVP", b"a=rtpmap:", b"PCMU/8000", b"PCMA/8000/1", b"a=ptime:", b"a=fmtp:"),
    *(
        b"a=maxptime:",
        b"telephone-event/8000",
        b"a=sendonly",
        b"a=inactive",
        b"0.0.0.0",
        b"fe80::1%",
    ),
)


def message(start: str, *lines: str, body: str = "") -> bytes:
    """A message with the length of its body."""
    head = [start, *lines, f"Content-Length: {len(body)}"]
    if body:
        head.insert(-1, "Content-Type: application/sdp")
    return "\r\n".join([*head, "", body]).encode()


VIA = "Via: SIP/2.0/UDP 192.0.2.9:5060;branch=z9hG4bK{};rport"
CONTACT = "Contact: <sip:them@192.0.2.9:5060>"


def request(
    method: str, *extra: str, branch: str = "", cseq: int = 1, tag: str = "", body: str = ""
) -> bytes:
    """A request to the agent at 192.0.2.1, as a stranger writes it."""
    return message(
        f"{method} sip:agent@192.0.2.1:5060 SIP/2.0",
        VIA.format(branch or f"{method}{cseq}"),
        "Max-Forwards: 70",
        'From: "Them" <sip:them@192.0.2.9>;tag=theirs',
        "To: <sip:agent@192.0.2.1>" + (f";tag={tag}" if tag else ""),
        "Call-ID: fuzz",
        f"CSeq: {cseq} {method}",
        CONTACT,
        *extra,
        body=body,
    )


def response(status: int, *extra: str, body: str = "", method: str = "%M") -> bytes:
    """A response to the agent's last request; for the words in % see the agent's target."""
    return message(
        f"SIP/2.0 {status} So",
        "Via: SIP/2.0/UDP 192.0.2.1:5060;branch=%B;rport",
        "From: <sip:agent@192.0.2.1:5060>;tag=%F",
        "To: <sip:them@192.0.2.9>;tag=theirs",
        "Call-ID: %I",
        f"CSeq: %N {method}",
        CONTACT,
        *extra,
        body=body,
    )


CHALLENGE = 'WWW-Authenticate: Digest realm="r", nonce="n\\"1", qop="auth,auth-int", algorithm=MD5'
FILLED = {b"%B": b"z9hG4bKx", b"%F": b"ours", b"%I": b"fuzz", b"%N": b"1", b"%M": b"INVITE"}


def filled(data: bytes) -> bytes:
    """A response with something for its words in %."""
    for word, value in FILLED.items():
        data = data.replace(word, value)
    return data


COMPACT = (
    b"INVITE sip:agent@192.0.2.1 SIP/2.0\r\nv: SIP/2.0/TCP h.example;branch=z9hG4bK1\r\n"
    b'f: sip:a@b;tag=1\r\nt: "x, <y>" <sip:c@d>\r\ni: 1\r\nCSeq:\r\n 1  INVITE\r\n'
    b"m: <sip:a@[2001:db8::1]:5070;transport=tcp>;q=0.5, <tel:+49301234>\r\nk: timer\r\n"
    b"x: 1800;refresher=uas\r\nRecord-Route: <sip:p1;lr>,<sip:p2>\r\nl: 0\r\n\r\n"
)
MESSAGES = (
    request("INVITE", body=OFFER),
    request("BYE", 'Reason: Q.850;cause=16;text="Bye"', cseq=2, tag="ours"),
    COMPACT,
    filled(response(200, "Session-Expires: 90;refresher=uac", "Require: timer", body=OFFER)),
    filled(response(401, CHALLENGE)),
    filled(response(422, "Min-SE: 120")),
    request("OPTIONS", "Require: 100rel", "Route: <sip:192.0.2.1;lr>", "Accept-Encoding: gzip"),
)
SIP_WORDS = (
    *(b"SIP/2.0", b"INVITE ", b"ACK ", b"BYE ", b"CANCEL ", b"OPTIONS ", b"REGISTER ", b"\r\n\r\n"),
    *(b"\r\nVia: ", b"\r\nFrom: ", b"\r\nTo: ", b"\r\nCall-ID: ", b"\r\nCSeq: ", b"\r\nContact: "),
    *(b"\r\nRoute: ", b"\r\nRecord-Route: ", b"\r\nRequire: ", b"\r\nContent-Length: ", b";tag="),
    *(b"\r\nMax-Forwards: 0", b"\r\nContent-Type: ", b";branch=z9hG4bK", b";received=", b";rport="),
    *(b";transport=tcp", b";lr", b"sip:", b"sips:", b"tel:", b"[::1]", b":65536", b"\r\n ", b"%41"),
    *(b"\r\nSession-Expires: ", b"\r\nMin-SE: ", b"\r\nWWW-Authenticate: Digest ", b"\r\nl: "),
)
