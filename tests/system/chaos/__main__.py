"""
The fault suite: `make chaos`, or `make chaos SCENARIO=kills SEED=7 TIMES=3 LENGTH=short`.

    python -m tests.system.chaos [--scenario NAME …] [--seed SEED] [--times N] [--length short|full] [--list]
"""

import argparse
import math
import sys
import time

from admin.local.tether import Tether
from tests.system.chaos.events import say
from tests.system.chaos.run import run_all
from tests.system.chaos.scenario import SCENARIOS, Size
from tests.system.chaos.verdict import as_line


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenario", action="append", choices=sorted(SCENARIOS), help="default: all")
    parser.add_argument("--seed", default=str(int(time.time())), help="decides every schedule; default: the time")
    parser.add_argument("--times", type=int, default=1, help="how often, with seeds SEED, SEED.2, …")
    parser.add_argument("--length", choices=("short", "full"), default="full")
    parser.add_argument("--patience", type=float, default=math.inf, help="shortens every wait for the end, seconds")
    parser.add_argument("--list", action="store_true", help="say what there is")
    asked = parser.parse_args()
    if asked.list:
        for each in SCENARIOS.values():
            print(f"{each.name:28} {each.summary}")
        return 0
    size = Size(full=asked.length == "full")
    failed = 0
    tether = Tether()
    try:
        for n in range(asked.times):
            seed = asked.seed if n == 0 else f"{asked.seed}.{n + 1}"
            for ended in run_all(
                tether, asked.scenario or list(SCENARIOS), seed=seed, size=size, patience_s=asked.patience
            ):
                if ended.found is not None:
                    print(f"passed {ended.scenario.name} SEED={seed} {as_line(ended.found)}", flush=True)
                else:
                    failed += 1
                    print(f"FAILED {ended.scenario.name} SEED={seed}\n{ended.fault}", flush=True)
    finally:
        tether.close()
    say(f"{failed} failed" if failed else "all passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
