"""ansq, unmodified, against our broker and registry."""

from __future__ import annotations


def test_ansq_exchanges_ten_thousand_messages_with_our_broker(exchange):
    """With its writer and reader, the broker found through the registry: each message arrives once."""
    assert exchange("ansq", 10_000) == {"stored": 10_000, "received": 10_000, "most": 1}
