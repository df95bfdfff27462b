"""
Read a large JSON document in a bounded amount of memory, at the speed of the standard library's C scanner.

The text is decoded piece by piece into a buffer that slides over the file. Objects and arrays that may be large
are entered by hand; every other value is scanned whole by `json`'s own scanner, so that what is accepted
is what `json.loads` accepts, less NaN and Infinity, which RFC 8259 does not know. An object that repeats a key
comes back as `Repeated`. Why no streaming parser from elsewhere: ADR-0006.
"""

import codecs
import json
import re
from collections.abc import Callable, Iterator
from decimal import Decimal, InvalidOperation
from typing import IO, Any, NoReturn

#: Bytes read at a time.
_PIECE = 256 * 1024
#: Characters before the end of the buffer at which a fault may only mean that the value goes on: the longest
#: token that is not a string is `-Infinity`, and a number may continue anywhere.
_MARGIN = 16
#: Characters consumed before the buffer is cut: cutting copies what is left.
_CUT = 1024 * 1024
_SPACE = re.compile(r"[ \t\n\r]*")
_COMMA = re.compile(r"[ \t\n\r]*,[ \t\n\r]*")


class JsonError(ValueError):
    """The document is not JSON, or a value is larger than it may be. `line` and `column` count from 1."""

    def __init__(self, detail: str, *, line: int, column: int) -> None:
        super().__init__(detail)
        self.detail = detail
        self.line = line
        self.column = column


class Repeated(dict[str, Any]):
    """An object in which a key occurs twice; JSON leaves the meaning open, so nobody should guess. RFC 8259 §4."""

    key: str = ""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) == len(pairs):
        return made
    seen: set[str] = set()
    repeated = Repeated(made)
    for key, _ in pairs:
        if key in seen:
            repeated.key = key
            break
        seen.add(key)
    return repeated


class _ConstantError(ValueError):
    """NaN, Infinity or -Infinity."""


def _refuse_constant(name: str) -> NoReturn:
    raise _ConstantError(name)


_SCAN: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=Decimal, parse_constant=_refuse_constant
).scan_once  # type: ignore[attr-defined]  # JSONDecoder sets it in __init__


