/* CONTEXT: SIGNAL. The C++ exception that std::terminate could not deliver.

   libstdc++ keeps, per thread, the stack of caught exceptions (__cxa_get_globals, Itanium C++ ABI 2.2.2); std::terminate
   for an uncaught exception runs after __cxa_begin_catch, so the exception stands on top. Its type name is in the
   type_info; its text comes from what(), the third entry of the vtable of every class derived from std::exception, which
   we call: hence the sandbox. Layouts: struct __cxa_exception and __cxa_refcounted_exception in
   libstdc++-v3/libsupc++/unwind-cxx.h, class layouts of __si_class_type_info in the ABI, 2.9.5. */
#include "ftf_cxx.h"

#include "ftf_peek.h"

#include <string.h>

struct type_info {
    const void *vtable;
    const char *name;
    const struct type_info *base; /* of __si_class_type_info only */
};

/* The tail of __cxa_exception that we use, counted backwards from the exception object. */
#define UNWIND_HEADER 32

struct eh_globals {
    uint8_t *caught;
    unsigned uncaught;
};

static bool type_name(const struct type_info *info, char *out, size_t size)
{
    uint64_t name;
    if (!ftf_peek((uint64_t)(uintptr_t)&info->name, &name, sizeof name) || !ftf_peek_string(name, out, size))
        return false;
    if (out[0] == '*') /* a name local to its object file carries a mark */
        memmove(out, out + 1, ftf_string_length(out));
    return true;
}

/* Single inheritance only: a wrong guess would call a wrong function. The third word of a type_info is a base class just
   for __si_class_type_info; for others it is unrelated data, so every candidate is checked by its name. */
static bool derives_from_exception(const struct type_info *info)
{
    for (int depth = 0; depth < 12; depth++) {
        char name[64];
        struct type_info copy;
        if (!type_name(info, name, sizeof name))
            return false;
        if (ftf_string_equal(name, "St9exception"))
            return true;
        if (!ftf_peek((uint64_t)(uintptr_t)info, &copy, sizeof copy))
            return false;
        info = copy.base;
    }
    return false;
}

static bool read_from(struct eh_globals *globals)
{
    uint8_t *header = globals ? globals->caught : 0;
    if (!header)
        return false;
    /* `header` is a __cxa_exception; the object follows it. sizeof(__cxa_exception) is 112 on LP64. */
    uint8_t *object = header + 112;
    const struct type_info *info;
    uint64_t class;
    /* exception_class, first word of the _Unwind_Exception at the header's end: "GNUCC++\0", or "\1" for a dependent. */
    memcpy(&class, object - UNWIND_HEADER, sizeof class);
    if ((class & ~UINT64_C(0xff)) != UINT64_C(0x474e5543432b2b00))
        return false;
    if ((class & 0xff) == 1) /* std::rethrow_exception: __cxa_dependent_exception begins with the primary object */
        memcpy(&object, header, sizeof object);
    memcpy(&info, object - 112, sizeof info);
    if (!type_name(info, ftf.exception.type_text, sizeof ftf.exception.type_text))
        return false;
    ftf.exception.found = true;
    if (derives_from_exception(info)) {
        const char *(*const *vtable)(const void *);
        memcpy(&vtable, object, sizeof vtable);
        const char *text = vtable[2](object);
        if (text)
            ftf_peek_string((uint64_t)(uintptr_t)text, ftf.exception.what, sizeof ftf.exception.what);
    }
    return true;
}

void ftf_cxx_read_exception(void)
{
    ftf.exception.found = false;
    ftf.exception.what[0] = 0;
    for (int i = 0; i < ftf.cxa_count; i++)
        if (read_from(ftf.cxa_get_globals[i]()))
            return;
}
