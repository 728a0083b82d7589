"""Exceptions of Python that nobody caught: the plain fact, and what their type and origin make of it."""
