"""The plugin: pytest finds it by its entry point. It starts nothing before a test requests ``nsq``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_nsq.nsq import NSQ


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the setting ``nsq_flags``."""
    parser.addini("nsq_flags", "additional flags of the fixture nsq's broker, such as --max-msg-size=5000", type="args")


@pytest.fixture(scope="session")
def nsq_session(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NSQ]:
    """The broker of all tests of this process. Topics are deleted only after tests that use ``nsq``."""
    from pytest_nsq.nsq import NSQ

    with NSQ(tmp_path_factory.mktemp("nsq"), pytestconfig.getini("nsq_flags")) as nsq:
        yield nsq


@pytest.fixture
def nsq(nsq_session: NSQ) -> Iterator[NSQ]:
    """A real NSQ broker without topics. Services connect to ``nsq.tcp_address`` and ``nsq.http_address``."""
    yield nsq_session
    nsq_session.reset()
