"""Parameters, zip, when, exclude, seeds and method → Space; what makes it empty is a problem."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from windlass.core.counted import counted
from windlass.core.errors import InputError
from windlass.core.meant import did_you_mean
from windlass.model import Parameter, Space
from windlass.search.grid import is_discrete, size_of, values_of
from windlass.search.methods.base import searcher_type
from windlass.search.sampling import can_repeat
from windlass.search.settings import count_distinct, count_settings, iterate_settings
from windlass.search.values import canonical_json, render_value, value_key
from windlass.spec.distributions import LISTABLE
from windlass.spec.document import Path, Problems
from windlass.spec.keys import Keys
from windlass.spec.limits import MOST_TRIALS, MOST_VALUES, show_count
from windlass.spec.parameters import Placed, check_name

_PARAMETERS: Path = ("parameters",)
_MOST_COMPARED = 1_000_000  # values of a parameter that a rule is compared with
_MOST_HINTS = 1_000  # values among which a similar one is looked for
_MOST_DRAWN = 10_000  # to see whether enough different settings can be drawn


REPEAT_NAME = "repeat"  # the setting that tells repetitions of a command apart


def build_space(
    keys: Keys,
    placed: list[Placed],
    file_rows: tuple[Mapping[str, Any], ...] | None,
    problems: Problems,
    warnings: list[str],
) -> Space:
    """The space a study's keys describe. Where there are problems, what it holds is not to be used.

    `file_rows` are the settings of the file that `parameters` names; None where it names none.
    """
    rows = file_rows or ()
    if isinstance(keys.parameters, list):
        rows = _parse_rows(keys.parameters, problems)
    is_list = bool(rows) or file_rows is not None
    method = keys.method or ("list" if is_list else "grid")
    is_refused = keys.method is None and problems.document.value.get("method") is not None
    if is_refused:
        pass  # it has a problem of its own; what another method would make of the parameters is beside the point
    elif file_rows is None:
        _check_method(method, keys, placed, problems)
    else:
        _check_file(method, rows, placed, problems)
    space = Space(
        method=method,
        parameters=tuple(item.parameter for item in placed),
        zips=keys.zip or (),
        exclude=tuple(_as_values(rule) for rule in keys.exclude or ()),
        rows=rows,
        seeds=keys.seeds or repetitions(keys.repeat),
        seed_name=keys.seed_name or ("seed" if keys.seeds or not keys.repeat else REPEAT_NAME),
        repeats=bool(keys.repeat and not keys.seeds),
        trials=keys.trials,
        search_seed=keys.search_seed or 0,
    )
    before = len(problems.found)
    _check_repeat(keys, problems)
    _check_seed_name(space, problems)
    _check_zips(space, problems)
    _check_conditions(placed, problems)
    _check_exclude(space, problems)
    if len(problems.found) == before and not problems.found:
        _check_size(space, problems)
    if 0 < len(space.seeds) <= 3 and not space.repeats:
        seeds = counted(len(space.seeds), "seed says", "seeds say")
        warnings.append(f"{seeds} little about chance; 5 or more are usual")
    if method == "grid" and space.trials is not None:
        warnings.append(f"the grid is cut off after {counted(space.trials, 'setting')} (trials)")
    return space


def _as_values(rule: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    return {
        name: tuple(value) if isinstance(value, list) else (value,) for name, value in rule.items()
    }


def names_of(space: Space) -> list[str]:
    """Every name that some trial's settings may hold, in order."""
    names = [parameter.name for parameter in space.parameters]
    for row in space.rows:
        names += [name for name in row if name not in names]
    return names + ([space.seed_name] if space.seeds and not space.repeats else [])


def _parse_rows(value: list[Any], problems: Problems) -> tuple[Mapping[str, Any], ...]:
    rows: list[Mapping[str, Any]] = []
    seen: dict[str, int] = {}
    if not value:
        problems.add(
            _PARAMETERS, "the list of settings is empty", "parameters: [{lr: 0.1}, {lr: 0.01}]"
        )
    for number, row in enumerate(value):
        path = (*_PARAMETERS, number)
        if not isinstance(row, dict) or not row:
            problems.add(
                path, "each row must be a mapping of names to values", "- {lr: 0.1, hidden: 64}"
            )
            continue
        for name in row:
            check_name(name, (*path, name), problems)
        text = canonical_json(row)
        if text in seen:
            problems.add(
                path, f"this row is the same as row {seen[text] + 1}", "keep one of the two"
            )
        seen.setdefault(text, number)
        rows.append(row)
    return tuple(rows)


