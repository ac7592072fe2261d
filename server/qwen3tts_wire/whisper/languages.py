"""The languages that Whisper's models know, by code and by English name (pure)."""

from __future__ import annotations

from collections.abc import Sequence

_NAMES = (
    "af afrikaans,am amharic,ar arabic,as assamese,az azerbaijani,ba bashkir,be belarusian,"
    "bg bulgarian,bn bengali,bo tibetan,br breton,bs bosnian,ca catalan,ca valencian,cs czech,"
    "cy welsh,da danish,de german,el greek,en english,es spanish,es castilian,et estonian,"
    "eu basque,fa persian,fi finnish,fo faroese,fr french,gl galician,gu gujarati,ha hausa,"
    "haw hawaiian,he hebrew,hi hindi,hr croatian,ht haitian,hu hungarian,hy armenian,"
    "id indonesian,is icelandic,it italian,ja japanese,jw javanese,ka georgian,kk kazakh,km khmer,"
    "kn kannada,ko korean,la latin,lb luxembourgish,ln lingala,lo lao,lt lithuanian,lv latvian,"
    "mg malagasy,mi maori,mk macedonian,ml malayalam,mn mongolian,mr marathi,ms malay,mt maltese,"
    "my burmese,my myanmar,ne nepali,nl dutch,nl flemish,nn nynorsk,no norwegian,oc occitan,"
    "pa punjabi,pl polish,ps pashto,pt portuguese,ro romanian,ro moldovan,ru russian,sa sanskrit,"
    "sd sindhi,si sinhala,sk slovak,sl slovenian,sn shona,so somali,sq albanian,sr serbian,"
    "su sundanese,sv swedish,sw swahili,ta tamil,te telugu,tg tajik,th thai,tk turkmen,tl tagalog,"
    "tr turkish,tt tatar,uk ukrainian,ur urdu,uz uzbek,vi vietnamese,yi yiddish,yo yoruba,"
    "yue cantonese,zh chinese,zh mandarin"
)
BY_NAME: dict[str, str] = {
    name: code for code, _, name in (each.partition(" ") for each in _NAMES.split(","))
}
"""English names, in lower case, to codes."""
CODES = frozenset(BY_NAME.values())


class UnknownLanguage(ValueError):
    """A language that Whisper does not know; the text is its name as it was given."""


def code_of(language: str) -> str:
    """Return the code of a language by its English name, code or BCP 47 tag (``de-AT``).

    Raises:
        UnknownLanguage: Whisper does not know it.
    """
    wanted = language.strip().lower()
    code = BY_NAME.get(wanted, wanted.partition("-")[0].partition("_")[0])
    if code not in CODES:
        raise UnknownLanguage(language)
    return code


def codes_of(languages: Sequence[str]) -> tuple[str, ...]:
    """Return the codes of several, each once; raises UnknownLanguage."""
    return tuple(dict.fromkeys(map(code_of, languages)))
