"""
A process that contends for a provider's guards: `python -m …contender URL NAMESPACE ROLE`.

It says "ready", waits for a line on its input, then does its role, saying one word per line.
"""

import os
import signal
import sys
import time

from shared.coordination.circuit import Admitted, Circuit, Probe
from shared.coordination.circuit_snapshot import CircuitPolicy
from shared.coordination.guard import Entered, Guards
from shared.coordination.redis import RedisLink
from shared.domain.states import Lane

#: The prober answers when the test says so; one that dies is waited for.
POLICY = CircuitPolicy(open_s=0.2, probe_lease_s=5.0)
DYING = CircuitPolicy(open_s=0.2, probe_lease_s=1.0)
CAP = 3


def probe_once(circuit: Circuit, *, die: bool) -> None:
    """Ask until the circuit is closed; say "probe" for every probe, and decide nothing until told."""
    while True:
        permit = circuit.admit()
        match permit:
            case Probe() if die:
                say("probe")
                os.kill(os.getpid(), signal.SIGKILL)
            case Probe():
                say("probe")
                success = sys.stdin.readline().strip() == "success"
                circuit.report(permit, successes=int(success), failures=int(not success))
            case Admitted():
                say("closed")
                return
            case _:
                time.sleep(0.005)


def fill_slots(guards: Guards) -> None:
    """Take and give back slots for a second; say how many calls began and ended, with the times."""
    until = time.monotonic() + 1.0
    while time.monotonic() < until:
        answer = guards.enter(Lane.SINGLE, 2)
        if isinstance(answer, Entered):
            began = time.monotonic_ns()
            time.sleep(0.002)
            ended = time.monotonic_ns()
            guards.leave(answer, successes=answer.slots)
            say(f"{began} {ended} {answer.slots}")
        else:
            time.sleep(0.001)


def say(word: str) -> None:
    sys.stdout.write(word + "\n")
    sys.stdout.flush()


def main(url: str, namespace: str, role: str) -> None:
    """Play the role."""
    link = RedisLink(url, timeout_s=5.0)
    say("ready")
    sys.stdin.readline()
    if role == "slots":
        fill_slots(Guards(link, provider="ches", credential="a1", cap=CAP, namespace=namespace))
    else:
        policy = DYING if role == "die" else POLICY
        circuit = Circuit(link, provider="ches", credential="a1", policy=policy, namespace=namespace)
        probe_once(circuit, die=role == "die")


if __name__ == "__main__":
    main(*sys.argv[1:])
