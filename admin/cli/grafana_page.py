"""docs/grafana/tidings.json, made by `tidings docs`: what goes through, what it goes through, and the detail."""

import json
from collections.abc import Sequence
from typing import Any

_HEIGHT, _WIDTH = 8, 24
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_CHANNEL = 'channel=~"$channel"'
_PROVIDER = 'provider=~"$provider"'
_QUEUE = 'queue=~"$queue"'
_FAILED = f'tidings_deliveries_total{{{_CHANNEL},outcome=~"failed|dead_lettered"}}'
_ENDED = f'tidings_deliveries_total{{{_CHANNEL},outcome=~"sent|failed|dead_lettered"}}'


def _sum(by: str, labels: str, query: str) -> str:
    """Sum series that have these labels. Every web process tells the same: scraped together they count once."""
    return f"sum by ({by}) (max by ({labels}) ({query}))"


_OUTCOMES = "channel, provider, outcome"
_TOOK = _sum(
    "channel, le",
    "channel, provider, le",
    f"rate(tidings_delivery_seconds_bucket{{{_CHANNEL},{_PROVIDER}}}[15m])",
)
#: Rate on the left, latency on the right: rows of panels are (title, unit, [(query, legend)]).
_ROWS: Sequence[tuple[str, Sequence[tuple[str, str, Sequence[tuple[str, str]]]]]] = (
    (
        "What goes through (rate, errors, duration)",
        (
            (
                "Accepted and sent per second",
                "cps",
                (
                    (
                        f"max by (channel) (rate(tidings_deliveries_accepted_total{{{_CHANNEL}}}[5m]))",
                        "{{channel}} accepted",
                    ),
                    (
                        _sum(
                            "channel",
                            _OUTCOMES,
                            f'rate(tidings_deliveries_total{{{_CHANNEL},outcome="sent"}}[5m])',
                        ),
                        "{{channel}} sent",
                    ),
                ),
            ),
            (
                "Share that failed",
                "percentunit",
                (
                    (
                        _sum("channel", _OUTCOMES, f"increase({_FAILED}[15m])")
                        + " / "
                        + _sum("channel", _OUTCOMES, f"increase({_ENDED}[15m])"),
                        "{{channel}}",
                    ),
                ),
            ),
            (
                "Delivery time",
                "s",
                (
                    (f"histogram_quantile(0.5, {_TOOK})", "{{channel}} median"),
                    (f"histogram_quantile(0.95, {_TOOK})", "{{channel}} 95 %"),
                ),
            ),
        ),
    ),
    (
        "What it goes through (use, saturation, errors)",
        (
            ("Due", "short", ((f"max by (channel, lane) (tidings_due{{{_CHANNEL}}})", "{{channel}} {{lane}}"),)),
            (
                "Calls in flight against the cap",
                "percentunit",
                ((f"tidings_provider_in_flight{{{_PROVIDER}}} / tidings_provider_cap{{{_PROVIDER}}}", "{{provider}}"),),
            ),
            (
                "Oldest due",
                "s",
                ((f"max by (channel) (tidings_oldest_due_age_seconds{{{_CHANNEL}}})", "{{channel}}"),),
            ),
            (
                "Threads with a message",
                "percentunit",
                (("tidings_worker_busy_threads / tidings_worker_threads", "{{kind}}"),),
            ),
            (
                "Circuits open, held, not configured",
                "short",
                (
                    (f'tidings_provider_circuit{{{_PROVIDER},state!="closed"}}', "{{provider}} {{state}}"),
                    (f"tidings_provider_held_since_timestamp_seconds{{{_PROVIDER}}} > bool 0", "{{provider}} held"),
                    (f"tidings_provider_not_configured{{{_PROVIDER}}}", "{{provider}} not configured"),
                ),
            ),
            (
                "Age of pass, tick and beats",
                "s",
                (
                    ("tidings_reconciler_last_pass_age_seconds", "reconciler"),
                    ("tidings_clock_tick_age_seconds", "clock"),
                    ("tidings_worker_heartbeat_age_seconds", "{{kind}}"),
                ),
            ),
        ),
    ),
    (
        "Detail",
        (
            (
                "Outcomes per second",
                "cps",
                (
                    (
                        _sum(
                            "provider, outcome",
                            _OUTCOMES,
                            f"rate(tidings_deliveries_total{{{_CHANNEL},{_PROVIDER}}}[5m])",
                        ),
                        "{{provider}} {{outcome}}",
                    ),
                ),
            ),
            (
                "Retried and throttled per second",
                "cps",
                (
                    (
                        _sum("provider", "channel, provider", f"rate(tidings_retries_total{{{_PROVIDER}}}[5m])"),
                        "{{provider}} retried",
                    ),
                    (
                        _sum("provider", "channel, provider", f"rate(tidings_throttled_total{{{_PROVIDER}}}[5m])"),
                        "{{provider}} throttled",
                    ),
                ),
            ),
            (
                "Messages on queues",
                "short",
                ((f"tidings_queue_messages{{{_QUEUE}}}", "{{queue}} {{state}}"),),
            ),
            (
                "Messages in and out per minute",
                "short",
                ((f"tidings_queue_messages_per_minute{{{_QUEUE}}}", "{{queue}} {{way}}"),),
            ),
            (
                "Open failures",
                "short",
                (("tidings_dead_letters", "dead letters"), ("tidings_unsure", "unsure")),
            ),
            (
                "Recoveries of the last hour",
                "short",
                (('tidings_recoveries_last_hour{result!="found"}', "{{kind}} {{result}}"),),
            ),
            (
                "Notifications told and tries that failed, per second",
                "cps",
                (
                    (
                        _sum("channel", "channel, kind", "rate(tidings_notifications_sent_total[5m])"),
                        "{{channel}} told",
                    ),
                    (
                        _sum(
                            "channel, reason",
                            "channel, kind, reason",
                            "rate(tidings_notifications_failed_total[5m])",
                        ),
                        "{{channel}} {{reason}}",
                    ),
                ),
            ),
            (
                "Notifications that wait, and channels that refuse us",
                "short",
                (
                    (_sum("channel", "channel, kind", "tidings_notifications_pending"), "{{channel}} waiting"),
                    ("tidings_digest_channel_not_configured", "{{channel}} refuses"),
                ),
            ),
            (
                "Wait for a slot, 95 %",
                "s",
                ((f"tidings_provider_slot_wait_seconds{{{_PROVIDER}}}", "{{provider}}"),),
            ),
            ("Redis memory", "bytes", (("tidings_redis_memory_used_bytes", "used"),)),
            ("Warnings on the pages", "short", (("tidings_warnings > 0", "{{rule}}"),)),
        ),
    ),
)  # fmt: skip


