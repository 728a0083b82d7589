/* CONTEXT: SIGNAL. aarch64 half of ftf_arch.h; empty elsewhere. */
#include "ftf_arch.h"

#if defined(__aarch64__)

#include "ftf_peek.h"
#include "ftf_sys.h"

#include <string.h>

const char ftf_arch_name[] = "aarch64";

uint64_t ftf_context_pc(const ucontext_t *context) { return context->uc_mcontext.pc; }
uint64_t ftf_context_sp(const ucontext_t *context) { return context->uc_mcontext.sp; }
uint64_t ftf_context_fp(const ucontext_t *context) { return context->uc_mcontext.regs[29]; }

void ftf_context_set(ucontext_t *context, uint64_t pc, uint64_t sp, uint64_t fp)
{
    context->uc_mcontext.pc = pc;
    context->uc_mcontext.sp = sp;
    context->uc_mcontext.regs[29] = fp;
}

int ftf_context_registers(const ucontext_t *context, struct ftf_register *out)
{
    static const char *const names[31] = {"x0",  "x1",  "x2",  "x3",  "x4",  "x5",  "x6",  "x7",  "x8",  "x9",  "x10",
                                          "x11", "x12", "x13", "x14", "x15", "x16", "x17", "x18", "x19", "x20", "x21",
                                          "x22", "x23", "x24", "x25", "x26", "x27", "x28", "x29", "x30"};
    int count = 0;
    for (; count < 31; count++)
        out[count] = (struct ftf_register){names[count], context->uc_mcontext.regs[count]};
    out[count++] = (struct ftf_register){"sp", context->uc_mcontext.sp};
    out[count++] = (struct ftf_register){"pc", context->uc_mcontext.pc};
    out[count++] = (struct ftf_register){"pstate", context->uc_mcontext.pstate};
    out[count++] = (struct ftf_register){"fault_address", context->uc_mcontext.fault_address};
    return count;
}

/* The records behind the registers (arch/arm64/include/uapi/asm/sigcontext.h): magic, size, payload; magic 0 ends. */
static bool find_esr(const ucontext_t *context, uint64_t *esr)
{
    const uint8_t *cursor = (const uint8_t *)context->uc_mcontext.__reserved;
    const uint8_t *end = cursor + sizeof context->uc_mcontext.__reserved;
    while (cursor + 16 <= end) {
        uint32_t magic, size;
        memcpy(&magic, cursor, 4);
        memcpy(&size, cursor + 4, 4);
        if (magic == 0 || size < 8 || size > (size_t)(end - cursor))
            return false;
        if (magic == 0x45535201) { /* ESR_MAGIC */
            memcpy(esr, cursor + 8, 8);
            return true;
        }
        cursor += size;
    }
    return false;
}

struct ftf_fault_details ftf_context_fault(const ucontext_t *context, int sig)
{
    struct ftf_fault_details details = {.trap = -1};
    details.has_esr = find_esr(context, &details.esr);
    if (details.has_esr && (sig == SIGSEGV || sig == SIGBUS)) {
        /* Exception class, bits 31-26: 0x20/0x21 instruction abort, 0x24/0x25 data abort; data abort bit 6 = write. */
        unsigned class = details.esr >> 26 & 63;
        if (class == 0x20 || class == 0x21)
            details.access = "exec";
        else if (class == 0x24 || class == 0x25)
            details.access = details.esr & 64 ? "write" : "read";
    }
    return details;
}

bool ftf_context_trapped(const ucontext_t *context)
{
    uint64_t esr;
    return find_esr(context, &esr);
}

bool ftf_context_step_out(ucontext_t *context, const char **how)
{
    if (context->uc_mcontext.regs[30] == 0)
        return false;
    context->uc_mcontext.pc = context->uc_mcontext.regs[30];
    *how = "link-register";
    return true;
}

