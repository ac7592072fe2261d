"""Errors of HTTP routes in OpenAI's shape.

``{"error": {"message", "type", "param", "code"}}``: cause and remedy, field or null, a
SpeechError's code.
"""

from __future__ import annotations

import contextlib
import http
from collections.abc import Iterator, Mapping
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from qwen3tts_server.voices.stored import VoiceExists
from qwen3tts_wire.errors import (
    BadRequest,
    EngineFailed,
    EngineUnavailable,
    LimitExceeded,
    ServerBusy,
    SpeechError,
    UnknownVoice,
)

VOICES_ROUTE = "GET /v1/voices lists all."
RETRY_AFTER_S = 1
"""``Retry-After`` of 429 and 503, heeded by OpenAI's SDK."""


class BodyTooLarge(LimitExceeded):
    """A request body is too long."""

    code = "request_too_large"


class WrongContentType(BadRequest):
    """A request body has an unsupported type."""

    code = "unsupported_media_type"


class ModelNotFound(BadRequest):
    """No model of that name."""

    code = "model_not_found"


class NotConfigured(SpeechError):
    """The route needs a setting that is missing."""

    code = "not_configured"


class VoiceNotFound(BadRequest):
    """No uploaded voice has that name."""

    code = "voice_not_found"


_STATUS: Mapping[type[SpeechError], int] = {
    NotConfigured: 501,
    BodyTooLarge: 413,
    WrongContentType: 415,
    ModelNotFound: 404,
    VoiceNotFound: 404,
    VoiceExists: 409,
    BadRequest: 400,
    LimitExceeded: 400,
    ServerBusy: 503,
    EngineUnavailable: 503,
    EngineFailed: 500,
    SpeechError: 500,
}
"""By type; subclasses like their base."""
_REMEDIES: Mapping[int, str] = {
    401: "Send a valid key: Authorization: Bearer KEY.",
    404: "GET /openapi.json lists the routes.",
    405: "The Allow header names the methods of this route.",
    413: "Send less in one request.",
    429: "Wait, then try again.",
    500: "The server's log has the reason.",
    503: "Try again later.",
}
_PHRASES: Mapping[int, str] = {
    404: "There is nothing at this address.",
    405: "This address does not take this method.",
}
_TYPES: Mapping[int, str] = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
}


class FieldRefused(SpeechError):
    """Error about one field; ``code`` is the wrapped error's."""

    def __init__(self, error: SpeechError, param: str) -> None:
        super().__init__(error.message, remedy=error.remedy, context_id=error.context_id)
        self.error = error
        self.param = param
        # Its attributes are the wrapped error's.
        self.__dict__.update(code=error.code, retryable=error.retryable)


@contextlib.contextmanager
def about(param: str) -> Iterator[None]:
    """Attribute the block's errors to a field."""
    try:
        yield
    except FieldRefused:
        raise
    except SpeechError as error:
        raise FieldRefused(error, param) from error


def code_of(error: SpeechError) -> str:
    return error.code


def status_of(error: SpeechError) -> int:
    if isinstance(error, FieldRefused):
        error = error.error
    return next(_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS)


def error_body(
    status: int, code: str, message: str, *, remedy: str = "", param: str | None = None
) -> dict[str, Any]:
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    text = f"{message} {remedy}".rstrip()
    return {"error": {"message": text, "type": kind, "param": param, "code": code}}


def speech_error_body(error: SpeechError) -> dict[str, Any]:
    param = error.param if isinstance(error, FieldRefused) else None
    remedy = error.remedy
    if error.code == UnknownVoice.code:
        remedy = f"{remedy} {VOICES_ROUTE}".lstrip()
    return error_body(status_of(error), error.code, error.message, remedy=remedy, param=param)


def error_response(
    status: int,
    code: str,
    message: str,
    *,
    remedy: str = "",
    param: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    body = error_body(status, code, message, remedy=remedy, param=param)
    return JSONResponse(body, status_code=status, headers=_headers(status, headers))


def speech_error_response(error: SpeechError) -> JSONResponse:
    status = status_of(error)
    return JSONResponse(speech_error_body(error), status_code=status, headers=_headers(status))


def handle_errors(app: FastAPI) -> None:
    app.add_exception_handler(SpeechError, _speech_error)
    app.add_exception_handler(HTTPException, _http_exception)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(ClientDisconnect, _gone)
    app.add_exception_handler(Exception, _broken)


def _headers(status: int, headers: Mapping[str, str] | None = None) -> dict[str, str]:
    known = {"Retry-After": str(RETRY_AFTER_S)} if status in (429, 503) else {}
    return known | dict(headers or {})


async def _speech_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, SpeechError)
    return speech_error_response(error)


async def _http_exception(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    status = error.status_code
    headers = dict(error.headers or {})
    if status == http.HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = ", ".join(allowed_methods(request)) or headers.get("Allow", "")
    phrase = http.HTTPStatus(status).phrase
    code = phrase.lower().replace(" ", "_").replace("-", "_")
    remedy = _REMEDIES.get(status, "")
    # What a route says of itself is worth telling; the standard phrase is our own code already.
    message = error.detail if error.detail != phrase else _PHRASES.get(status, f"{phrase}.")
    return error_response(status, code, message, remedy=remedy, headers=headers)


def allowed_methods(request: Request) -> list[str]:
    """Return the methods at the path (RFC 9110 section 10.2.1)."""
    methods: set[str] = set()
    for route in request.app.routes:
        regex = getattr(route, "path_regex", None)
        if regex is not None and regex.match(request.scope["path"]):
            methods |= getattr(route, "methods", None) or set()
    return sorted(methods | {"HEAD"} if "GET" in methods else methods)


async def _validation_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    message, param = first_fault(error.errors())
    return error_response(400, BadRequest.code, message, param=param)


def first_fault(faults: object) -> tuple[str, str | None]:
    fault = faults[0] if isinstance(faults, (list, tuple)) and faults else {}
    place = [str(each) for each in fault.get("loc", ()) if each not in ("body", "query", "path")]
    param = place[0] if place else None
    text = str(fault.get("msg", "The request is not valid"))
    return (f"{param}: {text}." if param else f"{text}."), param


async def _gone(_: Request, __: Exception) -> Response:
    # The client left while it sent its body.
    return Response(status_code=400)


async def _broken(request: Request, _: Exception) -> JSONResponse:
    # It is answered outside of all middleware, so the request's name is put in here.
    name = getattr(request.state, "request_id", None)
    return error_response(
        500,
        SpeechError.code,
        "The server broke.",
        remedy=_REMEDIES[500],
        headers={"X-Request-Id": name} if name else None,
    )
