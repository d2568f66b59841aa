"""A cluster of our own brokers and registry, as processes."""

from __future__ import annotations

from pathlib import Path

from tests.harness.daemon import Broker, Registry
from tests.harness.waiting import wait_until


class OurCluster:
    """A registry and two brokers that register with it; each keeps its ports when it restarts."""

    def __init__(self, data: Path) -> None:
        self.registry = Registry(keep_ports=True).launch()
        self.brokers: list[Broker] = []
        for name in ("a", "b"):
            (data / name).mkdir()
            lookupd = f"--lookupd-tcp-address={self.registry.tcp_address}"
            broker = Broker(data / name, lookupd, "--broadcast-address=127.0.0.1", keep_ports=True)
            self.brokers.append(broker.launch())

    def publish(self, topic: str, count: int) -> None:
        """Publish ``count`` messages to each broker."""
        for broker in self.brokers:
            body = b"\n".join(b"message %d" % number for number in range(count))
            assert broker.post("/mpub", body, topic=topic) == "OK"

    def make_channel(self, topic: str, channel: str) -> None:
        for broker in self.brokers:
            broker.post("/topic/create", topic=topic)
            broker.post("/channel/create", topic=topic, channel=channel)

    def wait_until_routed(self, topic: str) -> None:
        """Wait until the topic's messages are in its channels: a new topic first asks the registry for channels."""
        for broker in self.brokers:
            wait_until(lambda broker=broker: broker.topics()[topic]["depth"] == 0, "the messages are in the channels")

    def stop(self) -> None:
        for daemon in (*self.brokers, self.registry):
            daemon.stop()
