/* CONTEXT: SIGNAL. See ftf_reporter.h.

   The process is started with a scrubbed environment (an inherited LD_PRELOAD could crash it the same way) and gets the
   record's path and our pid. Eight ranks that crash together start eight of these; only the one that gets the lock of the
   run folder does the costly part. Starved machines get none: it needs some 100 MB. */
#include "ftf_reporter.h"

#include "ftf_hook.h"
#include "ftf_spawn.h"
#include "ftf_step.h"

#include <sys/prctl.h>

#define MEMORY_NEEDED (INT64_C(256) << 20)

static int64_t number_in_file(const char *path, const char *key)
{
    int fd = path[0] ? ftf_open_somehow(path, O_RDONLY, 0) : -1;
    long got = fd < 0 ? -1 : ftf_read(fd, ftf.scratch, 8191);
    if (fd >= 0)
        ftf_close(fd);
    if (got <= 0)
        return -1;
    ftf.scratch[got] = 0;
    const char *cursor = (const char *)ftf.scratch;
    const char *end = cursor + got;
    while (cursor < end && key && !ftf_starts_with(cursor, key)) {
        while (cursor < end && *cursor != '\n')
            cursor++;
        cursor++;
    }
    if (cursor >= end)
        return -1;
    cursor += key ? ftf_string_length(key) : 0;
    while (cursor < end && *cursor == ' ')
        cursor++;
    if (*cursor < '0' || *cursor > '9') /* "max": no limit */
        return -1;
    uint64_t value = ftf_parse_decimal(&cursor, end);
    return value > INT64_MAX ? INT64_MAX : (int64_t)value;
}

static bool memory_is_short(void)
{
    int64_t available = number_in_file("/proc/meminfo", "MemAvailable:");
    int64_t usage = number_in_file(ftf.memory_usage_file, 0);
    int64_t limit = number_in_file(ftf.memory_limit_file, 0);
    return (available >= 0 && available * 1024 < MEMORY_NEEDED) ||
           (usage >= 0 && limit >= 0 && limit - usage < MEMORY_NEEDED);
}

static void put_number(char *out, int64_t value)
{
    struct ftf_text text = {out, 23, 0, false};
    ftf_put_decimal(&text, value);
    out[text.used] = 0;
}

static int wait_for(long pid, int64_t until_ns)
{
    for (int pause = 1;; pause = pause < 10 ? pause + 1 : 10) {
        int status = 0;
        long waited = ftf_wait4((int)pid, &status, __WALL | WNOHANG);
        if (waited == pid)
            return (status & 0x7f) ? status & 0x7f : (status >> 8 & 0xff) == 0 ? FTF_OK : FTF_DIED;
        if (waited < 0 && waited != -EINTR)
            return FTF_OK; /* reaped by somebody else */
        if (ftf_clock_ns(CLOCK_MONOTONIC) >= until_ns) {
            ftf_kill(-(int)pid, SIGKILL); /* its group: the stack tools it started */
            ftf_kill((int)pid, SIGKILL);
            for (int turn = 0; turn < 50 && ftf_wait4((int)pid, &status, __WALL | WNOHANG) == 0; turn++)
                ftf_sleep_ms(10); /* not for ever: it may sit in a system call of a dead file system */
            return FTF_CUT;
        }
        ftf_sleep_ms(pause);
    }
}

static int cause;

static void run(void)
{
    static char pid_text[24];
    ftf_hook_run("reporter");
    int count = 0;
    while (ftf.helper_argv[count])
        count++;
    put_number(pid_text, ftf_getpid());
    ftf.helper_argv[count] = ftf.path;
    ftf.helper_argv[count + 1] = pid_text;
    ftf.helper_argv[count + 2] = 0;
    int64_t until = ftf_clock_ns(CLOCK_MONOTONIC) + (int64_t)FTF_REPORTER_MS * 1000000;
    struct stat st;
    int error_fd = ftf_fstat(2, &st) == 0 ? 2 : -1;
    long pid = ftf_spawn(ftf.helper_argv, ftf.helper_env, error_fd, error_fd, ftf.sandbox_stack);
    ftf.helper_argv[count] = 0;
    if (pid < 0) {
        cause = (int)pid;
        return;
    }
    ftf_syscall2(SYS_prctl, PR_SET_PTRACER, pid); /* Yama scope 1 lets only named processes in; EINVAL without Yama */
    cause = wait_for(pid, until);
    ftf_syscall2(SYS_prctl, PR_SET_PTRACER, 0);
}

void ftf_reporter_run(void)
{
    int64_t started = ftf_clock_ns(CLOCK_MONOTONIC);
    if (!ftf.helper_argv[0])
        return;
    if (memory_is_short()) {
        ftf_stage_add("reporter", 0, FTF_SKIPPED, "less than 256 MB free", -1);
        return;
    }
    cause = FTF_OK;
    int guarded = ftf_step_guarded(run, FTF_REPORTER_MS + 400);
    ftf_stage_add("reporter", ftf_clock_ns(CLOCK_MONOTONIC) - started, guarded ? guarded : cause, 0, -1);
}