bool ftf_is_return_address(uint64_t address)
{
    uint32_t instruction;
    if (address < 4 || (address & 3) != 0 || !ftf_peek(address - 4, &instruction, sizeof instruction))
        return false;
    /* BL imm26, BLR Xn and its pointer-authenticated forms BLRAA/BLRAB (Arm ARM, C6.2). */
    return (instruction & 0xfc000000u) == 0x94000000u || (instruction & 0xfffffc1fu) == 0xd63f0000u ||
           (instruction & 0xfefff800u) == 0xd63f0800u;
}

__asm__(".text\n"
        ".globl ftf_call_on_stack\n"
        ".hidden ftf_call_on_stack\n"
        ".type ftf_call_on_stack,%function\n"
        "ftf_call_on_stack:\n" /* x0 top, x1 function, x2 argument */
        "  .cfi_startproc\n"
        "  stp x29, x30, [sp, #-16]!\n"
        "  .cfi_def_cfa_offset 16\n"
        "  .cfi_offset 29, -16\n"
        "  .cfi_offset 30, -8\n"
        "  mov x29, sp\n"
        "  .cfi_def_cfa_register 29\n"
        "  and x0, x0, #-16\n"
        "  mov sp, x0\n"
        "  mov x0, x2\n"
        "  blr x1\n"
        "  mov sp, x29\n"
        "  ldp x29, x30, [sp], #16\n"
        "  .cfi_def_cfa 31, 0\n"
        "  ret\n"
        "  .cfi_endproc\n"
        ".size ftf_call_on_stack,.-ftf_call_on_stack\n"
        ".globl ftf_jump_with_return\n"
        ".hidden ftf_jump_with_return\n"
        ".type ftf_jump_with_return,%function\n"
        "ftf_jump_with_return:\n" /* x0 sp, x1 function, x2 argument, x3 return address, x4 frame pointer */
        "  mov sp, x0\n"
        "  mov x29, x4\n"
        "  mov x30, x3\n"
        "  mov x0, x2\n"
        "  br x1\n"
        ".size ftf_jump_with_return,.-ftf_jump_with_return\n"
        ".globl ftf_clone\n"
        ".hidden ftf_clone\n"
        ".type ftf_clone,%function\n"
        "ftf_clone:\n" /* x0 flags, x1 stack top, x2 function, x3 argument, x4 child_tid */
        "  and x1, x1, #-16\n"
        "  stp x2, x3, [x1, #-16]!\n"
        "  mov x2, xzr\n"
        "  mov x3, xzr\n" /* TLS: not used without CLONE_SETTLS */
        "  mov x8, #220\n" /* clone */
        "  svc 0\n"
        "  cbz x0, 1f\n"
        "  ret\n"
        "1:\n"
        "  mov x29, xzr\n"
        "  mov x30, xzr\n"
        "  ldp x1, x0, [sp], #16\n"
        "  blr x1\n"
        "  mov x0, xzr\n"
        "  mov x8, #94\n" /* exit_group */
        "  svc 0\n"
        "  brk #0\n"
        ".size ftf_clone,.-ftf_clone\n");

void ftf_jump_with_return(void *sp, void (*function)(void *), void *argument, uint64_t return_address,
                          uint64_t frame_pointer);

void ftf_call_below_frame(const ucontext_t *context, const siginfo_t *info, uint64_t signal_return, void *stack_top,
                          void (*function)(void *), void *argument)
{
    /* The kernel's struct rt_sigframe (arch/arm64/kernel/signal.c): siginfo, ucontext, at the handler's sp. libgcc's
       fallback (libgcc/config/aarch64/linux-unwind.h) recognises the code at the return address and reads it from the
       frame's address. Not run on hardware; under qemu-user only. */
    struct frame {
        siginfo_t info;
        ucontext_t context;
    };
    struct frame *place = (struct frame *)(((uintptr_t)stack_top - sizeof(struct frame) - 512) & ~(uintptr_t)15);
    memcpy(&place->info, info, sizeof *info);
    memcpy(&place->context, context, sizeof *context);
    ftf_jump_with_return(place, function, argument, signal_return, ftf_context_fp(context));
}

#endif
