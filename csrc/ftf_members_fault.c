/* CONTEXT: SIGNAL. The members that tell what happened. Shapes: docs/schema.md. */
#include "ftf_members.h"

#include "ftf_arch.h"
#include "ftf_maps.h"
#include "ftf_peek.h"
#include "ftf_redact.h"
#include "ftf_unwind.h"

#include <string.h>

#define out (&ftf.line)

static void put_member(const char *name)
{
    ftf_puts(out, "\"");
    ftf_puts(out, name);
    ftf_puts(out, "\": ");
}

static void put_string_or_null(const char *string)
{
    if (string)
        ftf_put_json_string(out, string, ftf_string_length(string));
    else
        ftf_puts(out, "null");
}

void ftf_member_schema(void) { ftf_puts(out, "{\"schema\": \"ftforensics.crash/1\",\n"); }

void ftf_member_time(void)
{
    put_member("time");
    ftf_puts(out, "{\"realtime\": ");
    ftf_put_seconds(out, ftf_clock_ns(CLOCK_REALTIME));
    ftf_puts(out, ", \"monotonic\": ");
    ftf_put_seconds(out, ftf.crash_ns);
    ftf_puts(out, ", \"boottime\": ");
    ftf_put_seconds(out, ftf_clock_ns(CLOCK_BOOTTIME));
    ftf_puts(out, ", \"installed\": ");
    ftf_put_seconds(out, ftf.installed_ns);
    ftf_puts(out, ", \"boot_id\": ");
    put_string_or_null(ftf.boot_id[0] ? ftf.boot_id : 0);
    ftf_puts(out, "},\n");
}

/* The NSpid line of /proc/self/status: our pid in every namespace, outermost visible first (man proc_pid_status). */
static void put_namespace_pids(void)
{
    int fd = ftf_open_somehow("/proc/self/status", O_RDONLY, 0);
    long got = fd < 0 ? -1 : ftf_read(fd, ftf.scratch, 8191);
    if (fd >= 0)
        ftf_close(fd);
    ftf_puts(out, "[");
    if (got > 0) {
        const char *cursor = (const char *)ftf.scratch;
        const char *end = cursor + got;
        while (cursor + 6 < end && memcmp(cursor, "NSpid:", 6) != 0) {
            while (cursor < end && *cursor != '\n')
                cursor++;
            cursor++;
        }
        if (cursor + 6 < end) {
            bool first = true;
            cursor += 6;
            while (cursor < end && *cursor != '\n') {
                if (*cursor < '0' || *cursor > '9') {
                    cursor++;
                    continue;
                }
                if (!first)
                    ftf_puts(out, ", ");
                first = false;
                ftf_put_decimal(out, (int64_t)ftf_parse_decimal(&cursor, end));
            }
        }
    }
    ftf_puts(out, "]");
}

void ftf_member_process(void)
{
    static const char *const states[] = {"running", "exiting", "finalized"};
    char name[17] = {0};
    ftf_syscall2(SYS_prctl, 16 /* PR_GET_NAME */, name);
    put_member("process");
    ftf_puts(out, "{\"pid\": ");
    ftf_put_decimal(out, ftf_getpid());
    ftf_puts(out, ", \"tid\": ");
    ftf_put_decimal(out, ftf_gettid());
    ftf_puts(out, ", \"ppid\": ");
    ftf_put_decimal(out, ftf_syscall0(SYS_getppid));
    ftf_puts(out, ", \"nspid\": ");
    put_namespace_pids();
    ftf_puts(out, ", \"start_ticks\": ");
    ftf_put_decimal(out, (int64_t)ftf.start_ticks);
    ftf_puts(out, ", \"fork_of\": ");
    if (ftf.foreign_process)
        ftf_put_decimal(out, ftf.pid);
    else if (ftf.fork_of)
        ftf_put_decimal(out, ftf.fork_of);
    else
        ftf_puts(out, "null");
    ftf_puts(out, ", \"thread_name\": ");
    put_string_or_null(name);
    ftf_puts(out, ", \"main_thread\": ");
    ftf_put_bool(out, ftf_getpid() == ftf_gettid());
    ftf_puts(out, ", \"python\": \"");
    ftf_puts(out, states[ftf.python_state <= 2 ? ftf.python_state : 0]);
    ftf_puts(out, "\"},\n");
}

