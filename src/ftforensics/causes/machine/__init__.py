"""The machine itself failed."""
