"""
How each provider lets an unknown outcome be found out, in numbers.

The adapters declare these as theirs; recovery reads them here for the calls of workers that died.
"""

from shared.domain.proof import Callback, Lookup, Nothing, Replay

#: seconds for which Azure answers a repeat as it answered first: one minute below its 5, for clocks that differ.
#: Source: OASIS Repeatable Requests 1.0; learn.microsoft.com/rest/api/communication (repeatable requests).
ACS_WINDOW_S = 240.0
#: seconds after a call for which Azure's delivery report may come; most come within one minute.
_ACS_REPORT_WAIT_S = 600.0

#: A relay does not tell what it took.
SMTP = Nothing()
#: Ten minutes: callbacks of the first states come within seconds, and are repeated once.
TWILIO = Callback(wait_s=600.0)
#: Quick, so that one can watch it; everything is in one database, so absence counts soon.
SANDBOX = Lookup(waits_s=(5.0, 10.0, 10.0), absent_after_s=15.0)


def ches(timeout_s: float) -> Lookup:
    """
    CHES, for calls with this total time.

    Requests pile up inside it and are worked off long after their callers left: absence counts ten minutes after the
    call at the earliest, and five times its timeout.
    """
    return Lookup(waits_s=(30.0, 90.0, 480.0), absent_after_s=max(600.0, 5 * timeout_s))


def acs(*, reports: bool) -> Replay:
    """Azure; `reports` says that its delivery reports reach us."""
    return Replay(window_s=ACS_WINDOW_S, wait_s=_ACS_REPORT_WAIT_S if reports else ACS_WINDOW_S)
