"""Encode and decode git's binary hunks: base-85 lines of zlib data for a literal file or a delta.

The format is that of git's `Documentation/gitformat-pack`.
"""

from __future__ import annotations

import base64
import hashlib
import zlib

from pytest_ssr.errors import ArtifactError

_MAX_BYTES = 256 * 1024**2


def encode(data: bytes) -> list[bytes]:
    """Return a literal block: the line with the size, the data, and the empty line that ends it."""
    packed = zlib.compress(data)
    lines = [b"literal %d\n" % len(data)]
    for start in range(0, len(packed), 52):
        chunk = packed[start : start + 52]
        size = len(chunk)
        length = bytes([size + 64 if size <= 26 else size - 26 + 96])
        lines.append(length + base64.b85encode(chunk + b"\0" * (-size % 4)) + b"\n")
    return [*lines, b"\n"]


def blob_id(data: bytes, *, size: int) -> bytes:
    """Return git's id of the content in hexadecimal: SHA-1 for a size of 40 digits, SHA-256 for 64."""
    algorithm = hashlib.sha256 if size == 64 else hashlib.sha1
    return algorithm(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest().encode()


def decode(block: tuple[bytes, ...], old: bytes, path: str) -> bytes:
    """Return the content that a block produces from `old`; raises ArtifactError if the block is damaged."""
    try:
        kind, _, size_text = block[0].strip().partition(b" ")
        packed = b"".join(_line(line) for line in block[1:] if line.strip())
        stream = zlib.decompressobj()
        data = stream.decompress(packed, _MAX_BYTES)
        if not stream.eof or stream.unused_data or len(data) != int(size_text):
            raise ValueError("the data does not have the stated size")
        return data if kind == b"literal" else _delta(data, old)
    except (ValueError, IndexError, zlib.error) as error:
        raise ArtifactError(f"{path}: the binary patch is damaged: {error}") from None


def _line(line: bytes) -> bytes:
    text = line.rstrip(b"\n")
    first = text[:1]
    size = 0
    if b"A" <= first <= b"Z":
        size = text[0] - 64
    elif b"a" <= first <= b"z":
        size = text[0] - 96 + 26
    if not size or len(text) - 1 != (size + 3) // 4 * 5:
        raise ValueError("a line has the wrong length")
    return base64.b85decode(text[1:])[:size]


def _size(delta: bytes, position: int) -> tuple[int, int]:
    size = shift = 0
    while True:
        byte = delta[position]
        position += 1
        size |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return size, position


def _delta(delta: bytes, old: bytes) -> bytes:
    old_size, position = _size(delta, 0)
    new_size, position = _size(delta, position)
    if old_size != len(old):
        raise ValueError("the file is not the one that the delta was made from")
    if new_size > _MAX_BYTES:
        raise ValueError("the result is too large")
    result = bytearray()
    while position < len(delta):
        code = delta[position]
        position += 1
        if code & 0x80:
            offset = length = 0
            for bit in range(7):
                if code & (1 << bit):
                    shift = 8 * bit if bit < 4 else 8 * (bit - 4)
                    if bit < 4:
                        offset |= delta[position] << shift
                    else:
                        length |= delta[position] << shift
                    position += 1
            length = length or 0x10000
            if offset + length > len(old):
                raise ValueError("the delta copies from beyond the end of the file")
            result += old[offset : offset + length]
        elif code:
            result += delta[position : position + code]
            position += code
        else:
            raise ValueError("the delta contains a reserved instruction")
        if len(result) > new_size:
            break
    if len(result) != new_size:
        raise ValueError("the result has the wrong size")
    return bytes(result)
