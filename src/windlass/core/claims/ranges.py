"""Sets of trial numbers as sorted, disjoint [first, stop) pairs. Python 3.9, standard library."""

from __future__ import annotations

from typing import Iterable, Iterator, List, Sequence, Tuple

Range = Tuple[int, int]
Ranges = List[Range]


def normalise(ranges: Iterable[Sequence[int]]) -> Ranges:
    """Sorted and merged; empty ones dropped."""
    result: Ranges = []
    for first, stop in sorted((pair[0], pair[1]) for pair in ranges):
        if first >= stop:
            continue
        if result and first <= result[-1][1]:
            result[-1] = (result[-1][0], max(stop, result[-1][1]))
        else:
            result.append((first, stop))
    return result


def from_pairs(pairs: Sequence[Sequence[int]]) -> Ranges:
    """Ranges as they were written to a file. Mostly one or two and in order, which is seen without sorting them."""
    result: Ranges = []
    end = -1
    for first, stop in pairs:
        if first <= end or first >= stop:
            return normalise(pairs)
        result.append((first, stop))
        end = stop
    return result


def from_numbers(numbers: Iterable[int]) -> Ranges:
    """Numbers in any order as ranges, without a pair a number on the way."""
    result: Ranges = []
    for number in sorted(set(numbers)):
        if result and result[-1][1] == number:
            result[-1] = (result[-1][0], number + 1)
        else:
            result.append((number, number + 1))
    return result


def union(left: Ranges, right: Ranges) -> Ranges:
    return normalise([*left, *right])


def subtract(left: Ranges, right: Ranges) -> Ranges:
    """What is in `left` and not in `right`; both normalised."""
    result: Ranges = []
    position = 0
    for begin, stop in left:
        first = begin
        while position < len(right) and right[position][1] <= first:
            position += 1
        at = position
        while at < len(right) and right[at][0] < stop:
            if right[at][0] > first:
                result.append((first, right[at][0]))
            first = max(first, right[at][1])
            at += 1
        if first < stop:
            result.append((first, stop))
    return result


def intersect(left: Ranges, right: Ranges) -> Ranges:
    return subtract(left, subtract(left, right))


def count(ranges: Iterable[Range]) -> int:
    return sum(stop - first for first, stop in ranges)


def take(ranges: Ranges, wanted: int) -> Tuple[Ranges, Ranges]:
    """The first `wanted` numbers, and the rest."""
    taken: Ranges = []
    for position, (first, stop) in enumerate(ranges):
        if wanted <= 0:
            return taken, ranges[position:]
        if stop - first > wanted:
            middle = first + wanted
            return [*taken, (first, middle)], [(middle, stop), *ranges[position + 1 :]]
        taken.append((first, stop))
        wanted -= stop - first
    return taken, []


def numbers(ranges: Iterable[Range]) -> Iterator[int]:
    for first, stop in ranges:
        yield from range(first, stop)


def contains(ranges: Ranges, number: int) -> bool:
    low, high = 0, len(ranges)
    while low < high:
        middle = (low + high) // 2
        if ranges[middle][1] <= number:
            low = middle + 1
        else:
            high = middle
    return low < len(ranges) and ranges[low][0] <= number
