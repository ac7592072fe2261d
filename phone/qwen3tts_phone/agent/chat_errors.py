"""What can go wrong with a language model."""

from __future__ import annotations

from qwen3tts_wire.errors import SpeechError


class ModelUnavailable(SpeechError):
    """The language model cannot be reached, is too slow, or broke off; it may work later."""

    code = "model_unavailable"
    retryable = True


class ModelStalled(ModelUnavailable):
    """The language model was silent for too long: nobody on the telephone waits as long again."""

    code = "model_stalled"


class BudgetSpent(SpeechError):
    """The requests that a call, or the process, may make to the language model are used up."""

    code = "budget_spent"


class ModelRefused(SpeechError):
    """The language model's server does not take the request as it is."""

    code = "model_refused"
