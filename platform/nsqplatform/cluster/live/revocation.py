"""Broadcasts changed accounts, ended sessions and revoked tokens to all web processes, which check the websockets of
these accounts again."""

from __future__ import annotations

import logging
from collections.abc import Collection
from functools import partial
from typing import Any

from django.contrib.auth import get_user_model
from django.db import transaction
from django.db.models.signals import post_delete, post_save
from django.utils import timezone
from redis.exceptions import RedisError

from nsqplatform.accounts.models import ApiToken, Session
from nsqplatform.cluster.live.broadcast import ACCOUNTS, broadcast
from nsqplatform.clusters import current

logger = logging.getLogger(__name__)

WITHOUT_EFFECT = frozenset({"last_login"})
"""Columns of an account that no permission depends on."""


def connect_signals() -> None:
    """Broadcast every change that Django's models make, in whichever process."""
    post_save.connect(_account_saved, sender=get_user_model(), dispatch_uid="nsq.account_saved")
    for model in (Session, ApiToken):
        post_delete.connect(_credential_deleted, sender=model, dispatch_uid=f"nsq.{model.__name__}_deleted")


def broadcast_account(user_id: int) -> None:
    """Publish that the account changed. Raises nothing: without Redis, sockets are checked repeatedly."""
    try:
        for cluster in current.names():
            with current.entered(cluster):
                broadcast(ACCOUNTS, {"type": "account", "user_id": user_id})
    except (RedisError, OSError) as error:
        logger.warning("cannot broadcast a changed account", extra={"error": str(error)})


def _account_saved(*, instance: Any, created: bool, update_fields: Collection[str] | None, **_: Any) -> None:
    if not created and not (update_fields and WITHOUT_EFFECT.issuperset(update_fields)):
        transaction.on_commit(partial(broadcast_account, instance.pk))


def _credential_deleted(*, instance: Session | ApiToken, **_: Any) -> None:
    """The deletion of an expired session changes nothing."""
    is_expired = isinstance(instance, Session) and instance.expire_date <= timezone.now()
    if instance.user_id is not None and not is_expired:
        transaction.on_commit(partial(broadcast_account, instance.user_id))
