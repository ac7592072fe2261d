"""Language names, and known names near a mistyped one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

MANY = "mul"
"""ISO 639-2: several languages."""

_TABLE = """
af=Afrikaans am=Amharic an=Aragonese ar=Arabic as=Assamese az=Azerbaijani ba=Bashkir be=Belarusian
bg=Bulgarian bn=Bangla bpy=Bishnupriya bs=Bosnian ca=Catalan chr=Cherokee cmn=Mandarin_Chinese
cs=Czech cv=Chuvash cy=Welsh da=Danish de=German el=Greek en=English eo=Esperanto es=Spanish
et=Estonian eu=Basque fa=Persian fi=Finnish fil=Filipino fo=Faroese fr=French ga=Irish
gd=Scottish_Gaelic gl=Galician gn=Guarani grc=Ancient_Greek gu=Gujarati hak=Hakka_Chinese
haw=Hawaiian he=Hebrew hi=Hindi hr=Croatian ht=Haitian_Creole hu=Hungarian hy=Armenian
hyw=Western_Armenian ia=Interlingua id=Indonesian io=Ido is=Icelandic it=Italian ja=Japanese
jbo=Lojban ka=Georgian kaa=Kara-Kalpak kk=Kazakh kl=Kalaallisut kn=Kannada ko=Korean kok=Konkani
ku=Kurdish ky=Kyrgyz la=Latin lb=Luxembourgish lfn=Lingua_Franca_Nova lt=Lithuanian ltg=Latgalian
lv=Latvian mi=Māori mk=Macedonian ml=Malayalam mr=Marathi ms=Malay mt=Maltese mto=Totontepec_Mixe
mul=several_languages my=Burmese nb=Norwegian_Bokmål nci=Classical_Nahuatl ne=Nepali nl=Dutch
nn=Norwegian_Nynorsk no=Norwegian nog=Nogai om=Oromo or=Odia pa=Punjabi pap=Papiamento pl=Polish
ps=Pashto pt=Portuguese qdb=Lang_Belta qu=Quechua quc=K'iche' qya=Quenya ro=Romanian ru=Russian
sd=Sindhi shn=Shan si=Sinhala sjn=Sindarin sk=Slovak sl=Slovenian smj=Lule_Sami sq=Albanian
sr=Serbian sv=Swedish sw=Swahili ta=Tamil te=Telugu th=Thai ti=Tigrinya tk=Turkmen tl=Tagalog
tlh=Klingon tn=Tswana tr=Turkish tt=Tatar ug=Uyghur uk=Ukrainian ur=Urdu uz=Uzbek vi=Vietnamese
yue=Cantonese zh=Chinese zu=Zulu
"""
_LANGUAGES: Mapping[str, str] = MappingProxyType(
    dict(each.split("=", 1) for each in _TABLE.split())
)
"""By primary subtag; underscore for blank."""

_SUBTAGS: Mapping[str, str] = MappingProxyType(
    {
        "029": "Caribbean",
        "419": "Latin America",
        "ar": "Argentina",
        "at": "Austria",
        "au": "Australia",
        "be": "Belgium",
        "br": "Brazil",
        "ca": "Canada",
        "ch": "Switzerland",
        "cn": "China",
        "cz": "Czechia",
        "de": "Germany",
        "es": "Spain",
        "fr": "France",
        "gb": "United Kingdom",
        "hk": "Hong Kong",
        "ie": "Ireland",
        "in": "India",
        "it": "Italy",
        "jp": "Japan",
        "jyutping": "Jyutping",
        "latn": "Latin script",
        "lv": "Latvia",
        "mx": "Mexico",
        "nl": "Netherlands",
        "nyc": "New York City",
        "pinyin": "Pinyin",
        "pt": "Portugal",
        "ru": "Russia",
        "scotland": "Scotland",
        "shaw": "Shavian script",
        "tw": "Taiwan",
        "us": "United States",
        "vn": "Vietnam",
        "za": "South Africa",
    }
)
"""Regions, scripts and variants of voices' tags."""
_PRIVATE: Mapping[str, str] = MappingProxyType(
    {
        "balear": "Balearic",
        "central": "Central",
        "classic": "Classic",
        "gbclan": "Lancaster",
        "gbcwmd": "West Midlands",
        "nw": "North-western",
        "nyc": "New York City",
        "pyash": "Pyash",
        "rp": "Received Pronunciation",
        "south": "Southern",
        "west": "Western",
    }
)
"""Subtags behind ``x`` of eSpeak NG's voices."""
_WHOLE: Mapping[str, str] = MappingProxyType(
    {
        "art-x-pyash": "Pyash",
        "ca-valencia": "Valencian",
        "chr-qaaa-us-x-west": "Cherokee (Western)",
        "vi-vn-x-central": "Vietnamese (Central)",
        "vi-vn-x-south": "Vietnamese (Southern)",
    }
)


