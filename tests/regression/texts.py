"""What the suite says: fixed, so that runs can be compared. A change here makes a new baseline."""

# ruff: noqa: RUF001
from __future__ import annotations

from typing import NamedTuple


class Text(NamedTuple):
    """One text."""

    name: str
    language: str | None
    """None: the model finds it."""
    text: str


SPOKEN = "This is how my voice sounds on a quiet day."
"""What is said in the reference of a cloned voice, unless one is given."""
DESCRIPTION = "A calm woman of middle age who speaks clearly and not too fast."
"""The voice that a VoiceDesign checkpoint is asked for."""

TEXTS = (
    Text("short", "en", "Good morning."),
    Text("english", "en", "Your train leaves at half past nine from platform four."),
    Text(
        "clauses",
        "en",
        "Let me see. The first one is sold out, I am afraid; the next leaves in forty minutes, "
        "and it stops at Reading as well.",
    ),
    Text("numbers", "en", "Your code is 4 0 7 1 9. The price is 1,250.00 euros."),
    Text("german", "de", "Größere Koffer stellen Sie bitte hinten im Wagen ab."),
    Text("french", "fr", "Bonjour, que puis-je faire pour vous aujourd'hui ?"),
    Text("spanish", "es", "¿Podría repetir su número de teléfono, por favor?"),
    Text("russian", "ru", "Здравствуйте, чем я могу вам помочь?"),
    Text("chinese", "zh", "你好，请问有什么可以帮您？"),
    Text("japanese", "ja", "お電話ありがとうございます。"),
    Text("korean", "ko", "안녕하세요, 무엇을 도와드릴까요?"),
    Text("any", None, "Hello, bonjour, guten Tag!"),
)
"""Several languages, one clause and more, digits and signs."""
