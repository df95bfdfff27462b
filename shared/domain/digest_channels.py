"""What a digest channel needs to know, by its type, and what is wrong with what it was given, all of it at once."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from shared.domain.address import AddressError, parse_email, parse_sender
from shared.domain.digests import MAX_KIND_CHARS, ChannelType, Severity
from shared.domain.endpoints import EndpointError, read_endpoint
from shared.domain.webhook_signature import SecretError, key_of

#: What each type is given; the first of them are needed.
NEEDED: dict[ChannelType, tuple[str, ...]] = {
    ChannelType.WEBHOOK: ("url", "signing_secret"),
    ChannelType.NTFY: ("url",),
    ChannelType.GOTIFY: ("url", "token"),
    ChannelType.SLACK: ("url",),
    ChannelType.TEAMS: ("url",),
    ChannelType.EMAIL: ("to",),
}
OPTIONAL: dict[ChannelType, tuple[str, ...]] = {
    ChannelType.WEBHOOK: ("auth_header",),
    ChannelType.NTFY: ("token",),
    ChannelType.EMAIL: ("from",),
}
#: What is never shown again once it was given.
SECRETS = ("url", "token", "auth_header", "signing_secret")
#: Settings of its own that a channel may have, with the most of each: milliseconds, attempts, days.
OWN_SETTINGS = {"retry_base_delay_ms": 86_400_000, "max_attempts": 20, "retention_days": 3_650}
MAX_EMAIL_RECIPIENTS = 50
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,59}", re.ASCII)
KIND = re.compile(rf"[a-z0-9][a-z0-9_.:/-]{{0,{MAX_KIND_CHARS - 1}}}", re.ASCII)
#: Source: RFC 9110 §5.1 (a field's name is a token), §5.5 (visible characters and spaces in its value).
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}: ?[!-~][ -~]{0,1999}", re.ASCII)
#: Headers of ours, and those that would change what the request is.
_TAKEN = frozenset({"host", "content-length", "content-type", "transfer-encoding", "connection", "user-agent"})
_DIGITS = re.compile(r"[0-9]{1,9}", re.ASCII)
_TOKEN = re.compile(r"[!-~]{1,500}", re.ASCII)
#: What is shorter cannot be taken out of an endpoint's answer without taking half of its words with it.
MIN_SECRET_CHARS = 6
#: Words of a header's value that prove nothing. Source: IANA, HTTP Authentication Schemes; besides, what is common.
_SCHEMES = frozenset({"basic", "bearer", "digest", "negotiate", "hoba", "mutual", "vapid", "dpop", "token", "apikey"})


class ChannelError(ValueError):
    """The channel cannot be as asked; `faults` says for each field what is wrong and what would do."""

    def __init__(self, faults: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{name}: {fault}" for name, fault in faults.items()))
        self.faults = dict(faults)


@dataclass(frozen=True, slots=True)
class Setup:
    """`config` may be shown to operators (addresses masked), `secret` to nobody; `removed` is what it has no more."""

    config: dict[str, Any]
    secret: dict[str, str] = field(default_factory=dict, repr=False)
    removed: tuple[str, ...] = ()


def read_setup(
    type_: ChannelType,
    given: Mapping[str, Any],
    *,
    plain_http: Collection[str],
    private: Collection[str],
    partial: bool = False,
    unset: Collection[str] = (),
) -> Setup:
    """
    Check what a channel of a type was given: texts by name, `to` a list of them; `partial` where only what changes is.
    `unset` are those of its OPTIONAL that it is to have no more.

    Raises: ChannelError with every fault; no secret is in its text.
    """
    needed, known = NEEDED[type_], (*NEEDED[type_], *OPTIONAL.get(type_, ()))
    faults = {
        name: f"a {type_.value} channel has none; it has {', '.join(known)}" for name in given if name not in known
    }
    faults |= {name: f"is needed for a {type_.value} channel" for name in needed if not (partial or given.get(name))}
    faults |= {name: "cannot be removed" for name in unset if name not in OPTIONAL.get(type_, ())}
    faults |= {name: "is given and removed at once; do one of the two" for name in unset if given.get(name)}
    config: dict[str, Any] = {}
    secret: dict[str, str] = {}
    for name in known:
        if name in faults or given.get(name) in (None, ""):
            continue
        try:
            _read(name, given[name], config, secret, plain_http=plain_http, private=private)
        except (EndpointError, SecretError, AddressError, _FieldError) as fault:
            faults[name] = str(fault)
    if type_ is ChannelType.NTFY and "url" in secret and not topic_of(secret["url"])[1]:
        faults["url"] = "must end with the topic, as https://ntfy.sh/my-topic"
    if faults:
        raise ChannelError(faults)
    return Setup(config, secret, tuple(sorted(set(unset))))


def check_name(name: str) -> None:
    """
    Check the name of a channel, which is a label of metrics and a part of addresses.

    Raises: ChannelError.
    """
    if not _NAME.fullmatch(name):
        raise ChannelError({"name": "has 1 to 60 small letters, digits, dots, hyphens and underscores"})


def read_filter(kinds: Collection[str], min_severity: str) -> tuple[list[str] | None, Severity]:
    """
    Check a filter; no kinds means all of them.

    Raises: ChannelError.
    """
    faults = {}
    bad = [kind for kind in kinds if not KIND.fullmatch(kind)]
    if bad:
        faults["kinds"] = "a kind has small letters, digits and . _ : / - only"
    if min_severity not in list(Severity):
        faults["min_severity"] = f"is one of {', '.join(Severity)}"
    if faults:
        raise ChannelError(faults)
    return sorted(set(kinds)) or None, Severity(min_severity)


def read_own_settings(given: Mapping[str, str | int | None]) -> dict[str, int | None]:
    """
    Check what stands over the installation's settings, by the names of OWN_SETTINGS; None where nothing is given.

    Raises: ChannelError.
    """
    found: dict[str, int | None] = {}
    faults = {}
    for name, most in OWN_SETTINGS.items():
        text = str(given.get(name) or "").strip()
        if text and not (_DIGITS.fullmatch(text) and 1 <= int(text) <= most):
            faults[name] = f"is a whole number from 1 to {most:,}"
        else:
            found[name] = int(text) if text else None
    if faults:
        raise ChannelError(faults)
    return found


def secrets_of_header(header: str) -> set[str]:
    """What may be a secret of a header: its whole value, each word of it, and what stands behind the `=` of a word."""
    value = header.partition(":")[2].strip()
    words = _words_of(value)
    return {value, *words, *map(_behind_equals, words)} - {""}


def topic_of(url: str) -> tuple[str, str]:
    """Take an ntfy address apart: the server's root, and the topic."""
    root, _, topic = url.rstrip("/").rpartition("/")
    return (root, topic) if "//" in root and not root.endswith("/") else (url, "")


