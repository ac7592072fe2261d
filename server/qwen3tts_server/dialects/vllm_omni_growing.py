"""Utterances that are one unit, said while their text comes: what to hand over when. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from qwen3tts_server.dialects import vllm_omni_messages as messages
from qwen3tts_server.dialects.vllm_omni_units import Utterance
from qwen3tts_wire.errors import BadRequest


@dataclass(frozen=True)
class Grown:
    """What follows from a message."""

    text: str = ""
    """To be said; it has a character that is no white space, where it begins the unit."""
    flush: bool = False
    final: bool = False
    answer: str = ""
    """To the client."""


def nothing_to_commit() -> BadRequest:
    """The refusal of an ``input.commit`` without text before it."""
    return BadRequest("input.commit requires buffered text.", remedy="Send input.text first.")


def came(utterance: Utterance, text: str) -> Grown:
    """More text: said with ``token_level``, kept with ``sentence_commit``."""
    utterance.held.append(utterance.joiner.push(text))
    if utterance.config.streaming_mode == "sentence_commit":
        return Grown()
    return Grown(_held(utterance))


def committed(utterance: Utterance, commit_id: str | None) -> Grown:
    """What is kept is said, to its last character."""
    text = _held(utterance)
    if not text:
        return Grown(answer=messages.error(nothing_to_commit()))
    if utterance.over:
        spent = BadRequest(
            "The utterance is over: its sound ended before its text did.",
            remedy="Send input.done, then the next utterance.",
        )
        return Grown(answer=messages.error(spent))
    return Grown(text, flush=True, answer=_answer(utterance, text, commit_id))


def ended(utterance: Utterance, *, dropped: bool) -> Grown:
    """No more text: the rest is said, or left out where it was not committed."""
    utterance.held.append(utterance.joiner.finish())
    utterance.splitter.end()
    commits = utterance.config.streaming_mode == "sentence_commit"
    text = _held(utterance)
    if utterance.over or (dropped and commits):
        return Grown(final=True)
    answer = _answer(utterance, text, None) if commits and text else ""
    return Grown(text, final=True, answer=answer)


def _answer(utterance: Utterance, text: str, commit_id: str | None) -> str:
    return messages.message(
        "input.committed",
        commit_id=commit_id,
        utterance_index=utterance.index,
        sentence_index=utterance.sentences,
        chars_committed=len(text),
    )


def _held(utterance: Utterance) -> str:
    """The text that is kept; white space alone stays kept, unless something is said already."""
    text = "".join(utterance.held)
    begun = utterance.sentences > 0 and utterance.config.streaming_mode == "token_level"
    if not (text.strip() or begun):
        return ""
    utterance.held.clear()
    return text
