"""The arbiter that an address names."""

from __future__ import annotations

from brokerd.arbiter_address import LeaseAddress, parse_arbiter
from brokerd.net.arbiter import Arbiter
from brokerd.net.arbiter_access import ArbiterAccess
from brokerd.net.etcd import Etcd
from brokerd.net.kubernetes_lease import KubernetesLease
from nsqwire.units import Seconds


def arbiter_at(address: str, *, timeout_s: Seconds, access: ArbiterAccess | None = None) -> Arbiter:
    """The arbiter of ``--arbiter``. ``timeout_s`` is that of each call. Raises InvalidArbiter and InvalidAccess."""
    parsed = parse_arbiter(address)
    if isinstance(parsed, LeaseAddress):
        return KubernetesLease(parsed, timeout_s=timeout_s, access=access)
    return Etcd(parsed, timeout_s=timeout_s, access=access)
