"""A user of the API of jobs."""

from __future__ import annotations

from typing import Any

from tests.harness.waiting import wait_until

UNFINISHED = ("queued", "running")


class Operator:
    """A user of the jobs' API. Subjects are written ``topic`` or ``topic/channel``."""

    def __init__(self, browser: Any) -> None:
        self.browser = browser

    def post(self, kind: str, subjects: list[str], **more: Any) -> Any:
        split = [subject.split("/") for subject in subjects]
        body = [{"topic": names[0]} | ({"channel": names[1]} if len(names) > 1 else {}) for names in split]
        return self.browser.request("POST", "jobs", {"kind": kind, "subjects": body} | more)

    def start(self, kind: str, subjects: list[str]) -> int:
        """The id of a new job."""
        answer = self.post(kind, subjects)
        assert answer.status_code == 202, answer.content
        return int(answer.json()["id"])

    def get(self, path: str) -> Any:
        answer = self.browser.request("GET", path)
        assert answer.status_code == 200, answer.content
        return answer.json()

    def job(self, job_id: int) -> dict[str, Any]:
        return dict(self.get(f"jobs/{job_id}"))

    def ended(self, job_id: int) -> dict[str, Any]:
        """The job, when it has ended."""
        wait_until(lambda: self.job(job_id)["state"] not in UNFINISHED, "the job ends")
        return self.job(job_id)

    def failures(self, job_id: int) -> dict[str, str]:
        """Topic, or ``topic/channel``, to the reason."""
        found = self.get(f"jobs/{job_id}/subjects?state=failed&state=partial")["subjects"]
        return {each["topic"] + (f"/{each['channel']}" if each["channel"] else ""): each["message"] for each in found}

    def cancel(self, job_id: int) -> Any:
        return self.browser.request("POST", f"jobs/{job_id}/cancel")

    def audit(self, **filters: Any) -> list[dict[str, Any]]:
        query = "&".join(f"{name}={value}" for name, value in {"limit": 500, **filters}.items())
        return list(self.get(f"audit?{query}")["entries"])
