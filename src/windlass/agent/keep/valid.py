"""Is a checkpoint whole? By its format's own marks, without reading it through. Python 3.9, standard library."""

from __future__ import annotations

import json
import os
import struct
import zipfile
from typing import BinaryIO

_TEMPORARY = (".tmp", ".temp", ".part", ".partial", ".incomplete", "~")
_ZIPS = (".npz", ".keras", ".zip")  # .pt and others may be zips or not: their first bytes tell
_HDF5S = (".h5", ".hdf5")
_HDF5 = b"\x89HDF\r\n\x1a\n"
_HEADER_BYTES = 100_000_000  # a longer header of .safetensors is damage


def is_temporary(path: str) -> bool:
    """Whether the name says that somebody is still writing it."""
    name = os.path.basename(path).lower()
    return name.startswith(".") or name.endswith(_TEMPORARY) or ".tmp" in name or ".part-" in name


def find_damage(path: str) -> str:
    """Why a file or folder cannot be a whole checkpoint; "" where nothing speaks against it."""
    try:
        if os.path.isdir(path):
            return _folder_damage(path)
        return _file_damage(path)
    except OSError as error:
        return f"cannot be read: {error.strerror}"


def _folder_damage(path: str) -> str:
    names = sorted(os.listdir(path))
    if not names:
        return "is an empty folder"
    for name in names:
        inside = os.path.join(path, name)
        if is_temporary(inside) and not name.startswith("."):
            return f"holds {name}, which is not finished"
        damage = (
            ""
            if os.path.isdir(inside) or name.startswith((".", "_"))
            else _file_damage(inside, empty_is_fine=True)
        )
        if damage:
            return f"holds {name}, which {damage}"
    return ""


def _file_damage(path: str, empty_is_fine: bool = False) -> str:
    size = os.path.getsize(path)
    if size == 0:
        return "" if empty_is_fine else "is empty"
    ending = os.path.splitext(path)[1].lower()
    with open(path, "rb") as file:
        start = file.read(8)
        if start[:2] == b"PK" or ending in _ZIPS:
            return _zip_damage(path)
        if start == _HDF5 or ending in _HDF5S:
            return _hdf5_damage(file, size)
        if ending == ".safetensors":
            return _safetensors_damage(file, size)
        if start[:6] == b"\x93NUMPY":
            return _npy_damage(file, size)
        if ending in (".pkl", ".pickle") and start[:1] == b"\x80":
            file.seek(-1, os.SEEK_END)
            return "" if file.read(1) == b"." else "ends in the middle of a pickle"
    return ""


def _zip_damage(path: str) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            last = max(members, key=lambda member: member.header_offset, default=None)
            if last is None:
                return "is an empty archive"
            if last.header_offset + last.compress_size > archive.start_dir:
                return "has less in it than its table says"
            with archive.open(last):  # compares the member's own header with the table
                return ""
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, ValueError):
        return "is cut short: the table at its end is missing or wrong"


def _hdf5_damage(file: BinaryIO, size: int) -> str:
    """The superblock says where the file ends."""
    file.seek(0)
    block = file.read(96)
    if block[:8] != _HDF5 or len(block) < 48:
        return "does not begin as HDF5 does"
    version = block[8]
    if version in (0, 1):
        width, first = block[13], 24 + 4 * version
        number = 2  # base address, free space, end of file
    elif version in (2, 3):
        width, first = block[9], 12
        number = 2  # base address, extension, end of file
        if version == 3 and block[11] & 1:
            return "was not closed by the program that wrote it"
    else:
        return ""
    end = int.from_bytes(block[first + number * width : first + (number + 1) * width], "little")
    return f"is cut short: {size} bytes of {end}" if size < end < 1 << 62 else ""


def _safetensors_damage(file: BinaryIO, size: int) -> str:
    file.seek(0)
    start = file.read(8)
    length = struct.unpack("<Q", start)[0] if len(start) == 8 else size
    if length > min(size - 8, _HEADER_BYTES):
        return "is cut short in its header"
    try:
        tensors = json.loads(file.read(length))
        ends = [
            tensor["data_offsets"][1] for name, tensor in tensors.items() if name != "__metadata__"
        ]
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        return "has a damaged header"
    whole = 8 + length + max(ends, default=0)
    return f"is cut short: {size} bytes of {whole}" if size < whole else ""


def _npy_damage(file: BinaryIO, size: int) -> str:
    """Only the header: what follows it is as long as shape and type say, and those are Python's own words."""
    file.seek(6)
    major = file.read(2)[:1]
    width = 2 if major == b"\x01" else 4
    length = int.from_bytes(file.read(width), "little")
    return "is cut short in its header" if 8 + width + length >= size else ""