def _check_method(method: str, keys: Keys, placed: list[Placed], problems: Problems) -> None:
    is_rows = isinstance(keys.parameters, list)
    if (method == "list") != is_rows and keys.parameters is not None:
        message = "method list takes a list of mappings as parameters"
        hint = "parameters: [{lr: 0.1}, {lr: 0.01}]" if not is_rows else "method: list"
        problems.add(("method",), message, hint)
    elif searcher_type(method).draws and keys.trials is None:
        problems.add(
            ("method",), f"method {method} needs to know how many settings to draw", "trials: 50"
        )
    elif searcher_type(method).draws and not placed:
        problems.add(("method",), f"method {method} has no parameters to draw", "method: grid")
    elif method != "list" and not searcher_type(method).draws:
        _check_listable(placed, problems)


def _check_file(
    method: str, rows: Sequence[Mapping[str, Any]], placed: list[Placed], problems: Problems
) -> None:
    """Each row of the file is combined with all values of the other parameters."""
    if method != "list":
        problems.add(
            ("method",),
            f"method {method} does not go with settings from a file",
            "remove the line method:",
        )
    columns = {name for row in rows for name in row}
    for item in placed:
        if item.parameter.name in columns:
            message = (
                f"{item.parameter.name} is a column of the file with settings, and a parameter too"
            )
            problems.add(item.path, message, "remove one of the two", key=True)
    _check_listable(placed, problems)


def _check_listable(placed: list[Placed], problems: Problems) -> None:
    for item in placed:
        parameter, path = item.parameter, item.path
        kind = parameter.distribution.kind if parameter.distribution else "categorical"
        if kind not in LISTABLE:
            message = f"a grid cannot list the values of {parameter.name} ({kind})"
            problems.add(
                path, message, "method: random and trials: 50, or give a list of values", key=True
            )
        elif is_discrete(parameter) and size_of(values_of(parameter)) > MOST_VALUES:
            count = show_count(size_of(values_of(parameter)))
            message = f"a grid cannot list the {count} values of {parameter.name}"
            problems.add(
                path, message, "method: random and trials: 50, or a smaller range", key=True
            )
        elif parameter.weights:
            message = f"probabilities of {parameter.name} have no meaning in a grid"
            problems.add(
                (*path, "probabilities"), message, "method: random and trials: 50", key=True
            )


def repetitions(repeat: int | None) -> tuple[int, ...]:
    """1 to `repeat`; nothing where a command is executed once."""
    return tuple(range(1, repeat + 1)) if repeat is not None and repeat > 1 else ()


def _check_repeat(keys: Keys, problems: Problems) -> None:
    if keys.repeat is not None and keys.seeds:
        more = f"seeds: {keys.repeat * len(keys.seeds)}"
        problems.add(
            ("repeat",),
            "the study has seeds, and each of them is a repetition",
            f"{more}, or no seeds",
            key=True,
        )
    elif keys.repeat is not None and keys.seed_name is not None:
        problems.add(
            ("repeat",),
            "seed_name names a seed, and a repetition has none",
            "remove seed_name",
            key=True,
        )


def _check_seed_name(space: Space, problems: Problems) -> None:
    if space.repeats:
        if space.seed_name in names_of(space):
            message = f"{space.seed_name} is a parameter of this study already"
            problems.add(("repeat",), message, "give the parameter another name", key=True)
    elif space.seeds and space.seed_name in names_of(space)[:-1]:
        message = f"{space.seed_name} is a parameter, and the name of the seed too"
        problems.add(("seeds",), message, "remove one of the two, or set seed_name", key=True)


def _check_zips(space: Space, problems: Problems) -> None:
    by_name = {parameter.name: parameter for parameter in space.parameters}
    used: set[str] = set()
    for group in space.zips:
        unknown = [name for name in group if name not in by_name]
        for name in unknown:
            problems.add(
                ("zip",), f"zip names {name!r}, which is no parameter", did_you_mean(name, by_name)
            )
        for name in group:
            if name in used:
                problems.add(
                    ("zip",), f"{name} stands in zip twice", "a parameter can be in one group"
                )
            used.add(name)
        if unknown:
            continue
        members = [by_name[name] for name in group]
        if not all(member.values or member.distribution for member in members):
            continue  # has a problem of its own
        if any(member.distribution is not None or member.weights for member in members):
            problems.add(
                ("zip",),
                f"zip of {', '.join(group)} needs plain lists of values",
                "give each a list",
            )
            continue
        if len({len(member.values) for member in members}) > 1:
            lengths = ", ".join(f"{member.name} has {len(member.values)}" for member in members)
            problems.add(
                ("zip",),
                f"zipped parameters must have equally many values: {lengths}",
                "add or remove values",
            )
        elif len(set(_tuples(members))) < len(members[0].values):
            problems.add(
                ("zip",),
                f"the same values of {', '.join(group)} stand together twice",
                "remove one",
            )
        if len({canonical_json(dict(member.when)) for member in members}) > 1:
            problems.add(("zip",), f"zipped parameters must have the same when: {', '.join(group)}")


