"""What pip says of itself, read from a real pip; tests/test_check.py fetches by it."""

import pytest

from radiance_patch import pipconfig
from radiance_patch.errors import FetchError


@pytest.fixture(autouse=True)
def told(monkeypatch, tmp_path):
    """Make pip know nothing but a file, which the test writes."""
    for name in ("CERT", "INDEX_URL", "EXTRA_INDEX_URL", "FIND_LINKS", "NO_INDEX", "TRUSTED_HOST", "DEFAULT_TIMEOUT"):
        monkeypatch.delenv(f"PIP_{name}", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_DIRS", str(tmp_path))
    config = tmp_path / "pip.conf"
    config.write_text("[global]\nindex-url = https://user:word@a.example/simple\nextra-index-url = https://b.example\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    return config


def test_every_option(told, monkeypatch):
    with told.open("a") as file:
        file.write("    https://c.example\n")
        file.write("cert = /a/ca.pem\nclient-cert = /a/me.pem\nproxy = http://p.example\ntimeout = 7\n")
        file.write("[install]\ntrusted-host = a.example d.example:8443\n[download]\ncert = /not/this\n")
    monkeypatch.setenv("PIP_FIND_LINKS", "/wheels")
    assert pipconfig.read() == pipconfig.PipConfig(
        indexes=("https://user:word@a.example/simple", "https://b.example", "https://c.example"),
        find_links=("/wheels",),
        trusted=frozenset({"a.example", "d.example:8443"}),
        cert="/a/ca.pem",
        client_cert="/a/me.pem",
        proxy="http://p.example",
        timeout=7.0,
    )


def test_the_environment_wins(monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "https://e.example")
    assert pipconfig.read().indexes == ("https://e.example", "https://b.example")


def test_no_index(monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "true")
    assert pipconfig.read().indexes == ()


def test_the_default_is_what_pip_says(told):
    told.write_text("")
    (index,) = pipconfig.read().indexes
    assert index.startswith("https://")
    assert index in " ".join(pipconfig._pip("install", "--help").split())


@pytest.mark.parametrize("text", ["[global]\ntimeout = soon\n", "[global\n"])
def test_what_is_no_configuration(told, text):
    """Pip itself refuses a value without the form."""
    told.write_text(text)
    with pytest.raises(FetchError, match="cannot read its configuration"):
        pipconfig.read()


def test_of_two_sections_the_nearer_wins():
    listing = ":env:.index-url='c'\nglobal.index-url='a'\ninstall.index-url='b'\ninstall.proxy='d'\ndownload.cert='e'\n"
    assert pipconfig.parse(listing) == {"index-url": "c", "proxy": "d"}
