"""Telephone numbers: notation, readings, emergency and premium-rate prefixes (pure)."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection
from urllib.parse import unquote

SEPARATORS = str.maketrans("", "", " -./()\u00a0")
"""Separators between digits."""

# 3GPP TS 22.101 section 10.1.1: what a phone without a SIM takes for an emergency call.
EMERGENCY_EVERYWHERE = frozenset({"112", "911", "999", "000", "08", "110", "118", "119"})
_NATIONAL = """
15 17 18 060 061 062 065 066 091 092 100 101 102 108 111 113 114 115 117 120 122 123 140 141 143 144
155 158 166 171 180 190 191 192 193 194 195 197 198 199 988 990 991 992 993 994 995 996 997 998 1122
10111 10177
"""
EMERGENCY_SOMEWHERE = frozenset(_NATIONAL.split())
"""Emergency numbers of single countries. They are extensions elsewhere."""
OUTSIDE_LINES = ("0", "9")
"""Digits for an outside line at many switchboards."""
OUTSIDE = frozenset({"112", "911", "999", "000"})
"""Looked for behind it: others would be extensions of four digits more often than not."""

# ITU-T E.164, list of assigned country codes: international premium rate (979) and satellites.
_GLOBAL = "979 870 878 881 882 883"
# The premium services of national numbering plans, with the country code before them.
_NATIONAL_PREMIUM = """
1900 30901 30909 31900 31906 31909 3290 3389 34803 34806 34807 34905 34907 351601 351607 351646
351648 358600 358700 35990 3690 3691 370900 37190 372900 380900 381900 38560 38690 39892 39894 39895
39899 40900 40903 40906 41900 41901 41906 420900 420906 420909 421900 43900 43901 43930 43931 43939
449 4590 46900 46939 46944 47820 47829 4870 49137 49190 49900 52900 55900 61190 64900 81990 90900
"""
PREMIUM = tuple(sorted({*_GLOBAL.split(), *_NATIONAL_PREMIUM.split()}))
"""Premium-rate prefixes with the country code. Such lists are never complete; `allowed` patterns
are the safer rule."""

# Long enough for a number with more digits than it needs: switchboards ignore those.
_NUMBER = re.compile(r"(?:[*#]{1,2}[0-9]{2}[*#]?)?\+?[0-9*#]{1,128}")
_PAUSE = re.compile(r"[,;:pwPW]")
# GSM 02.30: a service code before the number, such as *31# (hide mine) or *67.
_SERVICE_CODE = re.compile(r"[*#]{1,2}[0-9]{2}[*#]?")
NO_EXTENSION = 8
"""Digits from which on a number is no extension of a switchboard."""
SURELY_INTERNATIONAL = 11
"""Digits from which on a number without any prefix begins with a country code. Shorter ones may be
national: 979 and 870 are area codes of the United States, too."""


def number_of(text: str) -> str:
    """Return a number's digits up to a pause; empty for other text."""
    digits = unicodedata.normalize("NFKC", unquote(text)).strip().lstrip(",;pwPW")
    first = _PAUSE.split(digits, maxsplit=1)[0].translate(SEPARATORS)
    return first if _NUMBER.fullmatch(first) and any(c.isdigit() for c in first) else ""


def is_emergency(number: str, *, at_home: bool = True, written_out: Collection[str] = ()) -> bool:
    """Return whether a number reaches an emergency service.

    Those of every network count at any host, whatever is ``written_out``; those of single countries
    and those behind an outside line at our own server (``at_home``).
    """
    for each in {number, without_service_code(number)}:
        digits = each.lstrip("+")
        if digits in EMERGENCY_EVERYWHERE:
            return True
        inside = digits[1:] if digits.startswith(OUTSIDE_LINES) else ""
        national = digits in EMERGENCY_SOMEWHERE or inside in OUTSIDE
        if national and at_home and number not in written_out:
            return True
    return False


def without_service_code(number: str) -> str:
    return _SERVICE_CODE.sub("", number, count=1)


def international(number: str, *, prefixes: Collection[str] = (), country: str = "") -> str:
    """Return ``+`` and country code; empty where unknown.

    Args:
        number: digits, with or without a prefix.
        prefixes: international prefixes, such as ``00`` or ``011``.
        country: our country code; without it national numbers are unknown.
    """
    if number.startswith("+"):
        return number
    for prefix in sorted(prefixes, key=len, reverse=True):
        if prefix and number.startswith(prefix) and number[len(prefix) :].isdigit():
            return f"+{number[len(prefix) :]}"
    if country == "1":
        # The North American plan: ten digits, with 1 before them or not.
        national = number.removeprefix("1") if len(number) == 11 else number
        return f"+1{national}" if national.isdigit() and len(national) == 10 else ""
    if country and number.startswith("0") and number[1:].isdigit():
        return f"+{country}{number[1:]}"
    return ""


def readings(
    number: str,
    *,
    prefixes: Collection[str] = (),
    country: str = "",
    bare: int = NO_EXTENSION,
) -> frozenset[str]:
    """Return every number that a switchboard may read.

    Without service code and outside line, and as international number from ``bare`` digits on.
    """
    found = {number, without_service_code(number)}
    found |= {
        each[1:] for each in found if each.startswith(OUTSIDE_LINES) and len(each) > NO_EXTENSION
    }
    for each in tuple(found):
        if known := international(each, prefixes=prefixes, country=country):
            found.add(known)
        elif each.isdigit() and each[0] != "0" and len(each) >= bare:
            found.add(f"+{each}")
    return frozenset(each for each in found if each)


def premium_prefix(number: str) -> str:
    """Return the premium-rate prefix of an international number, with plus sign; or empty."""
    digits = number[1:] if number.startswith("+") else ""
    return next((f"+{each}" for each in PREMIUM if digits.startswith(each)), "")