def _tuples(members: Sequence[Parameter]) -> list[str]:
    return [
        canonical_json(values)
        for values in zip(*(member.values for member in members), strict=True)
    ]


def _check_conditions(placed: list[Placed], problems: Problems) -> None:
    by_name = {item.parameter.name: item.parameter for item in placed}
    paths = {item.parameter.name: (*item.path, "when") for item in placed}
    for parameter in by_name.values():
        path: Path = paths[parameter.name]
        for name, values in parameter.when.items():
            if name not in by_name or name == parameter.name:
                message = f"when of {parameter.name} names {name!r}, which is no other parameter"
                problems.add((*path, name), message, did_you_mean(name, by_name), key=True)
            else:
                _check_possible(
                    f"when of {parameter.name}", by_name[name], values, (*path, name), problems
                )
    for circle in _circles(by_name):
        problems.add(
            paths[circle[0]],
            f"these depend on each other in a circle: {' → '.join(circle)}",
            "remove one when",
        )


def _circles(by_name: Mapping[str, Parameter]) -> list[list[str]]:
    """The first circle of conditions, if any, as the names along it."""
    for start in by_name:
        trail, reached = [start], {start}
        stack = [
            (name, [start, name])
            for name in by_name[start].when
            if name in by_name and name != start
        ]
        while stack:
            name, trail = stack.pop()
            if name == start:
                return [trail]
            if name in reached:
                continue
            reached.add(name)
            stack += [
                (parent, [*trail, parent]) for parent in by_name[name].when if parent in by_name
            ]
    return []


def _check_possible(
    where: str, parameter: Parameter, values: Sequence[Any], path: Path, problems: Problems
) -> None:
    """A value that the parameter never takes is a typing mistake."""
    if not is_discrete(parameter):
        problems.add(
            path,
            f"{where} names {parameter.name}, which is drawn from a distribution",
            "name values of a list",
        )
        return
    possible = values_of(parameter)
    known = (
        {value_key(value) for value in possible} if size_of(possible) <= _MOST_COMPARED else set()
    )
    for value in values:
        if known and value_key(value) not in known:
            shown = ", ".join(render_value(item) for item in possible[:8])
            hint = did_you_mean(
                render_value(value), [render_value(item) for item in possible[:_MOST_HINTS]]
            )
            message = f"{where} names {render_value(value)}, which {parameter.name} never is (it is {shown})"
            problems.add(path, message, hint)


def _check_exclude(space: Space, problems: Problems) -> None:
    by_name = {parameter.name: parameter for parameter in space.parameters}
    known = names_of(space)
    for number, rule in enumerate(space.exclude):
        for name, values in rule.items():
            path: Path = ("exclude", number, name)
            if name not in known:
                problems.add(
                    path,
                    f"exclude names {name!r}, which is no parameter",
                    did_you_mean(name, known),
                    key=True,
                )
            elif name in by_name:
                _check_possible("exclude", by_name[name], values, path, problems)


def _check_size(space: Space, problems: Problems) -> None:
    """Nothing to do, or more asked for than there is."""
    if (space.trials or 0) > MOST_TRIALS:
        message = f"{show_count(space.trials or 0)} trials are more than the {MOST_TRIALS:,} that a study may have"
        problems.add(("trials",), message, "trials: 50")
        return
    if searcher_type(space.method).draws:
        _check_draws(space, space.trials or 0, problems)
    count = 0 if problems.found else count_settings(space)
    if count > MOST_TRIALS:
        message = f"these are {show_count(count)} trials; a study may have {MOST_TRIALS:,}"
        problems.add(
            _PARAMETERS, message, "fewer values, or method: random and trials: 50", key=True
        )
    elif count == 0 and not problems.found:
        _add_empty(problems)


def _add_empty(problems: Problems) -> None:
    message = "the grid is empty: the exclude rules remove every trial"
    problems.add(("exclude",), message, "remove a rule", key=True)


def _check_draws(space: Space, trials: int, problems: Problems) -> None:
    """Whether so many different settings can be drawn: by counting where possible, else by drawing them."""
    distinct = count_distinct(space)
    if distinct is None:
        needed = can_repeat(space) or bool(space.exclude)
        try:
            deque(
                iterate_settings(replace(space, trials=min(trials, _MOST_DRAWN) if needed else 0)),
                maxlen=0,
            )
        except InputError as error:
            problems.add(("trials",), error.problems[0].message, error.problems[0].hint)
    elif distinct == 0:
        _add_empty(problems)
    elif distinct < trials:
        asked = counted(trials, "trial is", "trials are")
        message = f"only {counted(distinct, 'different setting')}, and {asked} asked for"
        problems.add(("trials",), message, f"trials: {distinct}, or method: grid")
