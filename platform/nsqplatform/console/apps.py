from django.apps import AppConfig


class ConsoleConfig(AppConfig):
    name = "nsqplatform.console"

    def ready(self) -> None:
        # Shared tasks bind to the app created last, so the web process must import it for a task's `.delay`.
        from nsqplatform.console import celery  # noqa: F401
