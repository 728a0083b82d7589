"""Source text that refuses system calls to the process it runs in: seccomp(2) with a classic BPF program."""

from __future__ import annotations

FILTER = """
import ctypes
def refuse(numbers, errno):
    class Instruction(ctypes.Structure):
        _fields_ = [("code", ctypes.c_ushort), ("true", ctypes.c_ubyte)]
        _fields_ += [("false", ctypes.c_ubyte), ("k", ctypes.c_uint)]
    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.POINTER(Instruction))]
    program = [Instruction(0x20, 0, 0, 0)]  # load the system call's number
    for number in numbers:
        program += [Instruction(0x15, 0, 1, number), Instruction(0x06, 0, 0, 0x00050000 | errno)]
    program.append(Instruction(0x06, 0, 0, 0x7FFF0000))  # allow
    array = (Instruction * len(program))(*program)
    libc = ctypes.CDLL(None)
    assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
    assert libc.prctl(22, 2, ctypes.byref(Program(len(program), array)), 0, 0) == 0  # PR_SET_SECCOMP
"""

# x86-64 numbers
PROCESS_VM_READV, TGKILL, RT_TGSIGQUEUEINFO, CLONE, TIMER_CREATE, LINKAT = 310, 234, 297, 56, 222, 265
EINVAL, ENOSYS, EPERM = 22, 38, 1
