"""Text to ids: Qwen2's byte-level BPE, with every text as plain text. No torch."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate, takewhile
from pathlib import Path

import tokenizers
from tokenizers import models, pre_tokenizers

from qwen3tts_engine.qwen3.bpe_stream import StreamingTokenizer
from qwen3tts_engine.qwen3.fields import REMEDY, BadCheckpoint, Fields

PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
    r"|[^\r\n\p{L}\p{N}]?\p{L}+"
    r"|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+"
    r"|\s+(?!\S)"
    r"|\s+"
)
"""What BPE never merges across; the Qwen2 tokenizer's. It stands in no file of the checkpoint.

The published package, on transformers 4.57.3, sets another model family's pattern in its place when
a vocabulary of this size comes from a local folder, and not by its hub id; ``iPhone`` is then two
pieces. Qwen names this one for the Qwen3 series (QwenLM/Qwen3-VL, issue 1998)."""


def pre_tokenizer() -> pre_tokenizers.PreTokenizer:
    """Cuts by PATTERN, then maps bytes to the byte alphabet of ``vocab.json``."""
    return pre_tokenizers.Sequence(
        [
            _cutter(),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def _cutter() -> pre_tokenizers.Split:
    return pre_tokenizers.Split(tokenizers.Regex(PATTERN), behavior="isolated")


def _byte_alphabet() -> list[str]:
    """The character that stands for each byte: itself where it can be seen, else from U+0100."""
    seen = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    unseen = iter(range(0x100, 0x200))
    return [chr(byte) if byte in seen else chr(next(unseen)) for byte in range(256)]


ALPHABET = _byte_alphabet()
_TABLE = str.maketrans({chr(byte): char for byte, char in enumerate(ALPHABET)})


MERGED_SHARE = 0.9
"""Least merges over tokens of more than one byte. It is 1 where each token has its merge; a file
that was cut off at the end of a line has fewer, and would spell what it cannot merge."""


class Tokenizer:
    """The text side of a checkpoint's vocabulary.

    What looks like a special token (``<|im_end|>``) is ordinary text here: nobody can end the
    prompt from within a text.
    """

    def __init__(self, folder: Path) -> None:
        """Read ``vocab.json`` and ``merges.txt``, and from ``config.json`` what frames a turn.

        Raises:
            BadCheckpoint: one is missing or damaged.
        """
        names = Fields.read(folder / "vocab.json")
        vocab = {name: names.integer(name, 0) for name in names}
        for char in ALPHABET:
            names.integer(char, 0)
        file = folder / "merges.txt"
        try:
            lines = file.read_text(encoding="utf-8").split("\n")
            pairs = [_pair(line) for line in lines if line and not line.startswith("#version")]
            self._model = models.BPE(vocab, pairs)
        except FileNotFoundError:
            raise BadCheckpoint(f"{file} is missing.", remedy=REMEDY) from None
        # The library raises bare exceptions for merges that the vocabulary does not hold.
        except Exception as error:
            raise BadCheckpoint(f"{file} is damaged: {error}.", remedy=REMEDY) from None
        merged = len(vocab) - len(ALPHABET)
        if len(pairs) < MERGED_SHARE * merged:
            raise BadCheckpoint(
                f"{file} is damaged: it has {len(pairs)} merges for the {merged} tokens of"
                " vocab.json that need one.",
                remedy=REMEDY,
            )
        self._cutter = _cutter()
        self._sorted = sorted(vocab)
        self._longest = max(map(len, vocab))
        self.vocab_size = max(vocab.values()) + 1
        """One more than the largest id of ordinary text."""
        top = Fields.read(folder / "config.json")
        start, end = top.integer("im_start_token_id", 0), top.integer("im_end_token_id", 0)
        self._start, self._end, self._newline = start, end, names.integer(ALPHABET[10], 0)

    def encode(self, text: str) -> list[int]:
        """Ids of a whole text; the same as a StreamingTokenizer's for any split of it.

        Raises:
            BadText: it holds half a surrogate pair; says where.
        """
        return [token for token, _ in self.encode_with_offsets(text)]

    def encode_with_offsets(self, text: str) -> list[tuple[int, int]]:
        """Ids, each with the number of code points of ``text`` up to its end.

        A token may end within a character; that character is counted.

        Raises:
            BadText: it holds half a surrogate pair; says where.
        """
        stream = StreamingTokenizer(self)
        return stream.push(text) + stream.end()

    def encode_instructions(self, text: str) -> list[int]:
        """A whole turn of the user: ``<|im_start|>user``, the text, ``<|im_end|>``.

        Raises:
            BadText: it holds half a surrogate pair; says where.
        """
        # The text stands right behind the line feed, and blanks at its start join that.
        return [self._start, *self.encode(f"user\n{text}"), self._end, self._newline]

    def cut(self, text: str) -> list[tuple[int, int]]:
        """Start and end of the pieces that BPE never merges across."""
        return [span for _, span in self._cutter.pre_tokenize_str(text)]

    def merge(self, piece: str) -> list[tuple[int, int]]:
        """Ids of one piece, each with the number of characters up to its end."""
        # The character that each byte belongs to, from 1.
        ends = [at for at, char in enumerate(piece, 1) for _ in range(len(char.encode()))]
        return [(token, ends[end - 1]) for token, end in self._tokens(_mapped(piece))]

    def settled(self, piece: str) -> list[tuple[int, int]]:
        """The leading tokens of ``merge`` that stay whatever the piece grows by, up to the end of
        a character.

        BPE merges nothing across a border between two of its tokens, so the tokens before a
        border are those of the text before it alone. Whatever follows, the last border within
        the piece is its end or stands before the beginning of some longer token. What the tokens
        before all these borders have in common is settled.
        """
        mapped = _mapped(piece)
        common = self._tokens(mapped)
        for start in range(max(0, len(mapped) - self._longest + 1), len(mapped)):
            if self._begins_a_longer_token(mapped[start:]):
                other = self._tokens(mapped[:start])
                pairs = zip(common, other, strict=False)
                common = [one for one, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)]
        whole = set(accumulate(len(char.encode()) for char in piece))
        while common and common[-1][1] not in whole:
            common.pop()
        return self.merge(piece)[: len(common)]

    def _tokens(self, mapped: str) -> list[tuple[int, int]]:
        """Ids of text in the byte alphabet, each with the number of bytes up to its end."""
        tokens = self._model.tokenize(mapped)
        ends = accumulate(len(token.value) for token in tokens)
        return [(token.id, end) for token, end in zip(tokens, ends, strict=True)]

    def _begins_a_longer_token(self, mapped: str) -> bool:
        at = bisect_right(self._sorted, mapped)
        return at < len(self._sorted) and self._sorted[at].startswith(mapped)


def _mapped(text: str) -> str:
    """The text's UTF-8 in the byte alphabet."""
    return text.encode().decode("latin-1").translate(_TABLE)


def _pair(line: str) -> tuple[str, str]:
    first, _, second = line.partition(" ")
    return first, second
