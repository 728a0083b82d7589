"""Files mapped into memory, on disk or in shared memory."""
