/* CONTEXT: NORMAL. A library of its own for LD_PRELOAD: every native thread gets a guarded alternate signal stack.

   A thread that overflows its stack has no room left for a signal handler. The kernel then ends the process at once and no
   handler of anybody runs, unless that thread has an alternate stack (sigaltstack(2)), which only the thread itself can set.
   `_native` does that for Python's threads; those that a C++ library starts (a BLAS, a data loader) pass by it. So this
   library defines pthread_create, which the loader finds before that of libc, and lets each new thread set its stack before its
   own start routine runs. Without `_native` in the process it changes nothing: the stack lies unused.

   It must load into any program on any glibc since 2.17, also one that has no libpthread or libdl (two libraries of their
   own before 2.34). Therefore it imports nothing but the oldest functions of libc, and finds the pthread functions of the
   process by reading the symbol tables of the loaded libraries, when the first thread is made. dlsym would be simpler, but
   lives in libdl, and linking to that would load one library more into every program.

   Threads that libc makes for itself, C11's thrd_create and a bare clone(2) do not come by here. */
#include <elf.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/auxv.h>
#include <sys/mman.h>

/* As csrc/ftf_altstack.c: the handler's entry needs 2 KiB, other libraries' handlers run here too. On top of it the
   registers that the kernel saves (AVX-512 and AMX need 3 to 11 KiB). Memory that nobody touches costs address space only. */
#define USABLE (64 * 1024)
#define KEPT 16

#ifndef AT_MINSIGSTKSZ
#define AT_MINSIGSTKSZ 51
#endif

typedef void *(*start_routine)(void *);
typedef int (*create_function)(pthread_t *, const pthread_attr_t *, start_routine, void *);
typedef int (*key_create_function)(pthread_key_t *, void (*)(void *));
typedef int (*set_function)(pthread_key_t, const void *);

/* Lies at the upper end of the new thread's alternate stack until the thread has read it. */
struct beginning {
    start_routine routine;
    void *argument;
};

static create_function next_create;
static set_function set_specific;
static void *kept[KEPT];
static pthread_key_t key;
static int key_state; /* 0 not made, 1 being made, 2 made, 3 cannot be made */

/* Symbols of the objects behind us. */

struct search {
    const char *name;
    void *found;
    int behind_us;
};

struct tables {
    const ElfW(Sym) * symbols;
    const char *strings;
    const uint32_t *gnu_hash;
    const uint32_t *hash;
};

static int equal(const char *one, const char *other)
{
    while (*one && *one == *other)
        one++, other++;
    return *one == *other;
}

static const void *address(const struct dl_phdr_info *object, ElfW(Addr) value)
{
    /* glibc has added the load address to the pointers of the dynamic section, except in the vDSO. */
    return (const void *)(value < object->dlpi_addr ? value + object->dlpi_addr : value);
}

static int holds(const struct dl_phdr_info *object, uintptr_t where)
{
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &object->dlpi_phdr[i];
        uintptr_t start = object->dlpi_addr + header->p_vaddr;
        if (header->p_type == PT_LOAD && where >= start && where - start < header->p_memsz)
            return 1;
    }
    return 0;
}

static struct tables tables_of(const struct dl_phdr_info *object)
{
    struct tables tables = {0};
    for (int i = 0; i < object->dlpi_phnum; i++) {
        if (object->dlpi_phdr[i].p_type != PT_DYNAMIC)
            continue;
        const ElfW(Dyn) *entry = (const ElfW(Dyn) *)(object->dlpi_addr + object->dlpi_phdr[i].p_vaddr);
        for (; entry->d_tag != DT_NULL; entry++) {
            if (entry->d_tag == DT_SYMTAB)
                tables.symbols = address(object, entry->d_un.d_ptr);
            else if (entry->d_tag == DT_STRTAB)
                tables.strings = address(object, entry->d_un.d_ptr);
            else if (entry->d_tag == DT_GNU_HASH)
                tables.gnu_hash = address(object, entry->d_un.d_ptr);
            else if (entry->d_tag == DT_HASH)
                tables.hash = address(object, entry->d_un.d_ptr);
        }
    }
    return tables;
}

static int defines(const struct tables *tables, uint32_t index, const char *name)
{
    const ElfW(Sym) *symbol = &tables->symbols[index];
    return symbol->st_shndx != SHN_UNDEF && (symbol->st_info & 15) == STT_FUNC &&
           equal(tables->strings + symbol->st_name, name);
}

/* The first definition of whatever version: on the supported architectures all versions of these are one function. */
static uint32_t look_up_gnu(const struct tables *tables, const char *name)
{
    uint32_t hash = 5381;
    for (const char *at = name; *at; at++)
        hash = hash * 33 + (unsigned char)*at;
    uint32_t buckets = tables->gnu_hash[0], first = tables->gnu_hash[1], words = tables->gnu_hash[2];
    const uint32_t *bucket = tables->gnu_hash + 4 + words * (sizeof(ElfW(Addr)) / 4);
    const uint32_t *chain = bucket + buckets;
    uint32_t index = buckets ? bucket[hash % buckets] : 0;
    if (index < first)
        return 0;
    for (;; index++) {
        uint32_t entry = chain[index - first];
        if ((entry | 1) == (hash | 1) && defines(tables, index, name))
            return index;
        if (entry & 1)
            return 0;
    }
}

