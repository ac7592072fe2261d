"""Replaces (RFC 3891): the dialog that a new call takes the place of; and what Refer-To says."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote

from qwen3tts_phone.errors import BadSip
from qwen3tts_phone.sip.fields import MAX_FIELD_CHARS, parse_address, parse_uri, uri_parameter

MAX_PART_CHARS = 512
_METHOD = re.compile(r";method=[^;]*", re.I)


@dataclass(frozen=True, slots=True)
class Replaces:
    """A dialog as the one who is to be called knows it: its tags, seen from there."""

    call_id: str
    to_tag: str
    """The tag of the one who gets the INVITE."""
    from_tag: str
    """The tag of the one at the other end of that dialog."""
    early_only: bool = False
    """Replace it only while it has not been answered."""

    @classmethod
    def parse(cls, value: str) -> Replaces:
        """Read the value of the header; raises BadSip."""
        call_id, *parameters = (part.strip() for part in value.split(";"))
        found: dict[str, str] = {}
        for parameter in parameters:
            name, _, text = parameter.partition("=")
            name = name.strip().lower()
            if name in found:
                raise BadSip(f"The header Replaces names {name[:20]} twice.")
            found[name] = text.strip()
        to_tag, from_tag = found.get("to-tag", ""), found.get("from-tag", "")
        for part in (call_id, to_tag, from_tag):
            if not part or len(part) > MAX_PART_CHARS or any(char.isspace() for char in part):
                raise BadSip("The header Replaces names no dialog.")
        return cls(call_id, to_tag, from_tag, "early-only" in found)

    @property
    def value(self) -> str:
        """The value of the header."""
        early = ";early-only" if self.early_only else ""
        return f"{self.call_id};to-tag={self.to_tag};from-tag={self.from_tag}{early}"


@dataclass(frozen=True, slots=True)
class ReferTo:
    """Whom a REFER points to."""

    target: str
    """The URI, without headers."""
    replaces: Replaces | None = None
    """The dialog there that the call is to replace (attended transfer)."""

    @classmethod
    def parse(cls, value: str) -> ReferTo:
        """Read Refer-To; raises BadSip for what could not be called."""
        whole = parse_address(value).uri
        uri_text, _, headers = whole.partition("?")
        uri = parse_uri(uri_text)
        method = uri_parameter(uri, "method")
        if method and method.upper() != "INVITE":
            raise BadSip(f"Refer-To asks for {method[:20]!r}; only calls can be made.")
        replaces = None
        for header in headers.split("&"):
            name, _, text = header.partition("=")
            if unquote(name).strip().lower() == "replaces":
                if replaces is not None:
                    raise BadSip("Refer-To names two dialogs to replace.")
                replaces = Replaces.parse(unquote(text))
        # RFC 3261 section 19.1.1: the parameter stands in no Request-URI.
        return cls(_METHOD.sub("", uri_text), replaces)

    @property
    def value(self) -> str:
        """The value of Refer-To; raises BadSip where the target cannot be used."""
        parse_uri(self.target)
        if len(self.target) > MAX_FIELD_CHARS or any(char in '<>"?' for char in self.target):
            raise BadSip("The target of the transfer cannot be written into a header.")
        if self.replaces is None:
            return f"<{self.target}>"
        # RFC 3261 section 19.1.1: in the header of a URI, ";" "=" "@" and the like are escaped.
        return f"<{self.target}?Replaces={quote(self.replaces.value, safe='')}>"
