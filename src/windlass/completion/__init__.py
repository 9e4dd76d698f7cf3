"""Answers shells that ask which arguments may follow. Standard library only, because an answer must be fast."""
