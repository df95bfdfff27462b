import io
import json
from typing import Any

import pytest

from admin.cli.fault import CommandError
from admin.cli.submission import Body, write_body


def _write(csv: str | bytes, **given: Any) -> tuple[dict[str, Any], Body]:
    file = io.BytesIO()
    options: dict[str, Any] = {
        "channel": "email",
        "envelope": {"on_invalid": "reject"},
        "content": {"subject": "Hi {{ name }}", "text": "{{ city }}"},
        "shared_params": {},
        **given,
    }
    body = write_body(file, io.BytesIO(csv.encode() if isinstance(csv, str) else csv), **options)
    assert body.size == len(file.getvalue())
    return json.loads(file.getvalue()), body


def test_rows_become_recipients_with_the_params_that_the_templates_mention() -> None:
    document, body = _write(
        "\ufeffE-Mail;Name;City;Shoe size\r\nada@example.com;Ada;London;38\r\ngrace@example.com;Grace;;\r\n",
        envelope={"on_invalid": "skip", "name": "Spring"},
        shared_params={"city": "Paris"},
    )

    assert document == {
        "on_invalid": "skip",
        "name": "Spring",
        "params": {"city": "Paris"},
        "email": {
            "subject": "Hi {{ name }}",
            "text": "{{ city }}",
            "recipients": [
                {"to": "ada@example.com", "params": {"name": "Ada", "city": "London"}},
                {"to": "grace@example.com", "params": {"name": "Grace"}},
            ],
        },
    }
    assert body.count == 2


def test_a_reference_column_is_the_recipients_reference_and_a_param_only_if_a_template_uses_it() -> None:
    csv = "email,reference,name,city\nada@example.com,A-1,Ada,London\n"
    document, _ = _write(csv)
    used, _ = _write(csv, content={"subject": "{{ reference }}", "text": "x"})

    assert document["email"]["recipients"][0] == {
        "to": "ada@example.com",
        "params": {"name": "Ada", "city": "London"},
        "reference": "A-1",
    }
    assert used["email"]["recipients"][0] == {
        "to": "ada@example.com",
        "params": {"reference": "A-1"},
        "reference": "A-1",
    }


def test_faults_are_told_by_the_rows_of_the_spreadsheet() -> None:
    _, body = _write('email,name,city\n\nada@example.com,"A\nda",London\n,,\ngrace@example.com,,\n')

    assert body.explain(
        [
            {"pointer": "/email/recipients/1/params/name", "detail": "is missing"},
            {"pointer": "/email/recipients/0/to", "detail": "is odd"},
            {"pointer": "/email/from", "detail": "is not allowed"},
            {"pointer": "", "detail": "is too large"},
        ]
    ) == [
        "email, from: is not allowed",
        "the submission: is too large",
        "row 3, to: is odd",
        "row 5, name: is missing",
    ]


def test_rows_without_an_address_are_told_among_the_others_and_make_the_api_refuse() -> None:
    document, body = _write("email,name,city\n,Ada,London\ngrace@example.com,,\n")

    assert document["email"]["recipients"][-1] == {"to": ""}
    assert body.count == 1
    assert body.explain(
        [
            {"pointer": "/email/recipients/0/params", "detail": "lacks name"},
            {"pointer": "/email/recipients/1/to", "detail": "is empty"},
        ]
    ) == ["row 2, column A (email): has no address", "row 3, params: lacks name"]


def test_rows_without_an_address_stay_at_home_when_bad_rows_are_skipped() -> None:
    document, body = _write("email,name\n,Ada\ngrace@example.com,Grace\n", envelope={"on_invalid": "skip"})

    assert [one["to"] for one in document["email"]["recipients"]] == ["grace@example.com"]
    assert body.left_out.fault_count == 1


@pytest.mark.parametrize(
    ("csv", "content", "said"),
    [
        ("", {"text": "x"}, "the file is empty"),
        ("name\nAda\n", {"text": "x"}, "no column holds the address"),
        ('email\nada@example.com\n"open\n', {"text": "x"}, "row 3"),
        ("email\nada@example.com\n", {"text": "{{ name"}, "the text is not a template"),
        (
            "email\nada@example.com\n",
            {"text": "x", "html": "<script>{{ name }}</script>"},
            "the html is not a template",
        ),
    ],
)
def test_a_file_or_template_that_cannot_be_used_is_refused_in_words(
    csv: str, content: dict[str, str], said: str
) -> None:
    with pytest.raises(CommandError, match=said):
        _write(csv, content=content)


def test_numbers_go_out_as_sms() -> None:
    document, _ = _write("mobile,name\n+16045550123,Ada\n", channel="sms", content={"text": "Hi {{ name }}"})

    assert document["sms"] == {
        "text": "Hi {{ name }}",
        "recipients": [{"to": "+16045550123", "params": {"name": "Ada"}}],
    }


def test_the_faults_of_all_templates_are_told_at_once() -> None:
    content = {"subject": "{{ name", "text": "fine", "html": "{% for %}"}
    with pytest.raises(CommandError) as told:
        _write("email\nada@example.com\n", content=content)

    assert "the subject is not a template" in told.value.message
    assert "the html is not a template" in told.value.message
