"""What can go wrong between a page and its server; each says what to do about it."""

from __future__ import annotations

from qwen3tts_wire.errors import SpeechError


class BadToken(SpeechError):
    """The page has no token, or a wrong one."""

    code = "bad_token"

    def __init__(self) -> None:
        super().__init__(
            "This page has no valid access token.",
            remedy="Open the address that the softphone printed when it was started, all of it.",
        )


class SlowDown(SpeechError):
    """Too many wrong tokens came from that address."""

    code = "slow_down"
    retryable = True

    def __init__(self, wait_s: float) -> None:
        super().__init__(
            "Too many wrong access tokens came from here.",
            remedy=f"Wait {max(1, round(wait_s))} s, then open the printed address again.",
        )
        self.wait_s = wait_s


class WrongPlace(SpeechError):
    """A page of another site asks, or one under another name."""

    code = "wrong_place"

    def __init__(self) -> None:
        super().__init__(
            "This server does not answer under that name, or to pages of other sites.",
            remedy="Open the printed address; name further hosts of yours with --name.",
        )


class NoSuchEngine(SpeechError):
    """No speech server of that name is known."""

    code = "no_such_engine"

    def __init__(self, known: str) -> None:
        super().__init__(
            "There is no such engine.", remedy=f"Choose one of: {known}." if known else ""
        )


class NoSuchRecording(SpeechError):
    """There is no recording of that name, or not any more."""

    code = "no_such_recording"

    def __init__(self) -> None:
        super().__init__(
            "There is no such recording.",
            remedy="Recordings are kept until the softphone ends; record a call again.",
        )


class CannotClone(SpeechError):
    """The engine makes no voices of recordings."""

    code = "cannot_clone"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name} makes no voices of recordings.",
            remedy="Choose an engine that does, such as Qwen3-TTS: mr-qwen3tts serve --engine"
            " qwen3.",
        )


class MissingWebPackages(SpeechError):
    """The packages of the softphone are not installed."""

    code = "missing_extra"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"The softphone needs the Python package {name!r}, which is not installed.",
            remedy="Install it with: pip install 'mr_qwen3tts[webrtc]'",
        )
