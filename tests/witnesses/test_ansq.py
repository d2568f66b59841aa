"""ansq, unmodified, against our broker and registry."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("layer", ["plain", "auth"], indirect=True)
def test_ansq_exchanges_ten_thousand_messages_with_our_broker(exchange):
    """With its writer and reader, which discovers the broker through the registry: each message arrives once.

    ansq has no TLS and no compression; only its connection class supports AUTH.
    """
    assert exchange("ansq", 10_000) == {"stored": 10_000, "received": 10_000, "most": 1}


@pytest.mark.parametrize("layer", ["poison"], indirect=True)
def test_a_message_that_ansq_always_requeues_dies_once_and_the_others_arrive(exchange):
    """After three failures, with its reason."""
    assert exchange("ansq", 1000) == {
        "stored": 1000,
        "received": 999,
        "most": 1,
        "dead": [("message 7", "attempts", 3)],
    }
