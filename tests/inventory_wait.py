"""For jobs under test: waits until their inventory has begun, or until its answer has been fetched.

The extension starts the inventory two seconds after install(), with a memfd for the answer that stays open until the
watcher has fetched it (csrc/ftf_inventory.c). To have begun is also what makes a run worth a line of the ledger.
"""

from __future__ import annotations

# Text, because it runs inside the job: `wait_for_inventory()`, `wait_for_inventory(answered=True)`.
WAIT = """
import os, time
def inventory_runs():
    for fd in os.listdir("/proc/self/fd"):
        try:
            if "ftforensics-inventory" in os.readlink("/proc/self/fd/" + fd):
                return True
        except OSError:
            pass
    return False
def wait_for_inventory(answered=False):
    until = time.monotonic() + 40
    while inventory_runs() == answered:
        assert time.monotonic() < until, "the inventory hangs" if answered else "no inventory was started"
        time.sleep(0.01)
"""
