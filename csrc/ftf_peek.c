/* CONTEXT: SIGNAL. Reading memory that may not be there, without faulting.

   process_vm_readv(2) on ourselves needs no ptrace right (same thread group). It is asked about our thread and not our
   process: a main thread that has ended by itself has no memory any more (ESRCH). Some seccomp profiles refuse it, with
   whatever errno their author chose; only EFAULT speaks of the address. Then each page is probed: rt_sigprocmask(2) with an invalid `how` copies the
   set from user memory first, so it says EFAULT for an unreadable address and EINVAL for a readable one
   (kernel/signal.c, SYSCALL_DEFINE4(rt_sigprocmask)); needs no descriptor. */
#include "ftf_peek.h"

#include "ftf_sys.h"

#include <string.h>

#define PAGE 4096u

static uint64_t untagged(uint64_t address)
{
#if defined(__aarch64__)
    return address & UINT64_C(0x00ffffffffffffff); /* top byte ignored by loads (TBI), not by system calls */
#else
    return address;
#endif
}

static bool probe(uint64_t address)
{
    return ftf_syscall4(SYS_rt_sigprocmask, -1, address & ~UINT64_C(7), 0, sizeof(uint64_t)) != -EFAULT;
}

static bool read_within_page(uint64_t address, void *buffer, size_t size)
{
    struct iovec local = {buffer, size};
    struct iovec remote = {(void *)address, size};
    long got = ftf_syscall6(SYS_process_vm_readv, ftf_gettid(), (long)&local, 1, (long)&remote, 1, 0);
    if (got == (long)size)
        return true;
    if (got >= 0 || got == -EFAULT)
        return false;
    if (!probe(address) || !probe(address + size - 1))
        return false;
    memcpy(buffer, (const void *)address, size);
    return true;
}

size_t ftf_peek_some(uint64_t address, void *buffer, size_t size)
{
    size_t done = 0;
    address = untagged(address);
    while (done < size) {
        uint64_t here = address + done;
        size_t chunk = PAGE - (here & (PAGE - 1));
        if (chunk > size - done)
            chunk = size - done;
        if (here + chunk < here || !read_within_page(here, (uint8_t *)buffer + done, chunk))
            break;
        done += chunk;
    }
    return done;
}

bool ftf_peek(uint64_t address, void *buffer, size_t size) { return ftf_peek_some(address, buffer, size) == size; }

bool ftf_peek_string(uint64_t address, char *buffer, size_t size)
{
    size_t got = ftf_peek_some(address, buffer, size - 1);
    buffer[got] = 0;
    return got > 0;
}
