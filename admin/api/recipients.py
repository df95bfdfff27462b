"""
The second pass over a submission: its recipients, one channel at a time, checked and made into rows.

This loop runs a million times for the largest submission, so the usual row takes a short way; a row that is unusual
in any respect is given to the models, which say what is wrong with it.
"""

import hashlib
import json
from collections.abc import Iterator
from typing import IO, Any

from admin.api.faults import Faults, pointer_to, shape_faults, unstorable
from admin.api.json_stream import JsonReader
from admin.api.limits import MAX_PARAM_CHARS, MAX_PARAMS, MAX_RECIPIENT_CHARS, MAX_REFERENCE_CHARS
from admin.api.outline import RecipientList
from admin.api.schemas import Recipient
from admin.api.submission import ChannelContent, plain_numbers
from shared.domain.address import (
    AddressError,
    check_storable,
    dedupe_key,
    has_header_hazard,
    parse_email,
    parse_phone,
)
from shared.domain.masking import mask_text
from shared.domain.merge import normalise_params
from shared.domain.merge_values import show
from shared.domain.sms_text import segments as count_segments
from shared.domain.states import Channel
from shared.domain.url_places import LINK_SCHEMES
from shared.ledger.acceptance import AcceptedRow, ChannelRows

#: Rows checked before they are handed on.
CHUNK = 1_000
#: Bytes of the digest a row is remembered by to find its duplicates: no two addresses share one by accident.
_DIGEST_BYTES = 16
#: Characters kept of an address that is at fault, for a row stored as failed.
_KEPT_ADDRESS_CHARS = 320
#: Characters kept of the reason.
_KEPT_REASON_CHARS = 1_024
_FIELDS = frozenset({"to", "params", "reference"})
_NO_PARAMS: dict[str, object] = {}
_NO_ROW = None
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class RecipientCheck:
    """
    Checks the recipients of one channel.

    Args:
        shared: the send's own params, normalised.
        region: where telephone numbers without `+` are dialled.
        max_sms_chars: what the SMS provider takes, in UTF-16 units.
        max_part_chars: what a rendered subject, text or html may come to.
    """

    def __init__(
        self,
        content: ChannelContent,
        *,
        first_row: int,
        batch_size: int,
        shared: dict[str, object],
        region: str | None,
        max_sms_chars: int,
        max_part_chars: int,
        faults: Faults,
    ) -> None:
        self.rows = ChannelRows(content.channel, first_row)
        self._channel = content.channel
        self._parts = content.parts
        self._batch_size = batch_size
        self._shared = shared
        self._region = region
        self._max_sms_chars = max_sms_chars
        self._max_part_chars = max_part_chars
        self._faults = faults
        self._seen: set[bytes] = set()
        self._plain_segments: int | None = None
        self._good_names: set[str] = set()
        self._parse = self._parse_email if content.channel is Channel.EMAIL else self._parse_phone
        templates = [part.template for part in content.parts.values()]
        self._has_conditions = any(template.has_conditions for template in templates)
        self._needed = frozenset[str]().union(*(template.required for template in templates))
        self._surely_small = self._find_surely_small()
        self._begins_links = "html" in content.parts and bool(content.parts["html"].template.links)
        self._names_subject = "subject" in content.parts and bool(content.parts["subject"].template.names)

    def _find_surely_small(self) -> int:
        """The length of params up to which no rendered part can be too large, however they are used."""
        most = min(
            (
                (self._max_part_chars - len(part.source)) // (part.growth * part.most_uses)
                for part in self._parts.values()
                if part.most_uses
            ),
            default=MAX_PARAM_CHARS,
        )
        shared = sum(len(show(value)) for value in self._shared.values() if value is not None)
        return min(most, MAX_PARAM_CHARS) - shared

    def chunks(self, file: IO[bytes], where: RecipientList, *, skip_invalid: bool) -> Iterator[list[AcceptedRow]]:
        """
        Give the rows to be stored, a chunk at a time; those at fault are among them only with `skip_invalid`.

        Without it a fault goes to `faults`, and the caller decides whether the rows given are worth anything.
        """
        reader = JsonReader(file, max_value_chars=MAX_RECIPIENT_CHARS, offset=where.offset)
        ready: list[AcceptedRow] = []
        for index, raw in enumerate(reader.elements()):
            row = self._check(index, raw, skip_invalid=skip_invalid)
            if row is not None:
                ready.append(row)
            if len(ready) >= CHUNK or (index + 1) % CHUNK == 0:
                yield ready
                ready = []
        yield ready

    def _check(self, index: int, raw: Any, *, skip_invalid: bool) -> AcceptedRow | None:
        problems = [] if self._has_plain_shape(raw) else self._find_shape_problems(raw)
        address, written, segments = self._look_into(raw, problems) if isinstance(raw, dict) else ("", None, None)
        if problems:
            return self._refuse(index, raw, problems, skip_invalid=skip_invalid)
        digest = self._digest(address)
        if digest in self._seen:
            self.rows.duplicates += 1
            return _NO_ROW
        self._seen.add(digest)
        return self._accept(address, written, raw.get("reference"), segments)

    def _look_into(self, raw: dict[str, Any], problems: list[tuple[str, str]]) -> tuple[str, str | None, int | None]:
        """Give address, params as JSON and segments; what has a fault in `problems` already is not looked at."""
        said = [pointer for pointer, _ in problems]
        address, written, segments = "", None, None
        if "/to" not in said and isinstance(raw.get("to"), str):
            try:
                address = self._parse(raw["to"])
            except AddressError as error:
                problems.append(("/to", check_storable(raw["to"]) or str(error)))
        given = raw.get("params") or _NO_PARAMS
        if isinstance(given, dict) and not any(pointer.startswith("/params") for pointer in said):
            params = self._take_params(given, problems) if given else _NO_PARAMS
            written = _encode(params) if given else None
            segments = self._try_content(params, len(written or ""), problems)
        return address, written, segments

    @staticmethod
    def _has_plain_shape(raw: Any) -> bool:
        if type(raw) is not dict or not raw.keys() <= _FIELDS or type(raw.get("to")) is not str:
            return False
        reference = raw.get("reference", "")
        if type(reference) is not str or len(reference) > MAX_REFERENCE_CHARS or not reference.isprintable():
            return False
        return "params" not in raw or type(raw["params"]) is dict

    @staticmethod
    def _find_shape_problems(raw: Any) -> list[tuple[str, str]]:
        problems = {fault.pointer: fault.detail for fault in unstorable(raw)}
        for fault in shape_faults(Recipient, raw):
            problems.setdefault(fault.pointer, fault.detail)
        return list(problems.items())

    def _take_params(self, raw: dict[str, Any], problems: list[tuple[str, str]]) -> dict[str, object]:
        if len(raw) > MAX_PARAMS:
            problems.append(("/params", f"has {len(raw):,} params; at most {MAX_PARAMS:,} are taken"))
            return _NO_PARAMS
        if not raw.keys() <= self._good_names:
            self._check_names(raw, problems)
        params, faults = normalise_params(raw)
        problems.extend((pointer_to("params", name), problem) for name, problem in faults)
        for value in params.values():
            if type(value) is not str:
                return plain_numbers(params)
        return params

    def _check_names(self, raw: dict[str, Any], problems: list[tuple[str, str]]) -> None:
        for name in raw:
            if (problem := check_storable(name)) is not None:
                problems.append((pointer_to("params", name), f"the name {problem}"))
            elif len(self._good_names) < MAX_PARAMS:
                self._good_names.add(name)

    def _try_content(self, params: dict[str, object], size: int, problems: list[tuple[str, str]]) -> int | None:
        """
        Try everything that depends on what this recipient is told; SMS segments where it is right.

        `size` is the length of the params as JSON: never less than that of their values.
        """
        if problems and any(pointer.startswith("/params") for pointer, _ in problems):
            return None  # a param that is at fault would be called missing as well
        merged = {**self._shared, **params} if params else self._shared
        faults = len(problems)
        if size > self._surely_small:
            self._check_size(merged, problems)
        if self._has_conditions or not self._needed <= merged.keys() or None in merged.values():
            missing: dict[str, None] = {}
            for part in self._parts.values():
                missing.update(dict.fromkeys(part.template.missing(merged)))
            problems.extend(("/params", f"lacks {name}, which the template needs") for name in missing)
        if len(problems) > faults:
            return None
        if self._channel is Channel.SMS:
            return self._count_segments(merged, problems)
        if self._names_subject and has_header_hazard(self._parts["subject"].template.render(merged)):
            problems.append(("/params", "make a subject with a line end or an encoded word in it"))
        if self._begins_links:
            names = self._parts["html"].template.not_links(merged)
            problems.extend(("/params", f"let {name} begin a link that is not {LINK_SCHEMES}") for name in names)
        return None

    def _check_size(self, merged: dict[str, object], problems: list[tuple[str, str]]) -> None:
        """Refuse what would render into something huge, before it is rendered."""
        sizes = {name: len(show(value)) for name, value in merged.items() if value is not None}
        total = sum(sizes.values())
        if total > MAX_PARAM_CHARS:
            problems.append(("/params", f"hold {total:,} characters in all; at most {MAX_PARAM_CHARS:,} are taken"))
            return
        for key, part in self._parts.items():
            if not part.uses or len(part.source) + total * part.growth * part.most_uses <= self._max_part_chars:
                continue
            bound = len(part.source) + part.growth * sum(size * part.uses[name] for name, size in sizes.items())
            if bound > self._max_part_chars:
                problems.append(
                    ("/params", f"would make a {key} of up to {bound:,} characters; at most {self._max_part_chars:,}")
                )

    def _count_segments(self, merged: dict[str, object], problems: list[tuple[str, str]]) -> int | None:
        part = self._parts.get("text")
        if part is None:
            return None
        if self._plain_segments is not None and not part.template.names:
            return self._plain_segments
        text = part.template.render(merged)
        count = count_segments(text)
        length = count.units if count.encoding == "UCS-2" else len(text)
        if length > self._max_sms_chars:
            problems.append(("", f"makes a text of {length:,} characters; the provider takes {self._max_sms_chars:,}"))
        elif count.segments == 0:
            problems.append(("", "makes an empty text"))
        else:
            self._plain_segments = count.segments
        return count.segments

    def _accept(self, address: str, params: str | None, reference: str | None, segments: int | None) -> AcceptedRow:
        rows = self.rows
        row_no = rows.first_row + rows.count
        rows.count += 1
        if segments:
            rows.segments += segments
        return AcceptedRow(row_no, address, params, reference, segments, None)

    def _refuse(
        self, index: int, raw: Any, problems: list[tuple[str, str]], *, skip_invalid: bool
    ) -> AcceptedRow | None:
        if not skip_invalid:
            base = pointer_to(self._channel.value, "recipients", index)
            for pointer, detail in problems:
                self._faults.add(base + pointer, detail)
            return _NO_ROW
        rows = self.rows
        rows.failed[rows.count // self._batch_size] += 1
        row_no = rows.first_row + rows.count
        rows.count += 1
        reason = "; ".join(f"{pointer.lstrip('/') or 'recipient'}: {detail}" for pointer, detail in problems[:10])
        fields = raw if isinstance(raw, dict) else {}
        return AcceptedRow(
            row_no,
            _storable(fields.get("to"))[:_KEPT_ADDRESS_CHARS],
            None,
            _storable(fields.get("reference"))[:_KEPT_ADDRESS_CHARS] or None,
            None,
            mask_text(_storable(reason), _KEPT_REASON_CHARS),
        )

    def _digest(self, address: str) -> bytes:
        key = dedupe_key(self._channel.value, address)
        return hashlib.blake2b(key.encode("utf-8"), digest_size=_DIGEST_BYTES).digest()

    @staticmethod
    def _parse_email(text: str) -> str:
        return parse_email(text).ascii

    def _parse_phone(self, text: str) -> str:
        return parse_phone(text, self._region)


def _storable(value: object) -> str:
    if not isinstance(value, str):
        return ""
    return value.replace("\0", "�").encode("utf-8", "replace").decode("utf-8")
