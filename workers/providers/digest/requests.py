"""A digest as the HTTP request of its channel."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from shared.domain import digest_bodies, webhook_signature
from shared.domain.digest_channels import MIN_SECRET_CHARS, secrets_of_header, topic_of
from shared.domain.digests import ChannelType, Digest
from workers.providers.http import HttpRequest

_JSON = "Content-Type: application/json; charset=utf-8"


@dataclass(frozen=True, slots=True)
class DigestCall:
    """One message for one channel; `secret` is what the channel was set up with."""

    type: ChannelType
    secret: Mapping[str, str] = field(repr=False)
    digest: Digest

    @property
    def host(self) -> str:
        """Whom it goes to, in lower case."""
        return (urlsplit(self.secret.get("url", "")).hostname or "").lower()

    @property
    def may_repeat(self) -> bool:
        """Whether the receiver knows a repeat by its id, so that one may be made even of what may have been taken."""
        return self.type is ChannelType.WEBHOOK


def request_of(call: DigestCall, *, timeout_ms: int) -> HttpRequest:
    """
    The request of a call.

    A webhook is signed anew at each try and keeps its id: the receiver's key for dropping a repeat.
    """
    url, body, headers = _parts(call)
    return HttpRequest(url, [_JSON, *headers], body, "POST", timeout_ms)


def scrub(text: str, secret: Mapping[str, Any]) -> str:
    """Take a channel's secrets out of a text from outside: an endpoint may repeat what it was sent."""
    values = [value for value in secret.values() if isinstance(value, str)]
    url = urlsplit(secret.get("url", ""))
    values += [url.path + (f"?{url.query}" if url.query else ""), url.path, url.query]
    values += [value for _, value in parse_qsl(url.query)]
    values += secrets_of_header(secret.get("auth_header", ""))
    for value in sorted({value for value in values if len(value) >= MIN_SECRET_CHARS}, key=len, reverse=True):
        text = text.replace(value, "***").replace(json.dumps(value)[1:-1], "***")
    return text


def _parts(call: DigestCall) -> tuple[str, bytes, list[str]]:
    secret, digest = call.secret, call.digest
    url = secret.get("url", "")
    match call.type:
        case ChannelType.WEBHOOK:
            body = digest_bodies.webhook_document(digest)
            return url, body, _signed(secret, digest, body)
        case ChannelType.NTFY:
            root, topic = topic_of(url)
            token = [f"Authorization: Bearer {secret['token']}"] if "token" in secret else []
            return root + "/", digest_bodies.ntfy_document(digest, topic), token
        case ChannelType.GOTIFY:
            return (
                f"{url.rstrip('/')}/message",
                digest_bodies.gotify_document(digest),
                [f"X-Gotify-Key: {secret['token']}"],
            )
        case ChannelType.SLACK:
            return url, digest_bodies.slack_document(digest), []
        case ChannelType.TEAMS:
            return url, digest_bodies.teams_document(digest), []
        case ChannelType.EMAIL:
            raise ValueError("an e-mail digest is a send, not a call")


def _signed(secret: Mapping[str, str], digest: Digest, body: bytes) -> list[str]:
    at_s, id_ = int(time.time()), str(digest.id)
    signature = webhook_signature.sign(secret["signing_secret"], id_=id_, at_s=at_s, body=body)
    headers = [f"webhook-id: {id_}", f"webhook-timestamp: {at_s}", f"webhook-signature: {signature}"]
    return [*headers, secret["auth_header"]] if "auth_header" in secret else headers
