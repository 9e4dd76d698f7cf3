"""Looks through the tensors in files for NaN and infinity, and reports them as JSON. Python 3.9, standard library.

Executed by the trials' own Python (`python -m windlass.agent.keep.tensors FILE…`): .npy, .npz, .safetensors and .eqx
are read here, without any framework; .pt, .pth and .ckpt need torch, .h5 and .hdf5 need h5py, which that Python may
have.
"""

from __future__ import annotations

import array
import ast
import importlib
import json
import math
import os
import re
import struct
import sys
import zipfile
from typing import IO, Any, Dict, Iterator, List, Tuple

MARK = "WINDLASS-TENSORS "  # stands before the one line that counts
_PIECE_BYTES = 1 << 22  # a multiple of every size of a number
_HEADER_BYTES = 100_000_000  # a longer header is damage
# The kinds of numbers, each as this module decodes it; kinds that cannot hold NaN are left out.
_SAFETENSORS = {
    "F64": "d", "F32": "f", "F16": "e", "BF16": "bf16", "F8_E5M2": "e5m2", "F8_E4M3": "e4m3", "C64": "f",
}  # fmt: skip
_NUMPY = {"f8": "d", "f4": "f", "f2": "e", "c16": "d", "c8": "f"}
_WHOLE = re.compile(r"[IU]\d+|BOOL")  # kinds of safetensors that cannot hold NaN
_NUMPY_TYPE = re.compile(r"([<>=|])(f8|f4|f2|c16|c8)")
_TORCH, _HDF5 = (".pt", ".pth", ".ckpt"), (".h5", ".hdf5")
Tensor = Tuple[str, int, int, int]  # name, numbers, NaN among them, infinities among them


class CannotRead(Exception):
    """A file whose tensors cannot be looked through, and why."""


def look_through(path: str) -> Dict[str, Any]:
    """What is in one file: `tensors` and `numbers` looked at, `bad` tensors, or why it was `skipped`."""
    seen: Dict[str, Any] = {"file": path, "tensors": 0, "numbers": 0, "bad": [], "skipped": ""}
    try:
        for name, numbers, nans, infinities in _tensors_of(path):
            seen["tensors"] += 1
            seen["numbers"] += numbers
            if nans or infinities:
                seen["bad"].append({"tensor": name, "of": numbers, "nan": nans, "inf": infinities})
    except CannotRead as error:
        seen["skipped"] = str(error)
    except Exception as error:  # whatever a framework or a damaged file may raise
        seen["skipped"] = "%s: %s" % (
            type(error).__name__,
            str(error).splitlines()[0] if str(error) else "",
        )
    return seen


def _tensors_of(path: str) -> Iterator[Tensor]:
    ending = os.path.splitext(path)[1].lower()
    if ending == ".npz":
        return _npz(path)
    if ending in (".npy", ".eqx"):
        return _npy_file(path)
    if ending == ".safetensors":
        return _safetensors(path)
    if ending in _TORCH:
        return _torch(path)
    if ending in _HDF5:
        return _hdf5(path)
    raise CannotRead("files that end in %s are not looked through" % (ending or "nothing"))


# -- counting


def count_bad(data: bytes, kind: str, big: bool = False) -> Tuple[int, int]:
    """How many NaN and how many infinities a piece of raw numbers holds.

    A sum is finite only if every number in it is, and summing is quick: numbers are counted one by one only where
    the sum is not.
    """
    if kind == "e4m3":  # has no infinity; all bits but the sign are set in a NaN
        return data.count(b"\x7f") + data.count(b"\xff"), 0
    numbers = _decode(data, kind, big)
    if math.isfinite(sum(numbers)):
        return 0, 0
    nans = sum(1 for number in numbers if math.isnan(number))
    return nans, sum(1 for number in numbers if math.isinf(number))


