/* Real faults, one exported function each, for the crash matrix.
 *
 * The harness builds this file once per session and die.py calls it through ctypes. A test looks for the range of
 * the function's symbol in the recorded native frames, so nothing here may be inlined, cloned or turned into a tail
 * call: hence DEATH, the volatile variables and -fno-optimize-sibling-calls in the harness.
 *
 * Addresses: WILD is canonical and below every place where Linux puts a mapping by itself on x86-64 and aarch64
 * (mmap_base lies near the top of the 47 or 48 bit space, a PIE at 2/3 of it), NON_CANONICAL sets bits 63..47
 * unevenly.
 */
#define _GNU_SOURCE
#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define DEATH __attribute__((noinline, noclone, visibility("default"))) void

static const uintptr_t WILD = 0x123456789000u;
static const uintptr_t NON_CANONICAL = 0xdead00000000beefu;

int crash_ready_fd = -1;        /* crash_wait_signal and crash_and_tell write the caller's tid here */
char crash_file[4096];          /* a path for the SIGBUS functions */
volatile uintptr_t crash_sink;  /* where loaded values go, so that loads stay */

/* --- addresses ------------------------------------------------------------------------------------------------- */

DEATH crash_null_read(void)
{
    volatile const uintptr_t *volatile object = NULL;
    crash_sink = object[5]; /* a field at +40, as in a member access through a null pointer */
}

DEATH crash_null_write(void)
{
    volatile uintptr_t *volatile object = NULL;
    object[2] = 1;
}

DEATH crash_null_call(void)
{
    void (*volatile method)(void) = NULL;
    method();
    crash_sink = 1;
}

DEATH crash_wild_read(void)
{
    volatile const uintptr_t *volatile object = (const uintptr_t *)WILD;
    crash_sink = *object;
}

DEATH crash_wild_write(void)
{
    volatile uintptr_t *volatile object = (uintptr_t *)WILD;
    *object = 1;
}

DEATH crash_wild_call(void)
{
    void (*volatile method)(void) = (void (*)(void))WILD;
    method();
    crash_sink = 1;
}

DEATH crash_non_canonical(void)
{
    volatile const uintptr_t *volatile object = (const uintptr_t *)NON_CANONICAL;
    crash_sink = *object;
}

static const char read_only_text[] = "a string literal";

DEATH crash_write_to_readonly(void)
{
    volatile char *volatile text = (char *)(uintptr_t)read_only_text;
    *text = 'X';
}

static unsigned char data_bytes[64] = {0xc3, 0xc3, 0xc3, 0xc3};

DEATH crash_execute_data(void)
{
    void (*volatile method)(void) = (void (*)(void))(uintptr_t)data_bytes;
    method();
    crash_sink = 1;
}

DEATH crash_wild_stack_pointer(void)
{
#if defined(__x86_64__)
    __asm__ volatile("movabs $0x123456780000, %%rsp\n\tpush %%rax" ::: "memory");
#elif defined(__aarch64__)
    __asm__ volatile("mov x9, #0x0000\n\tmovk x9, #0x5678, lsl #16\n\tmovk x9, #0x1234, lsl #32\n\t"
                     "mov sp, x9\n\tstr x9, [sp, #-16]!" ::
                         : "x9", "memory");
#endif
}

/* Frames of about 1 KiB: smaller than a guard page, so that the guard cannot be jumped. */
__attribute__((noinline, noclone, visibility("default"))) uintptr_t crash_stack_overflow_level(uintptr_t depth)
{
    volatile char frame[1000];
    frame[depth % sizeof frame] = (char)depth;
    if (depth == UINTPTR_MAX) /* never: keeps the compiler from calling the recursion infinite */
        return 0;
    uintptr_t below = crash_stack_overflow_level(depth + 1);
    return below + (uintptr_t)frame[(depth * 7) % sizeof frame];
}

DEATH crash_stack_overflow(void) { crash_sink = crash_stack_overflow_level(1); }

/* --- the heap -------------------------------------------------------------------------------------------------- */

DEATH crash_double_free(void)
{
    void *volatile block = malloc(100);
    free(block);
    free(block);
}

static void *sit(void *unused)
{
    (void)unused;
    for (;;)
        pause();
    return NULL;
}

