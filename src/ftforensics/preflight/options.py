"""What the person who asks wants looked at."""

from __future__ import annotations

import msgspec


class Variable(msgspec.Struct, frozen=True):
    name: str
    value: str


class Options(msgspec.Struct, frozen=True):
    """prefix: of the environment that the job will use, None: this interpreter's; data: paths that must hold data;
    checkpoints: where the job will write; run_folder: where records of a crash would go; passing: the type of the file
    system there, when it goes with this container; verify: compare contents, not only sizes; distributed: look at the
    meeting of the ranks too; backend, start_method: of the job, where the person names them; environment: the one that
    the job will have."""

    environment: list[Variable] = []
    cwd: str = "/"
    prefix: str | None = None
    data: list[str] = []
    checkpoints: list[str] = []
    run_folder: str | None = None
    passing: str | None = None
    verify: bool = False
    distributed: bool = False
    backend: str | None = None
    start_method: str | None = None

    def variable(self, name: str) -> str | None:
        return next((one.value for one in self.environment if one.name == name), None)
