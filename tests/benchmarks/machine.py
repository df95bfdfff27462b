"""What the figures depend on: the machine, its disk, the versions, the code measured."""

import os
import platform
import statistics
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

_PACKAGES = ("dramatiq", "psycopg", "pycurl", "flask", "gunicorn")
_CHECKOUT = Path(__file__).resolve().parents[2]


def facts(folder: Path) -> dict[str, object]:
    """The machine as it is now; `folder` is where the databases will be."""
    return {
        "cpu": _cpu_name(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_mb": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20,
        "system": f"{platform.system()} {platform.release()}",
        "load_before": round(os.getloadavg()[0], 2),
        "flush_ms": flush_ms(folder),
        "python": platform.python_version(),
        "commit": _commit(),
        "user": "root" if os.geteuid() == 0 else "ordinary",
        **{package: version(package) for package in _PACKAGES},
    }


def flush_ms(folder: Path) -> float:
    """Median milliseconds to write 8 kB and have it on the disk: what every commit waits for."""
    taken = []
    path = folder / "flush.probe"
    with path.open("wb", buffering=0) as file:
        for _ in range(50):
            started = time.perf_counter()
            file.write(bytes(8192))
            os.fsync(file.fileno())
            taken.append(time.perf_counter() - started)
    path.unlink()
    return round(statistics.median(taken) * 1000, 2)


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _commit() -> str:
    """The commit measured, with a + when files differ from it; empty outside a repository."""
    words = ["git", "-c", f"safe.directory={_CHECKOUT}", "describe", "--always", "--dirty=+", "--abbrev=10"]
    try:
        return subprocess.run(words, cwd=_CHECKOUT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def say(text: str) -> None:
    """Progress, for the person who waits; the results alone go to stdout."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)
