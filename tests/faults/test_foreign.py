"""Files that are neither vLLM's nor ours: exit 5, and whatever somebody wrote stays."""

import json
from pathlib import Path

import pytest

from radiance_patch import image
from tests.faults.sandbox import SMALL, SMALL_FILE, differences, dist_info, ok, snapshot, tool, untouched

PAYLOAD = "vllm/_radiance"


def edit(path: Path, text: str = "# an edit of someone\n") -> None:
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data + text.encode())


@pytest.mark.parametrize("command", ["apply", "status"])
def test_a_file_edited_by_someone_else(site: Path, command: str):
    edit(site / SMALL_FILE)
    with untouched(site):
        result = tool(command, "--json", site=site)
    assert result.exit == 5
    assert f"{site}/{SMALL_FILE}" in result.out
    assert "pip install --force-reinstall --no-deps vllm==0.33.0" in result.out


@pytest.mark.parametrize("command", ["apply", "status"])
def test_a_listed_file_is_missing(site: Path, command: str):
    (site / SMALL_FILE).unlink()
    with untouched(site):
        result = tool(command, "--json", site=site)
    assert result.exit == 5
    assert f"{site}/{SMALL_FILE}" in result.out
    assert "missing" in result.out


def test_a_file_that_record_does_not_list(site: Path):
    rows = dist_info(site) / "RECORD"
    rows.write_text("".join(line for line in rows.read_text().splitlines(True) if SMALL_FILE not in line))
    with untouched(site):
        result = tool("apply", "--json", site=site)
    assert result.exit == 5
    assert result.error["why"] == "RECORD does not list it"


@pytest.mark.parametrize("name", [SMALL_FILE, f"{PAYLOAD}/width.py", f"{PAYLOAD}/__init__.py"])
def test_a_file_edited_after_apply(patched: Path, name: str):
    edit(patched / name)
    with untouched(patched):
        status = tool("status", "--json", site=patched)
        assert status.exit == 5
        line = (patched / name).read_bytes().count(b"\n")
        assert status.body["problems"] == [f"{patched / name}:{line} was edited after apply"]
        for command in ("apply", "revert"):
            result = tool(command, "--json", site=patched)
            assert result.exit == 5
            assert result.error["where"] == f"{patched / name}:{line}"
            assert "save the edit elsewhere" in result.error["next"]
    assert (patched / name).read_text().endswith("# an edit of someone\n")


def test_a_cut_file_is_no_state_of_ours(patched: Path):
    """A third of all cuts of vLLM's files still parse, so only the hash of the whole file tells."""
    path = patched / SMALL_FILE
    path.write_bytes(path.read_bytes()[:1000])
    with untouched(patched):
        assert tool("status", site=patched).exit == 5
        assert tool("revert", site=patched).exit == 5


def half(site: Path, what: str) -> None:
    """Take half of a patch away, as a restored cache or a cleaning script does."""
    folder = dist_info(site) / "radiance-patch"
    (saved,) = (path for path in (folder / "originals").iterdir() if b"AsyncScheduler" in path.read_bytes())
    if what == "a target is unpatched":
        (site / SMALL_FILE).write_bytes(saved.read_bytes())
    elif what == "a payload file is gone":
        (site / PAYLOAD / "width.py").unlink()
    elif what == "the payload is gone":
        for path in (site / PAYLOAD).iterdir():
            path.unlink()
        (site / PAYLOAD).rmdir()
    else:
        (site / SMALL_FILE).unlink()


HALVES = ["a target is unpatched", "a payload file is gone", "the payload is gone", "a target is gone"]


@pytest.mark.parametrize("what", HALVES)
def test_half_a_patch_is_seen_and_mended(site: Path, what: str):
    ok("apply", *SMALL, site=site)
    whole = snapshot(site).tree
    half(site, what)
    with untouched(site):
        status = tool("status", "--json", site=site)
        assert status.exit == 5
        assert status.body["problems"]
        assert tool("apply", "--check", *SMALL, site=site).exit == 3
    ok("apply", *SMALL, site=site)
    assert snapshot(site).tree == whole
    ok("status", site=site)


