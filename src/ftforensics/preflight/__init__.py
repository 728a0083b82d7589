"""Will a run that is started here work? Looked at before anything has died: one topic a file, each a pure function of
what `seen.py` gathered, joined by `run.py`. Nothing here draws, and nothing imports torch.
"""