const char *ftf_signal_name(int sig)
{
    switch (sig) {
    case SIGSEGV: return "SIGSEGV";
    case SIGBUS: return "SIGBUS";
    case SIGILL: return "SIGILL";
    case SIGFPE: return "SIGFPE";
    case SIGABRT: return "SIGABRT";
    case SIGTERM: return "SIGTERM";
    case SIGHUP: return "SIGHUP";
    case SIGINT: return "SIGINT";
    case SIGXCPU: return "SIGXCPU";
    case SIGUSR1: return "SIGUSR1";
    default: return 0;
    }
}

bool ftf_was_sent(const siginfo_t *info) { return info->si_code <= 0; }

/* man sigaction, "The si_code field"; values in include/uapi/asm-generic/siginfo.h. */
static const char *code_name(int sig, int code)
{
    static const char *const segv[] = {"SEGV_MAPERR",  "SEGV_ACCERR",  "SEGV_BNDERR",  "SEGV_PKUERR",  "SEGV_ACCADI",
                                       "SEGV_ADIDERR", "SEGV_ADIPERR", "SEGV_MTEAERR", "SEGV_MTESERR", "SEGV_CPERR"};
    static const char *const bus[] = {"BUS_ADRALN", "BUS_ADRERR", "BUS_OBJERR", "BUS_MCEERR_AR", "BUS_MCEERR_AO"};
    static const char *const ill[] = {"ILL_ILLOPC", "ILL_ILLOPN", "ILL_ILLADR", "ILL_ILLTRP",  "ILL_PRVOPC",
                                      "ILL_PRVREG", "ILL_COPROC", "ILL_BADSTK", "ILL_BADIADDR"};
    static const char *const fpe[] = {"FPE_INTDIV", "FPE_INTOVF", "FPE_FLTDIV", "FPE_FLTOVF",
                                      "FPE_FLTUND", "FPE_FLTRES", "FPE_FLTINV", "FPE_FLTSUB"};
    static const struct {
        int sig;
        const char *const *names;
        int count;
    } tables[] = {{SIGSEGV, segv, FTF_LENGTH(segv)},
                  {SIGBUS, bus, FTF_LENGTH(bus)},
                  {SIGILL, ill, FTF_LENGTH(ill)},
                  {SIGFPE, fpe, FTF_LENGTH(fpe)}};
    switch (code) {
    case SI_USER: return "SI_USER";
    case SI_KERNEL: return "SI_KERNEL";
    case SI_QUEUE: return "SI_QUEUE";
    case SI_TIMER: return "SI_TIMER";
    case SI_MESGQ: return "SI_MESGQ";
    case SI_ASYNCIO: return "SI_ASYNCIO";
    case SI_SIGIO: return "SI_SIGIO";
    case SI_TKILL: return "SI_TKILL";
    default: break;
    }
    for (size_t i = 0; i < FTF_LENGTH(tables); i++)
        if (tables[i].sig == sig && code >= 1 && code <= tables[i].count)
            return tables[i].names[code - 1];
    return 0;
}

/* A fault signal that our own process sent itself, while another library's handler stood in front of us, was raised again
   by that handler after it had done its work (faulthandler, c10 and abseil do so). */
static uint64_t raised_again_by(void)
{
    const struct ftf_chain *chain = &ftf.chains[ftf_fault_index(ftf.signal)];
    if (ftf.info->si_code != SI_TKILL || ftf.info->si_pid != ftf_getpid() || ftf.signal == SIGABRT)
        return 0;
    for (int i = chain->count - 1; i >= 0; i--)
        if ((uintptr_t)chain->entries[i].action.handler > 1)
            return (uint64_t)(uintptr_t)chain->entries[i].action.handler;
    return 0;
}

void ftf_put_sender(struct ftf_text *text, bool known, int pid, unsigned uid)
{
    if (!known) {
        ftf_puts(text, "null");
        return;
    }
    ftf_puts(text, "{\"pid\": ");
    ftf_put_decimal(text, pid);
    ftf_puts(text, ", \"uid\": ");
    ftf_put_decimal(text, uid);
    ftf_puts(text, "}");
}

