"""CRC-32 of files with holes, without reading the zeros. Python 3.9, standard library."""

from __future__ import annotations

from typing import List

_POLYNOMIAL = 0xEDB88320  # of zlib.crc32, the lowest bit first
_ONES = 0xFFFFFFFF


def append_zeros(checksum: int, count: int) -> int:
    """The CRC-32 of some bytes and `count` zero bytes behind them, where `checksum` is that of the bytes alone.

    Takes as long as `count` has digits. A step of CRC-32 over a zero bit is linear, so that many of them are a power
    of one 32 x 32 matrix of bits.
    """
    state = checksum ^ _ONES
    matrix = [_POLYNOMIAL, *(1 << bit for bit in range(31))]  # one zero bit
    for _ in range(3):
        matrix = _square(matrix)
    while count:
        if count & 1:
            state = _multiply(matrix, state)
        count >>= 1
        if count:
            matrix = _square(matrix)
    return state ^ _ONES


def _multiply(matrix: List[int], vector: int) -> int:
    result = 0
    for column in matrix:
        if vector & 1:
            result ^= column
        vector >>= 1
    return result


def _square(matrix: List[int]) -> List[int]:
    return [_multiply(matrix, column) for column in matrix]
