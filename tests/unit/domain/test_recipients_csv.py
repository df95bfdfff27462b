"""Recipients' lists as people's spreadsheets write them."""

import io
import tracemalloc
from collections.abc import Iterable

import pytest

from shared.domain.csv_text import CsvError, SupportsRead
from shared.domain.recipients_csv import MAX_FAULTS, Channel, CsvRecipient, CsvRecipients, read_recipients

JANE = (2, {"to": "jane@example.com", "params": {"name": "Jane"}})


def read(
    source: str | bytes | SupportsRead | Iterable[str], *, channel: Channel = "email"
) -> tuple[list[tuple[int, CsvRecipient]], CsvRecipients]:
    recipients = read_recipients(source.encode() if isinstance(source, str) else source, channel=channel)
    return list(recipients), recipients


def refused(source: str | bytes, *, channel: Channel = "email") -> CsvError:
    with pytest.raises(CsvError) as caught:
        read(source, channel=channel)
    return caught.value


@pytest.mark.parametrize(
    "source",
    [
        b"\xef\xbb\xbfemail,name\njane@example.com,Jane\n",
        "email,name\njane@example.com,Jane\n".encode("utf-16"),
        "\ufeffemail,name\njane@example.com,Jane\n".encode("utf-16-be"),
        b"email,name\r\njane@example.com,Jane\r\n",
        b"email,name\rjane@example.com,Jane\r",
        b"email;name\njane@example.com;Jane",
        b"email\tname\njane@example.com\tJane",
        b"sep=;\r\nemail;name\r\njane@example.com;Jane",
        b" Email Address , NAME \njane@example.com , Jane \n",
        b"E-MAIL,name\njane@example.com,Jane",
        "E\u00a0mail,\u200bname\n\u00a0jane@example.com,\u00a0Jane".encode(),
        b'"email","name"\n"jane@example.com", "Jane"\n',
        b'name,to\n"Jane","jane@example.com"\n',
        b"email,name,\njane@example.com,Jane,\n",
        b"email,name\njane@example.com,Jane,,,\n",
    ],
)
def test_one_list_in_many_dresses(source: bytes) -> None:
    rows, recipients = read(source)
    assert rows == [JANE]
    assert recipients.faults == []


def test_letters_beyond_ascii_come_through_in_both_encodings() -> None:
    text = "email,name\njané@example.com,Zoë 😀\n"
    assert read(text)[0] == read(text.encode("utf-16"))[0]


def test_text_and_lines_can_be_read_too() -> None:
    lines = ["\ufeffemail,name\n", "jane@example.com,Jane\n"]
    assert list(read_recipients("".join(lines), channel="email")) == [JANE]
    assert list(read_recipients(lines, channel="email")) == [JANE]
    assert list(read_recipients(io.StringIO("".join(lines)), channel="email")) == [JANE]


