"""Signing a webhook so that its receiver can tell that it is ours, unchanged, new, and no repeat."""

import base64
import binascii
import hashlib
import hmac
import secrets

_PREFIX = "whsec_"
#: Bytes of a secret. Source: Standard Webhooks, "symmetric" (24 to 64).
_LEAST, _MOST, _MADE = 24, 64, 32


class SecretError(ValueError):
    """Not a signing secret; the text says why."""


def new_secret() -> str:
    """Make a signing secret."""
    return _PREFIX + base64.b64encode(secrets.token_bytes(_MADE)).decode()


def key_of(secret: str) -> bytes:
    """
    The bytes behind a signing secret.

    Raises: SecretError.
    """
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise SecretError("is not whsec_ and base64") from None
    if not secret.startswith(_PREFIX) or not _LEAST <= len(key) <= _MOST:
        raise SecretError(f"is not whsec_ and the base64 of {_LEAST} to {_MOST} bytes")
    return key


def sign(secret: str, *, id_: str, at_s: int, body: bytes) -> str:
    """
    The value of `webhook-signature`; `at_s` is the time in `webhook-timestamp`, seconds since 1970.

    Source: Standard Webhooks 1.0, "signature scheme" (HMAC-SHA256 over id.timestamp.body, v1).
    """
    signed = b".".join([id_.encode(), str(at_s).encode(), body])
    return "v1," + base64.b64encode(hmac.digest(key_of(secret), signed, hashlib.sha256)).decode()
