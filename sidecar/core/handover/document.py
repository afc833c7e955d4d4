"""The handover's bytes, and the values of its schema made of ours and back."""

import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeVar

import msgspec
from msgspec import DecodeError, Struct, json
from msgspec.structs import asdict

from sidecar.core.cluster.cluster_state import ComponentState
from sidecar.core.errors import OperatorError
from sidecar.core.flink.leadership import ComponentId
from sidecar.core.handover import schema
from sidecar.core.handover.schema import FORMAT, Document

MOST_UNPACKED: Final = 8 << 20


class _Header(Struct, frozen=True):
    format: int


class HandoverError(OperatorError):
    """The document cannot be used: one line that says why."""


class ForeignHandoverError(HandoverError):
    """A version that we do not know has written it. It is left alone."""


_K = TypeVar("_K")
_T = TypeVar("_T")
NOT_OURS: Final = "it is no handover of a sidecar: delete it"
_DOCUMENT: Final = json.Decoder(Document)
_HEADER: Final = json.Decoder(_Header)
_COMPONENT: Final = json.Decoder(tuple[ComponentId, schema.HandedComponentState])


def bounded(kind: type[_T], value: object) -> _T | None:
    """A value of the core as `kind`; None: there is none, or it is out of bounds."""
    try:
        return None if value is None else msgspec.convert(msgspec.to_builtins(value), kind)
    except (msgspec.ValidationError, ValueError):
        return None


def bounded_values(kind: type[_T], values: Mapping[_K, object]) -> dict[_K, _T]:
    return {key: within for key, value in values.items() if (within := bounded(kind, value)) is not None}


def components(
    items: Iterable[tuple[ComponentId, ComponentState]],
) -> Iterator[tuple[ComponentId, schema.HandedComponentState]]:
    for component, state in items:
        try:
            yield _COMPONENT.decode(json.encode((component, {**asdict(state), "split_since": state.contest.since})))
        except (DecodeError, ValueError):
            continue


def unbounded(kind: type[_T], value: Struct, **more: object) -> _T:
    """A value of the document as the core's `kind`, with `more` fields."""
    return msgspec.convert({**msgspec.to_builtins(value), **msgspec.to_builtins(more)}, kind)


def packed(document: Document) -> bytes:
    """JSON, compressed (gzip), as base64."""
    packer = zlib.compressobj(wbits=31)  # gzip: `base64 -d | gunzip` shows it
    return b64encode(packer.compress(json.encode(document)) + packer.flush())


def unpacked(content: bytes) -> Document:
    """The document. Raises HandoverError."""
    text = _text(content)
    try:
        number = _HEADER.decode(text).format
        if number > FORMAT:
            raise ForeignHandoverError(
                f"it was written by a newer version (format {number}, this version reads up to {FORMAT}): update this sidecar, or delete it"
            )
        if number < FORMAT:
            raise DecodeError("no such format")
        return _DOCUMENT.decode(text)
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        # The path, without the value there: `$.groups[...].members[...].alert.began.wall`.
        where = str(error).rpartition(" - at ")[2] if isinstance(error, msgspec.ValidationError) else ""
        raise HandoverError(f"{NOT_OURS}{f' (see {where[:200]})' if where else ''}") from None


def _text(content: bytes) -> bytes:
    unpacker = zlib.decompressobj(wbits=31)
    try:
        text = unpacker.decompress(b64decode(content, validate=True), MOST_UNPACKED)
    except (ValueError, zlib.error):
        raise HandoverError(NOT_OURS) from None
    if not unpacker.eof:
        raise HandoverError(f"it is cut off, or holds more than {MOST_UNPACKED >> 20} MiB")
    return text
