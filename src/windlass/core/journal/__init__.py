"""The append-only record: write, read, fold."""
