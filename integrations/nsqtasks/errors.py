"""Errors of tasks that this backend reports."""

from __future__ import annotations


class WorkerLost(Exception):
    """Every worker that ran the task ended before the task had finished."""


class TaskNotFound(Exception):
    """The task's function cannot be imported, or is not a task."""


class UnusableValue(ValueError):
    """A value cannot be stored as JSON in every database."""
