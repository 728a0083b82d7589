/* CONTEXT: NORMAL. See ftf_install.h. */
#include "ftf_install.h"

#include "ftf_altstack.h"
#include "ftf_arch.h"
#include "ftf_handler.h"
#include "ftf_hold.h"
#include "ftf_hook.h"
#include "ftf_keep.h"
#include "ftf_ownership.h"
#include "ftf_record.h"
#include "ftf_recorder.h"
#include "ftf_recorder_parts.h"
#include "ftf_watcher.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unwind.h>

#define CRASH_STACK (256 * 1024)
#define SIGNAL_STACK (64 * 1024)
#define LINE_BYTES (8 << 20)
#define MAPS_BYTES (8 << 20)
#define DUMP_BYTES (1 << 20)
#define SCRATCH_BYTES (64 * 1024)

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

static bool hooks_registered;

void ftf_forget(struct ftf_fd *slot)
{
    if (ftf_fd_is_ours(slot))
        close(slot->fd);
    slot->fd = -1;
}

void ftf_remember(struct ftf_fd *slot, int fd)
{
    struct rlimit limit;
    struct stat st;
    slot->fd = -1;
    if (fd < 0)
        return;
    int lowest = 900;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < 1000)
        lowest = limit.rlim_cur > 64 ? (int)limit.rlim_cur - 32 : 3;
    int high = fcntl(fd, F_DUPFD_CLOEXEC, lowest);
    if (high >= 0) {
        close(fd);
        fd = high;
    }
    if (fstat(fd, &st) != 0)
        return;
    *slot = (struct ftf_fd){fd, (uint64_t)st.st_dev, (uint64_t)st.st_ino};
}

static void read_stat(void)
{
    char text[2048];
    int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    if (got <= 0)
        return;
    text[got] = 0;
    char *cursor = strrchr(text, ')'); /* the name may hold anything (man proc_pid_stat) */
    for (int field = 2; cursor && field < 52; field++) {
        if (field == 22)
            ftf.start_ticks = strtoull(cursor, 0, 10);
        if (field == 48)
            ftf.arg_start = strtoull(cursor, 0, 10);
        cursor = strchr(cursor + 1, ' ');
        if (cursor)
            cursor++;
    }
}

/* tmpfs applies the limit on file size here too, and exceeding it is SIGXFSZ (mm/shmem.c, shmem_fallocate()). */
static void reserve_space(int fd)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur >= FTF_SPACE_RESERVED)
        (void)!fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, FTF_SPACE_RESERVED);
}

