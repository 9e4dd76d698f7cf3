"""Answers shells that ask which words may follow. Standard library only, because an answer must be fast."""
