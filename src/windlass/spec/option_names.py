"""What the name of an option tells about it: its kind, usual values, and whether anyone would sweep it."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Literal

Kind = Literal["int", "float", "str", "bool"]

INTEGER = re.compile(r"[-+]?(?:0|[1-9]\d*)")
NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_KIND_OF_TYPE: dict[str, Kind] = {
    **dict.fromkeys(("int", "integer"), "int"),
    "float": "float",
    **dict.fromkeys(("bool", "boolean"), "bool"),
    **dict.fromkeys(("str", "text", "path", "file", "filename", "directory"), "str"),
}
# Usual values, for an option whose help names none. The last word of a name that is here decides.
_USUAL = {
    **dict.fromkeys(("gamma", "discount"), "0.99"),
    **dict.fromkeys(("lambda", "lam", "momentum"), "0.9"),
    **dict.fromkeys(("dropout", "epsilon", "alpha"), "0.1"),
    **dict.fromkeys(("hidden", "units", "width", "dim", "features", "channels"), "64"),
    **dict.fromkeys(("batch", "batchsize"), "32"),
    **dict.fromkeys(("layers", "depth"), "2"),
    "heads": "4",
}
_LOGARITHMIC = {"lr", "eta", "decay", "l1", "l2", "wd", "stepsize"}
_NEVER_SWEPT = frozenset(
    """
    seed path paths dir directory folder file files output outputs out log logs logging save load resume
    checkpoint checkpoints worker workers thread threads process processes proc procs cpu cpus gpu gpus cuda
    device devices node nodes rank world port host master step steps epoch epochs episode episodes iter iters
    iteration iterations update updates timestep timesteps frames total interval every freq frequency eval
    test verbose verbosity debug print plot render timeout time patience id name tag project entity wandb data
    dataset version limit trainer
    """.split()  # noqa: SIM905 - a list of words reads better without a quote around each
)


def _words(name: str) -> list[str]:
    return re.split(r"[_.]", name.lower().strip("_"))


def is_logarithmic(name: str) -> bool:
    """True for what is tried in powers of ten, such as a learning rate or a weight decay."""
    return (
        not _LOGARITHMIC.isdisjoint(_words(name))
        or "learning_rate" in name.lower()
        or "step_size" in name.lower()
    )


def usual_value(name: str) -> str | None:
    """A value people start from, or None for a name that says nothing."""
    if is_logarithmic(name):
        return "0.001"
    return next((_USUAL[word] for word in reversed(_words(name)) if word in _USUAL), None)


def kind_of(name: str, type_name: str, default: str | None, choices: Sequence[str]) -> Kind:
    """From what the help says of the type; else from the default or the choices; else from the name."""
    given = _KIND_OF_TYPE.get(type_name.strip("<>").lower().split(" ")[0])
    if given:
        return given
    examples = list(choices) or [default or usual_value(name) or ("0" if is_seed(name) else "")]
    if all(example in ("True", "False") for example in examples):
        return "bool"
    if all(INTEGER.fullmatch(example) for example in examples) and not is_logarithmic(name):
        return "int"
    if all(NUMBER.fullmatch(example) for example in examples):
        return "float"
    return "str"


def is_seed(name: str) -> bool:
    return _words(name)[-1] == "seed" or name in ("random_state", "seeds", "seed_everything")


def is_never_swept(name: str) -> bool:
    """True for what says where, how long or on what a script works, instead of how it learns."""
    return not _NEVER_SWEPT.isdisjoint(_words(name))


def is_of_framework(name: str) -> bool:
    """True for the many options of Lightning's own trainer, which are the same in every script."""
    return _words(name)[0] == "trainer"


def is_output_place(name: str) -> bool:
    """True for a folder or file that a script writes to, which trials must not share."""
    words = set(_words(name))
    if name.lower() in _OUTPUT_NAMES or name.lower().endswith("default_root_dir"):
        return True
    if words & _READ:
        return False
    if words & _FOLDERS:
        return bool(words & (_WRITTEN | _SAVED))
    return bool(words & {"path", "file"}) and bool(words & _WRITTEN)


def is_output_folder(name: str) -> bool:
    """True for an output place that is a folder: what is given there need not be a file of a certain kind."""
    return is_output_place(name) and (
        name.lower() in _OUTPUT_NAMES or bool(set(_words(name)) & _FOLDERS)
    )


_OUTPUT_NAMES = frozenset(
    {"output", "outputs", "out", "logdir", "outdir", "savedir", "workdir", "rundir", "expdir"}
)
_FOLDERS = frozenset({"dir", "directory", "folder"})
_WRITTEN = frozenset(
    {
        "output",
        "outputs",
        "out",
        "log",
        "logs",
        "save",
        "result",
        "results",
        "tensorboard",
        "artifacts",
    }
)
_SAVED = frozenset(
    {"run", "runs", "exp", "experiment", "work", "checkpoint", "checkpoints", "ckpt"}
)
_READ = frozenset(
    {"load", "resume", "from", "pretrained", "init", "data", "dataset", "input", "restore", "cache"}
)


def own_place(base: str) -> str:
    """A place for each trial: a folder below `base`, or, where that is a file, one with the trial's id in its name."""
    base = base.rstrip("/")
    stem, ending = os.path.splitext(base)
    if ending and stem.strip("./"):
        return f"{stem}-{{trial_id}}{ending}"
    return "{trial_id}" if base in (".", "") else f"{base}/{{trial_id}}"
