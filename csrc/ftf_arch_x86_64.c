/* CONTEXT: SIGNAL. x86-64 half of ftf_arch.h; empty elsewhere. */
#include "ftf_arch.h"

#if defined(__x86_64__)

#include "ftf_peek.h"
#include "ftf_sys.h"

#include <string.h>

const char ftf_arch_name[] = "x86_64";

uint64_t ftf_context_pc(const ucontext_t *context) { return (uint64_t)context->uc_mcontext.gregs[REG_RIP]; }
uint64_t ftf_context_sp(const ucontext_t *context) { return (uint64_t)context->uc_mcontext.gregs[REG_RSP]; }
uint64_t ftf_context_fp(const ucontext_t *context) { return (uint64_t)context->uc_mcontext.gregs[REG_RBP]; }

void ftf_context_set(ucontext_t *context, uint64_t pc, uint64_t sp, uint64_t fp)
{
    context->uc_mcontext.gregs[REG_RIP] = (greg_t)pc;
    context->uc_mcontext.gregs[REG_RSP] = (greg_t)sp;
    context->uc_mcontext.gregs[REG_RBP] = (greg_t)fp;
}

int ftf_context_registers(const ucontext_t *context, struct ftf_register *out)
{
    static const struct {
        const char *name;
        int index;
    } table[] = {
        {"rax", REG_RAX}, {"rbx", REG_RBX}, {"rcx", REG_RCX},    {"rdx", REG_RDX}, {"rsi", REG_RSI},
        {"rdi", REG_RDI}, {"rbp", REG_RBP}, {"rsp", REG_RSP},    {"r8", REG_R8},   {"r9", REG_R9},
        {"r10", REG_R10}, {"r11", REG_R11}, {"r12", REG_R12},    {"r13", REG_R13}, {"r14", REG_R14},
        {"r15", REG_R15}, {"rip", REG_RIP}, {"eflags", REG_EFL}, {"cr2", REG_CR2},
    };
    for (size_t i = 0; i < FTF_LENGTH(table); i++)
        out[i] = (struct ftf_register){table[i].name, (uint64_t)context->uc_mcontext.gregs[table[i].index]};
    return (int)FTF_LENGTH(table);
}

struct ftf_fault_details ftf_context_fault(const ucontext_t *context, int sig)
{
    struct ftf_fault_details details = {.trap = (int)context->uc_mcontext.gregs[REG_TRAPNO], .has_error_code = true};
    details.error_code = (uint64_t)context->uc_mcontext.gregs[REG_ERR];
    /* Page-fault error code: bit 1 write, bit 4 instruction fetch (arch/x86/include/asm/trap_pf.h). Trap 14 is #PF. */
    if (details.trap == 14 && (sig == SIGSEGV || sig == SIGBUS))
        details.access = details.error_code & 16 ? "exec" : details.error_code & 2 ? "write" : "read";
    return details;
}

bool ftf_context_trapped(const ucontext_t *context)
{
    long trap = context->uc_mcontext.gregs[REG_TRAPNO];
    return trap >= 10 && trap <= 14; /* #TS #NP #SS #GP #PF */
}

bool ftf_context_step_out(ucontext_t *context, const char **how)
{
    uint64_t sp = ftf_context_sp(context);
    uint64_t return_address;
    if (!ftf_peek(sp, &return_address, sizeof return_address))
        return false;
    context->uc_mcontext.gregs[REG_RIP] = (greg_t)return_address;
    context->uc_mcontext.gregs[REG_RSP] = (greg_t)(sp + 8);
    *how = "popped-return-address";
    return true;
}

