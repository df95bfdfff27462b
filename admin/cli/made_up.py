"""Recipients that nobody is, for load tests."""

from typing import Any

#: Area codes of Canada. Source: Canadian Numbering Administrator, which keeps 555-0100 to 555-0199 of each for fiction.
_AREA_CODES = (
    204, 226, 236, 249, 250, 289, 306, 343, 365, 403, 416, 418, 431, 437, 438, 450, 506, 514, 519, 548, 579, 581, 587,
    604, 613, 639, 647, 705, 709, 778, 780, 782, 807, 819, 825, 867, 873, 902, 905,
)  # fmt: skip
#: Recipients of one send by channel; of numbers there are no more, and a repeated one would be dropped as a duplicate.
LARGEST_SEND = {"email": 10_000, "sms": 100 * len(_AREA_CODES)}


def made_up_send(channel: str, *, first: int, count: int) -> dict[str, Any]:
    """A submission to recipients number `first` and following, each different."""
    numbers = range(first, first + count)
    if channel == "sms":
        people = [{"to": _phone(number), "params": {"name": f"Person {number}"}} for number in numbers]
        content: dict[str, Any] = {"text": "Hello {{ name }}, this is a load test.", "recipients": people}
    else:
        people = [{"to": f"load-{number:07}@example.com", "params": {"name": f"Person {number}"}} for number in numbers]
        content = {
            "from": "Load test <loadtest@example.com>",
            "subject": "Load test for {{ name }}",
            "text": "Hello {{ name }},\n\nthis is a load test.\n",
            "recipients": people,
        }
    return {"name": "load test", channel: content}


def _phone(number: int) -> str:
    return f"+1{_AREA_CODES[number // 100 % len(_AREA_CODES)]}55501{number % 100:02}"
