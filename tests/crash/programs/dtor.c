/* A library that faults while the loader runs destructors at exit, after the interpreter is gone. */
#include <stdint.h>

__attribute__((noinline, noclone, visibility("default"))) void crash_in_dtor(void)
{
    volatile uintptr_t *volatile object = (uintptr_t *)0;
    object[2] = 1;
}

__attribute__((destructor)) static void at_unload(void) { crash_in_dtor(); }
