"""Health check of a telephone: exit 0 if it answers OPTIONS (RFC 3261 section 11) over UDP.

python answers_options.py 127.0.0.1 5060
"""

from __future__ import annotations

import secrets
import socket
import sys

TIMEOUT_S = 3.0


def answers(host: str, port: int, timeout_s: float = TIMEOUT_S) -> bool:
    """Return True if a SIP response to OPTIONS comes, whatever its status."""
    with socket.socket(
        socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM
    ) as udp:
        udp.settimeout(timeout_s)
        udp.connect((host, port))
        own_host, own_port = udp.getsockname()[:2]
        named = f"[{host}]" if ":" in host else host
        own = f"[{own_host}]" if ":" in own_host else own_host
        lines = (
            f"OPTIONS sip:{named}:{port} SIP/2.0",
            f"Via: SIP/2.0/UDP {own}:{own_port};branch=z9hG4bK{secrets.token_hex(8)};rport",
            "Max-Forwards: 70",
            f"From: <sip:health@{own}>;tag={secrets.token_hex(4)}",
            f"To: <sip:{named}:{port}>",
            f"Call-ID: {secrets.token_hex(8)}",
            "CSeq: 1 OPTIONS",
            "Content-Length: 0",
        )
        try:
            udp.send(("\r\n".join(lines) + "\r\n\r\n").encode("ascii"))
            return udp.recv(4096).startswith(b"SIP/2.0 ")
        except OSError:
            return False


if __name__ == "__main__":
    sys.exit(0 if answers(sys.argv[1], int(sys.argv[2])) else 1)
