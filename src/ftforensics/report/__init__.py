"""Renders a finished Diagnosis. Nothing here computes, opens files or looks at a clock.

One output a file: `terminal`, `json`, `html`, `one_line`, `brief`. Shared words: `phrases`, `frames`, `details`. All
text from a record, a log or a process name goes through `escape.printable` before it may reach a terminal.
"""
