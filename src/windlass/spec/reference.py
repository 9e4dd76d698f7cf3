"""The reference of the study file, rendered from the table of settings, so that it cannot fall behind the code."""

from __future__ import annotations

from windlass.settings import Row, rows_of, section_names
from windlass.spec.kinds import kind_label
from windlass.spec.schema import describe

_HEAD = """\
# The study file

`study.yaml` holds the command that already works and the values to try. A plain W&B `sweep.yaml` is a
study too, and so is a text file of one command a line. This page is generated from the code, and so is
[study.schema.json](study.schema.json), a JSON schema with which editors complete and check a study file:
begin the file with `# yaml-language-server: $schema=` and the path or address of the schema.

```yaml
command: python train.py --lr {lr} --seed {seed}
parameters:
  lr: [1e-3, 1e-4]
seeds: 5
metric: {name: return, goal: maximize}
```
"""

_PLACEHOLDERS = """\
## Placeholders

`{name}` in a command or in a value of `env` is replaced by the parameter `name`, exactly as it was written: `1e-3`
stays `1e-3`, `007` stays `007`, and spaces, quotes, `$` and newlines arrive unchanged. True and false are `True` and
`False`, null is `None`, lists and mappings are JSON. These have a meaning of their own:

| placeholder | becomes |
| --- | --- |
| `{args}` | all parameters, in the order they are declared, as `args` says; must stand alone |
| `{seed}` | the seed, when there are `seeds` (see `seed_name`) |
| `{trial_id}` | the id of the trial |
| `{study}` | the name of the study |
| `{checkpoint}` | the checkpoint to go on from; where there is none yet, its word and the flag before it are dropped |
| `{checkpoint_dir}` | the folder where this trial keeps its checkpoints, the same for all its attempts |
| `{resume}` | the words of `checkpoint.resume`, where there is a checkpoint to go on from; must stand alone |
| `{envvar:NAME}` | the environment variable `NAME`, as it is where the trial runs |
| `$SLURM_TMPDIR`, `${SLURM_TMPDIR}` | the node's own disk, where data are; `$path_to_local_node_storage` is the same |
| `{args_json}` | all parameters as one word of JSON |
| `{args_json_file}` | the path of a JSON file with all parameters |
| `{config}` | the path of this trial's copy of the file that `config` names, with its parameters set |
| `{args_no_hyphens}` | all parameters as `name=value`; must stand alone |
| `{args_no_boolean_flags}` | as `--name=value`; true is a bare `--name`, false is left out; must stand alone |
| `{{name}}` | a literal `{name}` |

Any other `$name` or `${name}` is passed on as it stands, and braces around anything but a name mean nothing.

Where a parameter is absent from a trial because its `when` does not hold, it is left out of `{args}`; a
word of the command that mentions it is dropped, and with it the flag (a word that starts with `-`)
directly before a word that is the placeholder alone. So `--momentum {momentum}` and
`--momentum={momentum}` both vanish. A variable of `env` that mentions it is not set.

In `env`, `outputs` and `checkpoint.dir`, `{trial_id}` and `{study}` work beside the parameters.

W&B's macros `${env}`, `${interpreter}`, `${program}`, `${args}`, `${args_no_hyphens}`,
`${args_no_boolean_flags}`, `${args_json}`, `${args_json_file}` and `${envvar:NAME}` work in a `command`
as they do there.
"""

_DISTRIBUTIONS = """\
## Parameters in W&B's form

`values` (a choice), `value` (a constant), or `min` and `max`: whole numbers mean `int_uniform`, others
`uniform`. `distribution` names any of W&B's: `constant`, `categorical`, `categorical_w_probabilities`,
`int_uniform`, `uniform`, `q_uniform`, `log_uniform`, `log_uniform_values`, `q_log_uniform`,
`q_log_uniform_values`, `inv_log_uniform`, `inv_log_uniform_values`, `normal`, `q_normal`, `log_normal`,
`q_log_normal`, `beta`, `q_beta`. The bounds of `log_uniform`, `q_log_uniform` and `inv_log_uniform` are
exponents of e; those of the `…_values` forms are the values themselves. Distributions that begin with
`q_` are rounded to multiples of `q` (default 1). A grid takes `values`, `value`, `int_uniform` (both ends
included) and `q_uniform` (from `min` in steps of `q`, `max` not included, as in W&B); all others need
`method: random`.

## Settings from a file

```yaml
command: python train.py {args}
parameters: {file: settings.csv}
```

Each row of the file is one setting. The path is relative to the study file, and the ending tells the format:

| file | holds |
| --- | --- |
| `.csv`, `.tsv` | a header with the names of the parameters, then one row a setting |
| `.json` | a list of mappings |
| `.jsonl`, `.ndjson` | a mapping a line |

A cell of a table has the type that the same text has in YAML: `1e-3` is a number and stays as written, `true` is true,
`'007'` is text. An empty cell leaves the parameter out of that trial, as a `when` does.

Parameters beside `file` are combined with it: each row is tried with all their values, and with all seeds. `exclude`
works on both. A trial's id depends on its setting alone, not on where the setting was written: a study that moves its
list into a file, or appends rows to it, keeps the trials that are done. A command with the placeholder `{file}` has a
parameter of that name instead.

## Limits

A study has at most 10,000,000 trials. A file has at most 256 MB, and a YAML file 4 MB besides its long lists of plain
values, which are read fast: a million of them take a few seconds. Lists and mappings may be nested 50 deep, aliases
(`*name`) may stand for 1,000,000 values, and a whole number may have 300 digits. What is beyond is refused with an
error that says so.

## Task files

A file that is no study file holds one command a line. `#` begins a comment, blank lines are skipped, a
backslash at the end of a line continues it. Lines are split into words as a shell would, without one;
write `bash -c '…'` where you need a shell. With `--seeds`, lines that hold `{seed}` are repeated for
every seed. A line that stands there twice is two trials.
"""


_WHERE = {"slurm": "counts with Slurm", "local": "counts on this machine"}


def render_study_reference() -> str:
    """The whole page as Markdown: key by key with type, default, meaning and example."""
    parts = [_HEAD, "## Keys\n", *map(_render_row, rows_of("").values())]
    for section in section_names():
        parts += [f"## Keys of `{section}`\n", *map(_render_row, rows_of(section).values())]
    parts += [_PLACEHOLDERS, _DISTRIBUTIONS]
    return "\n".join(parts)


def _render_row(row: Row) -> str:
    facts = [f"type: {kind_label(row)}", f"default: {row.default_text or 'none'}"]
    if row.flags:
        facts.append(f"option: {', '.join(f'`{flag}`' for flag in row.flags)}")
    if row.where in _WHERE:
        facts.append(_WHERE[row.where])
    value = row.example if row.example.startswith("\n") else f" {row.example}"
    listed = "\n".join(f"- {fact}" for fact in facts)
    return f"### `{row.name}`\n\n{describe(row)}\n\n{listed}\n\n```yaml\n{row.name}:{value}\n```\n"
