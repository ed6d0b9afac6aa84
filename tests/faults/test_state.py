"""The record of the patch is damaged: exit 5, the way out, and not one byte changed on a guess."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.sandbox import SMALL_FILE, dist_info, ok, tool, untouched

Damage = Callable[[bytes], bytes]


def changed(**more: object) -> Damage:
    return lambda data: json.dumps({**json.loads(data), **more}).encode()


def without(name: str) -> Damage:
    return lambda data: json.dumps({key: value for key, value in json.loads(data).items() if key != name}).encode()


DAMAGES: dict[str, Damage] = {
    "empty": lambda _: b"",
    "cut": lambda data: data[: len(data) // 2],
    "no JSON": lambda _: b"\xff\x00",
    "a list": lambda _: b"[]",
    "a number": lambda _: b"5",
    "deep": lambda _: b"[" * 100_000,
    "a newer schema": changed(schema=2),
    "no schema": without("schema"),
    "no files": without("files"),
    "files of another shape": changed(files={SMALL_FILE: {}}),
    "a row changed": lambda data: data.replace(b"sha256=", b"sha256=A", 1),
    "a mode changed": lambda data: data.replace(b'"mode": 420', b'"mode": 511', 1),
    "a hash changed": lambda data: data.replace(b'"after": "', b'"after": "0', 1),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_state(patched: Path, damage: Damage):
    path = dist_info(patched) / "radiance-patch" / "state.json"
    data = path.read_bytes()
    assert damage(data) != data
    path.write_bytes(damage(data))
    with untouched(patched):
        for command in ("status", "apply", "revert", "doctor"):
            result = tool(command, "--json", site=patched)
            assert result.exit == 5, (command, result)
            assert str(path) in result.out
            assert "pip install --force-reinstall --no-deps vllm==0.33.0" in result.out


def test_a_newer_schema_is_named(patched: Path):
    path = dist_info(patched) / "radiance-patch" / "state.json"
    path.write_bytes(DAMAGES["a newer schema"](path.read_bytes()))
    assert "newer radiance-patch" in tool("status", "--json", site=patched).error["why"]


@pytest.mark.parametrize("how", ["changed", "gone"])
def test_a_damaged_original(patched: Path, how: str):
    (path, *_) = sorted((dist_info(patched) / "radiance-patch" / "originals").iterdir())
    path.unlink() if how == "gone" else path.write_bytes(b"damaged")
    with untouched(patched):
        status = tool("status", "--json", site=patched)
        assert status.exit == 5
        assert str(path) in status.body["problems"][0]
        for command in ("apply", "revert"):
            result = tool(command, "--json", site=patched)
            assert result.exit == 5
            assert result.error["where"] == str(path)
            assert SMALL_FILE in result.error["what"]


def test_record_lost_our_rows(patched: Path):
    """A tool that writes RECORD anew from what it installed would let an uninstall leave our files behind."""
    rows = dist_info(patched) / "RECORD"
    lines = [line for line in rows.read_text().splitlines(True) if "_radiance" not in line]
    rows.write_text("".join(lines))
    status = tool("status", "--json", site=patched)
    assert status.exit == 5
    assert all("RECORD does not list" in problem for problem in status.body["problems"])
    ok("apply", "--only", "async_scheduler_cap", site=patched)
    ok("status", site=patched)
