"""English names of languages, as the Unicode CLDR has them, by BCP 47 tag (RFC 5646)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

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
"""By the primary subtag; an underscore is a blank."""

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
"""Regions, scripts and variants of the tags that the voices have."""
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
"""Subtags behind ``x``, as the voices of eSpeak NG have them."""
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
    """Return a language's English name, such as ``English (United States)``; the tag itself where
    none is known."""
    key = tag.strip().lower().replace("_", "-")
    if whole := _WHOLE.get(key):
        return whole
    primary, *rest = key.split("-")
    name = _LANGUAGES.get(primary, "").replace("_", " ")
    if not name:
        return tag
    private = False
    told = []
    for part in rest:
        if part == "x" and not private:
            private = True
            continue
        known = _PRIVATE if private else _SUBTAGS
        told.append(known.get(part, part if private else part.upper()))
    if private and len(told) > 1 and primary == "en":
        told = told[-1:]  # what is said of the accent names its country
    return f"{name} ({', '.join(told)})" if told else name


def tag_of(name: str) -> str | None:
    """Return the tag of a language by its English name in any case; None where there is none."""
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
