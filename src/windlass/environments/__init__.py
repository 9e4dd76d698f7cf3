"""What trials need around them: one module or folder a kind of environment. They travel to the node: Python 3.9."""
