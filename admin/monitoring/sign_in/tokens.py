"""The provider's tokens as the ledger keeps them: unreadable without SECRET_KEY, as a copy of the database is."""

import base64
import json
from collections.abc import Mapping

from cryptography.fernet import Fernet, InvalidToken
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF


class TokenBox:
    """Encrypts and opens what is kept of one sign-in."""

    def __init__(self, secret_key: str) -> None:
        key = HKDF(algorithm=SHA256(), length=32, salt=None, info=b"tidings operator tokens").derive(
            secret_key.encode()
        )
        self._fernet = Fernet(base64.urlsafe_b64encode(key))

    def close(self, tokens: Mapping[str, str]) -> bytes:
        """Give what may be kept."""
        return self._fernet.encrypt(json.dumps(dict(tokens)).encode())

    def open(self, kept: bytes) -> dict[str, str] | None:
        """Give the tokens again; None where they were closed under another SECRET_KEY."""
        try:
            found: dict[str, str] = json.loads(self._fernet.decrypt(kept))
        except InvalidToken:
            return None
        return found
