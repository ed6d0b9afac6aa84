"""A package index of our own: published vLLM, trimmed to what the patch reads, behind a real HTTP server."""

from __future__ import annotations

import base64
import contextlib
import http.server
import json
import ssl
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

JSON = "application/vnd.pypi.simple.v1+json"


@dataclass
class Shop:
    """What is sold, and how.

    wheels: by file name. ranges: whether byte ranges are answered. as_json: or HTML. login:
    "user:password", if one is asked for. asked: every request so far, with its Range. told:
    a page to answer with instead.
    """

    folder: Path
    ranges: bool = True
    as_json: bool = True
    login: str | None = None
    yanked: tuple[str, ...] = ()
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    url: str = ""
    told: tuple[str, bytes] | None = None

    def page(self) -> tuple[str, bytes]:
        """Return the type and text of the page that lists the wheels."""
        if self.told:
            return self.told
        names = sorted(path.name for path in self.folder.glob("*.whl"))
        if self.as_json:
            place = self.url.replace("/simple/", "/files/")  # whole, so that it carries no credentials
            files = [
                {"filename": name, "url": f"{place}{name}", "hashes": {}, "yanked": name in self.yanked}
                for name in names
            ]
            return JSON, json.dumps({"meta": {"api-version": "1.0"}, "name": "vllm", "files": files}).encode()
        links = "".join(f'<a href="../../files/{name}">{name}</a>' for name in names)
        return "text/html", f"<!DOCTYPE html><html><body>{links}</body></html>".encode()


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers from the server's shop."""

    def do_GET(self) -> None:  # the name http.server calls
        """Answer one request."""
        shop: Shop = self.server.shop  # type: ignore[attr-defined]
        shop.asked.append((self.path, self.headers.get("Range")))
        wanted = "Basic " + base64.b64encode((shop.login or "").encode()).decode()
        if shop.login and self.headers.get("Authorization") != wanted:
            self._answer(401, b"", {"WWW-Authenticate": "Basic"})
        elif self.path == "/simple/vllm/":
            kind, text = shop.page()
            self._answer(200, text, {"Content-Type": kind})
        elif (file := shop.folder / Path(self.path).name).is_file() and self.path.startswith("/files/"):
            self._file(file.read_bytes(), shop)
        else:
            self._answer(404, b"", {})

    def _file(self, data: bytes, shop: Shop) -> None:
        asked = self.headers.get("Range")
        if asked is None or not shop.ranges:
            self._answer(200, data, {})
            return
        first, _, last = asked.removeprefix("bytes=").partition("-")
        start = int(first) if first else max(0, len(data) - int(last))
        end = int(last) if first and last else len(data) - 1
        self._answer(206, data[start : end + 1], {"Content-Range": f"bytes {start}-{end}/{len(data)}"})

    def _answer(self, code: int, data: bytes, headers: dict[str, str]) -> None:
        self.send_response(code)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        with contextlib.suppress(OSError):  # who finds ranges refused does not wait for the whole
            self.wfile.write(data)

    def log_message(self, *_args: object) -> None:
        """Keep the tests' output clean."""


@contextlib.contextmanager
def opened(shop: Shop, tls: ssl.SSLContext | None = None) -> Iterator[Shop]:
    """Serve a shop on this machine, at `shop.url`."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.shop = shop  # type: ignore[attr-defined]
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    shop.url = f"http{'s' if tls else ''}://localhost:{server.server_port}/simple/"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield shop
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def wheel(site: Path, folder: Path, version: str) -> Path:
    """Pack a site-packages folder's vllm as a wheel of a version."""
    path = folder / f"vllm-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(path for path in site.rglob("*") if path.is_file()):
            archive.write(file, file.relative_to(site))
    return path