static uint32_t look_up_old(const struct tables *tables, const char *name)
{
    uint32_t count = tables->hash[1];
    for (uint32_t index = 1; index < count; index++)
        if (defines(tables, index, name))
            return index;
    return 0;
}

static int visit(struct dl_phdr_info *object, size_t size, void *data)
{
    struct search *search = data;
    (void)size;
    if (!search->behind_us) {
        search->behind_us = holds(object, (uintptr_t)visit);
        return 0;
    }
    struct tables tables = tables_of(object);
    uint32_t index = 0;
    if (tables.symbols && tables.strings) {
        if (tables.gnu_hash)
            index = look_up_gnu(&tables, search->name);
        else if (tables.hash)
            index = look_up_old(&tables, search->name);
    }
    if (index)
        search->found = (void *)(object->dlpi_addr + tables.symbols[index].st_value);
    return index != 0;
}

/* The objects are listed in the order in which the loader searches them. */
static void *find(const char *name)
{
    struct search search = {name, NULL, 0};
    dl_iterate_phdr(visit, &search);
    return search.found;
}

/* The stacks. */

static size_t page_size(void) { return getauxval(AT_PAGESZ); }

static size_t stack_size(void)
{
    size_t page = page_size();
    return (USABLE + getauxval(AT_MINSIGSTKSZ) + page - 1) / page * page;
}

static void unmap(void *base) { munmap((char *)base - page_size(), stack_size() + page_size()); }

/* A stack that an ended thread left, else NULL: programs that start a thread for every piece of work are common, and
   mapping costs more than half of what starting a thread does. */
static void *take_kept(void)
{
    for (int i = 0; i < KEPT; i++) {
        void *base =
            __atomic_load_n(&kept[i], __ATOMIC_RELAXED) ? __atomic_exchange_n(&kept[i], NULL, __ATOMIC_ACQ_REL) : NULL;
        if (base)
            return base;
    }
    return NULL;
}

static void give_up(void *base)
{
    for (int i = 0; i < KEPT; i++) {
        void *none = NULL;
        if (__atomic_compare_exchange_n(&kept[i], &none, base, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
            return;
    }
    unmap(base);
}

static void *map(void)
{
    void *again = take_kept();
    if (again)
        return again;
    size_t page = page_size(), size = stack_size() + page;
    char *memory =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    if (mprotect(memory, page, PROT_NONE) == 0)
        return memory + page;
    munmap(memory, size);
    return NULL;
}

/* Runs at the thread's end, whichever: return, pthread_exit, cancellation. */
static void thread_ends(void *base)
{
    stack_t current, off = {.ss_flags = SS_DISABLE};
    if (sigaltstack(NULL, &current) == 0 && current.ss_sp == base && sigaltstack(&off, NULL) != 0)
        return; /* in use: a destructor that runs in a handler. Better lost than unmapped */
    give_up(base);
}

static void *thread_begins(void *base)
{
    stack_t stack = {.ss_sp = base, .ss_size = stack_size()};
    struct beginning *at_top = (struct beginning *)((char *)base + stack.ss_size) - 1;
    struct beginning mine = *at_top;
    if (set_specific(key, base) != 0)
        give_up(base);
    else if (sigaltstack(&stack, NULL) != 0)
        thread_ends(base), set_specific(key, NULL);
    return mine.routine(mine.argument);
}

/* Two threads may come here at once the first time: the second goes without a stack rather than wait. */
static int ready(void)
{
    int none = 0;
    if (__atomic_load_n(&key_state, __ATOMIC_ACQUIRE) != 0 ||
        !__atomic_compare_exchange_n(&key_state, &none, 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        return __atomic_load_n(&key_state, __ATOMIC_ACQUIRE) == 2;
    key_create_function create_key = (key_create_function)find("pthread_key_create");
    set_specific = (set_function)find("pthread_setspecific");
    int made = create_key && set_specific && create_key(&key, thread_ends) == 0;
    __atomic_store_n(&key_state, made ? 2 : 3, __ATOMIC_RELEASE);
    return made;
}

__attribute__((visibility("default"))) int pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                                                          start_routine routine, void *argument)
{
    create_function create = __atomic_load_n(&next_create, __ATOMIC_ACQUIRE);
    if (!create) {
        create = (create_function)find("pthread_create");
        if (!create)
            return 11; /* EAGAIN. Whoever calls us has been linked to a libpthread, so this is a guess at the impossible */
        __atomic_store_n(&next_create, create, __ATOMIC_RELEASE);
    }
    char *base = ready() ? map() : NULL;
    if (!base)
        return create(thread, attributes, routine, argument);
    struct beginning *at_top = (struct beginning *)(base + stack_size()) - 1;
    *at_top = (struct beginning){routine, argument};
    int error = create(thread, attributes, thread_begins, base);
    if (error)
        give_up(base);
    return error;
}
