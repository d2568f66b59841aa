from django.apps import AppConfig


class ClusterConfig(AppConfig):
    name = "nsqplatform.cluster"

    def ready(self) -> None:
        from nsqplatform.cluster.live.revocation import connect_signals

        connect_signals()
