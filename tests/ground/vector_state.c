// LD_PRELOAD for linux.uml: lets a kernel that knows little of the processor switch all of its vector state.
//
// Linux 6.1 for User-mode Linux (arch/x86/um/os-Linux/registers.c) reads the vector registers of its processes by
// PTRACE_GETREGSET into a buffer of 2.7 KB, gets what fits, and writes that back. A host that has more (AMX: 11 KB)
// refuses the short write, and the kernel inside panics: "ptrace set fp regs failed, errno = 14" (seen on a Xeon with
// AMX and Linux 6.18). Here the part that was given is laid over the whole state, and the whole is written. What the
// buffer does not hold (the tiles of AMX) stays with the host's process; nothing inside uses it.
//
// The C library's ptrace() differs from the system call in the PEEK requests: it returns the word itself.

#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static long call(long request, long pid, void *address, void *data)
{
    return syscall(SYS_ptrace, request, pid, address, data);
}

static long switch_state(long request, long pid, void *which, struct iovec *part)
{
    static _Thread_local char state[1 << 16];
    struct iovec whole = {state, sizeof state};
    long failed = call(PTRACE_GETREGSET, pid, which, &whole);
    if (failed)
        return failed;
    size_t length = part->iov_len < whole.iov_len ? part->iov_len : whole.iov_len;
    if (request == PTRACE_GETREGSET) {
        memcpy(part->iov_base, state, length);
        part->iov_len = length;
        return 0;
    }
    memcpy(state, part->iov_base, length);
    return call(PTRACE_SETREGSET, pid, which, &whole);
}

long ptrace(enum __ptrace_request request, ...)
{
    va_list rest;
    va_start(rest, request);
    long pid = va_arg(rest, pid_t);
    void *address = va_arg(rest, void *);
    void *data = va_arg(rest, void *);
    va_end(rest);
    if ((request == PTRACE_GETREGSET || request == PTRACE_SETREGSET) && (unsigned long)address == NT_X86_XSTATE)
        return switch_state(request, pid, address, data);
    if (request != PTRACE_PEEKTEXT && request != PTRACE_PEEKDATA && request != PTRACE_PEEKUSER)
        return call(request, pid, address, data);
    long word;
    if (call(request, pid, address, &word))
        return -1;
    errno = 0;
    return word;
}
