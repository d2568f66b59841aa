"""Arguments and options of a wrong type: a WrongType names what is wrong, what it is and what it must be.

Both tests walk the declarations and the signatures, so that they include new options and new arguments.
"""

from __future__ import annotations

import asyncio
import inspect
import types
from datetime import timedelta
from os import PathLike
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

import aionsq
from aionsq import (
    BackoffStrategy,
    BlockingProducer,
    ConnectionOptions,
    Consumer,
    ConsumerOptions,
    Lookup,
    Message,
    Node,
    Producer,
    ProducerOptions,
    WrongType,
)
from nsqdaemon.settings import declarations
from tests.harness.waiting import DEADLINE_S

SECOND = timedelta(seconds=1)


class Constant:
    """A backoff strategy of a user."""

    def calculate(self, attempt: int) -> timedelta:
        return SECOND


VALUES = [None, True, 3, 0.5, "text", b"bytes", SECOND, Path("text"), ["text"], object(), Constant()]
TYPES = {
    bool: ("a bool", (bool,)),
    int: ("an int", (int,)),
    float: ("a float", (float, int)),
    str: ("a str", (str,)),
    timedelta: ("a timedelta", (timedelta,)),
    PathLike[str]: ("a PathLike", (Path,)),
    BackoffStrategy: ("a BackoffStrategy", (Constant,)),
}
"""For each type of options: its name in the text, and the accepted types among VALUES."""
OPTIONS = [ConnectionOptions, ProducerOptions, ConsumerOptions]


def wrong_values(hint: object) -> list[object]:
    """The values that an option of this type does not take. Only an option that is a bool takes a bool."""
    kinds = get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    accepted = tuple(kind for each in kinds for kind in TYPES[each][1])
    return [each for each in VALUES if not isinstance(each, accepted) or (each is True and hint is not bool)]


def test_all_classes_of_options_are_tested():
    """A new public class of options must be added."""
    public = [getattr(aionsq, name) for name in aionsq.__all__]
    assert {each for each in public if inspect.isclass(each) and issubclass(each, ConnectionOptions)} == set(OPTIONS)


@pytest.mark.parametrize(
    ("options", "name"),
    [pytest.param(each, name, id=f"{each.__name__}-{name}") for each in OPTIONS for name in declarations(each)],
)
def test_an_option_of_another_type_is_named(options, name):
    """With the type it has and the type it must have; its value may be a secret, and is not shown."""
    hint = get_type_hints(options)[name]
    kinds = get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    takes = " or ".join(TYPES[kind][0] for kind in kinds)
    for value in wrong_values(hint):
        with pytest.raises(WrongType) as raised:
            options(**{name: value})
        text = str(raised.value)
        assert text.startswith(f"the option {name} is {takes}")
        assert text.endswith(f", not {type(value).__name__}")
        assert ("timedelta(" in text) == (hint is timedelta)  # an example, for those who wrote seconds


def test_options_of_the_right_type_are_accepted(tmp_path):
    """An int is a float, a path may be a Path, and a strategy an object."""
    options = ConsumerOptions(
        lookupd_poll_jitter=1, tls_root_ca_file=tmp_path / "root.pem", backoff_strategy=Constant()
    )
    assert options.strategy().calculate(1) == SECOND


def test_a_jitter_that_is_no_number_is_refused():
    """NaN is neither below the least nor above the largest value."""
    with pytest.raises(aionsq.InvalidArgument, match="invalid lookupd_poll_jitter ! nan is not a number"):
        ConsumerOptions(lookupd_poll_jitter=float("nan"))


async def test_a_number_of_tasks_that_handle_nothing_is_refused(broker):
    """Without a task, ``run`` would wait for ever."""
    async with Consumer("orders", "work", nsqd_tcp_addresses=broker.tcp_address) as consumer:
        with pytest.raises(aionsq.InvalidArgument, match="concurrency 0 is less than 1"):
            await consumer.run(print, concurrency=0)


# --- arguments

GIVEN = {
    "address": "127.0.0.1:4150",
    "addresses": "127.0.0.1:4161",
    "nsqd_tcp_addresses": "127.0.0.1:4150",
    "topic": "orders",
    "channel": "work",
    "body": b"hello",
    "bodies": [b"hello"],
    "delay": SECOND,
    "verb": "create",
    "handler": print,
    "max_in_flight": 1,
}
"""Valid values of the arguments that are required beside the wrong one."""
CLIENTS = [BlockingProducer, Consumer, Lookup, Node, Producer]


def arguments() -> list[tuple[type, str, str]]:
    """Class, method and argument, of each argument that a user gives to a client or a message, but those that are
    true or false. Messages are created by consumers only."""
    return [
        (each, name, argument)
        for each in (*CLIENTS, Message)
        for name, method in inspect.getmembers(each, inspect.isfunction)
        if (name == "__init__" and each is not Message) or not name.startswith("_")
        for argument, declared in inspect.signature(method).parameters.items()
        if argument != "self" and declared.annotation != "bool" and (each, name) not in INTERNAL
    ]


INTERNAL = {(Consumer, "delivered"), (Consumer, "answered"), (Producer, "returned"), (Message, "set_contents")}
"""Methods that other modules of the client call."""


def required(method: object) -> list[str]:
    """The names of a method's arguments that have no default."""
    return [
        name
        for name, declared in inspect.signature(method).parameters.items()
        if name != "self" and declared.default is inspect.Parameter.empty
    ]


async def test_an_argument_of_another_type_is_named(broker):
    """Each argument of each public method, before it has an effect."""
    address = broker.tcp_address
    async with (
        Producer(address) as producer,
        Consumer("orders", "work", nsqd_tcp_addresses=address) as consumer,
        Lookup("127.0.0.1:4161") as lookup,
        Node(broker.http_address) as node,
    ):
        with BlockingProducer(address) as blocking:
            await producer.pub("orders", b"hello")
            message = await consumer.next_message()
            assert message is not None
            objects = {type(each): each for each in (producer, consumer, lookup, node, blocking, message)}
            unnamed = []
            for each, name, argument in arguments():
                target = each if name == "__init__" else getattr(objects[each], name)
                given = {needed: GIVEN[needed] for needed in required(getattr(each, name)) if needed != argument}
                if (each, name) == (Consumer, "__init__"):
                    given.setdefault("nsqd_tcp_addresses", address)
                try:
                    result = target(**{**given, argument: object()})
                    if inspect.isawaitable(result):
                        await asyncio.wait_for(result, DEADLINE_S)
                except WrongType as error:
                    if argument in str(error) and "object" in str(error):
                        continue
                    unnamed.append(f"{each.__name__}.{name}({argument}): {error}")
                except Exception as error:
                    unnamed.append(f"{each.__name__}.{name}({argument}): {type(error).__name__}: {error}")
                else:
                    unnamed.append(f"{each.__name__}.{name}({argument}): accepted")
            assert unnamed == []
            message.finish()
            assert message.has_responded
