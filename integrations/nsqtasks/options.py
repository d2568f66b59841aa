"""The OPTIONS of a backend in Django's ``TASKS``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import Any, Final, NamedTuple

from aionsq import ConnectionOptions, ConsumerOptions, ProducerOptions
from aionsq.addresses import check_address
from nsqcluster.addresses import base_url
from nsqwire.names import is_ephemeral, is_valid_name


class Problem(NamedTuple):
    """A problem of the settings of a backend, with a hint for its correction."""

    number: int
    """Number of the system check; ``nsqtasks.E002`` is number 2."""
    text: str
    hint: str


class InvalidOption(ValueError):
    """An option has an invalid value. The text says which values are valid."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The OPTIONS of a backend, with their defaults."""

    nsqd_tcp_addresses: tuple[str, ...]
    """``host:port`` of each nsqd. Tasks are published to one of them, in turn; workers consume from all."""
    lookupd_http_addresses: tuple[str, ...] = ()
    """``host:port`` of the nsqlookupds, in which workers find further nsqds."""
    topic_prefix: str = "tasks"
    """The topics are ``PREFIX.QUEUE``, ``PREFIX.QUEUE.high`` and ``PREFIX.QUEUE.low``."""
    channel: str = "workers"
    """The channel of all workers."""
    database: str = "default"
    """Alias of the database that stores the tasks."""
    publish_timeout: timedelta = timedelta(seconds=5)
    """Longest time that a publish may take. If it takes longer, a worker publishes the task later."""
    max_req_timeout: timedelta = timedelta(hours=1)
    """Longest deferral that the nsqds allow (``--max-req-timeout``). A task with a later ``run_after`` is deferred
    several times."""
    lease: timedelta = timedelta(seconds=60)
    """Time after which another worker may run a task again if its worker does not renew the record."""
    max_attempts: int = 5
    """A task fails after this number of workers has ended while running it."""
    sweep_interval: timedelta = timedelta(seconds=10)
    """Interval at which workers publish tasks that could not be published."""
    republish_after: timedelta = timedelta(hours=1)
    """Time after which a published task that no worker runs is published again, because nsqd may have lost it."""
    keep_results: timedelta | None = None
    """Time after which workers delete finished tasks. None: they are kept."""
    client: Mapping[str, Any] = field(default_factory=dict)
    """Options of the connections, such as ``tls_v1`` and ``auth_secret``."""

    def producer_options(self) -> ProducerOptions:
        """Return the options of the connection that publishes."""
        return ProducerOptions(
            publish_timeout=self.publish_timeout, max_req_timeout=self.max_req_timeout, **dict(self.client)
        )

    def consumer_options(self, concurrency: int) -> ConsumerOptions:
        """Return the options of a worker's connections. Attempts are counted in the task's record, so the
        message's attempts are not limited."""
        return ConsumerOptions(
            max_in_flight=concurrency,
            max_attempts=0,
            auto_touch=True,
            default_requeue_delay=timedelta(seconds=2),
            max_backoff_duration=timedelta(seconds=30),
            **dict(self.client),
        )


NAMES: Final = tuple(each.name for each in fields(Options))
_LISTS: Final = ("nsqd_tcp_addresses", "lookupd_http_addresses")
_DURATIONS: Final = tuple(each.name for each in fields(Options) if "timedelta" in str(each.type))
_CLIENT_NAMES: Final = frozenset(each.name for each in fields(ConnectionOptions))
MIN_LEASE: Final = timedelta(seconds=3)
"""Records are renewed three times per lease, and a renewal may take a second on a busy machine."""


def read(given: Mapping[str, Any]) -> Options:
    """Return the options. Raises InvalidOption for the first problem that :func:`problems` reports."""
    for problem in problems(given):
        raise InvalidOption(f"{problem.text} {problem.hint}")
    values: dict[str, Any] = {name: tuple(value) if name in _LISTS else value for name, value in given.items()}
    return Options(**values)


def problems(given: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the problems of OPTIONS."""
    for name in given:
        if name not in NAMES:
            yield Problem(3, f"There is no option {name!r}.", f"Remove it. The options are {', '.join(sorted(NAMES))}.")
    if not given.get("nsqd_tcp_addresses"):
        hint = 'Set it to the addresses of the brokers, such as ["127.0.0.1:4150"].'
        yield Problem(2, "The option 'nsqd_tcp_addresses' is missing.", hint)
    for name, value in given.items():
        if name in NAMES:
            try:
                _check(name, value)
            except InvalidOption as error:
                yield Problem(4, f"The option {name!r} is {value!r}.", str(error))


def _check(name: str, value: Any) -> None:
    if name in _LISTS:
        _check_addresses(name, value)
    elif name in _DURATIONS:
        _check_duration(name, value)
    elif name == "max_attempts":
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise InvalidOption("Set it to a whole number of 1 or more.")
    elif name == "client":
        _check_client(value)
    elif name == "channel":
        if not isinstance(value, str) or not is_valid_name(value) or is_ephemeral(value):
            raise InvalidOption("Set it to 1 to 64 of the characters a-z A-Z 0-9 . _ -")
    elif not isinstance(value, str) or not value:
        raise InvalidOption("Set it to a text.")


def _check_addresses(name: str, value: Any) -> None:
    check = check_address if name == "nsqd_tcp_addresses" else base_url
    if isinstance(value, str) or not isinstance(value, list | tuple):
        raise InvalidOption('Set it to a list, such as ["127.0.0.1:4150"].')
    for address in value:
        try:
            check(address)
        except (ValueError, TypeError, AttributeError) as error:
            raise InvalidOption(f"Set it to a list of addresses host:port; {address!r} is invalid: {error}.") from None


def _check_duration(name: str, value: Any) -> None:
    if value is None and name == "keep_results":
        return
    least = MIN_LEASE if name == "lease" else timedelta(milliseconds=1)
    if not isinstance(value, timedelta) or value < least:
        shown = f"timedelta(seconds={least.total_seconds():g})"
        raise InvalidOption(f"Set it to a datetime.timedelta of {shown} or more.")


def _check_client(value: Any) -> None:
    if not isinstance(value, Mapping):
        raise InvalidOption('Set it to a dictionary, such as {"tls_v1": True}.')
    unknown = sorted(set(value) - _CLIENT_NAMES)
    if unknown:
        raise InvalidOption(f"Remove {unknown[0]!r}. The options are {', '.join(sorted(_CLIENT_NAMES))}.")
    try:
        ConnectionOptions(**value)
    except (ValueError, TypeError) as error:
        raise InvalidOption(f"Correct it: {error}.") from None
