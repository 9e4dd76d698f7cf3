"""Journal and claims become the State that views show."""
