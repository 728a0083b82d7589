/* A library that faults while the loader runs its constructors, as a broken extension does during `import`. */
#include <stdint.h>

__attribute__((noinline, noclone, visibility("default"))) void crash_in_ctor(void)
{
    volatile uintptr_t *volatile object = (uintptr_t *)0;
    object[2] = 1;
}

__attribute__((constructor)) static void at_load(void) { crash_in_ctor(); }
