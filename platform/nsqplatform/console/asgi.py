"""The ASGI application that Daphne serves: pages and API over HTTP, live data over websockets."""

from __future__ import annotations

import os
from typing import cast

import django
from channels.routing import ProtocolTypeRouter, URLRouter
from channels.security.websocket import WebsocketDenier
from django.urls import re_path

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "nsqplatform.console.settings")
django.setup(set_prefix=False)  # loads the models, which the consumers import

from nsqplatform.accounts.connection import HTTPApplication  # noqa: E402
from nsqplatform.accounts.forwarded import Forwarded  # noqa: E402
from nsqplatform.accounts.origins import OwnOrigin  # noqa: E402
from nsqplatform.cluster import metrics  # noqa: E402
from nsqplatform.cluster.live.cluster_socket import websocket_urls  # noqa: E402
from nsqplatform.cluster.messages.tail_socket import tail_urls  # noqa: E402
from nsqplatform.clusters.asgi import OfCluster  # noqa: E402
from nsqplatform.console.handler import SynchronousHandler  # noqa: E402
from nsqplatform.console.metrics import RequestMetrics  # noqa: E402
from nsqplatform.nsqadmin.asgi import NsqadminEndpoints, unbased  # noqa: E402

websockets = URLRouter([*websocket_urls, *tail_urls, re_path("", WebsocketDenier.as_asgi())])

application = Forwarded(
    OfCluster(
        ProtocolTypeRouter(
            {
                "http": RequestMetrics(NsqadminEndpoints(cast(HTTPApplication, SynchronousHandler()))),
                "websocket": OwnOrigin(unbased(websockets)),
            }
        )
    )
)

metrics.push_by_otlp("nsqadmin", metrics.web_text)
