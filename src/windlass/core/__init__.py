"""What the agent and the command line share. It travels with the agent: Python 3.9, standard library."""
