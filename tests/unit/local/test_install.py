import sys

import pytest

from admin.local.install import _run_pip

#: As pip writes it: a pin for another platform is ignored, the others are collected.
PIP = """
print("Ignoring colorama: markers 'sys_platform == \\"win32\\"' don't match your environment")
print("Collecting click==8.3.1")
print("Requirement already satisfied: flask==3.1.2 in place")
print("Installing collected packages: click")
"""


def test_the_count_of_packages_ends_at_the_full_count(capsys: pytest.CaptureFixture[str]) -> None:
    _run_pip([sys.executable, "-c", PIP], total=3)

    assert capsys.readouterr().out == "    2 of 2 fetched, installing them\n"


def test_a_count_is_shown_once_however_long_the_next_package_takes(capsys: pytest.CaptureFixture[str]) -> None:
    slow = PIP.replace('print("Requirement', 'print("  Downloading click.whl")\nprint("Requirement')
    _run_pip([sys.executable, "-c", slow], total=3, interval_s=-1.0)

    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.endswith(" of 2")] == ["    0 of 2", "    1 of 2", "    2 of 2"]
