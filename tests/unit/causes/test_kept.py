"""What is kept about one death is never given for another."""

from __future__ import annotations

import msgspec

from ftforensics.causes.kept import kept
from ftforensics.model.death import Death


def test_each_death_has_its_own_answer() -> None:
    asked = []

    @kept
    def pid(death: Death) -> int | None:
        asked.append(death)
        return death.pid

    one, other = Death(pid=1), Death(pid=2)
    assert [pid(one), pid(one), pid(other), pid(one)] == [1, 1, 2, 1]
    assert len(asked) == 2, "asked once for each"


def test_an_equal_death_is_another_one() -> None:
    counted = []
    ask = kept(lambda death: counted.append(death) or len(counted))
    death = Death(pid=1)
    assert ask(death) == ask(death) == 1
    assert ask(msgspec.structs.replace(death)) == 2


def test_a_death_that_is_gone_leaves_no_answer_behind() -> None:
    """A new value may get the place in memory of one that is gone."""
    ask = kept(lambda death: death.pid)
    assert [ask(Death(pid=number)) for number in range(200)] == list(range(200))
