/* CONTEXT: NORMAL. See ftf_ownership.h. Runs in the watcher thread and in Python threads, so it takes no lock that could be
   held over a fork or a dlopen: library names come from /proc/self/maps, not from dladdr. */
#include "ftf_ownership.h"

#include "ftf_handler.h"

#include <string.h>

static uint32_t busy;

/* The file mapped at `address`, and where its first mapping begins. */
static void find_library(uint64_t address, char *library, size_t size, uint64_t *base)
{
    static char text[65536];
    char first_name[192] = "";
    uint64_t first_start = 0;
    size_t kept = 0;
    library[0] = 0;
    int fd = (int)ftf_open("/proc/self/maps", O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return;
    for (;;) {
        long got = ftf_read(fd, text + kept, sizeof text - 1 - kept);
        if (got <= 0)
            break;
        kept += (size_t)got;
        char *line = text;
        for (char *newline; (newline = memchr(line, '\n', kept - (size_t)(line - text))); line = newline + 1) {
            const char *cursor = line;
            uint64_t start = ftf_parse_hex(&cursor, newline);
            cursor++;
            uint64_t end = ftf_parse_hex(&cursor, newline);
            const char *name = memchr(line, '/', (size_t)(newline - line));
            size_t length = name ? (size_t)(newline - name) : 0;
            if (length >= sizeof first_name)
                length = sizeof first_name - 1;
            if (!name)
                first_name[0] = 0;
            else if (strlen(first_name) != length || memcmp(first_name, name, length) != 0) {
                memcpy(first_name, name, length);
                first_name[length] = 0;
                first_start = start;
            }
            if (address >= start && address < end) {
                if (name && length < size) {
                    memcpy(library, name, length);
                    library[length] = 0;
                    *base = first_start;
                }
                ftf_close(fd);
                return;
            }
        }
        kept -= (size_t)(line - text);
        memmove(text, line, kept);
    }
    ftf_close(fd);
}

static void push(struct ftf_chain *chain, const struct ftf_action *action)
{
    struct ftf_chained entry = {.action = *action, .taken_back = true};
    int keep = chain->count;
    for (int i = 0; i < chain->count; i++) {
        if (chain->entries[i].action.handler != action->handler)
            continue;
        if (i == chain->count - 1) {
            chain->entries[i].action = *action;
            return;
        }
        entry = chain->entries[i];
        entry.action = *action;
        memmove(&chain->entries[i], &chain->entries[i + 1], (size_t)(chain->count - i - 1) * sizeof entry);
        keep = chain->count - 1;
        break;
    }
    if (entry.noticed_ns == 0)
        entry.noticed_ns = ftf_clock_ns(CLOCK_MONOTONIC);
    if (entry.library[0] == 0 && (uintptr_t)action->handler > 1)
        find_library((uint64_t)(uintptr_t)action->handler, entry.library, sizeof entry.library, &entry.library_base);
    if (keep == FTF_CHAIN_SIZE) { /* the oldest stays: it is what was there before us */
        memmove(&chain->entries[1], &chain->entries[2], (FTF_CHAIN_SIZE - 2) * sizeof entry);
        keep--;
    }
    chain->entries[keep] = entry;
    __atomic_store_n(&chain->count, keep + 1, __ATOMIC_RELEASE);
}

int ftf_ownership_check(void)
{
    int stolen = 0;
    if (!ftf.installed || ftf_getpid() != ftf.pid || __atomic_load_n(&ftf.progress, __ATOMIC_ACQUIRE) != FTF_IDLE ||
        __atomic_exchange_n(&busy, 1, __ATOMIC_ACQUIRE) != 0)
        return 0;
    struct ftf_action ours = ftf_fault_action();
    for (int i = 0; i < FTF_FAULT_SIGNALS; i++) {
        struct ftf_action current;
        if (ftf_sigaction(ftf_fault_signals[i], 0, &current) != 0)
            continue;
        if (current.handler == ours.handler) {
            /* signal(sig, old) puts us back without the flags we live by. */
            if ((current.flags & ours.flags) != ours.flags)
                ftf_sigaction(ftf_fault_signals[i], &ours, 0);
            continue;
        }
        push(&ftf.chains[i], &current);
        if (__atomic_load_n(&ftf.progress, __ATOMIC_ACQUIRE) == FTF_IDLE)
            ftf_sigaction(ftf_fault_signals[i], &ours, 0);
        stolen++;
    }
    __atomic_store_n(&busy, 0, __ATOMIC_RELEASE);
    return stolen;
}

void ftf_ownership_take(void)
{
    struct ftf_action ours = ftf_fault_action();
    for (int i = 0; i < FTF_FAULT_SIGNALS; i++) {
        struct ftf_chained *oldest = &ftf.chains[i].entries[0];
        memset(&ftf.chains[i], 0, sizeof ftf.chains[i]);
        ftf_sigaction(ftf_fault_signals[i], 0, &oldest->action);
        if ((uintptr_t)oldest->action.handler > 1)
            find_library((uint64_t)(uintptr_t)oldest->action.handler, oldest->library, sizeof oldest->library,
                         &oldest->library_base);
        ftf.chains[i].count = 1;
        ftf_sigaction(ftf_fault_signals[i], &ours, 0);
    }
}

void ftf_ownership_give_up(void)
{
    for (int i = 0; i < FTF_FAULT_SIGNALS; i++) {
        struct ftf_action current;
        struct ftf_chain *chain = &ftf.chains[i];
        if (ftf_sigaction(ftf_fault_signals[i], 0, &current) == 0 && current.handler == ftf_on_fault &&
            chain->count > 0)
            ftf_sigaction(ftf_fault_signals[i], &chain->entries[chain->count - 1].action, 0);
    }
}

void ftf_notes_take(void)
{
    for (int i = 0; i < FTF_NOTED_SIGNALS; i++) {
        struct ftf_action old;
        if (ftf_sigaction(ftf_noted_signals[i], 0, &old) != 0 || (void *)old.handler == (void *)SIG_IGN ||
            old.handler == ftf_on_note)
            continue;
        ftf.noted[i] = old;
        struct ftf_action ours = old;
        ours.handler = ftf_on_note;
        ours.restorer = ftf.restorer;
        ours.flags |= SA_SIGINFO | ftf.restorer_flag;
        ftf_sigaction(ftf_noted_signals[i], &ours, 0);
    }
}

void ftf_notes_give_up(void)
{
    for (int i = 0; i < FTF_NOTED_SIGNALS; i++) {
        struct ftf_action current;
        if (ftf_sigaction(ftf_noted_signals[i], 0, &current) == 0 && current.handler == ftf_on_note)
            ftf_sigaction(ftf_noted_signals[i], &ftf.noted[i], 0);
    }
}
