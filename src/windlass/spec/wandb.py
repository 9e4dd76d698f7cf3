"""Keys of W&B's sweep files that a study file may have."""

from __future__ import annotations

ALIASES = {"run_cap": "trials"}  # what they mean here
IGNORED = frozenset(
    """
    description project entity early_terminate controller settings job scheduler version displayName
    display_name sweep_id state runcap image_uri tags $schema
    """.split()  # noqa: SIM905 - a list of words reads better without a quote around each
)
# These describe the user, not the study; a warning would be noise.
SILENT = frozenset({"description", "project", "entity", "$schema", "version"})
