from __future__ import annotations

import pytest

from qwen3tts_wire.whisper.guards import BY_NAME, CODES, UnknownLanguage, code_of, codes_of
from tests.conftest import require_package


@pytest.mark.parametrize(
    ("language", "code"), [("German", "de"), ("de-AT", "de"), ("FR", "fr"), ("Valencian", "ca")]
)
def test_a_language_by_name_code_or_tag(language: str, code: str) -> None:
    assert code_of(language) == code


@pytest.mark.parametrize("language", ["klingon", "", "xx", "e n"])
def test_a_language_that_whisper_does_not_know(language: str) -> None:
    with pytest.raises(UnknownLanguage):
        code_of(language)


def test_each_once() -> None:
    assert codes_of(("en", "English", "de")) == ("en", "de")


def test_they_are_those_of_the_library() -> None:
    library = require_package("faster_whisper.tokenizer", "pip install faster-whisper")
    assert set(library._LANGUAGE_CODES) == CODES
    assert all(name == name.lower() for name in BY_NAME)
