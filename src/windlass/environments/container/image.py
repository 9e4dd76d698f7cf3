"""Images of containers: files in the format SIF, or folders. Python 3.9, standard library."""

from __future__ import annotations

import os
import struct
import zlib
from typing import NamedTuple, Optional

# The head of a SIF file: a line for the shell, a magic word, two versions as text, an identity, and numbers.
_HEAD = struct.Struct("<32s10s3s3s16s8q")
_MAGIC = b"SIF_MAGIC\0"
_ARCHITECTURES = {
    "01": "386", "02": "amd64", "03": "arm", "04": "arm64", "05": "ppc64", "06": "ppc64le", "11": "s390x",
    "12": "riscv64",
}  # fmt: skip
_MACHINES = {
    "x86_64": ("amd64", "386"), "aarch64": ("arm64", "arm"), "ppc64le": ("ppc64le",), "s390x": ("s390x",),
    "riscv64": ("riscv64",),
}  # fmt: skip
_CHUNK = 1 << 20


class BadImage(Exception):
    """An image that no container can be started from; the text says why."""


class Image(NamedTuple):
    """An image that was looked at."""

    path: str
    is_folder: bool
    size_bytes: int
    key: str  # another one for another content


def look_at_image(path: str, machine: Optional[str] = None) -> Image:
    """The image at `path`, which is whole and for this machine as far as its head tells. Raises BadImage."""
    try:
        found = os.stat(path)
    except OSError as error:
        raise BadImage(f"there is no image {path}: {error.strerror}") from None
    if os.path.isdir(path):
        if not os.path.isdir(os.path.join(path, "bin")) and not os.path.isdir(
            os.path.join(path, "usr")
        ):
            raise BadImage(f"{path} is a folder without /bin and /usr: no image")
        return Image(path, True, 0, "")
    try:
        with open(path, "rb") as file:
            head = file.read(_HEAD.size)
    except OSError as error:
        raise BadImage(f"{path} cannot be read: {error.strerror}") from None
    if len(head) < _HEAD.size or head[32:42] != _MAGIC:
        raise BadImage(f"{path} is no image of Apptainer or Singularity (SIF)")
    _, _, _, architecture, identity, *numbers = _HEAD.unpack(head)
    end = numbers[6] + numbers[7]
    if found.st_size < end:
        raise BadImage(f"{path} is cut short: it has {found.st_size} of {end} bytes")
    name = _ARCHITECTURES.get(architecture[:2].decode("ascii", "replace"), "")
    here = machine or os.uname().machine
    if name and here in _MACHINES and name not in _MACHINES[here]:
        raise BadImage(f"{path} is for {name}, and this machine is {here}")
    key = f"{identity.hex()}-{found.st_size:x}-{found.st_mtime_ns:x}"
    return Image(path, False, found.st_size, key)


def copy_image(image: Image, folder: str) -> None:
    """Copy an image and read the copy again. Raises BadImage where it is not what was read, and OSError."""
    target = os.path.join(folder, "image.sif")
    written = 0
    with open(image.path, "rb") as source, open(target, "wb") as copy:
        for piece in iter(lambda: source.read(_CHUNK), b""):
            written = zlib.crc32(piece, written)
            copy.write(piece)
    found = 0
    with open(target, "rb") as copy:
        for piece in iter(lambda: copy.read(_CHUNK), b""):
            found = zlib.crc32(piece, found)
    if found != written:
        raise BadImage(f"the copy of {image.path} in {folder} differs from it")
    if look_at_image(image.path) != image:
        raise BadImage(f"{image.path} changed while it was copied")
