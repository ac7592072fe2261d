"""The model that is served, by its names."""

from __future__ import annotations

import re
import time
from typing import Any

from qwen3tts_engine.wrapped import model_ids_of
from qwen3tts_server.dialects.http_errors import ModelNotFound, about
from qwen3tts_server.service import Service

_DATE = re.compile(r"-\d{4}-\d{2}-\d{2}")


class Models:
    """What ``model`` may be."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._since = int(time.time())

    @property
    def own(self) -> str:
        """What speaks, by its own name."""
        return self._service.engine.model

    def names(self) -> list[str]:
        """The model's own name, its hub id, and the others."""
        engine, aliases = self._service.engine, self._service.settings.openai.model_aliases
        return list(dict.fromkeys([self.own, *model_ids_of(engine), *aliases]))

    def find(self, name: str | None) -> str:
        """The name under which a model is listed.

        Raises:
            FieldRefused: there is no such model (404).
        """
        if name is None:
            return self.own
        known = self.names()
        dated = _DATE.sub("", name) if _DATE.fullmatch(name[-11:]) else name
        for each in (name, dated):
            if each in known:
                return each
        with about("model"):
            raise ModelNotFound("There is no such model.", remedy="GET /v1/models lists them.")

    def list(self) -> dict[str, Any]:
        """All of them, as OpenAI lists models."""
        return {"object": "list", "data": [self.described(name) for name in self.names()]}

    def described(self, name: str) -> dict[str, Any]:
        """One of them, as OpenAI describes it."""
        return {"id": name, "object": "model", "created": self._since, "owned_by": "qwen3tts"}
