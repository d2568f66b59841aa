"""The TLS context of requests to auth servers."""

from __future__ import annotations

import os
import ssl
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from brokerd.settings import BrokerSettings

_VERSIONS: Final = {
    "": ssl.TLSVersion.TLSv1,
    "tls1.0": ssl.TLSVersion.TLSv1,
    "tls1.1": ssl.TLSVersion.TLSv1_1,
    "tls1.2": ssl.TLSVersion.TLSv1_2,
    "tls1.3": ssl.TLSVersion.TLSv1_3,
}


class ClientTLSFailed(Exception):
    """The file of certificate authorities cannot be used; the text has the file and the reason."""


def client_context(settings: BrokerSettings) -> ssl.SSLContext:
    """A context that verifies servers with ``--tls-root-ca-file``, by default the system's authorities.

    Raises ClientTLSFailed.
    """
    authorities = settings.tls_root_ca_file
    try:
        context = ssl.create_default_context(cafile=authorities or None)
    except ssl.SSLError as error:
        raise ClientTLSFailed(f"{authorities}: {(error.reason or str(error)).lower().replace('_', ' ')}") from None
    except OSError as error:
        raise ClientTLSFailed(f"open {authorities}: {os.strerror(error.errno or 0).lower()}") from None
    context.minimum_version = _VERSIONS[settings.tls_min_version]
    return context