def grafana_page() -> str:
    """The whole dashboard, for Grafana's import."""
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in _ROWS:
        panels.append(
            {"id": len(panels) + 1, "type": "row", "title": title, "collapsed": False, "panels": [],
             "gridPos": {"h": 1, "w": _WIDTH, "x": 0, "y": y}}
        )  # fmt: skip
        y += 1
        across = 3 if len(row) % 3 == 0 else 2
        width = _WIDTH // across
        for number, (name, unit, queries) in enumerate(row):
            x = width * (number % across)
            panels.append(_panel(len(panels) + 1, name, unit, queries, x=x, y=y, width=width))
            y += _HEIGHT if number % across == across - 1 or number == len(row) - 1 else 0
    dashboard = {
        "uid": "tidings", "title": "Tidings", "tags": ["tidings"], "timezone": "utc", "schemaVersion": 39, "version": 1,
        "refresh": "30s", "time": {"from": "now-6h", "to": "now"}, "editable": True, "graphTooltip": 1,
        "templating": {"list": [
            {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"},
            _variable("channel", "tidings_due"), _variable("provider", "tidings_provider_circuit"),
            _variable("queue", "tidings_queue_messages"),
        ]},
        "panels": panels,
    }  # fmt: skip
    return json.dumps(dashboard, indent=1) + "\n"


def _panel(
    id_: int, title: str, unit: str, queries: Sequence[tuple[str, str]], *, x: int, y: int, width: int
) -> dict[str, Any]:
    return {
        "id": id_, "type": "timeseries", "title": title, "datasource": _SOURCE,
        "gridPos": {"h": _HEIGHT, "w": width, "x": x, "y": y},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {"refId": chr(ord("A") + number), "datasource": _SOURCE, "expr": query, "legendFormat": legend}
            for number, (query, legend) in enumerate(queries)
        ],
    }  # fmt: skip


def _variable(name: str, metric: str) -> dict[str, Any]:
    return {
        "name": name, "label": name.capitalize(), "type": "query", "datasource": _SOURCE, "refresh": 2, "multi": True,
        "includeAll": True, "allValue": ".*", "current": {"text": "All", "value": "$__all"},
        "query": {"query": f"label_values({metric}, {name})", "refId": "A"},
    }  # fmt: skip
