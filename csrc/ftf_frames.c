/* CONTEXT: NORMAL. See ftf_frames.h.

   Py_FatalError takes faulthandler down before it aborts (Python/pylifecycle.c, fatal_error), and with it the dumper's
   tables. The interpreter itself is alive then. Not signal-safe at all: this file is reached through a pointer, from one
   step, in a child that the handler gives a second to live. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "ftf_frames.h"
#include "ftf_state.h"

#include <string.h>

#define MAX_FRAMES 100

static void put(const char *text)
{
    size_t length = strlen(text);
    if (length > ftf.dump_text_size - ftf.dump_text_used)
        return;
    memcpy(ftf.dump_text + ftf.dump_text_used, text, length);
    ftf.dump_text_used += length;
}

/* The text of code.<name>, borrowed from an object that lives as long as the code does. */
static const char *text_of(PyObject *code, const char *name)
{
    PyObject *value = PyObject_GetAttrString(code, name);
    const char *text = value ? PyUnicode_AsUTF8AndSize(value, 0) : 0;
    return text ? text : "?";
}

static void put_frame(PyObject *frame)
{
    char number[24];
    PyObject *code = PyObject_GetAttrString(frame, "f_code");
    PyObject *line = PyObject_GetAttrString(frame, "f_lineno");
    struct ftf_text text = {number, sizeof number - 1, 0, false};
    ftf_put_decimal(&text, line ? PyLong_AsLong(line) : 0);
    number[text.used] = 0;
    put("  File \"");
    put(code ? text_of(code, "co_filename") : "?");
    put("\", line ");
    put(number);
    put(" in ");
    put(code ? text_of(code, "co_name") : "?");
    put("\n");
}

void ftf_frames_dump(void)
{
    PyObject *frame = (PyObject *)PyEval_GetFrame();
    if (frame)
        put("Stack (most recent call first):\n");
    for (int depth = 0; frame && frame != Py_None && depth < MAX_FRAMES; depth++) {
        put_frame(frame);
        frame = PyObject_GetAttrString(frame, "f_back"); /* the references are never given back: the process is dying */
    }
}
