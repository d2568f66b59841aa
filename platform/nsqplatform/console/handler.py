"""Django's ASGI handler, in which one call in the request's thread runs the middleware and the view."""

from __future__ import annotations

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIHandler
from django.http import HttpRequest
from django.http.response import HttpResponseBase


class SynchronousHandler(ASGIHandler):
    """An ASGI handler for synchronous middleware and views.

    Django's own handler returns to the event loop between middleware and view. Each such change of threads takes as
    much processor time as a small view. Responses are still sent, and streamed, by the event loop.
    """

    def load_middleware(self, is_async: bool = False) -> None:
        """Build the chain of middleware for calls from a thread, although the handler's constructor asks for the
        asynchronous one."""
        super().load_middleware(is_async=False)

    async def get_response_async(self, request: HttpRequest) -> HttpResponseBase:
        """Return the response, computed in the request's thread."""
        return await sync_to_async(self.get_response, thread_sensitive=True)(request)
