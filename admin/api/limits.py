"""The limits of API v1 that are no settings: each is far above honest use, and is named when it is met."""

from typing import Final

#: Characters of a send's name.
MAX_NAME_CHARS: Final = 200
#: Characters of a recipient's reference.
MAX_REFERENCE_CHARS: Final = 255
#: Params of one recipient, and of a send.
MAX_PARAMS: Final = 1_000
#: Characters of all params of one recipient together with those of its send.
MAX_PARAM_CHARS: Final = 262_144
#: Characters of the JSON of one recipient, about: the largest params, every character of them escaped.
MAX_RECIPIENT_CHARS: Final = 2 * 1024 * 1024
#: Characters of the JSON of everything but the recipients, templates apart, and of any one value in it.
MAX_HEADER_CHARS: Final = 4 * 1024 * 1024
#: Fields of an object that are looked at one by one; no object of ours has a tenth of it.
MAX_FIELDS: Final = 100
#: Objects and lists within each other in a body; what reads them again later goes no deeper than 255.
MAX_DEPTH: Final = 32
#: Characters of an Idempotency-Key.
MAX_IDEMPOTENCY_KEY_CHARS: Final = 255
#: Bytes of a body that is not a submission.
MAX_SMALL_BODY_BYTES: Final = 64 * 1024
#: Entries of a page: unless asked, and at most.
DEFAULT_PAGE, MAX_PAGE = 100, 1_000

#: Characters (UTF-16 units) of an SMS by provider. Source: Twilio error 21617 (1,600 characters), ACS quotas
#: and limits for SMS (2,048 characters). Without a provider the smaller limit holds, so that choosing one later
#: fails nobody.
SMS_MAX_CHARS: Final = {"twilio": 1_600, "acs": 2_048, "sandbox": 1_600, "none": 1_600}
