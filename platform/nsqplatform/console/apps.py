from django.apps import AppConfig


class ConsoleConfig(AppConfig):
    name = "nsqplatform.console"

    def ready(self) -> None:
        # So that a task's `.delay` in the web process finds the broker: shared tasks bind to the app made last.
        from nsqplatform.console import celery  # noqa: F401
