"""How the traces of one process become one draft of its death: a module for each kind of trace.

`diagnose.deaths` calls them in the order of their authority: records that the process wrote itself, the supervisor's
wait statuses, launchers' lines, texts that name nobody. Every look-up is by an index (`draft.Drafts`), so that the cost
grows with the number of traces and not with its square.
"""
