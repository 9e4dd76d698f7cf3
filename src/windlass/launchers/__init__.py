"""How the processes of one trial are started: one module a way. They travel to the node: Python 3.9."""
