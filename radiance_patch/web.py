"""HTTP as the user's pip does it: its certificates, proxies, credentials and time limits."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Mapping
from typing import Any

import requests
import urllib3
from requests.adapters import HTTPAdapter

from radiance_patch import __version__
from radiance_patch.pipconfig import PipConfig

LOCAL = ("localhost", "127.0.0.1", "::1")


class Session(requests.Session):
    """A session that counts what it receives of wheels: `received`, in bytes, as the servers announce it.

    patience: seconds to wait for an answer, once; without, as long as pip does and as often.
    """

    def __init__(self, config: PipConfig, patience: float | None = None) -> None:
        super().__init__()
        self.received = 0
        self.config = config
        self.cert = config.client_cert
        self.headers["User-Agent"] = f"radiance-patch/{__version__}"
        self._timeout = config.timeout if patience is None else patience
        retries = urllib3.Retry(3 if patience is None else 0, backoff_factor=0.25)
        for scheme in ("http://", "https://"):
            self.mount(scheme, HTTPAdapter(max_retries=retries))
        self.hooks["response"].append(self._count)
        self._logins = _logins(config)

    # requests lets REQUESTS_CA_BUNDLE override a session's own `verify`, so each request carries it.
    def request(self, method: str | bytes, url: str | bytes, *args: Any, **kwargs: Any) -> requests.Response:
        """Send a request with pip's settings, where the caller sets nothing else."""
        address = str(url)
        if self.trusts(address):
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
            kwargs["verify"] = False
        elif self.config.cert:
            kwargs["verify"] = self.config.cert
        if self.config.proxy:
            kwargs["proxies"] = {"http": self.config.proxy, "https": self.config.proxy}
        kwargs.setdefault("timeout", self._timeout)
        kwargs.setdefault("auth", self._logins.get(urllib.parse.urlsplit(address).netloc.rpartition("@")[2]))
        return super().request(method, address, *args, **kwargs)

    def trusts(self, url: str) -> bool:
        """Whether pip is told to trust this host whatever its certificate, or lack of one."""
        place = urllib.parse.urlsplit(url)
        return place.hostname in self.config.trusted or place.netloc.rpartition("@")[2] in self.config.trusted

    def secure(self, url: str) -> bool:
        """Whether pip would fetch from here at all: plain HTTP only from this machine or a trusted host."""
        place = urllib.parse.urlsplit(url)
        return place.scheme == "https" or place.hostname in LOCAL or self.trusts(url)

    def _count(self, answer: requests.Response, *_args: Any, **_kwargs: Any) -> None:
        if answer.status_code == requests.codes.partial:
            self.received += int(answer.headers.get("Content-Length") or 0)


def _logins(config: PipConfig) -> Mapping[str, tuple[str, str]]:
    """Return the credentials in index URLs by host: the files lie there too, and their URLs carry none."""
    places = [urllib.parse.urlsplit(url) for url in (*config.indexes, *config.find_links)]
    return {
        place.netloc.rpartition("@")[2]: (
            urllib.parse.unquote(place.username),
            urllib.parse.unquote(place.password or ""),
        )
        for place in places
        if place.username
    }


def without_credentials(text: str) -> str:
    """Return a library's message as it may be printed: the URLs in it without credentials."""
    return re.sub(r"//[^/\s@]*@", "//", text)


def shown(url: str) -> str:
    """Return a URL as it may be printed: without credentials."""
    place = urllib.parse.urlsplit(url)
    return urllib.parse.urlunsplit(place._replace(netloc=place.netloc.rpartition("@")[2], fragment=""))
