"""Which dead letters of digests a person means by a bulk requeue. Pure."""

import hashlib
from dataclasses import dataclass
from typing import Any

#: What the ledger's operations on notifications say in their filter; those on deliveries say nothing.
TARGET = "notifications"


@dataclass(frozen=True, slots=True)
class DeadLetterFilter:
    """Which dead letters of digest channels. All conditions hold at once; `ids` are those of notifications."""

    ids: tuple[int, ...] = ()
    channel: str | None = None
    tenant: str | None = None
    kind: str | None = None

    def words(self, _kind: object = None) -> str:
        """The filter as a sentence's object, whatever is done to it."""
        if self.ids:
            count = len(self.ids)
            return f"{count:,} {'notification' if count == 1 else 'notifications'} named by id, if dead-lettered"
        parts = ["all dead-lettered notifications"]
        if self.channel:
            parts.append(f"of digest channel {self.channel}")
        if self.tenant:
            parts.append(f"of tenant {self.tenant}")
        if self.kind:
            parts.append(f"of kind {self.kind}")
        return " ".join(parts)

    def as_json(self, _kind: object = None) -> dict[str, Any]:
        """For the ledger; of ids their number and a digest, since the operation's items are the ids themselves."""
        named = "\n".join(str(id_) for id_ in sorted(self.ids))
        return {
            "target": TARGET,
            "ids": {"count": len(self.ids), "sha256": hashlib.sha256(named.encode()).hexdigest()} if self.ids else None,
            "digest_channel": self.channel,
            "tenant": self.tenant,
            "kind": self.kind,
            "words": self.words(),
        }
