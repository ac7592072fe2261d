"""What the refusals of SIP mean to whoever runs a phone (RFC 3261 section 21 and later)."""

from __future__ import annotations

from typing import Final

REFUSALS: Final[dict[int, tuple[str, str, str]]] = {
    402: ("payment", "The account has no credit.", "Pay for it, or ask whoever runs the server."),
    404: (
        "wrong_number",
        "The server knows no such number or user.",
        "Check how the number is written: providers want +COUNTRY NUMBER or a prefix of their own.",
    ),
    405: (
        "not_supported",
        "The server does not take calls at that address.",
        "Check the address: it may be a registrar only, or another port may take the calls.",
    ),
    410: ("wrong_number", "The number is no longer in use.", "Ask for the new one."),
    413: ("not_supported", "The server found our message too large.", "Offer fewer codecs."),
    420: (
        "not_supported",
        "The server lacks an extension that we required.",
        "Turn session timers, PRACK or encryption from required to optional.",
    ),
    421: (
        "not_supported",
        "The server requires an extension that this call did not offer.",
        "Its log names the extension; turn it off for this phone there.",
    ),
    480: (
        "unavailable",
        "The phone is known, but nobody can be reached there now.",
        "Check that the phone is switched on and registered; call again later.",
    ),
    481: (
        "dialog_lost",
        "The other side no longer knew of the call.",
        "It or a server between was restarted, or messages went to another machine: check that "
        "one address always leads to the same server.",
    ),
    482: (
        "loop",
        "The call went round in a circle between servers.",
        "Check the forwarding at the number called, and the outbound proxy.",
    ),
    483: (
        "loop",
        "The call passed through too many servers.",
        "Check the forwarding at the number called, and the outbound proxy.",
    ),
    484: ("wrong_number", "The number is too short.", "Give all of it, with the area code."),
    485: ("wrong_number", "The number fits several phones.", "Give it with country and area."),
    486: ("busy", "The line is busy.", "Call again later."),
    487: ("cancelled", "The call was given up before it was answered.", ""),
    491: (
        "glare",
        "Both sides wanted to change the call at the same moment.",
        "Try again; if it happens at every call, turn session refreshes off on one side.",
    ),
    493: ("encryption", "The server cannot read an encrypted body.", "Turn S/MIME off there."),
    500: ("server_failed", "The server there has failed.", "Its log says more; try again later."),
    502: ("server_failed", "A gateway behind the server has failed.", "Try again later."),
    503: (
        "overloaded",
        "The server has no room or is being serviced.",
        "Call again later; with a trunk, check how many calls at once were bought.",
    ),
    504: ("server_failed", "A server behind the server did not answer.", "Try again later."),
    513: ("not_supported", "The server found our message too large.", "Use TCP or fewer codecs."),
    600: ("busy", "The line is busy wherever it rings.", "Call again later."),
    603: (
        "declined",
        "The call was declined.",
        "The person did not want it, or a provider blocks the caller's number: check the one that "
        "is shown.",
    ),
    604: ("wrong_number", "There is no such number anywhere.", "Check the number."),
    607: ("declined", "The person called does not want such calls.", "Do not call again."),
    608: (
        "declined",
        "A service of the callee blocks the call.",
        "Ask its operator; the number shown may be listed as a nuisance.",
    ),
}
"""Status -> code of the finding, words, remedy; those that need more are in `why_no_call`."""
