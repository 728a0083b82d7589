"""`ftforensics check`: the same facts and rules as after a crash, asked before a run. One topic a file."""
