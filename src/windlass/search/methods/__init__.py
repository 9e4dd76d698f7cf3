"""The ways to choose the settings of a study's trials: one module a method."""
