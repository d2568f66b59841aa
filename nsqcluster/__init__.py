"""Reading an NSQ cluster and acting on it, over the HTTP of nsqd and nsqlookupd: Go's and this project's.

``Cluster`` has the addresses; ``survey()`` reads everything at once, ``Discovery`` finds nodes, ``reads`` requests one
resource of several servers; ``perform()``, ``rewind()`` and ``tombstone()`` act and return a result from each server.
``Client`` is the HTTP client of all of them.
"""

from nsqcluster.actions import Action, perform, rewind, tombstone
from nsqcluster.client import Client
from nsqcluster.cluster import Cluster
from nsqcluster.discovery import Discovery, Node
from nsqcluster.errors import (
    ConnectTimedOut,
    Interrupted,
    Malformed,
    NotReached,
    Refused,
    RequestFailed,
    TimedOut,
)
from nsqcluster.producers import NodeInfo, Producer
from nsqcluster.results import Result, outcome_of
from nsqcluster.stats import ChannelStats, ClientStats, NodeStats, TopicStats
from nsqcluster.survey import Survey, survey
from nsqcluster.targets import ClusterUnreachable, NotInCluster
from nsqcluster.tls import tls_context

__all__ = [
    "Action",
    "ChannelStats",
    "Client",
    "ClientStats",
    "Cluster",
    "ClusterUnreachable",
    "ConnectTimedOut",
    "Discovery",
    "Interrupted",
    "Malformed",
    "Node",
    "NodeInfo",
    "NodeStats",
    "NotInCluster",
    "NotReached",
    "Producer",
    "Refused",
    "RequestFailed",
    "Result",
    "Survey",
    "TimedOut",
    "TopicStats",
    "outcome_of",
    "perform",
    "rewind",
    "survey",
    "tls_context",
    "tombstone",
]