bool ftf_is_return_address(uint64_t address)
{
    uint8_t before[8]; /* before[7] is the byte just before `address` */
    if (address < 8 || !ftf_peek(address - 8, before, sizeof before))
        return false;
    if (before[3] == 0xe8) /* call rel32 */
        return true;
    /* call r/m64: ff /2 with every ModRM length (Intel SDM vol. 2, CALL): register, [reg], [reg+disp8], SIB, disp32. */
    static const int lengths[] = {2, 3, 4, 6, 7};
    for (size_t i = 0; i < FTF_LENGTH(lengths); i++) {
        const uint8_t *opcode = before + 8 - lengths[i];
        if (opcode[0] == 0xff && (opcode[1] >> 3 & 7) == 2)
            return true;
    }
    return false;
}

__asm__(".text\n"
        ".globl ftf_call_on_stack\n"
        ".hidden ftf_call_on_stack\n"
        ".type ftf_call_on_stack,@function\n"
        "ftf_call_on_stack:\n" /* rdi top, rsi function, rdx argument */
        "  .cfi_startproc\n"
        "  push %rbp\n"
        "  .cfi_def_cfa_offset 16\n"
        "  .cfi_offset %rbp,-16\n"
        "  mov %rsp,%rbp\n"
        "  .cfi_def_cfa_register %rbp\n"
        "  and $-16,%rdi\n"
        "  mov %rdi,%rsp\n"
        "  mov %rdx,%rdi\n"
        "  call *%rsi\n"
        "  mov %rbp,%rsp\n"
        "  pop %rbp\n"
        "  .cfi_def_cfa %rsp,8\n"
        "  ret\n"
        "  .cfi_endproc\n"
        ".size ftf_call_on_stack,.-ftf_call_on_stack\n"
        ".globl ftf_jump_with_return\n"
        ".hidden ftf_jump_with_return\n"
        ".type ftf_jump_with_return,@function\n"
        "ftf_jump_with_return:\n" /* rdi sp (holding the return address), rsi function, rdx argument */
        "  mov %rdi,%rsp\n"
        "  mov %rdx,%rdi\n"
        "  jmp *%rsi\n"
        ".size ftf_jump_with_return,.-ftf_jump_with_return\n"
        ".globl ftf_clone\n"
        ".hidden ftf_clone\n"
        ".type ftf_clone,@function\n"
        "ftf_clone:\n" /* rdi flags, rsi stack top, rdx function, rcx argument, r8 child_tid */
        "  and $-16,%rsi\n"
        "  sub $16,%rsi\n"
        "  mov %rdx,(%rsi)\n"
        "  mov %rcx,8(%rsi)\n"
        "  xor %edx,%edx\n"
        "  mov %r8,%r10\n" /* child_tid; the fifth argument (TLS) is not used without CLONE_SETTLS */
        "  xor %r8d,%r8d\n"
        "  mov $56,%eax\n" /* clone */
        "  syscall\n"
        "  test %rax,%rax\n"
        "  jz 1f\n"
        "  ret\n"
        "1:\n"
        "  xor %ebp,%ebp\n"
        "  pop %rax\n"
        "  pop %rdi\n"
        "  call *%rax\n"
        "  xor %edi,%edi\n"
        "  mov $231,%eax\n" /* exit_group */
        "  syscall\n"
        "  hlt\n"
        ".size ftf_clone,.-ftf_clone\n");

void ftf_jump_with_return(void *sp, void (*function)(void *), void *argument);

void ftf_call_below_frame(const ucontext_t *context, const siginfo_t *info, uint64_t signal_return, void *stack_top,
                          void (*function)(void *), void *argument)
{
    /* The kernel's struct rt_sigframe (arch/x86/include/asm/sigframe.h): return address, ucontext, siginfo. When the
       handler has returned, rsp points at the ucontext, where the unwind rule of the restorer finds the registers. */
    (void)info;
    uint8_t *place = (uint8_t *)(((uintptr_t)stack_top - sizeof(ucontext_t) - 512) & ~(uintptr_t)15);
    memcpy(place, context, sizeof(ucontext_t));
    uint64_t *return_slot = (uint64_t *)(place - 8);
    *return_slot = signal_return;
    ftf_jump_with_return(return_slot, function, argument);
}

#endif