void ftf_member_signal(void)
{
    const siginfo_t *info = ftf.info;
    struct ftf_fault_details details = ftf_context_fault(ftf.context, ftf.signal);
    bool sent = ftf_was_sent(info);
    uint64_t via = raised_again_by();
    put_member("signal");
    ftf_puts(out, "{\"number\": ");
    ftf_put_decimal(out, ftf.signal);
    ftf_puts(out, ", \"name\": ");
    put_string_or_null(ftf_signal_name(ftf.signal));
    ftf_puts(out, ", \"code\": ");
    ftf_put_decimal(out, info->si_code);
    ftf_puts(out, ", \"code_name\": ");
    put_string_or_null(code_name(ftf.signal, info->si_code));
    ftf_puts(out, ", \"address\": ");
    ftf_put_address_or_null(out, !sent, (uint64_t)(uintptr_t)info->si_addr);
    ftf_puts(out, ", \"address_lsb\": ");
    ftf_put_decimal_or_null(out, ftf.signal == SIGBUS && (info->si_code == 4 || info->si_code == 5), info->si_addr_lsb);
    ftf_puts(out, ", \"sender\": ");
    bool named = sent && (info->si_code == SI_USER || info->si_code == SI_TKILL || info->si_code == SI_QUEUE);
    ftf_put_sender(out, named, info->si_pid, info->si_uid);
    ftf_puts(out, ", \"via\": ");
    ftf_put_address_or_null(out, via, via);
    ftf_puts(out, ", \"trap\": ");
    ftf_put_decimal_or_null(out, !sent && details.trap >= 0, details.trap);
    ftf_puts(out, ", \"error_code\": ");
    ftf_put_address_or_null(out, !sent && details.has_error_code, details.error_code);
    ftf_puts(out, ", \"esr\": ");
    ftf_put_address_or_null(out, !sent && details.has_esr, details.esr);
    ftf_puts(out, ", \"access\": ");
    put_string_or_null(sent ? 0 : details.access);
    ftf_puts(out, "},\n\"mechanism\": null,\n");
}

void ftf_member_registers(void)
{
    struct ftf_register registers[40];
    int count = ftf_context_registers(ftf.context, registers);
    put_member("registers");
    ftf_puts(out, "{\"arch\": ");
    put_string_or_null(ftf_arch_name);
    ftf_puts(out, ", \"pc\": ");
    ftf_put_address(out, ftf_context_pc(ftf.context));
    ftf_puts(out, ", \"sp\": ");
    ftf_put_address(out, ftf_context_sp(ftf.context));
    ftf_puts(out, ", \"fp\": ");
    ftf_put_address(out, ftf_context_fp(ftf.context));
    ftf_puts(out, ", \"values\": [");
    for (int i = 0; i < count; i++) {
        ftf_puts(out, i ? ", {\"name\": " : "{\"name\": ");
        put_string_or_null(registers[i].name);
        ftf_puts(out, ", \"value\": ");
        ftf_put_address(out, registers[i].value);
        ftf_puts(out, "}");
    }
    ftf_puts(out, "]},\n");
}

void ftf_member_marks(void)
{
    put_member("phase");
    if (ftf.phase_depth > 0) {
        ftf_puts(out, "{\"names\": [");
        for (int i = 0; i < ftf.phase_depth && i < FTF_PHASE_DEPTH; i++) {
            ftf_puts(out, i ? ", " : "");
            put_string_or_null(ftf.phases[i]);
        }
        ftf_puts(out, "], \"since\": ");
        ftf_put_seconds(out, ftf.phase_ns);
        ftf_puts(out, "},\n");
    } else {
        ftf_puts(out, "null,\n");
    }
    put_member("step");
    ftf_put_decimal_or_null(out, ftf.has_step, ftf.step);
    ftf_puts(out, ",\n");
    put_member("note");
    put_string_or_null(ftf.note[0] ? ftf.note : 0);
    ftf_puts(out, ",\n");
}

/* glibc: struct abort_msg_s in include/stdlib.h; set by __libc_message and __assert_fail before abort(). */
struct abort_text {
    unsigned size;
    char text[];
};

void ftf_member_abort_message(void)
{
    uint64_t message = 0;
    char text[1024];
    bool found = ftf.abort_message && ftf_peek((uint64_t)(uintptr_t)ftf.abort_message, &message, sizeof message) &&
                 message != 0 && ftf_peek_string(message + offsetof(struct abort_text, text), text, sizeof text);
    put_member("abort_message");
    if (found)
        ftf_redact(text, ftf_string_length(text));
    if (found && text[0] != 0) {
        ftf_puts(out, "{\"text\": ");
        put_string_or_null(text);
        ftf_puts(out, ", \"source\": \"glibc\"},\n");
    } else {
        ftf_puts(out, "null,\n");
    }
}

void ftf_member_exception(void)
{
    put_member("cxx_exception");
    if (ftf.exception.found) {
        ftf_puts(out, "{\"type\": ");
        put_string_or_null(ftf.exception.type_text);
        ftf_redact(ftf.exception.what, ftf_string_length(ftf.exception.what));
        ftf_puts(out, ", \"what\": ");
        put_string_or_null(ftf.exception.what[0] ? ftf.exception.what : 0);
        ftf_puts(out, "},\n");
    } else {
        ftf_puts(out, "null,\n");
    }
}

