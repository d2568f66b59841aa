"""aionsq, our own client, against our broker and registry, like the others."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("layer", ["plain", "deflate", "tls", "tls+deflate", "auth"], indirect=True)
def test_aionsq_exchanges_ten_thousand_messages_with_our_broker(exchange):
    """With its Producer and Consumer, which discovers the broker through the registry: each message arrives once."""
    assert exchange("aionsq", 10_000) == {"stored": 10_000, "received": 10_000, "most": 1}
