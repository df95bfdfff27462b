"""Celery as it is mostly used for this: one task per recipient, prefork. Runs in an environment of its own."""

import json
import os
import sys
import time
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


def enqueue(first: int, last: int) -> None:
    with app.producer_pool.acquire() as producer:
        for number in range(first, last + 1):
            deliver.apply_async((number,), producer=producer)


def main() -> None:
    processes = sys.argv[1]
    if os.fork() == 0:
        quiet = ["--loglevel", "ERROR", "--without-gossip", "--without-mingle"]
        app.worker_main(["worker", "--pool", "prefork", "--concurrency", processes, *quiet])
        return
    count, warm_up = int(_ENV["JOB_COUNT"]), int(_ENV["JOB_WARM_UP"])
    enqueue(count + 1, count + warm_up)
    with psycopg.connect(_ENV["JOB_DATABASE_URL"], autocommit=True) as postgres:
        left = "SELECT FROM job WHERE id > %s AND status <> 'sent' LIMIT 1"
        while postgres.execute(left, [count]).fetchone() is not None:
            time.sleep(0.05)
    print("READY", flush=True)
    sys.stdin.readline()
    enqueue(1, count)
    os.wait()


if __name__ == "__main__":
    main()