def _decode(data: bytes, kind: str, big: bool) -> Any:
    if kind == "bf16":  # the upper half of a float32
        wide = bytearray(2 * len(data))
        wide[2::4], wide[3::4] = data[0::2], data[1::2]
        data, kind = bytes(wide), "f"
    elif kind == "e5m2":  # the upper half of a float16
        wide = bytearray(2 * len(data))
        wide[1::2] = data
        data, kind = bytes(wide), "e"
    if kind == "e":
        return struct.unpack("%s%de" % (">" if big else "<", len(data) // 2), data)
    numbers = array.array(kind)
    numbers.frombytes(data)
    if big != (sys.byteorder == "big"):
        numbers.byteswap()
    return numbers


def _count_stream(stream: IO[bytes], size: int, kind: str, big: bool = False) -> Tuple[int, int]:
    nans = infinities = 0
    while size > 0:
        piece = stream.read(min(size, _PIECE_BYTES))
        if not piece:
            raise CannotRead("it is cut short")
        while (
            len(piece) % 8 and len(piece) < size
        ):  # a compressed stream may give less than was asked for
            more = stream.read(8 - len(piece) % 8)
            if not more:
                raise CannotRead("it is cut short")
            piece += more
        size -= len(piece)
        found = count_bad(piece, kind, big)
        nans, infinities = nans + found[0], infinities + found[1]
    return nans, infinities


# -- formats that need nothing


def _npz(path: str) -> Iterator[Tensor]:
    unread = ""
    try:
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if name.endswith(".npy"):
                    with archive.open(name) as stream:
                        try:
                            yield from _npy_array(stream, name[: -len(".npy")])
                        except CannotRead as error:
                            unread = unread or "%s: %s" % (name[: -len(".npy")], error)
    except zipfile.BadZipFile as error:
        raise CannotRead("it is no whole archive: %s" % error) from error
    if unread:
        raise CannotRead(unread)


def _npy_file(path: str) -> Iterator[Tensor]:
    """One array, or several one after the other, as equinox writes them."""
    with open(path, "rb") as file:
        size, number = os.fstat(file.fileno()).st_size, 0
        while file.tell() < size:
            yield from _npy_array(file, "array" if number == 0 else "array %d" % (number + 1))
            number += 1


def _npy_array(stream: IO[bytes], name: str) -> Iterator[Tensor]:
    start = stream.read(8)
    if start[:6] != b"\x93NUMPY" or len(start) < 8:
        raise CannotRead("it does not begin as .npy does")
    width = 2 if start[6] == 1 else 4
    length = int.from_bytes(stream.read(width), "little")
    if length > _HEADER_BYTES:
        raise CannotRead("its header is damaged")
    header = ast.literal_eval(stream.read(length).decode("latin-1").strip())
    match = _NUMPY_TYPE.fullmatch(header["descr"]) if isinstance(header["descr"], str) else None
    numbers = math.prod(header["shape"])
    if match is None:
        _skip_array(stream, header["descr"], numbers)
        return
    size = numbers * int(match.group(2)[1:])
    kind = _NUMPY[match.group(2)]
    nans, infinities = _count_stream(stream, size, kind, match.group(1) == ">")
    yield name, numbers, nans, infinities


def _skip_array(stream: IO[bytes], descr: Any, numbers: int) -> None:
    """Integers, truth values and text hold no NaN; what follows them may be another array."""
    sized = re.fullmatch(r"[<>=|]?([a-zA-Z])(\d+)", descr) if isinstance(descr, str) else None
    if sized is None or sized.group(1) in "OV":
        raise CannotRead("it holds objects, not numbers")
    if sized.group(1) in "fc":
        raise CannotRead("its numbers are of type %s, which only numpy reads" % descr)
    stream.read(numbers * int(sized.group(2)) * (4 if sized.group(1) == "U" else 1))


def _safetensors(path: str) -> Iterator[Tensor]:
    with open(path, "rb") as file:
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else _HEADER_BYTES + 1
        if length > _HEADER_BYTES:
            raise CannotRead("its header is damaged")
        unread = ""
        for name, tensor in json.loads(file.read(length)).items():
            if name == "__metadata__":
                continue
            kind = _SAFETENSORS.get(tensor["dtype"])
            if kind is None and not _WHOLE.fullmatch(tensor["dtype"]):
                unread = unread or "the numbers of %s are of type %s, which is not known" % (
                    name,
                    tensor["dtype"],
                )
            if kind is not None:
                first, last = tensor["data_offsets"]
                file.seek(8 + length + first)
                nans, infinities = _count_stream(file, last - first, kind)
                yield name, math.prod(tensor["shape"]), nans, infinities
        if unread:
            raise CannotRead(unread)


# -- formats that need a framework


def _torch(path: str) -> Iterator[Tensor]:
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError as error:
        raise CannotRead("torch is not installed in %s" % sys.executable) from error
    try:
        held = torch.load(path, map_location="cpu", weights_only=True)
    except Exception:
        # The trial has just written this file with this Python: its own classes may be loaded as well.
        held = torch.load(path, map_location="cpu", weights_only=False)
    for name, tensor in _walk(held, "", torch.Tensor, set()):
        if tensor.is_floating_point() or tensor.is_complex():
            dense = (
                tensor.detach() if tensor.layout is torch.strided else tensor.detach().to_dense()
            )
            wide = dense.float() if dense.element_size() < 2 else dense
            yield name, dense.numel(), int(torch.isnan(wide).sum()), int(torch.isinf(wide).sum())


def _walk(held: Any, name: str, kind: Any, seen: "set[int]") -> Iterator[Tuple[str, Any]]:
    """All tensors in what a file held, with the keys that lead to them."""
    if isinstance(held, kind):
        yield name or "tensor", held
        return
    if id(held) in seen:
        return
    seen.add(id(held))
    if hasattr(held, "state_dict") and callable(held.state_dict):
        held = held.state_dict()
    if isinstance(held, dict):
        items: Any = held.items()
    elif isinstance(held, (list, tuple)):
        items = enumerate(held)
    else:
        return
    for key, value in items:
        yield from _walk(value, "%s.%s" % (name, key) if name else str(key), kind, seen)


def _hdf5(path: str) -> Iterator[Tensor]:
    try:
        h5py: Any = importlib.import_module("h5py")
        numpy: Any = importlib.import_module("numpy")
    except ImportError as error:
        raise CannotRead("h5py is not installed in %s" % sys.executable) from error
    found: List[Tensor] = []

    def look(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and item.dtype.kind in "fc":
            values = item[()]
            found.append(
                (name, item.size, int(numpy.isnan(values).sum()), int(numpy.isinf(values).sum()))
            )

    with h5py.File(path, "r") as file:
        file.visititems(look)
    yield from found


if __name__ == "__main__":
    print(MARK + json.dumps([look_through(path) for path in sys.argv[1:]]))