/* Only executable memory: a jump into data would put the job's data, maybe a secret, into the record. */
void ftf_member_code(void)
{
    uint64_t pc = ftf_context_pc(ftf.context);
    put_member("code");
    if (!ftf_maps_executable(pc)) {
        ftf_puts(out, "null,\n");
        return;
    }
    uint64_t start = pc - FTF_CODE_BYTES / 4;
    const struct ftf_map *map = ftf_maps_find(pc);
    if (start < map->start)
        start = map->start;
    size_t size = map->end - start < FTF_CODE_BYTES ? map->end - start : FTF_CODE_BYTES;
    size = ftf_peek_some(start, ftf.code, size);
    ftf_puts(out, "{\"start\": ");
    ftf_put_address(out, start);
    ftf_puts(out, ", \"data\": \"");
    ftf_put_base64(out, ftf.code, size);
    ftf_puts(out, "\", \"redacted\": false, \"note\": null},\n");
}

/* A word survives when it can be no piece of the job's data: a small integer or a pointer into a mapping. */
static uint64_t redacted_word(uint64_t word) { return word < 65536 || ftf_maps_find(word) ? word : 0; }

void ftf_member_stack(void)
{
    const char *note;
    uint64_t start = ftf_stack_start(&note);
    size_t size = FTF_STACK_BYTES;
    put_member("stack");
    /* Above the main thread's frames lie argv and the environment: never into the record. */
    if (start != 0 && ftf.arg_start > start && ftf.arg_start - start < size)
        size = (ftf.arg_start - start) & ~UINT64_C(7);
    /* auxv and the environment's pointers begin a little lower; strings are what matters and they start at arg_start. */
    size = start ? ftf_peek_some(start, ftf.scratch, size) & ~(size_t)7 : 0;
    if (size == 0) {
        ftf_puts(out, "null,\n");
        return;
    }
    if (!ftf.raw_stack)
        for (size_t at = 0; at < size; at += 8) {
            uint64_t word;
            memcpy(&word, ftf.scratch + at, 8);
            word = redacted_word(word);
            memcpy(ftf.scratch + at, &word, 8);
        }
    ftf_puts(out, "{\"start\": ");
    ftf_put_address(out, start);
    ftf_puts(out, ", \"data\": \"");
    ftf_put_base64(out, ftf.scratch, size);
    ftf_puts(out, "\", \"redacted\": ");
    ftf_put_bool(out, !ftf.raw_stack);
    ftf_puts(out, ", \"note\": ");
    put_string_or_null(note);
    ftf_puts(out, "},\n");
}

void ftf_member_walk(const char *name)
{
    const struct ftf_walk *walk = &ftf.walk;
    bool from_context = walk->trust[0] != 's'; /* a scan knows no first frame */
    put_member(name);
    ftf_puts(out, "{\"unwinder\": ");
    put_string_or_null(walk->unwinder);
    ftf_puts(out, ", \"safety\": ");
    put_string_or_null(walk->trust[0] == 'c' ? ftf.unwind_safety : "lockfree");
    ftf_puts(out, ", \"start\": ");
    put_string_or_null(walk->start);
    ftf_puts(out, ", \"frames\": [");
    for (int i = 0; i < walk->count; i++) {
        ftf_puts(out, i ? ", {\"pc\": " : "{\"pc\": ");
        ftf_put_address(out, walk->frames[i].pc);
        ftf_puts(out, ", \"sp\": ");
        ftf_put_address(out, walk->frames[i].sp);
        ftf_puts(out, ", \"trust\": \"");
        ftf_puts(out, i == 0 && from_context ? "context" : walk->trust);
        ftf_puts(out, "\"}");
    }
    ftf_puts(out, "], \"complete\": ");
    ftf_put_bool(out, walk->complete);
    ftf_puts(out, "},\n");
}

void ftf_member_dump(const char *name)
{
    put_member(name);
    if (ftf.dump_text_used == 0) {
        ftf_puts(out, "null,\n");
        return;
    }
    ftf_puts(out, "{\"text\": ");
    bool valid = ftf_put_json_string(out, ftf.dump_text, ftf.dump_text_used);
    ftf_puts(out, ", \"hex\": ");
    if (valid) {
        ftf_puts(out, "null");
    } else {
        ftf_puts(out, "\"");
        ftf_put_hex_bytes(out, (const uint8_t *)ftf.dump_text, ftf.dump_text_used);
        ftf_puts(out, "\"");
    }
    ftf_puts(out, ", \"truncated\": ");
    ftf_put_bool(out, ftf.dump_text_used == ftf.dump_text_size);
    ftf_puts(out, "},\n");
}
