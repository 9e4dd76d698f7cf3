"""State becomes text. No view ever writes state."""
