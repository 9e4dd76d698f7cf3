"""study.yaml, W\&B sweep files, task files and command lines become a Study; errors name file, line and fix."""