@pytest.mark.parametrize("what", HALVES)
def test_half_a_patch_is_taken_back(site: Path, what: str):
    before = snapshot(site)
    ok("apply", *SMALL, site=site)
    half(site, what)
    ok("revert", site=site)
    assert differences(before, site) == []


@pytest.mark.parametrize("command", ["apply", "status"])
def test_a_payload_folder_without_a_state(patched: Path, command: str):
    folder = dist_info(patched) / "radiance-patch"
    ok("revert", site=patched)
    (patched / PAYLOAD).mkdir()
    (patched / PAYLOAD / "width.py").write_text("# of someone\n")
    assert not folder.exists()
    with untouched(patched):
        result = tool(command, "--json", site=patched)
    assert result.exit == 5
    assert str(patched / PAYLOAD) in result.out


def test_a_strange_file_in_the_payload_folder(patched: Path):
    (patched / PAYLOAD / "mine.py").write_text("# of someone\n")
    with untouched(patched):
        status = tool("status", "--json", site=patched)
        assert status.exit == 5
        assert "mine.py" in status.body["problems"][0]
        assert tool("apply", site=patched).exit == 5
    ok("revert", site=patched)
    assert (patched / PAYLOAD / "mine.py").read_text() == "# of someone\n"


def test_the_state_was_deleted(patched: Path):
    """The targets are patched and nothing says how: only a reinstall helps, and it is said."""
    for path in sorted((dist_info(patched) / "radiance-patch").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    with untouched(patched):
        for command in ("status", "apply"):
            result = tool(command, "--json", site=patched)
            assert result.exit == 5, result
            assert str(patched / SMALL_FILE) in result.out
            assert "pip install --force-reinstall" in result.out


def test_a_file_edited_while_an_apply_lay_unfinished(patched: Path):
    """Recovery proves first that it can put everything back."""
    state = dist_info(patched) / "radiance-patch"
    ok("revert", site=patched)
    assert not state.exists()
    edit(patched / SMALL_FILE)
    make_journal(patched, b"something else")
    with untouched(patched):
        for command in ("apply", "revert"):
            result = tool(command, "--json", site=patched)
            assert result.exit == 5
            assert result.error["where"] == f"{patched}/{SMALL_FILE}"


@pytest.mark.parametrize("damage", ["no list", "half a list", "another list", "a copy is gone", "a copy was changed"])
def test_a_damaged_journal(site: Path, damage: str):
    folder = make_journal(site, (site / SMALL_FILE).read_bytes())
    listing, copy = folder / "journal.json", folder / "0"
    if damage == "no list":
        listing.unlink()
    elif damage == "half a list":
        listing.write_bytes(listing.read_bytes()[:50])
    elif damage == "another list":
        listing.write_text('{"schema": 7}')
    elif damage == "a copy is gone":
        copy.unlink()
    else:
        copy.write_bytes(b"changed")
    with untouched(site):
        assert tool("status", site=site).exit == 5
        for command in ("apply", "revert"):
            result = tool(command, "--json", site=site)
            assert result.exit == 5, result
            assert str(folder) in result.error["where"]
            assert f"rm -r {folder}" in result.error["next"]


def make_journal(site: Path, content: bytes) -> Path:
    """Write the journal of an apply that was cut off before it changed the small target."""
    found = image.read(site / SMALL_FILE)
    assert found
    before = image.Image(content, found.mode, found.mtime_ns, found.uid, found.gid).meta()
    folder = dist_info(site) / "radiance-patch.journal"
    folder.mkdir()
    (folder / "0").write_bytes(content)
    (folder / "journal.json").write_text(json.dumps([{"path": SMALL_FILE, "before": before, "after": "0" * 64}]))
    return folder
