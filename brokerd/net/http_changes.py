"""The responses to changes on a mirrored node, which wait until the follower has the change, as those to publishes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from brokerd.net.http_publish import EXITING
from nsqdaemon.http.messages import PendingResponse, Request, Response

if TYPE_CHECKING:
    from brokerd.syncer import Acknowledger
    from nsqdaemon.http.router import Answer, Handler


def changes_kept_by(acknowledger: Acknowledger | None) -> Callable[[Handler], Handler]:
    """Return what makes a handler wait until its change is kept: on a node without a mirror, the handler itself."""
    if acknowledger is None or not acknowledger.keeps_changes:
        return lambda handler: handler

    def waiting(handler: Handler) -> Handler:
        def handle(request: Request) -> Answer:
            answer = handler(request)
            if isinstance(answer, Response):
                return _once_kept(acknowledger, answer)
            assert not isinstance(answer, PendingResponse), "only publishes are answered so"
            return _after(acknowledger, answer)

        return handle

    return waiting


def _once_kept(acknowledger: Acknowledger, response: Response) -> PendingResponse:
    pending = PendingResponse()
    acknowledger.when_kept(lambda error: pending.resolve(response if error is None else EXITING))
    return pending


async def _after(acknowledger: Acknowledger, answer: Awaitable[Response]) -> Response:
    response = await answer
    kept: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

    def done(error: OSError | None) -> None:
        if not kept.done():
            kept.set_result(response if error is None else EXITING)

    acknowledger.when_kept(done)
    return await kept
