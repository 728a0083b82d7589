"""Ended by somebody else."""
