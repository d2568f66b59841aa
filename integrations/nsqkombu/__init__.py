"""A kombu transport for NSQ, so that Celery runs on brokerd and on Go's nsqd.

    import nsqkombu  # noqa: F401  registers nsq:// and nsqs://

    app = Celery(broker="nsq://127.0.0.1:4150")

kombu has no entry point for transports: the import adds both schemes to its table. ``docs/celery.md`` is the guide.
"""

try:
    from kombu.transport import TRANSPORT_ALIASES
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f"{error}: pip install 'nsq-client[celery]'", name=error.name) from None

from nsqkombu.transport import TLSTransport, Transport

TRANSPORT_ALIASES["nsq"] = "nsqkombu.transport:Transport"
TRANSPORT_ALIASES["nsqs"] = "nsqkombu.transport:TLSTransport"

__all__ = ["TLSTransport", "Transport"]