class JsonReader:
    """
    A cursor over one document, from the byte `offset` on.

    `max_value_chars` bounds the text of one value that is scanned whole. Every method raises JsonError.
    """

    def __init__(self, file: IO[bytes], *, max_value_chars: int, offset: int = 0) -> None:
        self._file = file
        self._max_value_chars = max_value_chars
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._buffer = ""
        self._at = 0
        self._ended = False
        self._may_begin_with_mark = offset == 0
        self._bytes_read = offset
        self._lines_cut = 0
        #: Characters of all values and keys scanned so far, elements that came whole apart.
        self.value_chars = 0
        self._column_base = 0  # characters of the current line that were cut away
        file.seek(offset)

    # --- the buffer -----------------------------------------------------------------------------------------

    def _grow(self, least: int = _PIECE) -> bool:
        """Read on; False at the end of the file."""
        if self._ended:
            return False
        if self._at > _CUT:
            self._cut()
        data = self._file.read(least)
        self._bytes_read += len(data)
        self._ended = not data
        try:
            self._buffer += self._decoder.decode(data, self._ended)
        except UnicodeDecodeError as error:
            self._buffer += error.object[: error.start].decode("utf-8")
            self._drop_mark()
            self._fail("the text is not UTF-8 from here on", len(self._buffer))
        self._drop_mark()
        return True

    def _drop_mark(self) -> None:
        """Pass over a byte-order mark, which some editors write. Source: RFC 8259 §8.1 (it may be ignored)."""
        if self._may_begin_with_mark and self._buffer:
            self._may_begin_with_mark = False
            self._buffer = self._buffer.removeprefix("\ufeff")

    def _cut(self) -> None:
        newline = self._buffer.rfind("\n", 0, self._at)
        if newline < 0:
            self._column_base += self._at
        else:
            self._lines_cut += self._buffer.count("\n", 0, self._at)
            self._column_base = self._at - newline - 1
        self._buffer = self._buffer[self._at :]
        self._at = 0

    def _fail(self, detail: str, position: int) -> NoReturn:
        newline = self._buffer.rfind("\n", 0, position)
        line = self._lines_cut + self._buffer.count("\n", 0, position) + 1
        column = position - newline if newline >= 0 else self._column_base + position + 1
        raise JsonError(detail, line=line, column=column)

    def _peek(self) -> str:
        """The next character that is not white space; empty at the end."""
        while True:
            self._at = _SPACE.match(self._buffer, self._at).end()  # type: ignore[union-attr]  # matches empty
            if self._at < len(self._buffer):
                return self._buffer[self._at]
            if not self._grow():
                return ""

    def _take(self, wanted: str, what: str) -> None:
        if self._peek() != wanted:
            self._fail(f"expected {what}", self._at)
        self._at += 1

    # --- values ---------------------------------------------------------------------------------------------

    def value(self) -> Any:
        """Scan the next value whole."""
        self._peek()
        while True:
            try:
                value, end = _SCAN(self._buffer, self._at)
            except StopIteration as stop:
                self._more_or_fail("expected a value", stop.value)
            except json.JSONDecodeError as error:
                self._more_or_fail(error.msg[:1].lower() + error.msg[1:], error.pos)
            except _ConstantError as error:
                self._fail(f"{error} is not JSON; give null or leave the value out", self._at)
            except InvalidOperation:
                self._fail("a number in this value is out of range; give it as text", self._at)
            except RecursionError:
                self._fail("this value is nested too deeply", self._at)
            except ValueError:  # Python refuses to convert integers of more than 4,300 digits
                self._fail("a number in this value has too many digits; give it as text", self._at)
            else:
                if end < len(self._buffer) or self._ended or not self._grow():
                    self.value_chars += end - self._at
                    self._at = end
                    return value

    def _more_or_fail(self, detail: str, position: int) -> None:
        """Read on when the fault may only be the end of the buffer, else raise."""
        unterminated = detail.startswith("unterminated string")
        if not self._ended and (unterminated or position >= len(self._buffer) - _MARGIN):
            if len(self._buffer) - self._at > self._max_value_chars:
                self._fail(f"this value is longer than {self._max_value_chars:,} characters", self._at)
            self._grow(max(_PIECE, len(self._buffer) - self._at))  # doubling: a value is scanned O(log n) times
            return
        self._fail("the text ends within a value" if position >= len(self._buffer) else detail, position)

    def begins_with(self, bracket: str) -> bool:
        """Whether the next value is an object (`{`) or array (`[`)."""
        return self._peek() == bracket

    def offset(self) -> int:
        """The byte at which the next value begins; a reader can be started there."""
        self._peek()
        pending = len(self._decoder.getstate()[0])
        return self._bytes_read - pending - len(self._buffer[self._at :].encode("utf-8", "surrogatepass"))

    def members(self) -> Iterator[str]:
        """Enter an object and give its keys; the caller reads each key's value before asking for the next."""
        self._take("{", "an object")
        if self._peek() == "}":
            self._at += 1
            return
        while True:
            if self._peek() != '"':
                self._fail("expected a key in double quotes", self._at)
            key = self.value()
            self._take(":", "a colon after the key")
            yield key
            if self._peek() == "}":
                self._at += 1
                return
            self._take(",", "a comma or the end of the object")

    def elements(self) -> Iterator[Any]:
        """Enter an array and give its elements, each scanned whole."""
        self._take("[", "an array")
        if self._peek() == "]":
            self._at += 1
            return
        while True:
            yield self._element()
            comma = _COMMA.match(self._buffer, self._at)
            if comma is not None and comma.end() < len(self._buffer):
                self._at = comma.end()  # the short way: the next element has begun
                continue
            if self._peek() == "]":
                self._at += 1
                return
            self._take(",", "a comma or the end of the array")
            self._peek()

    def _element(self) -> Any:
        """`value`, with a shorter way through for the millions of elements that lie whole in the buffer."""
        try:
            value, end = _SCAN(self._buffer, self._at)
        except (StopIteration, ValueError, ArithmeticError, RecursionError):
            return self.value()
        if end >= len(self._buffer):
            return self.value()
        self._at = end
        return value

    def refuse(self, detail: str) -> NoReturn:
        """Raise JsonError for what the caller found here."""
        self._fail(detail, self._at)

    def end(self) -> None:
        """Check that nothing but white space follows."""
        if self._peek():
            self._fail("unexpected text after the document", self._at)
