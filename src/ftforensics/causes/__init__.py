"""What can end a run: one cause a file, `causes/<family>/<cause_id>.py`, found by walking this package.

A cause module has

    KIND: Kind                                          what it competes with
    def check(crash: Crash) -> Iterator[Finding]: ...   pure: early returns, no text parsing, no I/O
    def check_death(death: Death) -> Iterator[Finding]: ...   the same for an end of any kind; one of the two or both
    ORDER, REFINES, CHANGES                             optional, see registry.Cause

and a docstring that is the user's documentation: the first line is the title, then the headings of `registry.HEADINGS`.
`ftforensics explain ID` prints it, and docs/causes/ID.md is made from it (`python -m ftforensics.causes`).
"""