def test_a_stream_that_gives_a_byte_at_a_time_is_read_and_left_open() -> None:
    class Trickle(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            return super().read(min(size or 1, 1))

    stream = Trickle("email,name\njane@example.com,Jane\n".encode("utf-16"))
    assert read(stream)[0] == [JANE]
    assert not stream.closed


@pytest.mark.parametrize("header", ["phone", "Phone Number", "MOBILE", "mobile-number", "sms", "to", "Cell"])
def test_the_address_column_of_texts_has_its_own_names(header: str) -> None:
    rows, _ = read(f"name,{header}\nJane,+16045550123\n", channel="sms")
    assert rows == [(2, {"to": "+16045550123", "params": {"name": "Jane"}})]


def test_a_column_called_to_is_the_address_whatever_else_there_is() -> None:
    assert read("email,to\nold@example.com,jane@example.com\n")[0] == [
        (2, {"to": "jane@example.com", "params": {"email": "old@example.com"}})
    ]


def test_only_the_wanted_columns_are_carried_and_the_address_can_be_one() -> None:
    recipients = read_recipients(b"email,a,b\njane@example.com,1,2\n", channel="email", names={"b", "email"})
    assert list(recipients) == [(2, {"to": "jane@example.com", "params": {"email": "jane@example.com", "b": "2"}})]


def test_rows_are_numbered_as_a_spreadsheet_numbers_them() -> None:
    source = (
        '\nemail,note\n\na@example.com,"two\nlines"\n,\n"b@example.com",x\r\n   \nc@example.com,"a ""quote"", here"'
    )
    rows, recipients = read(source)
    assert [(number, row["params"]["note"]) for number, row in rows] == [
        (4, "two\nlines"),
        (6, "x"),
        (8, 'a "quote", here'),
    ]
    assert recipients.faults == []


def test_a_short_row_and_an_empty_cell_lack_the_param() -> None:
    rows, recipients = read("email,name,code\na@example.com\nb@example.com,,7\n")
    assert rows == [(2, {"to": "a@example.com", "params": {}}), (3, {"to": "b@example.com", "params": {"code": "7"}})]
    assert recipients.fault_count == 0


def test_a_cell_beyond_the_header_is_a_fault_of_its_row_and_of_no_other() -> None:
    rows, recipients = read("email,name\na@example.com,Doe, Jane\njane@example.com,Jane\n")
    assert [number for number, _ in rows] == [3]
    assert [(fault.row, fault.column) for fault in recipients.faults] == [(2, "C")]
    assert "quotes" in recipients.faults[0].message


def test_a_row_without_an_address_is_named() -> None:
    _, recipients = read("name,email\nJane,\nBob,b@example.com\n")
    assert str(recipients.faults[0]) == "row 2, column B (email): has no address"


def test_a_column_whose_header_is_no_name_is_ignored() -> None:
    assert read("#,email\n1,a@example.com\n")[0] == [(2, {"to": "a@example.com", "params": {}})]


def test_all_faults_are_counted_and_the_first_thousand_kept() -> None:
    rows, recipients = read("email,name\n" + ",x\n" * (MAX_FAULTS + 5) + "a@example.com,x\n")
    assert len(rows) == 1
    assert len(recipients.faults) == MAX_FAULTS
    assert recipients.fault_count == MAX_FAULTS + 5


@pytest.mark.parametrize("source", [b"", b"\xef\xbb\xbf", b"\xff\xfe", b"\n\r\n  \n,,,\n"])
def test_an_empty_file_is_refused(source: bytes) -> None:
    assert "empty" in refused(source).message


@pytest.mark.parametrize("source", [b"email,name", b"email,name\n\n,,,\n  \n"])
def test_a_header_without_recipients_is_refused_instead_of_accepting_none(source: bytes) -> None:
    assert "no recipients" in refused(source).message


def test_an_open_quote_refuses_the_file_and_names_its_row() -> None:
    body = "".join(f"p{n}@example.com,x\n" for n in range(2))
    fault = refused("email,name\n" + body + '"p3@example.com,x\n' + body * 3)
    assert fault.row == 4
    assert "never ends" in fault.message


def test_an_open_quote_in_a_large_file_is_found_before_it_fills_the_memory() -> None:
    fault = refused('email,name\njane@example.com,"Jane\n' + "p@example.com,x\n" * 20_000)
    assert fault.row == 2
    assert "closing quote" in fault.message


def test_text_behind_a_closing_quote_refuses_the_file() -> None:
    assert refused('email,name\na@example.com,"Jane" Doe\n').row == 2


def test_a_header_twice_is_refused_with_both_columns() -> None:
    fault = refused("email,First Name,x,first_name\n")
    assert fault.column == "D (first_name)"
    assert "column B" in fault.message


def test_two_possible_address_columns_are_refused() -> None:
    assert "A (email) and C (E-Mail Address)" in refused("email,x,E-Mail Address\n").message


def test_without_an_address_column_the_headers_seen_and_the_names_known_are_told() -> None:
    message = refused("Adresse,Nom\na@example.com,x\n").message
    assert "Adresse, Nom" in message
    assert "email_address" in message


def test_a_list_without_a_header_is_refused_without_showing_its_first_address() -> None:
    assert "jane@" not in refused("jane@example.com,Jane\nbob@example.com,Bob\n").message


def test_a_nul_refuses_the_file_and_names_the_cell() -> None:
    fault = refused("email,name\na@example.com,x\nb@example.com,Ja\0ne\n")
    assert (fault.row, fault.column) == (3, "B (name)")
    assert "NUL" in fault.message


def test_utf_16_without_a_mark_is_refused_with_the_remedy() -> None:
    assert "CSV UTF-8" in refused("email,name\na@example.com,x\n".encode("utf-16-le")).message


def test_another_encoding_is_refused_at_its_first_letter() -> None:
    fault = refused("email,name\na@example.com,x\nb@example.com,Zoé\n".encode("cp1252"))
    assert (fault.row, fault.column) == (3, "B (name)")
    assert "CSV UTF-8" in fault.message


def test_broken_utf_16_is_refused() -> None:
    assert "UTF-16" in refused("email,name\na@example.com,x\n".encode("utf-16") + b"\x00\xd8a\x00").message


@pytest.mark.parametrize(("length", "problem"), [(70_000, "65,536"), (140_000, "131,072")])
def test_a_giant_cell_is_a_fault(length: int, problem: str) -> None:
    recipients = read_recipients(f"email,name\na@example.com,{'x' * length}\n", channel="email")
    try:
        list(recipients)
        messages = [fault.message for fault in recipients.faults]
    except CsvError as fault:
        messages = [fault.message]
    assert [problem in message for message in messages] == [True]


def test_a_long_list_is_read_in_the_memory_of_a_row() -> None:
    data = b"email,name\n" + b"jane@example.com,Jane\n" * 5_000
    tracemalloc.start()
    try:
        count = sum(1 for _ in read_recipients(data, channel="email"))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 5_000
    assert peak < len(data) + 300_000  # octets; the rows as objects would be 2,000,000
