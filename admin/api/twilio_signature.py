"""
The signature of Twilio's webhooks: base64 of HMAC-SHA1 over the URL as Twilio called it and the form's fields.

Behind a router the request does not show that URL, so it is built from PUBLIC_URL; whether Twilio counts the port as a
part of it differs, so both are tried.

Source: twilio.com/docs/usage/security (validating signatures).
"""

import hmac
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import urlsplit, urlunsplit

_DEFAULT_PORTS = {"https": 443, "http": 80}


def is_signed(url: str, form: Mapping[str, Sequence[str]], *, signature: str, token: str) -> bool:
    """Whether a request to `url` with these fields was signed with the account's token."""
    fields = "".join(name + value for name in sorted(form) for value in sorted(set(form[name])))
    given = signature.encode("utf-8", "replace")
    return any(hmac.compare_digest(_signature(each + fields, token), given) for each in _spellings(url))


def sign(url: str, form: Mapping[str, Sequence[str]], *, token: str) -> str:
    """Sign as Twilio does."""
    fields = "".join(name + value for name in sorted(form) for value in sorted(set(form[name])))
    return _signature(url + fields, token).decode("ascii")


def _signature(text: str, token: str) -> bytes:
    return b64encode(hmac.digest(token.encode(), text.encode("utf-8", "surrogatepass"), "sha1"))


def _spellings(url: str) -> Iterator[str]:
    """The URL as it is, without its port, and with the usual one."""
    yield url
    parts = urlsplit(url)
    host = parts.netloc.rpartition(":")[0] if parts.port is not None else parts.netloc
    yield urlunsplit(parts._replace(netloc=host))
    if parts.port is None:
        yield urlunsplit(parts._replace(netloc=f"{host}:{_DEFAULT_PORTS[parts.scheme]}"))
