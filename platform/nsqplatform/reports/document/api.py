"""Reports as one page, over HTTP: HTML, and PDF where the machine has a browser."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, JsonResponse
from ninja import Router
from ninja.errors import HttpError

from nsqplatform.accounts.auth import needs
from nsqplatform.accounts.roles import Permission
from nsqplatform.accounts.schemas import Message
from nsqplatform.reports import selectors
from nsqplatform.reports.api import REFUSALS
from nsqplatform.reports.document.page import page
from nsqplatform.reports.document.pdf import NoPdf, Printing, pdf

router = Router(tags=["reports"])
RETRY_AFTER_S = 10
"""When to ask again for a PDF while another one is printed, which takes some seconds."""


@router.get("runs/{int:run_id}/result.html", auth=needs(Permission.VIEW), response={200: None, **REFUSALS})
def result_html(request: HttpRequest, run_id: int) -> HttpResponse:
    """The report as one HTML page, with its charts and its worst rows."""
    return _attached(_page(run_id), "text/html; charset=utf-8", run_id, "html")


@router.get("runs/{int:run_id}/result.pdf", auth=needs(Permission.VIEW), response={200: None, 503: Message, **REFUSALS})
def result_pdf(request: HttpRequest, run_id: int) -> HttpResponse:
    """The same page as PDF, if the platform's machine has a browser that prints it. One is printed at a time: while
    another one is, the answer is 503 with ``Retry-After``."""
    try:
        return _attached(pdf(_page(run_id)), "application/pdf", run_id, "pdf")
    except Printing as error:
        message = f"{error}; try again in {RETRY_AFTER_S} seconds"
        return JsonResponse({"message": message}, status=503, headers={"Retry-After": str(RETRY_AFTER_S)})
    except NoPdf as error:
        raise HttpError(503, f"the PDF cannot be made: {error}") from None


def _page(run_id: int) -> str:
    try:
        return page(selectors.run(run_id), selectors.result(run_id))
    except selectors.NoResult as error:
        raise HttpError(404, str(error)) from None


def _attached(content: str | bytes, content_type: str, run_id: int, ending: str) -> HttpResponse:
    name = f"{selectors.run(run_id).job}-{run_id}.{ending}"
    return HttpResponse(
        content, content_type=content_type, headers={"Content-Disposition": f'attachment; filename="{name}"'}
    )
