"""The way out of a tier-2 sandbox: an HTTP proxy for a few hosts, by CONNECT or plain requests.

A name is resolved once, here, and the connection goes to the very address that was looked at, so no answer of a name server can lead into
the machine or its network: loopback, private, link-local, shared and multicast addresses are refused, also in their IPv6 disguises.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from collections.abc import Collection
from urllib.parse import urlsplit

from supervisor.sandbox.loopback_proxy import join

_HEAD_MAX = 65536
_HEAD_WAIT_S = 30.0
_CONNECT_S = 15.0
_NAT64 = ipaddress.ip_network("64:ff9b::/96")  # RFC 6052
_NOT_PASSED = {"host", "connection", "proxy-connection", "proxy-authorization", "keep-alive"}


class Denied(Exception):
    """The request is not passed on; `status` and the text are the answer."""

    def __init__(self, status: str, text: str) -> None:
        super().__init__(text)
        self.status = status


def allowed(host: str, names: Collection[str]) -> bool:
    """Whether `host` is one of `names`; `*.example.org` stands for everything below example.org, not for it."""
    host = host.lower().rstrip(".")
    return any(host == name or (name.startswith("*.") and host.endswith(name[1:])) for name in map(str.lower, names))


def public(address: str) -> bool:
    """Whether an IP address lies in the internet, and not in this machine or the networks around it."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour
        if found in _NAT64:
            inner = ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
        if found.teredo is not None:
            return False
        if inner is not None:
            return public(str(inner))
    return found.is_global and not found.is_multicast


def serve(client: socket.socket, names: Collection[str]) -> None:
    """Answer the one request of a new connection, and join both sides."""
    try:
        client.settimeout(_HEAD_WAIT_S)
        head, rest = _read_head(client)
        client.settimeout(None)
        host, port, onward = _understand(head)
        with _reach(host, port, names) as server:
            if onward:
                server.sendall(onward + rest)
            else:
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                server.sendall(rest)
            join(client, server)
    except Denied as denied:
        text = f"nightcrew: {denied}\n".encode("utf-8", "replace")
        answer = f"HTTP/1.1 {denied.status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(text)}\r\n"
        client.sendall(answer.encode() + b"Connection: close\r\n\r\n" + text)


def _read_head(client: socket.socket) -> tuple[bytes, bytes]:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = client.recv(8192)
        if not piece or len(data) > _HEAD_MAX:
            raise Denied("400 Bad Request", "no whole request head came")
        data += piece
    head, _, rest = data.partition(b"\r\n\r\n")
    return head, rest


def _understand(head: bytes) -> tuple[str, int, bytes]:
    """Host, port, and the head as the server must see it: empty for CONNECT, whose bytes are nobody's business."""
    first, *fields = head.decode("latin-1").split("\r\n")
    try:
        method, target, version = first.split(" ")
        url = urlsplit(f"//{target}" if method == "CONNECT" else target)
        host, port = url.hostname, url.port
    except ValueError as error:
        raise Denied("400 Bad Request", "this is not a request to a proxy") from error
    if method == "CONNECT" and host and port:
        return host, port, b""
    if url.scheme != "http" or not host:
        raise Denied("400 Bad Request", "only CONNECT and http:// addresses are passed on")
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    kept = [field for field in fields if field.partition(":")[0].strip().lower() not in _NOT_PASSED]
    lines = [f"{method} {path} {version}", f"Host: {url.netloc.rpartition('@')[2]}", *kept, "Connection: close", "", ""]
    return host, port or 80, "\r\n".join(lines).encode("latin-1")


def _reach(host: str, port: int, names: Collection[str]) -> socket.socket:
    if not allowed(host, names):
        raise Denied("403 Forbidden", f"{host} is not among the hosts that this task may reach")
    try:
        found = [entry[4][0] for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    except (OSError, UnicodeError) as error:
        raise Denied("502 Bad Gateway", f"{host} has no address: {error}") from error
    addresses = [str(address) for address in found if public(str(address))]
    if not addresses:
        raise Denied("403 Forbidden", f"{host} leads into this machine or its network")
    for address in addresses:
        with contextlib.suppress(OSError):
            server = socket.create_connection((address, port), timeout=_CONNECT_S)
            server.settimeout(None)
            return server
    raise Denied("504 Gateway Timeout", f"{host} does not answer")
