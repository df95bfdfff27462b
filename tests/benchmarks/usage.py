"""CPU time and memory of whole process trees, from /proc. Zeros where there is none (macOS)."""

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

_PROC = Path("/proc")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def tree(root: int) -> list[int]:
    """A process and all that descend from it, without zombies."""
    children: dict[int, list[int]] = defaultdict(list)
    for folder in _PROC.glob("[0-9]*"):
        fields = _stat(int(folder.name))
        if fields and fields[0] != "Z":
            children[int(fields[1])].append(int(folder.name))
    found = [root]
    for pid in found:
        found.extend(children[pid])
    return found


def cpu_s(root: int) -> float:
    """CPU seconds a tree has used so far, children that have ended included."""
    ticks = 0
    for pid in tree(root):
        fields = _stat(pid)
        if fields:
            ticks += sum(map(int, fields[11:15]))  # utime, stime, cutime, cstime
    return ticks / _TICKS_PER_S


def cpu_of(roots: Mapping[str, int]) -> dict[str, float]:
    """CPU seconds so far of each named tree."""
    return {name: cpu_s(pid) for name, pid in roots.items()}


def spent_us(before: Mapping[str, float], after: Mapping[str, float], *, per: int) -> dict[str, int]:
    """Microseconds between two readings, each divided by `per`."""
    return {name: round((after[name] - before[name]) / per * 1e6) for name in before}


def pss_mb(root: int) -> float:
    """Memory of a tree in MB, pages shared by several processes counted once between them (PSS)."""
    return sum(_kilobytes(pid, "smaps_rollup", ["Pss"]) for pid in tree(root)) / 1024


def rss_mb(root: int) -> float:
    """The largest resident size in MB of any single process of a tree."""
    return max(_kilobytes(pid, "status", ["VmRSS"]) for pid in tree(root)) / 1024


def peak_mb(pids: Iterable[int]) -> float:
    """The highest resident size in MB since `forget_peak`, of the process that had the highest."""
    return max(_kilobytes(pid, "status", ["VmHWM"]) for pid in pids) / 1024


def forget_peak(pids: Iterable[int]) -> None:
    """Let the peaks begin at what is resident now. Source: proc_pid_clear_refs(5), value 5."""
    for pid in pids:
        file = _PROC / str(pid) / "clear_refs"
        if file.exists():
            file.write_text("5")


def parent_of(pid: int) -> int:
    """The process that started this one; 0 when it is gone."""
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name: state, parent, …"""
    try:
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _kilobytes(pid: int, file: str, names: list[str]) -> int:
    try:
        lines = (_PROC / str(pid) / file).read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(int(line.split()[1]) for line in lines if line.partition(":")[0] in names)
