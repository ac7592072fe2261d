"""Values from the network as log lines carry them."""

from __future__ import annotations

MOST_CHARS = 80
"""Characters of a name, an identifier or an address that are shown."""
MOST_SENTENCE_CHARS = 400
"""Characters that are shown of an error's sentence, which may quote what the far end said."""


def log_text(value: object, most: int = 0) -> str:
    """Return a value from the network for a log line: bounded, and on one line whatever it holds.

    Control characters, line ends, terminal sequences, direction marks and half surrogates are
    escaped as in Python, a backslash is doubled; so it neither fills the log nor forges a line.

    Args:
        value: a text, or what has one, such as an error.
        most: characters that are shown, more are cut off with "…"; by default 400 of an error and
            80 of anything else.
    """
    text = str(value)
    most = most or (MOST_SENTENCE_CHARS if isinstance(value, BaseException) else MOST_CHARS)
    shown = "".join(
        char
        if char.isprintable() and char != "\\"
        else char.encode("unicode_escape", "backslashreplace").decode("ascii")
        for char in text[:most]
    )
    return shown + ("…" if len(text) > most else "")
