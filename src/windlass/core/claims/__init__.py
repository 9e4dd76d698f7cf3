"""Who may execute which trial: a register changed by compare-and-swap, with no locks."""
