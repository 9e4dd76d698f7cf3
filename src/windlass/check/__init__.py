"""The checklist before a study goes to a cluster: one file an item."""
