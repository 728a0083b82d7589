"""OOM reports as the kernels of fifteen years would have written them, from made-up values. Uses no code under test."""

from __future__ import annotations

from dataclasses import dataclass, field

UNLIMITED = 9007199254740988


@dataclass(frozen=True)
class Process:
    pid: int
    name: str
    total_vm: int  # pages, as all below
    anon: int
    file: int
    shmem: int = 0
    swap: int = 0
    uid: int = 1000
    adj: int = 0

    @property
    def rss(self) -> int:
        return self.anon + self.file + self.shmem


PYTHON = Process(4711, "python3", total_vm=2_000_000, anon=900_000, file=5_000, shmem=700, swap=11, adj=3)
WORKER = Process(4720, "pt_data_worker", total_vm=500_000, anon=60_000, file=4_000, shmem=90)
SHELL = Process(4600, "bash", total_vm=2_000, anon=200, file=900, uid=0)

COLUMNS = {
    "2.6.32": ("uid", "tgid", "total_vm", "rss", "cpu", "oom_adj", "oom_score_adj"),
    "3.10": ("uid", "tgid", "total_vm", "rss", "nr_ptes", "swapents", "oom_score_adj"),
    "4.1": ("uid", "tgid", "total_vm", "rss", "nr_ptes", "nr_pmds", "swapents", "oom_score_adj"),
    "4.14": ("uid", "tgid", "total_vm", "rss", "nr_ptes", "nr_pmds", "nr_puds", "swapents", "oom_score_adj"),
    "4.15": ("uid", "tgid", "total_vm", "rss", "pgtables_bytes", "swapents", "oom_score_adj"),
    "6.8": (
        *("uid", "tgid", "total_vm", "rss", "rss_anon", "rss_file", "rss_shmem"),
        *("pgtables_bytes", "swapents", "oom_score_adj"),
    ),
}


@dataclass(frozen=True)
class Kernel:
    """How one generation writes. header: between "invoked oom-killer: " and the line's end."""

    release: str
    header: str
    columns: str | None
    constraint: bool = False  # the oom-kill line
    candidate: bool = True  # the "Kill process" line
    cpuset_line: bool = True
    reason_on_victim: bool = False
    shmem: bool = True
    tail: bool = False  # UID, pgtables, oom_score_adj behind the sizes
    cpu: str = "CPU: 3 PID: {pid} Comm: {comm} Not tainted {release} #1 SMP"
    page: int = 4096


KERNELS = {
    "2.6.18": Kernel(
        "2.6.18-8.el5",
        "gfp_mask=0x201d2, order=0, oomkilladj=0",
        None,
        cpuset_line=False,
        reason_on_victim=True,
        cpu="Pid: {pid}, comm: {comm} Not tainted {release} #1",
    ),
    "2.6.32": Kernel(
        "2.6.32-754.el6.x86_64",
        "gfp_mask=0x280da, order=0, oom_adj=0, oom_score_adj=0",
        "2.6.32",
        shmem=False,
        cpu="Pid: {pid}, comm: {comm} Not tainted {release} #1",
    ),
    "3.10": Kernel("3.10.0-957.el7.x86_64", "gfp_mask=0xd0, order=0, oom_score_adj=0", "3.10", shmem=False),
    "4.1": Kernel("4.1.12", "gfp_mask=0xd0, order=0, oom_score_adj=0", "4.1", shmem=False),
    "4.5": Kernel("4.5.7", "gfp_mask=0x24000c0, order=0, oom_score_adj=0", "4.1"),
    "4.6": Kernel("4.6.7", "gfp_mask=0x24000c0(GFP_KERNEL), order=0, oom_score_adj=0", "4.1"),
    "4.9": Kernel("4.9.0-8-amd64", "gfp_mask=0x14000c0(GFP_KERNEL), nodemask=0-1,  order=0, oom_score_adj=0", "4.1"),
    "4.14": Kernel("4.14.200", "gfp_mask=0x14000c0(GFP_KERNEL), nodemask=(null),  order=0, oom_score_adj=0", "4.14"),
    "4.15": Kernel(
        "4.15.0-70-generic", "gfp_mask=0x14000c0(GFP_KERNEL), nodemask=(null), order=0, oom_score_adj=3", "4.15"
    ),
    "4.19": Kernel(
        "4.19.0-20-amd64", "gfp_mask=0x6000c0(GFP_KERNEL), nodemask=(null), order=0, oom_score_adj=0", "4.15"
    ),
    "5.0": Kernel(
        "5.0.21", "gfp_mask=0x6000c0(GFP_KERNEL), order=0, oom_score_adj=0", "4.15", constraint=True, cpuset_line=False
    ),
    "5.1": Kernel(
        "5.1.21",
        "gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
        "4.15",
        constraint=True,
        candidate=False,
        cpuset_line=False,
        reason_on_victim=True,
    ),
    "5.15": Kernel(
        "5.15.0-91-generic",
        "gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
        "4.15",
        constraint=True,
        candidate=False,
        cpuset_line=False,
        reason_on_victim=True,
        tail=True,
    ),
    "6.8": Kernel(
        "6.8.0-45-generic",
        "gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
        "6.8",
        constraint=True,
        candidate=False,
        cpuset_line=False,
        reason_on_victim=True,
        tail=True,
    ),
    "6.18": Kernel(
        "6.18.44",
        "gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
        "6.8",
        constraint=True,
        candidate=False,
        cpuset_line=False,
        reason_on_victim=True,
        tail=True,
        cpu="CPU: 3 UID: 1000 PID: {pid} Comm: {comm} Not tainted {release} #1 PREEMPT(none) ",
    ),
    "6.8-64k": Kernel(
        "6.8.0-1012-nvidia-64k",
        "gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
        "6.8",
        constraint=True,
        candidate=False,
        cpuset_line=False,
        reason_on_victim=True,
        tail=True,
        page=65536,
    ),
}