/* A fault inside _int_malloc with the arena's lock held.
 *
 * A chunk in the unsorted list gets a wild `bk`; the next request walks that list and reads bk->fd (glibc 2.26 to
 * 2.39, malloc.c, "unsorted double linked list corrupted"). The sizes are odd and above the tcache's, and the
 * neighbours stay in use, so that the chunk is neither cached nor merged. glibc takes no lock in a single-threaded
 * process (SINGLE_THREAD_P), hence the second thread. */
DEATH crash_malloc_locked(void)
{
    pthread_t other;
    pthread_create(&other, NULL, sit, NULL);
    void *volatile before = malloc(17776);
    volatile uintptr_t *volatile block = malloc(17776);
    void *volatile after = malloc(17776);
    (void)before;
    (void)after;
    free((void *)block);
    block[1] = WILD;
    void *volatile again = malloc(17776);
    crash_sink = (uintptr_t)again;
}

/* --- aborts and traps ------------------------------------------------------------------------------------------ */

DEATH crash_assert(void)
{
    volatile int ranks_seen = 7;
    assert(ranks_seen == 8);
}

DEATH crash_illegal_instruction(void)
{
#if defined(__x86_64__)
    __asm__ volatile("ud2");
#elif defined(__aarch64__)
    __asm__ volatile(".inst 0x00000000");
#endif
}

#if defined(__x86_64__) /* aarch64 divides by zero in silence */
DEATH crash_integer_division(void)
{
    volatile int zero = 0;
    volatile int dividend = 7;
    crash_sink = (uintptr_t)(dividend / zero);
}
#endif

/* --- memory whose file is gone or full ------------------------------------------------------------------------- */

DEATH crash_bus_truncated_file(void)
{
    int fd = open(crash_file, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, 4 * 4096) != 0)
        return;
    volatile const char *shards = mmap(NULL, 4 * 4096, PROT_READ, MAP_SHARED, fd, 0);
    if (shards == MAP_FAILED || ftruncate(fd, 0) != 0)
        return;
    crash_sink = (uintptr_t)shards[2 * 4096];
}

/* ftruncate on tmpfs reserves nothing, so the write that finds no page gets SIGBUS (man 2 mmap). */
DEATH crash_bus_shm_full(void)
{
    const size_t size = 64u << 20;
    int fd = open(crash_file, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)size) != 0)
        return;
    volatile char *tensor = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (tensor == MAP_FAILED)
        return;
    for (size_t at = 0; at < size; at += 4096)
        tensor[at] = 1;
}

/* --- signals from outside -------------------------------------------------------------------------------------- */

static void tell_ready(void)
{
    int64_t tid = syscall(SYS_gettid);
    if (write(crash_ready_fd, &tid, sizeof tid) != (ssize_t)sizeof tid)
        _exit(99);
}

DEATH crash_wait_signal(void)
{
    tell_ready();
    for (;;)
        pause();
}

/* --- contexts -------------------------------------------------------------------------------------------------- */

typedef void (*death)(void);

static void *c_thread_main(void *function)
{
    ((death)(uintptr_t)function)();
    crash_sink = 1;
    return NULL;
}

/* Dies on a thread that Python never saw. Returns only when the death did not happen. */
__attribute__((visibility("default"))) int die_on_c_thread(death function)
{
    pthread_t thread;
    int error = pthread_create(&thread, NULL, c_thread_main, (void *)(uintptr_t)function);
    return error ? error : pthread_join(thread, NULL);
}

/* `count` C threads fault together, each as soon as the last one has arrived. */
static pthread_barrier_t together;

static void *barrier_thread_main(void *function)
{
    pthread_barrier_wait(&together);
    ((death)(uintptr_t)function)();
    return NULL;
}

__attribute__((visibility("default"))) int die_on_many_c_threads(death function, int count)
{
    pthread_t thread[64];
    pthread_barrier_init(&together, NULL, (unsigned)count);
    for (int i = 0; i < count; i++) {
        int error = pthread_create(&thread[i], NULL, barrier_thread_main, (void *)(uintptr_t)function);
        if (error)
            return error;
    }
    for (int i = 0; i < count; i++)
        pthread_join(thread[i], NULL);
    return 0;
}

/* The same for threads that Python made. */
__attribute__((visibility("default"))) void barrier_init(int count)
{
    pthread_barrier_init(&together, NULL, (unsigned)count);
}
__attribute__((visibility("default"))) void die_at_barrier(death function)
{
    pthread_barrier_wait(&together);
    function();
}

