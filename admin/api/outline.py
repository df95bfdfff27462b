"""
The first pass over a submission: everything but its recipients, of which it notes where they are and how many.

With a fingerprint it also notes what the whole says, without regard to the order of keys and to white space.
"""

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from typing import IO, Any

from admin.api.json_stream import JsonReader, Repeated
from admin.api.limits import MAX_HEADER_CHARS
from shared.domain.states import Channel

_CHANNELS = frozenset(channel.value for channel in Channel)
#: Recipients encoded by one call for the fingerprint.
_CHUNK = 500


@dataclass(frozen=True)
class RecipientList:
    """Where a list of recipients begins in the body, in bytes, and its length."""

    offset: int
    count: int


@dataclass(frozen=True)
class Outline:
    """
    A submission without its recipients.

    In `header` a list of recipients is replaced by one that is as empty or not as it, so that the shape can be
    checked; what stands in its place and is no list is left there.
    """

    header: Any
    lists: dict[Channel, RecipientList]
    fingerprint: bytes | None


def read_outline(file: IO[bytes], *, fingerprint: bool, max_header_chars: int = MAX_HEADER_CHARS) -> Outline:
    """
    Read the body once. `max_header_chars` bounds everything but the recipients, which is held in memory.

    Raises: JsonError.
    """
    reader = JsonReader(file, max_value_chars=max_header_chars)
    lists: dict[Channel, RecipientList] = {}
    digests: dict[str, str] = {}

    def channel_value(channel: Channel, key: str) -> Any:
        if key != "recipients" or not reader.begins_with("["):
            return reader.value()
        offset = reader.offset()
        count, digest = _skim(reader.elements(), fingerprint=fingerprint)
        lists[channel] = RecipientList(offset, count)
        digests[channel.value] = digest
        return [{"to": ""}] if count else []

    def top_value(key: str) -> Any:
        if key not in _CHANNELS or not reader.begins_with("{"):
            return reader.value()
        return _object(reader, lambda inner: channel_value(Channel(key), inner), max_chars=max_header_chars)

    header = _object(reader, top_value, max_chars=max_header_chars) if reader.begins_with("{") else reader.value()
    reader.end()
    if not fingerprint:
        return Outline(header, lists, None)
    whole = hashlib.sha256(_CANONICAL.encode([header, digests]).encode("ascii"))
    return Outline(header, lists, whole.digest())


def _object(reader: JsonReader, value_of: Callable[[str], Any], *, max_chars: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    repeated: str | None = None
    for key in reader.members():
        if reader.value_chars > max_chars:
            reader.refuse(f"all but the recipients is longer than {max_chars:,} characters")
        if key in found:
            repeated = repeated or key
        found[key] = value_of(key)
    if repeated is None:
        return found
    result = Repeated(found)
    result.key = repeated
    return result


def _skim(elements: Iterable[Any], *, fingerprint: bool) -> tuple[int, str]:
    if not fingerprint:
        return sum(1 for _ in elements), ""
    count, digest = 0, hashlib.sha256()
    remaining = iter(elements)
    while chunk := list(islice(remaining, _CHUNK)):
        count += len(chunk)
        digest.update(_CANONICAL.encode(chunk)[1:-1].encode("ascii"))
        digest.update(b",")
    return count, digest.hexdigest()


def _decimal(value: object) -> dict[str, str]:
    if isinstance(value, Decimal):
        return {"number": str(value)}
    raise TypeError(f"{type(value).__name__} does not come out of JSON")


#: Escapes everything beyond ASCII, so that even half of a surrogate pair has a fingerprint.
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=_decimal)
