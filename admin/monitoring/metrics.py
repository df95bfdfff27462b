"""`/metrics`: the snapshot for Prometheus, the same from any web process, whoever scrapes and however often."""

import secrets
from collections.abc import Iterator

from flask import Blueprint, Response, request
from prometheus_client.core import CollectorRegistry, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from admin.errors import ProblemError
from admin.monitoring.frame import BlindError, current_snapshot
from admin.monitoring.metric_families import FAMILIES
from admin.monitoring.snapshot import Snapshot
from shared.domain.health_facts import Facts
from shared.settings import Settings


class SnapshotCollector(Collector):
    """The families of one snapshot, as of its moment: two processes that have the same one say the same."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._facts = Facts(snapshot.document, snapshot.at)

    def collect(self) -> Iterator[Metric]:
        """Give every family that can be told now."""
        for family in FAMILIES:
            yield from family(self._facts)


def blueprint(settings: Settings) -> Blueprint:
    """The one address; nothing of a tenant or a recipient is behind it."""
    door = Blueprint("metrics", __name__)
    token = settings.metrics_token.get_secret_value().encode() if settings.metrics_token else None

    @door.get("/metrics")
    def metrics() -> Response:
        if token is not None:
            given = request.headers.get("Authorization", "").removeprefix("Bearer ").encode()
            if not secrets.compare_digest(given, token):
                raise ProblemError(401, "unauthorized", "The metrics need METRICS_TOKEN as a bearer token.")
        try:
            snapshot = current_snapshot()
        except BlindError:
            raise ProblemError(503, "stores-away", "Neither Postgres nor Redis answers.") from None
        registry = CollectorRegistry()
        registry.register(SnapshotCollector(snapshot))
        encode, kind = choose_encoder(request.headers.get("Accept", ""))
        return Response(encode(registry), content_type=kind, headers={"Cache-Control": "no-store"})

    return door
