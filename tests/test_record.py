import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from radiance_patch import record
from radiance_patch.errors import InconsistentError

EXAMPLE = b'vllm/a.py,sha256=abc,1\nvllm/"b",c.py,,\n"vllm/d,e.py",sha256=def,22\nvllm-1.dist-info/RECORD,,\n'

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\n\r\0", exclude_categories=["Cs"]), min_size=1)
PATHS = NAMES.filter(str.strip)


def row(name, *rest):
    out = io.StringIO()
    csv.writer(out, lineterminator="").writerow([name, *rest])
    return out.getvalue()


@st.composite
def records(draw):
    """RECORD files as several tools write them: quoted or not, either line end or both, with or without the last."""
    names = draw(st.lists(PATHS, unique=True, max_size=8))
    ends = draw(st.sampled_from([["\n"], ["\r\n"], ["\n", "\r\n"]]))
    lines = [row(name, draw(st.sampled_from(["", "sha256=abc"])), "") + draw(st.sampled_from(ends)) for name in names]
    text = "".join(lines)
    return text.rstrip("\r\n") if draw(st.booleans()) else text, names


def test_rows():
    assert record.rows(EXAMPLE) == {
        "vllm/a.py": "vllm/a.py,sha256=abc,1",
        'vllm/"b"': 'vllm/"b",c.py,,',
        "vllm/d,e.py": '"vllm/d,e.py",sha256=def,22',
        "vllm-1.dist-info/RECORD": "vllm-1.dist-info/RECORD,,",
    }


@given(records())
def test_rows_are_those_that_csv_reads(example):
    text, names = example
    rows = record.rows(text.encode())
    assert list(rows) == names == [fields[0] for fields in csv.reader(io.StringIO(text, newline=""))]
    for line in rows.values():
        assert line in text


@pytest.mark.parametrize("name", ["a.py", "a,b.py", 'a"b.py', "ä b.py"])
def test_row_is_what_installers_write(name):
    written = record.row(name, b"content")
    fields = next(csv.reader([written]))
    # What `printf content | openssl dgst -sha256 -binary | basenc --base64url` prints, without the padding.
    assert fields == [name, "sha256=7XACtDnprIRfIjV9giusFERzD722AW0-yUMil7nsn3M", "7"]
    assert record.rows(written.encode()) == {name: written}


@pytest.mark.parametrize(
    ("line", "fits"),
    [
        ("a,sha256=7XACtDnprIRfIjV9giusFERzD722AW0-yUMil7nsn3M,7", True),
        ("a,sha256=7XACtDnprIRfIjV9giusFERzD722AW0-yUMil7nsn3M,", True),
        ('"a,b",sha256=7XACtDnprIRfIjV9giusFERzD722AW0-yUMil7nsn3M,7', True),
        ("a,sha256=7XACtDnprIRfIjV9giusFERzD722AW0-yUMil7nsn3M,8", False),
        ("a,sha256=7XACtDnprIRfIjV9giusFERzD722AW0-yUMil7nsn3N,7", False),
        ("a,md5=7XACtDnprIRfIjV9giusFERzD722AW0-yUMil7nsn3M,7", False),
        ("a,,", False),
        ("a", False),
    ],
)
def test_matches(line, fits):
    assert record.matches(line, b"content") is fits


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, b"a,1,\nb,2,\nc,3,\n"),
        ({"b": "b,9,"}, b"a,1,\nb,9,\nc,3,\n"),
        ({"b": None}, b"a,1,\nc,3,\n"),
        ({"z": "z,1,", "d": "d,2,"}, b"a,1,\nb,2,\nc,3,\nd,2,\nz,1,\n"),
        ({"z": None}, b"a,1,\nb,2,\nc,3,\n"),
        ({"a": None, "b": None, "c": None}, b""),
    ],
)
def test_edit(changes, expected):
    assert record.edit(b"a,1,\nb,2,\nc,3,\n", changes) == expected


@given(records(), st.data())
def test_edit_is_undone_by_its_inverse(example, data):
    text, names = example
    before = record.rows(text.encode())
    old = data.draw(st.lists(st.sampled_from(names), unique=True)) if names else []
    new = [name for name in data.draw(st.lists(PATHS, unique=True, max_size=4)) if name not in names]
    edited = record.edit(text.encode(), {name: row(name, "sha256=new", "1") for name in [*old, *new]})
    rows = record.rows(edited)
    assert list(rows) == [*names, *sorted(new)]
    assert {name: line for name, line in rows.items() if name not in [*old, *new]} == {
        name: line for name, line in before.items() if name not in old
    }
    assert record.edit(edited, {name: before.get(name) for name in [*old, *new]}) == text.encode()


def test_mentions(tmp_path):
    path = tmp_path / "RECORD"
    path.write_bytes(EXAMPLE)
    assert record.mentions(path, "vllm/a.py")
    assert record.mentions(path, "vllm/d,e.py")
    assert not record.mentions(path, "vllm/a")
    assert not record.mentions(path, "c.py")


def test_mentions_names_an_unreadable_list(tmp_path):
    path = tmp_path / "RECORD"
    path.write_bytes(b"\xff,vllm/a.py,\n")
    with pytest.raises(InconsistentError) as caught:
        record.mentions(path, "vllm/a.py")
    assert caught.value.where == str(path)
