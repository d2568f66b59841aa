"""Reads of an NSQ cluster and actions on it, over HTTP to nsqd and nsqlookupd, Go's or this project's.

``Cluster`` contains the addresses. ``survey()`` reads everything at once, ``Discovery`` finds nodes, and ``reads``
requests one resource from one server or several. ``perform()``, ``rewind()``, ``tombstone()``, ``drain()`` and
``hand_over()`` act and return the result of each server; ``Bulk`` acts on many topics or channels at once. ``policies``
reads and changes the policies of all nodes. ``messages`` are those of a channel of one node, ``publishing`` adds some
to a topic, and ``recalls`` cancels or defers published ones. ``dead`` reads, requeues and removes dead messages on all
nodes. ``Client`` is the HTTP client of all of them; nothing else in the project requests a path of nsqd or nsqlookupd.
"""

from nsqcluster.actions import Action, Rewound, perform, preview_rewind, rewind, tombstone
from nsqcluster.bulk import Bulk, Name
from nsqcluster.client import Client
from nsqcluster.cluster import Cluster
from nsqcluster.discovery import Discovery, Node
from nsqcluster.drain import cancel_drain, drain
from nsqcluster.errors import (
    ConnectTimedOut,
    Interrupted,
    Malformed,
    NotReached,
    Refused,
    RequestFailed,
    TimedOut,
)
from nsqcluster.mirror import hand_over
from nsqcluster.producers import NodeInfo, Producer
from nsqcluster.results import Result, outcome_of
from nsqcluster.stats import ChannelStats, ClientStats, NodeStats, TopicStats
from nsqcluster.survey import Survey, survey
from nsqcluster.targets import ClusterUnreachable, NotInCluster
from nsqcluster.tls import tls_context

__all__ = [
    "Action",
    "Bulk",
    "ChannelStats",
    "Client",
    "ClientStats",
    "Cluster",
    "ClusterUnreachable",
    "ConnectTimedOut",
    "Discovery",
    "Interrupted",
    "Malformed",
    "Name",
    "Node",
    "NodeInfo",
    "NodeStats",
    "NotInCluster",
    "NotReached",
    "Producer",
    "Refused",
    "RequestFailed",
    "Result",
    "Rewound",
    "Survey",
    "TimedOut",
    "TopicStats",
    "cancel_drain",
    "drain",
    "hand_over",
    "outcome_of",
    "perform",
    "preview_rewind",
    "rewind",
    "survey",
    "tls_context",
    "tombstone",
]
