import os

import pytest

from radiance_patch import store


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("RADIANCE_PATCH_CACHE", str(tmp_path))
    monkeypatch.delenv("RADIANCE_PATCH_CACHE_MB", raising=False)
    return tmp_path / "fetched"


def test_what_is_put_is_there():
    assert store.get("a") is None
    store.put("a", b"one")
    store.put("b", b"")
    assert (store.get("a"), store.get("b")) == (b"one", b"")
    store.put("a", b"two")
    assert store.get("a") == b"two"


def test_changed_bytes_are_not_given_back(folder):
    store.put("a", b"content")
    (path,) = folder.iterdir()
    for spoilt in (path.read_bytes()[:-1], b"", path.read_bytes() + b"x"):
        path.write_bytes(spoilt)
        assert store.get("a") is None


def test_the_least_recently_used_goes_first(folder, monkeypatch):
    monkeypatch.setenv("RADIANCE_PATCH_CACHE_MB", "1")
    for age, (key, size) in enumerate((("young", 100_000), ("old", 400_000), ("used", 400_000))):
        store.put(key, bytes(size))
        os.utime(store._path(key), (1_000_000_000 - age, 1_000_000_000 - age))
    assert store.get("used") is not None
    store.put("more", bytes(300_000))
    assert [store.get(key) is not None for key in ("young", "old", "used", "more")] == [True, False, True, True]
    assert sum(path.stat().st_size for path in folder.iterdir()) <= store.limit()


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RADIANCE_PATCH_CACHE", str(tmp_path / "file"))
    store.put("a", b"one")
    assert store.get("a") is None


@pytest.mark.parametrize(("text", "limit"), [("", store.LIMIT), ("a few", store.LIMIT), ("2", 2 * 2**20)])
def test_limit(monkeypatch, text, limit):
    monkeypatch.setenv("RADIANCE_PATCH_CACHE_MB", text)
    assert store.limit() == limit
