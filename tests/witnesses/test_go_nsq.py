"""go-nsq, unmodified, against our broker and registry; needs NSQ_GOPATH (docs/contributing.md)."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    "layer", ["plain", "deflate", "snappy", "tls", "tls+deflate", "tls+snappy", "auth"], indirect=True
)
def test_go_nsq_exchanges_ten_thousand_messages_with_our_broker(exchange):
    """With its Producer and Consumer, which discovers the broker through the registry: each message arrives once."""
    assert exchange("go_nsq", 10_000) == {"stored": 10_000, "received": 10_000, "most": 1}


@pytest.mark.parametrize("layer", ["poison"], indirect=True)
def test_a_message_that_go_nsq_always_requeues_dies_once_and_the_others_arrive(exchange):
    """After three failures, with its reason."""
    assert exchange("go_nsq", 1000) == {
        "stored": 1000,
        "received": 999,
        "most": 1,
        "dead": [("message 7", "attempts", 3)],
    }