/* Everything that belongs to this very process: at install and again in a forked child. */
static void prepare_process(void)
{
    ftf_forget(&ftf.record_fd);
    ftf_forget(&ftf.maps_fd);
    ftf_forget(&ftf.task_fd);
    ftf_forget(&ftf.spare_fd);
    ftf.pid = getpid();
    read_stat();
    ftf.foreign_process = false;
    ftf.owner = 0;
    ftf.progress = FTF_IDLE;
    ftf.release = 0;
    ftf.hold_signal = 0;
    ftf.crasher_count = 0;
    ftf_record_name(ftf.path, sizeof ftf.path, ftf.directory, FTF_RECORD_SUFFIX, 0);
    int fd = open(ftf.directory, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    if (fd >= 0) /* refused on NFS, Lustre, old overlayfs: then the handler creates the file by name */
        reserve_space(fd);
    ftf_remember(&ftf.record_fd, fd);
    ftf_remember(&ftf.maps_fd, open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
    ftf_remember(&ftf.task_fd, open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    ftf_remember(&ftf.spare_fd, open(ftf.directory, O_PATH | O_DIRECTORY | O_CLOEXEC));
}

static void after_fork_in_child(void)
{
    if (!ftf.installed)
        return;
    ftf.fork_of = ftf.pid;
    ftf_recorder_forget(ftf.pid);
    ftf.seen_count = 0;
    ftf.watcher_tid = 0;
    ftf_watcher_forget();
    prepare_process();
}

/* glibc's sa_restorer, which libgcc, gdb and py-spy know as the mark of a signal frame. aarch64 has none. */
static void learn_restorer(void)
{
    struct sigaction probe = {.sa_handler = SIG_DFL}, old;
    struct ftf_action kernel = {0};
    probe.sa_sigaction = ftf_on_note;
    probe.sa_flags = SA_SIGINFO;
    if (sigaction(SIGWINCH, &probe, &old) != 0)
        return;
    ftf_sigaction(SIGWINCH, 0, &kernel);
    sigaction(SIGWINCH, &old, 0);
    ftf.restorer_flag = kernel.flags & FTF_SA_RESTORER;
    ftf.restorer = ftf.restorer_flag ? kernel.restorer : 0;
}

static _Unwind_Reason_Code ignore_frame(struct _Unwind_Context *frame, void *argument)
{
    (void)frame;
    (void)argument;
    return _URC_NO_REASON;
}

static int find_unwinder(struct dl_phdr_info *info, size_t size, void *argument)
{
    (void)size;
    (void)argument;
    if (!strstr(info->dlpi_name, "libgcc_s"))
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type == PT_LOAD && segment->p_offset == 0 &&
            memmem((const void *)(info->dlpi_addr + segment->p_vaddr), segment->p_filesz, "_dl_find_object", 15))
            return 1;
    }
    return 0;
}

/* The unwinder is lock-free only when both glibc has _dl_find_object and this libgcc (conda ships its own) uses it. */
static void judge_unwinder(void)
{
    bool lockfree = dlsym(RTLD_DEFAULT, "_dl_find_object") != 0 && dl_iterate_phdr(find_unwinder, 0) == 1;
    ftf.unwind_safety = lockfree ? "lockfree" : "loader-lock";
    _Unwind_Backtrace(ignore_frame, 0); /* first use fills caches; not in the handler */
}

static int find_libstdcxx(struct dl_phdr_info *info, size_t size, void *argument)
{
    (void)size;
    (void)argument;
    if (!strstr(info->dlpi_name, "libstdc++") || ftf.cxa_count == (int)FTF_LENGTH(ftf.cxa_get_globals))
        return 0;
    void *library = dlopen(info->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
    if (!library)
        return 0;
    void *function = dlsym(library, "__cxa_get_globals");
    dlclose(library);
    for (int i = 0; i < ftf.cxa_count; i++)
        if ((void *)ftf.cxa_get_globals[i] == function)
            return 0;
    if (function) {
        memcpy(&ftf.cxa_get_globals[ftf.cxa_count], &function, sizeof function);
        ftf.cxa_count++;
    }
    return 0;
}

/* The exported functions of CPython that end in abort(). */
static void find_fatal_error(void)
{
    static const char *const names[] = {"Py_FatalError", "_Py_FatalErrorFunc", "_Py_FatalErrorFormat"};
    for (size_t i = 0; i < FTF_LENGTH(names); i++) {
        Dl_info info;
        const ElfW(Sym) *symbol = 0;
        void *function = dlsym(RTLD_DEFAULT, names[i]);
        if (function && dladdr1(function, &info, (void **)&symbol, RTLD_DL_SYMENT) && symbol)
            ftf.fatal_error[i] = (struct ftf_range){(uintptr_t)function, (uintptr_t)function + symbol->st_size};
    }
}

void ftf_install_refresh(void)
{
    dl_iterate_phdr(find_libstdcxx, 0);
    ftf_gpu_find(0);
}

static void read_boot_id(void)
{
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, ftf.boot_id, sizeof ftf.boot_id - 1);
    if (fd >= 0)
        close(fd);
    ftf.boot_id[got >= 36 ? 36 : 0] = 0;
}

static void *map_memory(size_t size)
{
    void *memory = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? 0 : memory;
}

static void populate(void *memory, size_t size)
{
    madvise(memory, size, MADV_POPULATE_WRITE); /* Linux 5.14; before it the pages come when they are touched */
}

static int prepare_memory(const char **failed)
{
    if (ftf.line.data)
        return 0;
    *failed = "mmap";
    ftf.crash_stack = ftf_stack_map(CRASH_STACK);
    ftf.nested_stack = ftf_stack_map(SIGNAL_STACK);
    ftf.sandbox_stack = ftf_stack_map(CRASH_STACK);
    ftf.sandbox_signal_stack = ftf_stack_map(SIGNAL_STACK);
    ftf.maps_text = map_memory(MAPS_BYTES);
    ftf.maps_text_size = MAPS_BYTES;
    ftf.maps = map_memory(FTF_MAX_MAPS * sizeof(struct ftf_map));
    ftf.threads = map_memory(FTF_MAX_THREADS * sizeof(struct ftf_thread));
    ftf.dump_text = map_memory(DUMP_BYTES);
    ftf.dump_text_size = DUMP_BYTES;
    ftf.scratch = map_memory(SCRATCH_BYTES);
    char *line = map_memory(LINE_BYTES);
    if (!ftf.crash_stack.base || !ftf.nested_stack.base || !ftf.sandbox_stack.base || !ftf.sandbox_signal_stack.base ||
        !ftf.maps_text || !ftf.maps || !ftf.threads || !ftf.dump_text || !ftf.scratch || !line)
        return -ENOMEM;
    ftf.line = (struct ftf_text){line, LINE_BYTES, 0, false};
    /* What an ordinary crash touches is made present now: a process that dies for lack of memory gets none then. */
    populate(ftf.crash_stack.base + ftf.crash_stack.size - 32768, 32768);
    populate(ftf.sandbox_stack.base + ftf.sandbox_stack.size - 32768, 32768);
    populate(line, 192 * 1024);
    populate(ftf.maps_text, 96 * 1024);
    populate(ftf.maps, 64 * 1024);
    populate(ftf.dump_text, 64 * 1024);
    populate(ftf.scratch, SCRATCH_BYTES);
    return 0;
}

/* What stands there already is kept; other text is left behind, because a handler may be reading it. */
static int copy_list(char **from, char **to, int capacity)
{
    int count = 0;
    for (; from && from[count]; count++) {
        if (count == capacity)
            return -E2BIG;
        if (to[count] && strcmp(to[count], from[count]) == 0)
            continue;
        to[count] = ftf_keep(from[count], strlen(from[count]));
        if (!to[count])
            return -ENOMEM;
    }
    to[count] = 0;
    return 0;
}

static int configure(const struct ftf_config *config, const char **failed)
{
    *failed = "configuration";
    if (strlen(config->directory) >= FTF_PATH_SIZE || strlen(config->stem) >= sizeof ftf.stem)
        return -ENAMETOOLONG;
    strcpy(ftf.directory, config->directory);
    strcpy(ftf.stem, config->stem);
    if (!ftf.static_members || ftf.static_size != config->static_size ||
        memcmp(ftf.static_members, config->static_members, config->static_size) != 0) {
        char *members = ftf_keep(config->static_members, config->static_size);
        if (!members)
            return -ENOMEM;
        ftf.static_size = config->static_size; /* the old text is left behind for the same reason */
        ftf.static_members = members;
    }
    snprintf(ftf.memory_usage_file, sizeof ftf.memory_usage_file, "%s", config->memory_usage_file);
    snprintf(ftf.memory_limit_file, sizeof ftf.memory_limit_file, "%s", config->memory_limit_file);
    ftf.raw_stack = config->raw_stack;
    int result = copy_list(config->helper_argv, ftf.helper_argv, FTF_MAX_ARGV);
    if (result == 0)
        result = copy_list(config->helper_env, ftf.helper_env, FTF_MAX_ENV);
    if (result == 0)
        result = copy_list(config->inventory_argv, ftf.inventory_argv, FTF_MAX_ARGV);
    return result;
}

static void hooked_malloc(void)
{
    void *volatile block = malloc(100000); /* volatile: or the compiler drops the pair */
    free(block);
}

/* Another thread's crash needs what install() and uninstall() change: stay, the hold signal is on its way. */
static void let_crash_finish(void)
{
    for (int turn = 0; turn < 2000 && __atomic_load_n(&ftf.progress, __ATOMIC_ACQUIRE) == FTF_RECORDING &&
                       (int)(__atomic_load_n(&ftf.owner, __ATOMIC_ACQUIRE) >> 32) == getpid();
         turn++)
        ftf_sleep_ms(10);
}

int ftf_install(const struct ftf_config *config, const char **failed)
{
    let_crash_finish();
    int result = prepare_memory(failed);
    if (result == 0)
        result = configure(config, failed);
    if (result != 0)
        return result;
    ftf_hook_malloc = hooked_malloc;
    const char *preloaded = getenv("LD_PRELOAD");
    ftf.no_sandbox = preloaded && strstr(preloaded, "vgpreload");
    prepare_process();
    ftf_altstack_check();
    if (ftf.installed)
        return 0;
    ftf.installed_ns = ftf_clock_ns(CLOCK_MONOTONIC);
    read_boot_id();
    learn_restorer();
    judge_unwinder();
    ftf.abort_message = dlvsym(RTLD_DEFAULT, "__abort_msg", "GLIBC_PRIVATE");
    find_fatal_error();
    ftf_install_refresh();
    ftf_ownership_take();
    ftf_notes_take();
    if (!hooks_registered)
        hooks_registered = pthread_atfork(0, 0, after_fork_in_child) == 0;
    ftf.installed = true;
    return 0;
}

void ftf_uninstall(void)
{
    if (!ftf.installed)
        return;
    let_crash_finish();
    ftf_watcher_stop();
    ftf_ownership_give_up();
    ftf_notes_give_up();
    ftf_recorder_close();
    ftf_altstack_remove();
    ftf.installed = false;
    ftf_forget(&ftf.record_fd);
    ftf_forget(&ftf.maps_fd);
    ftf_forget(&ftf.task_fd);
    ftf_forget(&ftf.spare_fd);
    ftf.dump_current = 0;
    ftf.dump_all = 0;
    ftf.dumper_broken = false;
    ftf.fork_of = 0;
    ftf.phase_depth = 0;
    ftf.has_step = false;
    ftf.note[0] = 0;
}

void ftf_install_recheck(void)
{
    if (ftf.installed)
        ftf_ownership_check();
}

void ftf_install_rearm(void)
{
    ftf_hold_release(2);
    ftf_hold_restore_signal();
    ftf_recorder_survived();
    prepare_process();
}

int ftf_set_python_dumper(int signal_current, int signal_all, int fd)
{
    struct ftf_action action, standard = {0};
    struct stat st;
    if (fstat(fd, &st) != 0 || ftf_sigaction(signal_current, 0, &action) != 0 || (uintptr_t)action.handler <= 1)
        return -EINVAL;
    memcpy(&ftf.dump_current, &action.handler, sizeof ftf.dump_current);
    ftf_sigaction(signal_current, &standard, 0);
    if (ftf_sigaction(signal_all, 0, &action) != 0 || (uintptr_t)action.handler <= 1)
        return -EINVAL;
    memcpy(&ftf.dump_all, &action.handler, sizeof ftf.dump_all);
    ftf_sigaction(signal_all, &standard, 0);
    ftf.dump_current_signal = signal_current;
    ftf.dump_all_signal = signal_all;
    ftf.dump_fd = (struct ftf_fd){fd, (uint64_t)st.st_dev, (uint64_t)st.st_ino};
    return 0;
}
