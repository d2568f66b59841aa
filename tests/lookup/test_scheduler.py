"""Long work in slices: responses meanwhile, and the order of the work."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Generator
from typing import Any, TypeVar

import pytest

from nsqlookup.__main__ import steady_unix_clock
from nsqlookup.scheduler import Scheduler, sorted_in_steps
from nsqlookup.tcp import LookupServer
from tests.harness.waiting import until

T = TypeVar("T")


# ---- what is shown while a peer is cleared away


def test_a_peer_that_left_is_in_no_answer_before_it_is_removed(world: Any) -> None:
    """It is in no lookup, list or dump; its ephemeral names are gone, other names stay."""
    leaving = world.nsqd("t c", "e#ephemeral", "t x#ephemeral", broadcast_address="leaving")
    world.nsqd("t", broadcast_address="staying")
    work = leaving.conversation.ended()
    for _ in range(3):
        assert world.found("t") == ["staying"]
        assert [each["broadcast_address"] for each in world.get("/nodes")["producers"]] == ["staying"]
        assert world.get("/topics") == {"topics": ["t"]}
        assert world.get("/channels?topic=t") == {"channels": ["c"]}
        assert world.request("GET", "/lookup?topic=e%23ephemeral").status == 404
        assert sorted(world.get("/debug")) == ["client::", "topic:t:"]
        next(work)
    for _ in work:
        pass
    assert world.get("/topics") == {"topics": ["t"]}


def test_new_registrations_stay_during_a_removal(world: Any) -> None:
    """Removing the old peer does not remove what a new one, or an operator, has created since."""
    leaving = world.nsqd("e#ephemeral", "f#ephemeral", "t x#ephemeral", broadcast_address="leaving")
    work = leaving.conversation.ended()
    world.nsqd("e#ephemeral", "t x#ephemeral", broadcast_address="new")
    world.post("/topic/create?topic=f%23ephemeral")
    for _ in work:
        pass
    assert world.get("/topics") == {"topics": ["e#ephemeral", "f#ephemeral", "t"]}
    assert world.found("e%23ephemeral") == ["new"]
    assert world.get("/channels?topic=t") == {"channels": ["x#ephemeral"]}


def test_a_topic_that_is_deleted_is_gone_at_once(world: Any) -> None:
    """Registrations made meanwhile are not removed."""
    nsqd = world.nsqd("t c", "t d")
    work = world.registry.delete_topic("t")
    assert world.get("/topics") == {"topics": []}
    assert world.get("/channels?topic=t") == {"channels": []}
    nsqd.ok("REGISTER t c")
    for _ in work:
        pass
    assert world.get("/lookup?topic=t")["channels"] == ["c"]
    assert len(world.get("/lookup?topic=t")["producers"]) == 1


# ---- scheduler


def counted(steps: int, done: list[str], name: str) -> Generator[None, None, str]:
    for _ in range(steps):
        done.append(name)
        yield
    return name


async def test_short_work_does_not_wait_for_long_work() -> None:
    """Short work is done at once; long responses that started together progress in turn."""
    scheduler, done = Scheduler(), list[str]()
    long = [scheduler.answer(counted(200_000, done, name)) for name in "ab"]
    assert all(isinstance(each, asyncio.Future) for each in long)
    assert scheduler.answer(counted(0, done, "short")) == "short"
    assert await asyncio.gather(*long) == ["a", "b"]  # type: ignore[arg-type]
    first_b, last_a = done.index("b"), len(done) - 1 - done[::-1].index("a")
    assert first_b < last_a, "one after the other"


async def test_an_exception_of_work_reaches_its_waiters() -> None:
    """In the first slice or later; other work continues."""

    def failing(steps: int) -> Generator[None, None, None]:
        yield from counted(steps, [], "")
        raise ValueError("bad")

    scheduler, done = Scheduler(), list[str]()
    with pytest.raises(ValueError, match="bad"):
        scheduler.answer(failing(0))
    later, other = scheduler.answer(failing(200_000)), scheduler.answer(counted(200_000, done, "other"))
    with pytest.raises(ValueError, match="bad"):
        await later  # type: ignore[misc]
    assert await other == "other"  # type: ignore[misc]


async def test_an_abandoned_answer_is_not_computed() -> None:
    scheduler, done = Scheduler(), list[str]()
    answer = scheduler.answer(counted(10_000_000, done, "x"))
    assert isinstance(answer, asyncio.Future)
    answer.cancel()
    for _ in range(10):
        await asyncio.sleep(0)
    made = len(done)
    for _ in range(100):
        await asyncio.sleep(0)
    assert len(done) == made


@pytest.mark.parametrize("count", [0, 1, 2047, 2048, 2049, 10_000])
def test_names_are_sorted_in_steps(count: int) -> None:
    names = [f"t{number * 7919 % 10_007}" for number in range(count)]
    assert value_of(sorted_in_steps(list(names))) == sorted(names)


def value_of(steps: Generator[None, None, T]) -> T:
    while True:
        try:
            next(steps)
        except StopIteration as stopped:
            value: T = stopped.value
            return value


async def test_connections_leave_no_cycles_behind(world: Any, identify_command: Callable[..., bytes]) -> None:
    """The registry runs no full garbage collections, so reference counts alone must free a connection."""
    server = LookupServer(world.registry, steady_unix_clock(), {}, Scheduler())
    made: list[weakref.ref[asyncio.Protocol]] = []

    def protocol() -> asyncio.Protocol:
        new = server.protocol()
        made.append(weakref.ref(new))
        return new

    listening = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0)
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            reader, writer = await asyncio.open_connection(*listening.sockets[0].getsockname())
            writer.write(b"  V1" + identify_command() + b"REGISTER t c\nUNREGISTER t\n")
            await reader.readexactly(4)
            writer.close()
            await writer.wait_closed()
        await until(lambda: len(made) == 3 and not any(each() for each in made), "three connections are freed")
    finally:
        gc.enable()
        listening.close()
