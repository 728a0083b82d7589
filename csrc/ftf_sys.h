/* CONTEXT: SIGNAL. System calls without libc: no errno (a TLS access that may allocate), no cancellation points, no
   locks. Each returns the kernel's value, negative errno on failure. Used by every SIGNAL file instead of libc. */
#ifndef FTF_SYS_H
#define FTF_SYS_H

#include "ftf_context.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static inline long ftf_syscall6(long number, long a, long b, long c, long d, long e, long f)
{
#if defined(__x86_64__)
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    return x0;
#else
#error "x86-64 and aarch64 only"
#endif
}

#define ftf_syscall0(n) ftf_syscall6((n), 0, 0, 0, 0, 0, 0)
#define ftf_syscall1(n, a) ftf_syscall6((n), (long)(a), 0, 0, 0, 0, 0)
#define ftf_syscall2(n, a, b) ftf_syscall6((n), (long)(a), (long)(b), 0, 0, 0, 0)
#define ftf_syscall3(n, a, b, c) ftf_syscall6((n), (long)(a), (long)(b), (long)(c), 0, 0, 0)
#define ftf_syscall4(n, a, b, c, d) ftf_syscall6((n), (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)
#define ftf_syscall5(n, a, b, c, d, e) ftf_syscall6((n), (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), 0)

/* struct kernel_sigaction of both architectures (arch/x86/include/asm/signal.h; arm64 defines SA_RESTORER too).
   glibc's struct sigaction has another layout and hides sa_restorer, so whole actions are kept in the kernel's form. */
struct ftf_action {
    void (*handler)(int, siginfo_t *, void *);
    unsigned long flags;
    void (*restorer)(void);
    uint64_t mask;
};

#define FTF_SA_RESTORER 0x04000000UL

static inline long ftf_sigaction(int sig, const struct ftf_action *new_action, struct ftf_action *old_action)
{
    return ftf_syscall4(SYS_rt_sigaction, sig, new_action, old_action, sizeof(uint64_t));
}

static inline long ftf_sigprocmask(int how, const uint64_t *set, uint64_t *old_set)
{
    return ftf_syscall4(SYS_rt_sigprocmask, how, set, old_set, sizeof(uint64_t));
}

/* Takes a pending signal away, if it is blocked. */
static inline long ftf_take_pending(const uint64_t *set)
{
    struct timespec now = {0, 0};
    return ftf_syscall4(SYS_rt_sigtimedwait, set, 0, &now, sizeof(uint64_t));
}

static inline uint64_t ftf_pending(void)
{
    uint64_t set = 0;
    ftf_syscall2(SYS_rt_sigpending, &set, sizeof set);
    return set;
}

static inline uint64_t ftf_signal_bit(int sig) { return UINT64_C(1) << (sig - 1); }

static inline long ftf_sigaltstack(const stack_t *new_stack, stack_t *old_stack)
{
    return ftf_syscall2(SYS_sigaltstack, new_stack, old_stack);
}

static inline int ftf_getpid(void) { return (int)ftf_syscall0(SYS_getpid); }
static inline int ftf_gettid(void) { return (int)ftf_syscall0(SYS_gettid); }
static inline long ftf_tgkill(int pid, int tid, int sig) { return ftf_syscall3(SYS_tgkill, pid, tid, sig); }
static inline long ftf_kill(int pid, int sig) { return ftf_syscall2(SYS_kill, pid, sig); }

static inline long ftf_requeue(int pid, int tid, int sig, const siginfo_t *info)
{
    return ftf_syscall4(SYS_rt_tgsigqueueinfo, pid, tid, sig, info);
}

static inline long ftf_read(int fd, void *buffer, size_t size) { return ftf_syscall3(SYS_read, fd, buffer, size); }
static inline long ftf_write(int fd, const void *buffer, size_t size)
{
    return ftf_syscall3(SYS_write, fd, buffer, size);
}
static inline long ftf_pread(int fd, void *buffer, size_t size, long offset)
{
    return ftf_syscall4(SYS_pread64, fd, buffer, size, offset);
}
static inline long ftf_open(const char *path, int flags, int mode)
{
    return ftf_syscall4(SYS_openat, AT_FDCWD, path, flags, mode);
}
static inline long ftf_close(int fd) { return ftf_syscall1(SYS_close, fd); }
static inline long ftf_fstat(int fd, struct stat *st) { return ftf_syscall2(SYS_fstat, fd, st); }
static inline long ftf_lseek(int fd, long offset, int whence) { return ftf_syscall3(SYS_lseek, fd, offset, whence); }
static inline long ftf_ftruncate(int fd, long size) { return ftf_syscall2(SYS_ftruncate, fd, size); }
static inline long ftf_mkdir(const char *path, int mode) { return ftf_syscall3(SYS_mkdirat, AT_FDCWD, path, mode); }
static inline long ftf_unlink(const char *path) { return ftf_syscall3(SYS_unlinkat, AT_FDCWD, path, 0); }
static inline long ftf_linkat(const char *from, const char *to, int flags)
{
    return ftf_syscall5(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, flags);
}

static inline long ftf_futex(uint32_t *word, int operation, uint32_t value, const struct timespec *timeout)
{
    return ftf_syscall6(SYS_futex, (long)word, operation, value, (long)timeout, 0, 0);
}

static inline int64_t ftf_clock_ns(int clock)
{
    struct timespec now = {0, 0};
    ftf_syscall2(SYS_clock_gettime, clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline void ftf_sleep_ms(int ms)
{
    struct timespec pause = {ms / 1000, (long)(ms % 1000) * 1000000};
    ftf_syscall2(SYS_nanosleep, &pause, 0);
}

static inline long ftf_wait4(int pid, int *status, int options)
{
    return ftf_syscall4(SYS_wait4, pid, status, options, 0);
}

static inline void __attribute__((noreturn)) ftf_exit_process(int code)
{
    for (;;)
        ftf_syscall1(SYS_exit_group, code);
}

#endif
