"""The program on the node: claims trials and runs them. Standard library only, Python 3.9 and up."""