class _FieldError(ValueError):
    pass


def _words_of(value: str) -> list[str]:
    words = [word.strip("\"'=") for word in re.split(r"[\s,;]+", value)]
    return [word for word in words if word.lower() not in _SCHEMES]


def _behind_equals(word: str) -> str:
    return word.partition("=")[2].strip("\"'")


def _check_length(*parts: str) -> None:
    if all(len(part) < MIN_SECRET_CHARS for part in parts):
        raise _FieldError(
            f"must have a secret of {MIN_SECRET_CHARS} characters or more: a shorter one could not be kept out of the"
            " answers that are shown"
        )


def _read(
    name: str,
    value: Any,
    config: dict[str, Any],
    secret: dict[str, str],
    *,
    plain_http: Collection[str],
    private: Collection[str],
) -> None:
    match name:
        case "url":
            endpoint = read_endpoint(value, plain_http=plain_http, private=private)
            secret["url"], config["endpoint"] = endpoint.url, endpoint.shown
        case "signing_secret":
            key_of(value)
            secret[name] = value
        case "auth_header":
            if not _HEADER.fullmatch(value):
                raise _FieldError("is a header and its value, as `Authorization: Bearer …`, in visible ASCII")
            if value.partition(":")[0].lower() in _TAKEN or value.lower().startswith("webhook-"):
                raise _FieldError("must not be a header that the message itself needs")
            words = _words_of(value.partition(":")[2])
            _check_length(*(_behind_equals(word) or word for word in words))
            secret[name] = value
        case "token":
            if not _TOKEN.fullmatch(value):
                raise _FieldError("has up to 500 visible ASCII characters, without spaces")
            _check_length(value)
            secret[name] = value
        case "from":
            config["from"] = parse_sender(value).spelled
        case _:
            if len(value) > MAX_EMAIL_RECIPIENTS:
                raise _FieldError(f"has more than {MAX_EMAIL_RECIPIENTS} addresses; use a mailing list")
            config["to"] = list(dict.fromkeys(parse_email(address).ascii for address in value))