/* A C thread announces that it dies now; the caller returns `wait_ms` later and ends the process in its own way. */
static int announce_pipe[2];

static void *announcing_thread_main(void *function)
{
    char one = 1;
    if (write(announce_pipe[1], &one, 1) != 1)
        _exit(99);
    ((death)(uintptr_t)function)();
    return NULL;
}

__attribute__((visibility("default"))) int die_on_c_thread_and_return(death function, int wait_ms)
{
    pthread_t thread;
    char one;
    if (pipe(announce_pipe) != 0 ||
        pthread_create(&thread, NULL, announcing_thread_main, (void *)(uintptr_t)function) != 0)
        return -1;
    if (read(announce_pipe[0], &one, 1) != 1)
        return -1;
    struct timespec pause_for = {wait_ms / 1000, (wait_ms % 1000) * 1000000L};
    while (nanosleep(&pause_for, &pause_for) != 0 && errno == EINTR)
        ;
    return 0;
}

static void *exit_thread_main(void *unused)
{
    (void)unused;
    exit(0);
}

__attribute__((visibility("default"))) int exit_on_c_thread(void)
{
    pthread_t thread;
    int error = pthread_create(&thread, NULL, exit_thread_main, NULL);
    return error ? error : pthread_join(thread, NULL);
}

static char dlopen_path[4096];

DEATH crash_dlopen(void) { crash_sink = (uintptr_t)dlopen(dlopen_path, RTLD_NOW); }

__attribute__((visibility("default"))) void set_dlopen_path(const char *path)
{
    snprintf(dlopen_path, sizeof dlopen_path, "%s", path);
}

/* --- what the death benchmark needs ---------------------------------------------------------------------------- */

struct death_clock {
    int64_t monotonic_ns;
    int64_t process_cpu_ns;
};

static int64_t now_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Writes both clocks to crash_ready_fd and then reads through NULL. */
DEATH crash_and_tell(void)
{
    struct death_clock clock = {now_ns(CLOCK_MONOTONIC), now_ns(CLOCK_PROCESS_CPUTIME_ID)};
    if (write(crash_ready_fd, &clock, sizeof clock) != (ssize_t)sizeof clock)
        _exit(99);
    crash_null_read();
}

/* --- instruments that prove what a program does, used with no other handler --------------------------------------- */

static void printer(int number, siginfo_t *info, void *context)
{
    (void)context;
    char line[160];
    int length = snprintf(line, sizeof line, "siginfo signo=%d code=%d address=%p pid=%d tid=%ld main=%d\n", number,
                          info->si_code, info->si_addr, info->si_pid, syscall(SYS_gettid),
                          (int)(syscall(SYS_gettid) == getpid()));
    if (write(2, line, (size_t)length) < 0)
        _exit(98);
    signal(number, SIG_DFL);
    if (info->si_code <= 0)
        raise(number);
}

static void allocator(int number)
{
    /* The heap's lock is held by the interrupted malloc: the second write is never reached. */
    alarm(1);
    if (write(2, "malloc?\n", 8) < 0)
        _exit(98);
    crash_sink = (uintptr_t)malloc(17776);
    if (write(2, "malloc!\n", 8) < 0)
        _exit(98);
    _exit(number);
}

static void on_alternate_stack(void)
{
    stack_t stack = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
    sigaltstack(&stack, NULL);
}

static const int fatal[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};

__attribute__((visibility("default"))) void install_printer(void)
{
    struct sigaction action = {.sa_sigaction = printer, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    on_alternate_stack();
    for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++)
        sigaction(fatal[i], &action, NULL);
}

__attribute__((visibility("default"))) void install_allocator(void)
{
    struct sigaction action = {.sa_handler = allocator, .sa_flags = SA_ONSTACK};
    on_alternate_stack();
    sigaction(SIGSEGV, &action, NULL);
}

/* Address of the installed handler, 0 for SIG_DFL, 1 for SIG_IGN. */
__attribute__((visibility("default"))) uintptr_t current_handler(int number)
{
    struct sigaction action;
    if (sigaction(number, NULL, &action) != 0)
        return ~(uintptr_t)0;
    return (uintptr_t)action.sa_handler;
}
