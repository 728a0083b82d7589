/* CONTEXT: NORMAL. See ftf_altstack.h.

   Without an alternate stack a thread that overflows its own dies with no handler run at all. Alternate stacks belong to
   threads (sigaltstack(2)) and other libraries replace them (faulthandler.enable() by 10 KB without a guard page), so this
   is called at each Python thread's start, at phase() and at step(). */
#include "ftf_altstack.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#define USABLE (64 * 1024)
#define GOOD_ENOUGH (32 * 1024)

#ifndef AT_MINSIGSTKSZ
#define AT_MINSIGSTKSZ 51
#endif

static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int made;

struct ftf_stack ftf_stack_map(size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct ftf_stack stack = {0, (size + page - 1) / page * page};
    uint8_t *memory =
        mmap(0, stack.size + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return stack;
    if (mprotect(memory, page, PROT_NONE) != 0) {
        munmap(memory, stack.size + page);
        return stack;
    }
    stack.base = memory + page;
    return stack;
}

static void unmap(void *base)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t size = (USABLE + getauxval(AT_MINSIGSTKSZ) + page - 1) / page * page;
    munmap((uint8_t *)base - page, size + page);
}

static void thread_ends(void *base)
{
    stack_t current;
    if (sigaltstack(0, &current) == 0 && current.ss_sp == base) {
        stack_t off = {.ss_flags = SS_DISABLE};
        sigaltstack(&off, 0);
    }
    unmap(base);
}

static void make_key(void) { pthread_key_create(&key, thread_ends); }

void ftf_altstack_check(void)
{
    stack_t current;
    pthread_once(&once, make_key);
    if (sigaltstack(0, &current) != 0 || (current.ss_flags & SS_ONSTACK))
        return;
    void *ours = pthread_getspecific(key);
    if (!(current.ss_flags & SS_DISABLE) && (current.ss_sp == ours || current.ss_size >= GOOD_ENOUGH))
        return;
    stack_t stack = {.ss_size = USABLE + getauxval(AT_MINSIGSTKSZ)};
    if (!ours) {
        struct ftf_stack fresh = ftf_stack_map(stack.ss_size);
        if (!fresh.base)
            return; /* no memory: the thread keeps what it has */
        if (pthread_setspecific(key, fresh.base) != 0) {
            unmap(fresh.base);
            return;
        }
        ours = fresh.base;
        __atomic_fetch_add(&made, 1, __ATOMIC_RELAXED);
    }
    stack.ss_sp = ours;
    sigaltstack(&stack, 0);
}

void ftf_altstack_remove(void)
{
    pthread_once(&once, make_key);
    void *ours = pthread_getspecific(key);
    if (ours) {
        pthread_setspecific(key, 0);
        thread_ends(ours);
    }
}

int ftf_altstack_count(void) { return __atomic_load_n(&made, __ATOMIC_RELAXED); }
