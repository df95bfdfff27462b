"""
Make the virtual environment that everything else runs in, or bring it up to date; at once when nothing changed.

Run by the system's Python, so with nothing but the standard library.
"""

import hashlib
import importlib.util
import json
import shutil
import subprocess
import sys
import time
import tomllib
from collections import deque
from pathlib import Path

OLDEST = (3, 11)
CHECKOUT = Path(__file__).resolve().parents[2]
REQUIREMENTS = CHECKOUT / "requirements-dev.txt"
#: s; between two lines of progress where lines cannot be overwritten
PROGRESS_INTERVAL_S = 5.0


def main(folder: Path, *, python_was_chosen: bool) -> None:
    """
    Install what the pinned requirements name into `folder`.

    Args:
        folder: the virtual environment; kept when it works, made anew when it does not.
        python_was_chosen: the person named this interpreter, so an environment of another version is replaced.
    """
    stamp_file = folder / "installed.json"
    present = _version_in(folder)
    wanted = sys.version_info[:2] if python_was_chosen or not present else present
    stamp = json.dumps(
        {
            "python": list(wanted),
            "checkout": str(CHECKOUT),
            "requirements": _digest(),
        }
    )
    if present == wanted and stamp_file.exists() and stamp_file.read_text() == stamp:
        return
    stamp_file.unlink(missing_ok=True)
    if present != wanted:
        _make_environment(folder)
    _install(folder)
    stamp_file.write_text(stamp)


def _version_in(folder: Path) -> "tuple[int, int] | None":
    """Give the version of a working environment with pip that is young enough; None for anything else."""
    code = "import sys, pip; print(*sys.version_info[:2])"
    try:
        answer = subprocess.run(
            [str(folder / "bin" / "python"), "-c", code], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    major, minor = map(int, answer.stdout.split())
    return (major, minor) if (major, minor) >= OLDEST else None


def _make_environment(folder: Path) -> None:
    major, minor = sys.version_info[:2]
    for module in ("venv", "ensurepip"):
        if importlib.util.find_spec(module) is None:
            sys.exit(
                f"This Python has no module {module}, so it cannot make a virtual environment. "
                f"On Debian and Ubuntu: apt install python{major}.{minor}-venv"
            )
    if folder.exists():
        if not (folder / "pyvenv.cfg").exists():
            sys.exit(f"{folder} is there but is no virtual environment: move it away first")
        shutil.rmtree(folder)
    _say(f"==> making the virtual environment {folder} (Python {major}.{minor})\n")
    if subprocess.run([sys.executable, "-m", "venv", str(folder)], check=False).returncode:
        sys.exit("making the virtual environment failed")


def _install(folder: Path) -> None:
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input", "install"]
    total = sum(1 for line in REQUIREMENTS.read_text().splitlines() if "==" in line)
    _say("==> installing the pinned packages (about half a minute, longer on a slow line)\n")
    # Wheels only: building one from source would need compilers and headers.
    _run_pip([*pip, "--only-binary", ":all:", "--requirement", str(REQUIREMENTS)], total)
    # The checkout itself, for the `tidings` command.
    _run_pip([*pip, "--no-deps", "--no-build-isolation", "--editable", str(CHECKOUT)], total=0)


def _run_pip(command: "list[str]", total: int, *, interval_s: float = PROGRESS_INTERVAL_S) -> None:
    """Run pip, showing how far it is on the way to `total` packages; on failure show its last lines and leave."""
    last_lines: deque[str] = deque(maxlen=25)
    on_terminal = sys.stdout.isatty()
    start, end = ("\r", " ") if on_terminal else ("", "\n")
    collected, shown, shown_at = 0, "", time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for line in process.stdout or ():
            last_lines.append(line)
            total -= line.startswith("Ignoring ")  # a pin for another platform
            collected += line.startswith(("Collecting ", "Requirement already satisfied: "))
            if total <= 0:
                continue
            progress = f"    {min(collected, total)} of {total}"
            if line.startswith("Installing collected "):
                _say(f"{start}{progress} fetched, installing them\n")
            elif progress != shown and (on_terminal or time.monotonic() - shown_at > interval_s):
                _say(f"{start}{progress}{end}")
                shown, shown_at = progress, time.monotonic()
    if process.returncode:
        _say("".join(last_lines))
        sys.exit("Installing failed, see above. It needs Linux (glibc) or macOS, and a way to a package index.")


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _digest() -> str:
    """Sum up all that decides what is installed: the pins, and the project's own commands."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    return hashlib.sha256(json.dumps([REQUIREMENTS.read_text(), project]).encode()).hexdigest()


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute(), python_was_chosen=sys.argv[2] in ("command line", "environment"))