def language_name(tag: str) -> str:
    """Return an English name, as ``English (United States)``; else the tag."""
    key = tag.strip().lower().replace("_", "-")
    if whole := _WHOLE.get(key):
        return whole
    primary, *rest = key.split("-")
    name = _LANGUAGES.get(primary, "").replace("_", " ")
    if not name:
        return tag
    private = False
    parts_named = []
    for part in rest:
        if part == "x" and not private:
            private = True
            continue
        known = _PRIVATE if private else _SUBTAGS
        parts_named.append(known.get(part, part if private else part.upper()))
    if private and len(parts_named) > 1 and primary == "en":
        parts_named = parts_named[-1:]  # what is said of the accent names its country
    return f"{name} ({', '.join(parts_named)})" if parts_named else name


def tag_of(name: str) -> str | None:
    """Return an English name's tag, or None."""
    return _BY_NAME.get(" ".join(name.lower().split()))


_BY_NAME: Mapping[str, str] = MappingProxyType(
    {
        **{name.replace("_", " ").lower(): tag for tag, name in _LANGUAGES.items() if tag != MANY},
        **{name.lower(): tag for tag, name in _WHOLE.items()},
        "mandarin": "cmn",
        "bengali": "bn",
        "hakka": "hak",
        "oriya": "or",
        "gaelic": "gd",
        "greenlandic": "kl",
        "setswana": "tn",
    }
)


MOST = 3
LONGEST_CHARS = 64
"""Compared beginning: the distance costs both lengths' product."""
WORST_SHARE = 0.5
"""Share of changed characters below which a name is near."""
_PART = re.compile(r"[^\W_]+")


class NamedVoice(Protocol):
    """Listed voice."""

    @property
    def id(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def language(self) -> str: ...


def edit_distance(first: str, second: str) -> int:
    """Return the optimal string alignment distance (insert, delete, replace, swap)."""
    before: list[int] = []
    last = list(range(len(second) + 1))
    for row, char in enumerate(first, 1):
        current = [row]
        for column, other in enumerate(second, 1):
            cost = min(
                last[column] + 1,
                current[column - 1] + 1,
                last[column - 1] + (char != other),
            )
            swapped = row > 1 and column > 1 and char == second[column - 2]
            if swapped and first[row - 2] == other:
                cost = min(cost, before[column - 2] + 1)
            current.append(cost)
        before, last = last, current
    return last[-1]


def nearest(wanted: str, known: Iterable[str], most: int = MOST) -> list[str]:
    """Return up to ``most`` near names, nearest first, in any case.

    A name with ``wanted`` as a part (``joe`` in ``en_US-joe-medium``) is near.
    """
    key = wanted.casefold()[:LONGEST_CHARS]
    found = []
    for order, name in enumerate(dict.fromkeys(known)):
        distance = _distance(key, name.casefold()[:LONGEST_CHARS])
        if distance is not None:
            found.append((distance, order, name))
    return [name for _, _, name in sorted(found)[:most]]


def _distance(key: str, name: str) -> int | None:
    if not key:
        return None
    if len(key) > 2 and key in _PART.findall(name):
        return 1
    longer = max(len(key), len(name))
    if abs(len(key) - len(name)) >= longer * WORST_SHARE:
        return None
    distance = edit_distance(key, name)
    return distance if distance < longer * WORST_SHARE else None


def near_voices(
    wanted: str, voices: Sequence[NamedVoice], language: str | None = None, most: int = MOST
) -> list[str]:
    """Return up to ``most`` near voice ids, nearest first.

    Of one language if known: ``language``, else ``wanted``'s beginning (``en-uk``); without a
    near name its first voices. An id found by name has it in brackets.
    """
    within = _primary(language or "") or _primary(wanted)
    same = [each for each in voices if _primary(each.language) == within]
    found = _near_of(wanted, same or voices, most)
    if found or not same:
        return found
    return [each.id for each in same[:most]]


def _near_of(wanted: str, voices: Sequence[NamedVoice], most: int) -> list[str]:
    by_id = nearest(wanted, [each.id for each in voices], most)
    names = {each.name: each.id for each in reversed(voices)}
    by_name = [
        # clone:NAME answers to NAME.
        name if names[name].endswith(f":{name}") else f"{names[name]} ({name})"
        for name in nearest(wanted, [each.name for each in voices], most)
        if names[name] not in by_id
    ]
    return [*by_id, *by_name][:most]


def near_hint(near: Sequence[str]) -> str:
    """Return a sentence with near names, or empty."""
    return f"Near it: {', '.join(near)}." if near else ""


def _primary(tag: str) -> str:
    return re.split(r"[-_]", tag.strip().casefold(), maxsplit=1)[0]