@dataclass(frozen=True)
class OomText:
    """One report. limit_group None: the whole machine ran out."""

    kernel: Kernel = KERNELS["6.18"]
    victim: Process = PYTHON
    others: tuple[Process, ...] = (SHELL, WORKER)
    trigger: Process = WORKER
    limit_group: str | None = "/slurm/uid_1000/job_7"
    victim_group: str = "/slurm/uid_1000/job_7/step_0"
    cpuset: str = "step_0"
    usage: int = 4_194_304  # kB
    limit: int = 4_194_304
    failcnt: int = 99
    swap: tuple[int, int] = (0, 0)
    members: tuple[Process, ...] = field(default=())  # of the victim's memory.oom.group
    nodemask: str = "(null)"
    word: str = "MEMCG"  # of the constraint

    @property
    def reason(self) -> str:
        return "Out of memory" if self.limit_group is None else "Memory cgroup out of memory"

    def header(self) -> str:
        return f"{self.trigger.name} invoked oom-killer: {self.kernel.header}"

    def lines(self) -> list[str]:
        kernel = self.kernel
        said = [self.header()]
        if kernel.cpuset_line:
            said.append(f"{self.trigger.name} cpuset={self.cpuset} mems_allowed=0-1")
        said.append(kernel.cpu.format(pid=self.trigger.pid, comm=self.trigger.name, release=kernel.release))
        said += ["Call Trace:", " dump_stack+0x19/0x1b", " oom_kill_process+0x254/0x3d0"]
        said += self._memory()
        said += self.table()
        if kernel.constraint:
            said.append(self.constraint())
        if kernel.candidate:
            ending = " and children." if kernel.release.startswith("2.6.18") else " or sacrifice child"
            said.append(f"{self.reason}: Kill process {self.victim.pid} ({self.victim.name}) score 907{ending}")
        said.append(self.killed(self.victim))
        if self.members:
            said.append(f"Tasks in {self.victim_group} are going to be killed due to memory.oom.group set")
            said += [self.killed(member) for member in (self.victim, *self.members)]
        return said

    def _memory(self) -> list[str]:
        if self.limit_group is None:
            return [
                "Mem-Info:",
                "active_anon:3901022 inactive_anon:103 isolated_anon:0",
                " free:33112 free_pcp:0 free_cma:0",
                "Node 0 Normal free:44kB min:44kB low:55kB high:66kB",
                "4194304 pages RAM",
            ]
        said = []
        if not self.kernel.constraint:
            said.append(f"Task in {self.victim_group} killed as a result of limit of {self.limit_group}")
        said.append(f"memory: usage {self.usage}kB, limit {self.limit}kB, failcnt {self.failcnt}")
        if self.kernel.release.startswith(("5.15", "6.")):
            said.append(f"swap: usage {self.swap[0]}kB, limit {self.swap[1]}kB, failcnt 0")
            said += [f"Memory cgroup stats for {self.limit_group}:", "anon 4294967296", "file 0"]
        else:
            both = self.usage + self.swap[0]
            said.append(f"memory+swap: usage {both}kB, limit {self.limit + self.swap[1]}kB, failcnt 0")
            said.append(f"kmem: usage 1420kB, limit {UNLIMITED}kB, failcnt 0")
            said.append(f"Memory cgroup stats for {self.limit_group}: cache:0KB rss:{self.usage}KB rss_huge:0KB")
        return said

    def table(self) -> list[str]:
        if self.kernel.columns is None:
            return []
        names = COLUMNS[self.kernel.columns]
        wide = self.kernel.columns in ("4.15", "6.8")
        head = "[  pid  ]   uid  tgid total_vm      rss " if wide else "[ pid ]   uid  tgid total_vm      rss "
        return [head + " ".join(names[4:]) + " name", *(self.row(one) for one in (*self.others, self.victim))]

    def row(self, one: Process) -> str:
        values = {
            "uid": one.uid,
            "tgid": one.pid,
            "total_vm": one.total_vm,
            "rss": one.rss,
            "rss_anon": one.anon,
            "rss_file": one.file,
            "rss_shmem": one.shmem,
            "swapents": one.swap,
            "oom_score_adj": one.adj,
            "pgtables_bytes": 7_340_032,
            "nr_ptes": 1800,
            "nr_pmds": 9,
            "nr_puds": 3,
            "cpu": 3,
            "oom_adj": 0,
        }
        numbers = " ".join(f"{values[name]:8d}" for name in COLUMNS[self.kernel.columns or ""])
        return f"[{one.pid:7d}] {numbers} {one.name}"

    def constraint(self) -> str:
        memcg = ",global_oom" if self.limit_group is None else f",oom_memcg={self.limit_group}"
        word = "NONE" if self.limit_group is None and self.word == "MEMCG" else self.word
        return (
            f"oom-kill:constraint=CONSTRAINT_{word},nodemask={self.nodemask},cpuset={self.cpuset},mems_allowed=0-1"
            f"{memcg},task_memcg={self.victim_group},task={self.victim.name},pid={self.victim.pid},uid={self.victim.uid}"
        )

    def killed(self, one: Process) -> str:
        kb = self.kernel.page // 1024
        reason = f"{self.reason}: " if self.kernel.reason_on_victim else ""
        if self.kernel.release.startswith("2.6.18"):
            return f"{reason}Killed process {one.pid} ({one.name})."
        uid = f", UID {one.uid}," if self.kernel.release.startswith("2.6.32") else ""
        text = f"{reason}Killed process {one.pid}{uid} ({one.name}) total-vm:{one.total_vm * kb}kB, "
        text += f"anon-rss:{one.anon * kb}kB, file-rss:{one.file * kb}kB"
        if self.kernel.shmem:
            text += f", shmem-rss:{one.shmem * kb}kB"
        if self.kernel.tail:
            text += f", UID:{one.uid} pgtables:7168kB oom_score_adj:{one.adj}"
        return text


def stamped(lines: list[str], at: float = 573.622186, step: float = 0.000007) -> bytes:
    """As dmesg prints by default."""
    return "".join(f"[{at + n * step:12.6f}] {line}\n" for n, line in enumerate(lines)).encode()


def records(lines: list[str], *, priority: int = 6, first: int = 800, at: int = 573_622_186) -> bytes:
    """As /dev/kmsg gives them; text is escaped as the kernel does."""
    said = []
    for n, line in enumerate(lines):
        raw = line.encode()
        text = "".join(chr(b) if 32 <= b < 127 and b != 0x5C else f"\\x{b:02x}" for b in raw)
        said.append(f"{priority},{first + n},{at + 7 * n},-;{text}\n")
    return "".join(said).encode()
