"""Celery as it is mostly used for this: one task per recipient, prefork. Runs in an environment of its own."""

import json
import os
import sys
from uuid import uuid4

import celery
import psycopg
import requests

_ENV = os.environ  # noqa: TID251
app = celery.Celery("celery_tasks", broker=_ENV["JOB_REDIS_URL"])
app.conf.update(task_ignore_result=True, worker_prefetch_multiplier=8, task_acks_late=True)
_kept: dict[str, object] = {}


def _tools() -> "tuple[psycopg.Connection, requests.Session]":
    if not _kept:
        _kept["postgres"] = psycopg.connect(_ENV["JOB_DATABASE_URL"], autocommit=True)
        _kept["http"] = requests.Session()
    return _kept["postgres"], _kept["http"]  # type: ignore[return-value]


@app.task
def deliver(number: int) -> None:
    postgres, http = _tools()
    address, params = postgres.execute("SELECT address, params FROM job WHERE id = %s", [number]).fetchone()
    text = _ENV["JOB_TEXT"].replace("{{ name }}", params["name"]).replace("{{ code }}", params["code"])
    body = {"from": "news@example.com", "to": [address], "subject": f"For {params['name']}", "bodyType": "text",
            "body": text, "encoding": "utf-8", "priority": "normal", "tag": str(uuid4())}  # fmt: skip
    answer = http.post(
        _ENV["JOB_SINK_URL"], data=json.dumps(body), headers={"Content-Type": "application/json"}, timeout=60
    )
    answer.raise_for_status()
    ref = answer.json()["messages"][0]["msgId"]
    postgres.execute(
        "UPDATE job SET status = 'sent', ref = %s, sent_at = clock_timestamp() WHERE id = %s", [ref, number]
    )


def main() -> None:
    worker = ["worker", "--pool", "prefork", "--concurrency", sys.argv[1], "--loglevel", "ERROR", "--without-gossip"]
    if os.fork() == 0:
        app.worker_main([*worker, "--without-mingle"])
        return
    deliver.app.control.ping(timeout=10)
    while not app.control.ping(timeout=1):
        pass
    print("READY", flush=True)
    sys.stdin.readline()
    with app.producer_pool.acquire() as producer:
        for number in range(1, int(_ENV["JOB_COUNT"]) + 1):
            deliver.apply_async((number,), producer=producer)
    os.wait()


if __name__ == "__main__":
    main()
