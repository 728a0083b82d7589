/* A library as a framework brings it: starts a native thread, which Python knows nothing of, and lets it overflow its
   stack. alternate_stack() says what sigaltstack(2) tells in such a thread. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <unistd.h>

static volatile char sink;

static __attribute__((noinline)) int deeper(int depth)
{
    volatile char filler[1024];
    filler[0] = (char)depth;
    sink = filler[0];
    return deeper(depth + 1) + filler[0];
}

static void *overflow(void *argument)
{
    (void)argument;
    return (void *)(size_t)deeper(0);
}

static void *look(void *argument)
{
    sigaltstack(NULL, argument);
    return argument;
}

static void *look_and_exit(void *argument)
{
    sigaltstack(NULL, argument);
    pthread_exit(argument);
}

static void *look_and_wait(void *argument)
{
    sigaltstack(NULL, argument);
    for (;;)
        pause();
}

static int in_thread(void *(*routine)(void *), void *argument, int cancel)
{
    pthread_attr_t attributes;
    pthread_t thread;
    void *result;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 256 * 1024);
    if (pthread_create(&thread, &attributes, routine, argument) != 0)
        return -1;
    if (cancel)
        pthread_cancel(thread);
    if (pthread_join(thread, &result) != 0)
        return -1;
    return cancel ? result == PTHREAD_CANCELED : result == argument;
}

int crash_in_native_thread(void) { return in_thread(overflow, NULL, 0); }

/* how: 0 returns, 1 pthread_exit, 2 is cancelled. Returns 1 when the thread ended so. */
int alternate_stack(int how, stack_t *found)
{
    static void *(*const routines[])(void *) = {look, look_and_exit, look_and_wait};
    return in_thread(routines[how], found, how == 2);
}

static size_t own_stack_size;

static void *measure(void *argument)
{
    pthread_attr_t attributes;
    (void)argument;
    if (pthread_getattr_np(pthread_self(), &attributes) == 0)
        pthread_attr_getstacksize(&attributes, &own_stack_size);
    return NULL;
}

size_t stack_size_asked_for(void) { return in_thread(measure, NULL, 0) == 1 ? own_stack_size : 0; }
