"""A host of repositories over loopback: git's own `http-backend` behind basic authentication."""

from __future__ import annotations

import base64
import os
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from tests.support import git

USER, PASSWORD = "someone", "canary-pa55word-of-the-person"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    root: Path
    seen: list[str]


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def log_message(self, *_: object) -> None:
        pass

    def _serve(self) -> None:
        parts = urlsplit(self.path)
        self.server.seen.append(f"{self.command} {parts.path}")
        wanted = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        body = self._body()
        if self.headers.get("Authorization") != f"Basic {wanted}":
            self._answer(401, {"WWW-Authenticate": 'Basic realm="git"'}, b"")
            return
        env = {
            "PATH": os.environ["PATH"], "GIT_PROJECT_ROOT": str(self.server.root), "GIT_HTTP_EXPORT_ALL": "1", "REMOTE_USER": USER,
            "PATH_INFO": parts.path, "QUERY_STRING": parts.query, "REQUEST_METHOD": self.command, "REMOTE_ADDR": "127.0.0.1",
            "CONTENT_TYPE": self.headers.get("Content-Type", ""), "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""), "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*",
        }  # fmt: skip
        done = subprocess.run(["git", "http-backend"], env=env, input=body, capture_output=True, check=False)
        head, _, answer = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line)
        status = int(fields.pop("Status", "200 OK").split()[0])
        self._answer(status, fields, answer)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        data = b""
        while size := int(self.rfile.readline(), 16):
            data += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return data

    def _answer(self, status: int, fields: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in fields.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class GitServer:
    """Bare repositories `owner/name.git` below a directory, until it is left."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.root, self._server.seen = root, []
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    def __enter__(self) -> GitServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self._server.server_address[1]}"

    @property
    def seen(self) -> list[str]:
        """Every request: method and path."""
        return self._server.seen

    def url(self, name: str = "owner/repo") -> str:
        """Of a repository."""
        return f"http://{self.address}/{name}.git"

    def make(self, of: Path, name: str = "owner/repo") -> Path:
        """A repository that has what the one at `of` has."""
        place = self.root / f"{name}.git"
        place.parent.mkdir(parents=True, exist_ok=True)
        git(self.root, "clone", "-q", "--bare", "--single-branch", "--branch", "main", str(of), str(place))
        git(place, "config", "http.receivepack", "true")
        return place
