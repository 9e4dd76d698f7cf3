"""What several kinds of environments use: a shell, a look at a Python, the search for conda. Python 3.9."""
