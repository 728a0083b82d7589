"""`ftforensics run`: the parent of a job. It sees every death, gathers evidence at once and ends as the job ended.

Records with the standard library alone, so that it works installed with --no-deps: what judges (msgspec, the analyser)
is imported by `cli.run`, afterwards. `supervisor` is the place to begin reading.

    supervisor ─┬─ witness    in the job's process group: which signals did the whole group get?
                ├─ copier     in a session of its own: carries the job's output, outlives the supervisor
                │   └─ log    keeps launcher.log, without secrets, within bounds
                └─ COMMAND    in the supervisor's own process group and session, as if started without us
"""
