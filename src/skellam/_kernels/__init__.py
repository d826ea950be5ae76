"""The compiled loops and nothing else."""
