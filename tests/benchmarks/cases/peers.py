"""Two queues people use for this, each doing the same job in the same run."""

import json
import sys
from pathlib import Path

from tests.benchmarks.bench import Bench, InstallError, Line
from tests.benchmarks.cases.ceiling import compared
from tests.benchmarks.peers import PROGRAMS, cache_folder, install, job, measure

#: What is installed, by name and version, so that a figure can be had again; undici 8 needs a newer Node than 20.
_NPM = {"bullmq": "6.7.0", "ioredis": "5.11.1", "pg": "8.23.1", "undici": "7.30.2"}
_PIP = ("celery==5.7.0", "redis", "packaging", "requests", "psycopg[binary]>=3.3,<4")
#: Processes, and batches at a time in each: the best of those tried on two cores.
_BULLMQ = (1, 12)
_CELERY_PROCESSES = 8


def peer_bullmq(bench: Bench) -> Line:
    """BullMQ, 25 recipients a job, their calls in parallel, one UPDATE per batch."""
    count = bench.size(20_000, 2_000)
    folder = cache_folder("bullmq")
    modules = _npm_install(folder)

    def run() -> Line:
        with job(bench, count=count) as work:
            command = ["node", str(PROGRAMS / "bullmq.mjs"), *map(str, _BULLMQ)]
            return measure(bench, work, command, environment=work.environment(JOB_MODULES=str(modules)))

    return {
        "versions": _NPM,
        **compared(bench, bench.repeat("peer_bullmq", run), recipients=count),
    }


def peer_celery(bench: Bench) -> Line:
    """Celery, prefork, one task per recipient; fewer recipients, since it would take minutes."""
    count = bench.size(3_000, 300)
    python = _pip_install(cache_folder("celery"))

    def run() -> Line:
        with job(bench, count=count) as work:
            command = [str(python), str(PROGRAMS / "celery_tasks.py"), str(_CELERY_PROCESSES)]
            return measure(bench, work, command, environment=work.environment())

    return {
        "versions": list(_PIP),
        **compared(bench, bench.repeat("peer_celery", run), recipients=count),
    }


def _npm_install(folder: Path) -> Path:
    wanted = json.dumps(_NPM)
    note = folder / "installed.json"
    if not note.exists() or note.read_text() != wanted:
        (folder / "package.json").write_text(json.dumps({"private": True, "dependencies": _NPM}))
        install(["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts"], folder=folder)
        note.write_text(wanted)
    return folder


def _pip_install(folder: Path) -> Path:
    python = folder / "venv" / "bin" / "python"
    wanted, note = json.dumps([sys.version, *_PIP]), folder / "installed.json"
    if not note.exists() or note.read_text() != wanted:
        install([sys.executable, "-m", "venv", "--clear", "venv"], folder=folder)
        install([str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *_PIP], folder=folder)
        note.write_text(wanted)
    if not python.exists():
        raise InstallError(f"{python} is not there: remove {folder} and try again")
    return python
