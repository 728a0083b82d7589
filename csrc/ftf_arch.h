/* CONTEXT: SIGNAL. Everything that differs between x86-64 and aarch64: registers in the signal frame, fault details, and
   the three jumps that C cannot express. */
#ifndef FTF_ARCH_H
#define FTF_ARCH_H

#include "ftf_context.h"

#include <signal.h>
#include <ucontext.h>

struct ftf_register {
    const char *name;
    uint64_t value;
};

struct ftf_fault_details {
    int trap; /* x86 trapno, -1 when there is none */
    bool has_error_code; /* x86 */
    uint64_t error_code;
    bool has_esr; /* aarch64 */
    uint64_t esr;
    const char *access; /* "read", "write", "exec" or NULL */
};

extern const char ftf_arch_name[];

uint64_t ftf_context_pc(const ucontext_t *context);
uint64_t ftf_context_sp(const ucontext_t *context);
uint64_t ftf_context_fp(const ucontext_t *context);
/* An otherwise empty context. */
void ftf_context_set(ucontext_t *context, uint64_t pc, uint64_t sp, uint64_t fp);
/* Registers as the kernel saved them. Returns how many were written to `out` (at most 40). */
int ftf_context_registers(const ucontext_t *context, struct ftf_register *out);
struct ftf_fault_details ftf_context_fault(const ucontext_t *context, int sig);
/* True when the thread's own trap numbers say that a hardware fault caused this SI_KERNEL signal (x86: #GP, #SS, ...). */
bool ftf_context_trapped(const ucontext_t *context);

/* A call through a bad pointer leaves the caller only in the return address. Changes the copy `context` as if the call
   had returned; false when the return address cannot be read. `how` names what was done, for the record. */
bool ftf_context_step_out(ucontext_t *context, const char **how);

/* Undoes what the interrupted code may have set and the kernel leaves set in a handler: x86's alignment check (EFLAGS.AC),
   under which ordinary code of ours would fault (Linux clears only DF, RF and TF, arch/x86/kernel/signal.c). */
static inline void ftf_settle_flags(void)
{
#if defined(__x86_64__)
    __builtin_ia32_writeeflags_u64(__builtin_ia32_readeflags_u64() & ~UINT64_C(0x40000));
#endif
}

/* The thread control block, at the high end of a thread's stack mapping. */
static inline uint64_t ftf_thread_pointer(void)
{
    uint64_t pointer;
#if defined(__x86_64__)
    __asm__("mov %%fs:0, %0" : "=r"(pointer));
#else
    __asm__("mrs %0, tpidr_el0" : "=r"(pointer));
#endif
    return pointer;
}

/* Does the code before `address` look like a call that returns to it? */
bool ftf_is_return_address(uint64_t address);

/* Calls function(argument) on another stack and comes back. */
void ftf_call_on_stack(void *stack_top, void (*function)(void *), void *argument);

/* Runs function(argument) as if `context` were the signal frame that interrupted it: an unwinder started inside walks
   through the (copied) frame into the crashed stack. This is how libgcc's unwinder, which can only start "here", starts
   anywhere. `signal_return` is what the kernel put as the handler's return address. Never returns: `function` must not. */
void ftf_call_below_frame(const ucontext_t *context, const siginfo_t *info, uint64_t signal_return, void *stack_top,
                          void (*function)(void *), void *argument);

/* clone(2) with a new stack; the child runs function(argument) and exits with 0. Returns the child's pid or -errno. */
long ftf_clone(unsigned long flags, void *stack_top, void (*function)(void *), void *argument, uint32_t *child_tid);

#endif
