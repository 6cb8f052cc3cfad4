"""A push request by hand (`docs/format/push.md`): enough to fill a server with many runs quickly."""

from __future__ import annotations

import struct
import urllib.request


def varint(number: int) -> bytes:
    """Protobuf's base-128 integer."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(number: int, payload: bytes | str) -> bytes:
    """A length-delimited field."""
    data = payload.encode() if isinstance(payload, str) else payload
    return varint(number << 3 | 2) + varint(len(data)) + data


def integer(number: int, value: int) -> bytes:
    """A varint field."""
    return varint(number << 3) + varint(value)


def series(name: str, first_ns: int, gap_ns: int, values: list[float]) -> bytes:
    """One series whose points are `gap_ns` apart and whose steps count from 0."""
    count = len(values)
    times = struct.pack(f"<{count}q", first_ns, *[gap_ns] * (count - 1))
    steps = struct.pack(f"<{count}q", 0, *[1] * (count - 1))
    return field(1, name) + field(4, times) + field(5, struct.pack(f"<{count}d", *values)) + field(6, steps)


def request(
    writer: bytes,
    sequence: int,
    run: str,
    time_ms: int,
    event: int,
    blocks: list[bytes],
) -> bytes:
    """A whole request for project `bench`."""
    names = field(1, "bench") + field(2, "bench") + field(3, "bench") + field(4, run)
    session = integer(1, time_ms) + integer(2, event) + field(4, "bench-host") + integer(5, 1)
    body = field(1, writer) + integer(2, sequence) + field(3, names) + field(4, session)
    return body + b"".join(field(5, block) for block in blocks)


def send(url: str, body: bytes) -> None:
    """Posts it; raises unless it was acknowledged."""
    headers = {"content-type": "application/x-protobuf"}
    call = urllib.request.Request(f"{url}/api/tg/v1/push", data=body, headers=headers, method="POST")
    with urllib.request.urlopen(call, timeout=60) as answer:
        answer.read()
