"""Compression of responses, of the API and of nsqadmin's endpoints.

It is for responses without secrets, which a compressed length could reveal.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec

from django.http import HttpRequest, HttpResponse
from django.utils.cache import patch_vary_headers

P = ParamSpec("P")
LEVEL = 1
"""The fastest: the responses change every second."""


def coding_of(accept_encoding: str) -> str:
    """The first of ``gzip`` and ``deflate`` in an ``Accept-Encoding`` header; empty if it has neither."""
    codings = (part.partition(";")[0].strip().lower() for part in accept_encoding.split(","))
    return next((coding for coding in codings if coding in ("gzip", "deflate")), "")


def packed(body: bytes, coding: str) -> bytes:
    """Compress ``body`` as ``gzip``, or as ``deflate`` without the zlib header, as nsqadmin does."""
    if coding == "gzip":
        return gzip.compress(body, LEVEL)
    squeezer = zlib.compressobj(LEVEL, wbits=-15)
    return squeezer.compress(body) + squeezer.flush()


def compressed(
    view: Callable[Concatenate[HttpRequest, P], HttpResponse],
) -> Callable[Concatenate[HttpRequest, P], HttpResponse]:
    """Return ``view`` with its response compressed if the client accepts that."""

    @wraps(view)
    def answer(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        response = view(request, *args, **kwargs)
        patch_vary_headers(response, ("Accept-Encoding",))
        if coding := coding_of(request.headers.get("Accept-Encoding", "")):
            response.content = packed(response.content, coding)
            response.headers["Content-Encoding"] = coding
            response.headers["Content-Length"] = str(len(response.content))
        return response

    return answer
