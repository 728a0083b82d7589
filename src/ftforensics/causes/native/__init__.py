"""Faults of the process itself: bad pointers, bad instructions, exhausted stacks, exceptions nobody caught."""
