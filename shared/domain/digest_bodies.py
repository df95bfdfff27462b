"""A digest in the words of each kind of channel. Everything here came from outside and is text, never markup."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shared.domain.digests import Digest, Item, Severity, in_order

#: Bytes of a webhook's document above which details are left out. Source: Standard Webhooks ("below 20 kB").
_WEBHOOK_BYTES = 20_000
#: Bytes of a message; a longer one becomes an attachment. Source: ntfy's documentation, "limitations".
_NTFY_BYTES = 4_096
#: Characters of one section and sections of a message. Source: Slack's Block Kit reference.
_SLACK_SECTION, _SLACK_BLOCKS = 3_000, 50
#: Bytes of a card. Source: Microsoft Teams, "limits and specifications" of incoming webhooks (28 KB).
_TEAMS_BYTES = 28_000
#: Characters of a line in chats and pushes: fifty of them fit a Teams card as long as most are ASCII.
_LINE = 160

_NTFY_PRIORITY = {
    Severity.INFO: 2, Severity.LOW: 3, Severity.MEDIUM: 3, Severity.HIGH: 4, Severity.CRITICAL: 5,
}  # fmt: skip
_GOTIFY_PRIORITY = {
    Severity.INFO: 2, Severity.LOW: 4, Severity.MEDIUM: 5, Severity.HIGH: 7, Severity.CRITICAL: 9,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class EmailDigest:
    """Templates of ours, and what came from outside as params: a value is never expanded as a template."""

    subject: str
    text: str
    html: str
    params: dict[str, str]


def webhook_document(digest: Digest) -> bytes:
    """The JSON of a generic webhook; the same bytes whenever the same digest is repeated."""
    document = _webhook(digest, details=True)
    if len(document) > _WEBHOOK_BYTES and any(item.details for item in digest.items):
        return _webhook(digest, details=False)
    return document


def ntfy_document(digest: Digest, topic: str) -> bytes:
    """The JSON that ntfy takes at its root."""
    return _json(
        topic=topic,
        title=f"{digest.channel}: {digest.title}",
        message=_fit(digest, _NTFY_BYTES),
        priority=_NTFY_PRIORITY[_worst(digest)],
    )


def gotify_document(digest: Digest) -> bytes:
    """The JSON of a Gotify message."""
    return _json(
        title=f"{digest.channel}: {digest.title}",
        message="\n".join(_lines(digest)),
        priority=_GOTIFY_PRIORITY[_worst(digest)],
    )


def slack_document(digest: Digest) -> bytes:
    """The JSON of a Slack incoming webhook."""
    title = f"*{_slack(digest.channel)}*: {_slack(digest.title)}"
    sections = [title]
    for line in map(_slack, _lines(digest)):
        if len(sections) == 1 or len(sections[-1]) + len(line) + 1 > _SLACK_SECTION:
            sections.append(line)
        else:
            sections[-1] += f"\n{line}"
    blocks = [{"type": "section", "text": {"type": "mrkdwn", "text": text}} for text in sections[:_SLACK_BLOCKS]]
    return _json(text=title, blocks=blocks)


def teams_document(digest: Digest) -> bytes:
    """The JSON of a Teams workflow: an adaptive card of runs of text, which are never read as markup."""
    lines = _lines(digest)
    document = _card(digest, lines)
    if (over := len(document) - _TEAMS_BYTES) > 0:
        share = (sum(len(line.encode()) for line in lines) - over) // len(lines)
        document = _card(digest, _each_within(lines, share))
    return document


def _card(digest: Digest, lines: Sequence[str]) -> bytes:
    rows = [_run(f"{digest.channel}: {digest.title}", weight="Bolder"), *map(_run, lines)]
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": rows,
    }
    kind = "application/vnd.microsoft.card.adaptive"
    return _json(type="message", attachments=[{"contentType": kind, "content": card}])


def email_digest(digest: Digest) -> EmailDigest:
    """A digest as an e-mail, in text and html."""
    params = {"channel": digest.channel, "title": digest.title, "rest": _rest(digest)}
    text, rows = ["{{ channel }}: {{ title }}", ""], []
    for number, item in enumerate(in_order(digest.items), start=1):
        severity, kind, subject = f"severity_{number}", f"kind_{number}", f"subject_{number}"
        said = f"{item.subject} (over by now)" if item.over else item.subject
        params |= {severity: item.severity.value, kind: item.kind, subject: said}
        text.append(f"[{{{{ {severity} }}}}] {{{{ {kind} }}}}: {{{{ {subject} }}}}")
        rows.append(f"<tr><td>{{{{ {severity} }}}}</td><td>{{{{ {kind} }}}}</td><td>{{{{ {subject} }}}}</td></tr>")
    if digest.left:
        text += ["", "{{ rest }}"]
    html = (
        "<h1>{{ channel }}: {{ title }}</h1><table><tr><th>severity</th><th>kind</th><th>what</th></tr>"
        f"{''.join(rows)}</table>{'<p>{{ rest }}</p>' if digest.left else ''}"
    )
    return EmailDigest("{{ channel }}: {{ title }}", "\n".join(text), html, params)


def line_of(item: Item) -> str:
    """One item on one line."""
    line = f"[{item.severity.value}] {item.kind}: {item.subject}"
    if len(line) > _LINE:
        line = line[: _LINE - 1] + "…"
    return f"{line} (over by now)" if item.over else line


def _webhook(digest: Digest, *, details: bool) -> bytes:
    return _json(
        type="digest",
        timestamp=digest.created_at.isoformat(),
        data={
            "id": str(digest.id),
            "channel": digest.channel,
            "items": [_as_json(item, details=details) for item in in_order(digest.items)],
            "left": digest.left,
        },
    )


def _as_json(item: Item, *, details: bool) -> dict[str, Any]:
    return {
        "dedup_key": item.dedup_key,
        "kind": item.kind,
        "subject": item.subject,
        "severity": item.severity.value,
        "occurred_at": item.occurred_at.isoformat(),
        "finding": item.finding,
        "over": item.over,
        **({"details": item.details} if details else {"details_left_out": True} if item.details else {"details": None}),
    }


def _lines(digest: Digest) -> Sequence[str]:
    lines = [line_of(item) for item in in_order(digest.items)]
    return [*lines, _rest(digest)] if digest.left else lines


def _fit(digest: Digest, most_bytes: int) -> str:
    """Every item on a line, each cut so far that the whole fits."""
    lines = _lines(digest)
    share = most_bytes // len(lines) - 1
    if sum(len(line.encode()) + 1 for line in lines) <= most_bytes:
        return "\n".join(lines)
    return "\n".join(_each_within(lines, share))


def _each_within(lines: Sequence[str], most_bytes: int) -> Sequence[str]:
    return [line if len(line.encode()) <= most_bytes else _cut(line, most_bytes) for line in lines]


def _cut(line: str, most_bytes: int) -> str:
    mark = "…"
    return line.encode()[: most_bytes - len(mark.encode())].decode("utf-8", "ignore") + mark


def _rest(digest: Digest) -> str:
    return f"and {digest.left:,} more, in later messages"


def _worst(digest: Digest) -> Severity:
    return max((item.severity for item in digest.items), key=lambda severity: severity.rank)


def _slack(text: str) -> str:
    # Source: Slack, "formatting text for app surfaces": these three are the only control characters.
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _run(text: str, **style: str) -> dict[str, Any]:
    return {"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": text, **style}]}


def _json(**document: Any) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"), default=float).encode()
