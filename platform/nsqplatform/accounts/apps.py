from django.apps import AppConfig
from django.contrib.contenttypes.management import create_contenttypes
from django.db.models.signals import post_migrate


class AccountsConfig(AppConfig):
    name = "nsqplatform.accounts"

    def ready(self) -> None:
        """Leave the tables of Django's permissions and content types empty: roles take their place (roles.py)."""
        post_migrate.disconnect(dispatch_uid="django.contrib.auth.management.create_permissions")
        post_migrate.disconnect(create_contenttypes)
