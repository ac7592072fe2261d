"""BCP 47 tags of eSpeak NG's voices, some of whose names are none, or another language's."""

from __future__ import annotations

from collections.abc import Mapping

from qwen3tts_wire.naming.languages import tag_of

_CORRECTED: Mapping[str, str] = {
    # VA is the Vatican and BA Bosnia; valencia is the registered variant (RFC 5646 section 2.2.5).
    "ca-va": "ca-valencia",
    "ca-ba": "ca-x-balear",
    "ca-nw": "ca-x-nw",
    # CL is Chile.
    "ru-cl": "ru-x-classic",
    # A script stands before the region.
    "chr-us-qaaa-x-west": "chr-Qaaa-US-x-west",
    # A variant has five letters or more, a region two.
    "en-us-nyc": "en-US-x-nyc",
    # Piqd is a script, and py is assigned to nothing.
    "piqd": "tlh",
    "py": "art-x-pyash",
}


def bcp47(voice_id: str) -> str:
    """Return the tag of a voice's id in the customary case: ``en-us`` is en-US, ``fa-latn`` is
    fa-Latn (RFC 5646 section 2.1.1)."""
    if corrected := _CORRECTED.get(voice_id):
        return corrected
    parts = voice_id.split("-")
    private = parts.index("x") if "x" in parts else len(parts)
    for index in range(1, private):
        if len(parts[index]) == 2:
            parts[index] = parts[index].upper()
        elif len(parts[index]) == 4 and parts[index].isalpha():
            parts[index] = parts[index].title()
    return "-".join(parts)


def wanted_tag(language: str | None) -> str | None:
    """Return the tag of a language as a request names it, in lower case; None where it is open."""
    tag = (language or "").strip().lower().replace("_", "-")
    if tag in ("", "auto"):
        return None
    return tag_of(language or "") or tag
