/* Deaths that the crash matrix does not have: what matters here is the verdict. One exported function each. */
#define _GNU_SOURCE
#include <alloca.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define DEATH __attribute__((noinline, noclone, visibility("default"))) void

volatile uintptr_t sink;

DEATH large_frame(void)
{
    volatile size_t size = 100u << 20; /* more than any usual limit; the harness sets it to 8 MiB */
    volatile char *memory = alloca(size);
    memory[0] = 1;
    sink = (uintptr_t)memory[0];
}

DEATH overwritten_return(void)
{
    volatile uintptr_t *frame = __builtin_frame_address(0);
    frame[1] = UINT64_C(0x4141414141414141); /* as a string copied over it leaves it */
}

typedef void (*method)(void);

DEATH freed_vtable(void)
{
    method *table = malloc(8 * sizeof *table);
    method **object = malloc(sizeof *object);
    *object = table;
    memset(table, 0x5a, 8 * sizeof *table);
    method **volatile seen = object;
    (*seen)[2]();
    sink = 1;
}

DEATH misaligned_vector(void)
{
#if defined(__x86_64__)
    char *volatile memory = malloc(64);
    __asm__ volatile("movaps %%xmm0, (%0)" ::"r"(memory + 1) : "memory");
#endif
}

DEATH trapping_division(void)
{
#if defined(__x86_64__)
    unsigned control;
    __asm__ volatile("stmxcsr %0" : "=m"(control));
    control &= ~0x200u; /* unmask the divide-by-zero exception, as feenableexcept(FE_DIVBYZERO) does */
    __asm__ volatile("ldmxcsr %0" ::"m"(control));
    volatile double one = 1, zero = 0;
    volatile double quotient = one / zero;
    sink = (uintptr_t)quotient;
#endif
}

DEATH no_huge_page(void)
{
    volatile char *memory =
        mmap(NULL, 2u << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        _exit(77);
    memory[0] = 1;
}

DEATH beyond_memfd(void)
{
    int fd = memfd_create("batch", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, 4096) != 0)
        _exit(77);
    volatile const char *memory = mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, 0);
    sink = (uintptr_t)memory[4096];
}

DEATH undefined_behaviour_trap(void)
{
#if defined(__x86_64__)
    __asm__ volatile(".byte 0x67, 0x0f, 0xb9, 0x40, 0x0b"); /* clang -fsanitize-trap: ud1l 11(%eax), %eax */
#endif
}
