"""What a member needs to access an arbiter: authorities for etcd's certificate, a user of etcd, a service account."""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import NamedTuple

from brokerd.settings import SERVICE_ACCOUNT


class InvalidAccess(ValueError):
    """A file or variable for the access to the arbiter is missing, or cannot be used; the text is for the user."""


class ArbiterAccess(NamedTuple):
    """``tls`` is for ``etcds://``; if it is None, the system's authorities count. ``user`` is empty for none.

    ``service_account`` is the directory of a pod's ``token`` and ``ca.crt``, for ``kubernetes://``.
    """

    tls: ssl.SSLContext | None = None
    user: str = ""
    password: str = ""
    service_account: Path = Path(SERVICE_ACCOUNT)

    @classmethod
    def of_files(cls, ca_file: str, user_file: str, service_account: str) -> ArbiterAccess:
        """Read ``ca_file`` and ``user_file``, each empty for none. Raises InvalidAccess."""
        user, password = _user(user_file) if user_file else ("", "")
        return cls(_context(ca_file) if ca_file else None, user, password, Path(service_account))


def _context(ca_file: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except ssl.SSLError as error:
        reason = (error.reason or str(error)).lower().replace("_", " ")
        raise InvalidAccess(f"--arbiter-ca-file: {ca_file}: {reason}") from None
    except OSError as error:
        raise InvalidAccess(f"--arbiter-ca-file: open {ca_file}: {os.strerror(error.errno or 0).lower()}") from None


def _user(user_file: str) -> tuple[str, str]:
    """The name and the password of the file's line ``NAME:PASSWORD``."""
    try:
        name, colon, password = Path(user_file).read_text().strip().partition(":")
    except OSError as error:
        raise InvalidAccess(f"--arbiter-user-file: open {user_file}: {os.strerror(error.errno or 0).lower()}") from None
    except UnicodeDecodeError:
        raise InvalidAccess(f"--arbiter-user-file: {user_file} is not UTF-8") from None
    if not (name and colon and password) or "\n" in password:
        raise InvalidAccess(f"--arbiter-user-file: {user_file} is not one line NAME:PASSWORD")
    return name, password
