"""Where curves and results are sent besides the study's folder: one module a tracker."""
