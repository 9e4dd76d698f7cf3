"""What one trial needs, and how many share a device best: chooses what is measured, and has it measured."""
