"""Reading a submission: what is found and what is expected stands in one line; anything unusual is refused before its rows are read."""

import pytest

from wmrl_envs.tasks import InvalidSubmission, task_spec
from wmrl_envs.tasks.reading import read_header, read_table

SPEC = task_spec("playground-series-s3e9")
TRUTH = read_table(b"id,Strength\n1,2.5\n2,3.5\n", ("id",))


def refusal(data, spec=SPEC, truth=TRUTH):
    with pytest.raises(InvalidSubmission) as caught:
        spec.metric(truth, read_table(data, ("id",)))
    assert caught.value.details.isprintable()
    return caught.value.details


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"id;Strength\n1;2,5\n2;3,5\n", ["separated by ';'", "id;Strength", "expected commas", "to_csv"]),
        (b"id\tStrength\n1\t2.5\n", ["separated by tabs", "expected commas"]),
        (b"id|Strength\n1|2.5\n", ["separated by '|'"]),
        (b"id, Strength\n1,2.5\n", ["Missing required columns", "found 'id', ' Strength'", "without blanks"]),
        (b"id,id,Strength\n1,1,2.5\n", ["more than once: id."]),
        (b",id,Strength\n0,1,2.5\n1,2,3.5\n", ["Extra", "index=False"]),
        (b'id,Strength\n"1\nx",2.5\n2,3.5\n', ["unknown", "1\\nx"]),
        (b'[{"id": 1, "Strength": 2}]', ["JSON"]),
        ("id,Strength\n1,2.5\n".encode("utf-16"), ["UTF-16"]),
        (b"id,Strength\n1,2.5,7\n2,3.5\n", ["first row has 3 cells", "header has 2"]),
        (b"id,Strength\n1,2.5\n2,3.5,7\n", ["Expected 2 fields in line 3, saw 3"]),
        (b"id,Strength\n1," + b"9" * 400 + b"\n2,1\n", ["infinite", "id 1"]),
        (b"PK\x03\x04\x00", ["binary"]),
        (b"1,2.5\n2,3.5\n", ["Missing required columns", "found '1', '2.5'"]),
    ],
)
def test_a_refusal_names_what_was_found_and_what_is_expected(data, says):
    text = refusal(data)
    assert all(part in text for part in says), text


def test_codes_where_classes_are_words_are_refused_with_advice():
    spec = task_spec("artwork-medium")
    id_column, target = spec.facts.id_columns[0], spec.facts.target_columns[0]
    truth = read_table(f"{id_column},{target}\n1,oil\n2,ink\n".encode(), (id_column,))
    assert "classes are words" in refusal(f"{id_column},{target}\n1,0\n2,1\n".encode(), spec, truth)
    mixed = read_table(f"{id_column},{target}\n1,oil\n2,7\n".encode(), (id_column,))
    assert isinstance(spec.metric(truth, mixed), float)  # a wrong label, no misunderstanding


def test_the_header_may_be_quoted_broken_over_lines_and_come_after_blank_ones():
    assert read_header(b'\xef\xbb\xbf\r\n  \r\n"id","a\nb",""\r\n1,2,3') == ["id", "a\nb", ""]


def test_a_header_is_refused_before_its_rows_are_read(monkeypatch):
    def check(names):
        raise InvalidSubmission(f"not {names}")

    monkeypatch.setattr("pandas.read_csv", None)
    with pytest.raises(InvalidSubmission, match=r"not \['a', 'b'\]"):
        read_table(b"a,b\n1,2\n", check_header=check)
