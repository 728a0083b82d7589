/* CONTEXT: NORMAL. The method table of ftforensics._native and the conversion of arguments, nothing else. Documented in
   src/ftforensics/_native.pyi. Uses the stable ABI of CPython 3.10. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "ftf_altstack.h"
#include "ftf_ending.h"
#include "ftf_frames.h"
#include "ftf_hook.h"
#include "ftf_install.h"
#include "ftf_ledger.h"
#include "ftf_ownership.h"
#include "ftf_recorder.h"
#include "ftf_ring_write.h"
#include "ftf_state.h"
#include "ftf_symtab.h"
#include "ftf_watcher.h"
#include "ftf_wrap.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

/* A NULL-terminated array of borrowed pointers into `sequence` (a fresh tuple the caller keeps). NULL on error. */
static char **borrow_list(PyObject *sequence, PyObject **keep)
{
    *keep = PySequence_Tuple(sequence);
    if (!*keep)
        return 0;
    Py_ssize_t count = PyTuple_Size(*keep);
    char **list = calloc((size_t)count + 1, sizeof *list);
    if (!list) {
        PyErr_NoMemory();
        return 0;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_ssize_t length;
        if (PyBytes_AsStringAndSize(PyTuple_GetItem(*keep, i), &list[i], &length) != 0) {
            free(list);
            return 0;
        }
    }
    return list;
}

static PyObject *native_install(PyObject *self, PyObject *args)
{
    const char *directory, *stem, *members;
    Py_ssize_t members_size;
    PyObject *sequences[4], *kept[4] = {0};
    char **lists[4] = {0};
    int raw_stack;
    (void)self;
    if (!PyArg_ParseTuple(args, "yyy#OOOOp", &directory, &stem, &members, &members_size, &sequences[0], &sequences[1],
                          &sequences[2], &sequences[3], &raw_stack))
        return 0;
    bool ok = true;
    for (int i = 0; i < 4 && ok; i++) {
        lists[i] = borrow_list(sequences[i], &kept[i]);
        ok = lists[i] != 0;
    }
    if (ok) {
        struct ftf_config config = {
            .directory = directory,
            .stem = stem,
            .static_members = members,
            .static_size = (size_t)members_size,
            .helper_argv = lists[0],
            .helper_env = lists[1],
            .inventory_argv = lists[2],
            .memory_usage_file = lists[3][0] ? lists[3][0] : "",
            .memory_limit_file = lists[3][0] && lists[3][1] ? lists[3][1] : "",
            .raw_stack = raw_stack,
        };
        const char *failed = "install";
        int result = ftf_install(&config, &failed);
        if (result != 0) {
            errno = -result;
            PyErr_SetFromErrnoWithFilename(PyExc_OSError, failed);
            ok = false;
        }
    }
    for (int i = 0; i < 4; i++) {
        free(lists[i]);
        Py_XDECREF(kept[i]);
    }
    if (!ok)
        return 0;
    Py_RETURN_NONE;
}

static PyObject *native_uninstall(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    ftf_uninstall();
    Py_RETURN_NONE;
}

static PyObject *native_is_installed(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    return PyBool_FromLong(ftf.installed);
}

static PyObject *native_record_path(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    if (!ftf.installed)
        Py_RETURN_NONE;
    return PyBytes_FromString(ftf.path);
}

static PyObject *native_configure_recorder(PyObject *self, PyObject *args)
{
    struct ftf_recorder_config config = {0};
    const char *text;
    Py_ssize_t size;
    PyObject *sequence, *kept;
    long long rank, local_rank, world_size;
    (void)self;
    if (!PyArg_ParseTuple(args, "yy#yyiyyOLLLi", &config.tool, &text, &size, &config.group_mount, &config.group_root,
                          &config.group_version, &config.local_directory, &config.gpu, &sequence, &rank, &local_rank,
                          &world_size, &config.worker_of))
        return 0;
    config.text = text;
    config.text_size = (size_t)size;
    config.rank = rank;
    config.local_rank = local_rank;
    config.world_size = world_size;
    config.removable = borrow_list(sequence, &kept);
    int result = config.removable ? ftf_recorder_configure(&config) : 0;
    bool failed = !config.removable;
    free(config.removable);
    Py_XDECREF(kept);
    if (failed)
        return 0;
    if (result != 0) {
        errno = -result;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    Py_RETURN_NONE;
}

static PyObject *native_start_recorder(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    if (ftf.installed)
        ftf_recorder_start();
    const char *refusal = ftf_recorder_refusal();
    if (refusal[0] == 0)
        Py_RETURN_NONE;
    return PyUnicode_DecodeLocale(refusal, "surrogateescape");
}

static PyObject *native_ring_path(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    if (!ftf_ring_is_ours() || ftf_ring.path[0] == 0)
        Py_RETURN_NONE;
    return PyBytes_FromString(ftf_ring.path);
}

/* Duplicates a descriptor to the lowest free number that is not below another. */
static PyObject *native_duplicate(PyObject *self, PyObject *args)
{
    int fd, lowest;
    (void)self;
    if (!PyArg_ParseTuple(args, "ii", &fd, &lowest))
        return 0;
    int made = fcntl(fd, F_DUPFD_CLOEXEC, lowest);
    return made < 0 ? PyErr_SetFromErrno(PyExc_OSError) : PyLong_FromLong(made);
}

static PyObject *native_leave(PyObject *self, PyObject *args)
{
    const char *how;
    int status = 0;
    (void)self;
    if (!PyArg_ParseTuple(args, "s|i", &how, &status))
        return 0;
    ftf_recorder_leave(strcmp(how, "exec") == 0 ? FTF_RING_EXEC : FTF_RING_EXIT, status);
    Py_RETURN_NONE;
}

static PyObject *native_remove_at_success(PyObject *self, PyObject *args)
{
    const char *path;
    (void)self;
    if (!PyArg_ParseTuple(args, "y", &path))
        return 0;
    int result = ftf_ending_remove_at_success(path);
    if (result != 0) {
        errno = -result;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    Py_RETURN_NONE;
}

static PyObject *native_come_back(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    ftf_recorder_come_back();
    Py_RETURN_NONE;
}

static PyObject *native_configure_ledger(PyObject *self, PyObject *args)
{
    const char *path, *line;
    (void)self;
    if (!PyArg_ParseTuple(args, "yy", &path, &line))
        return 0;
    int result = ftf_ledger_configure(path, line);
    if (result != 0) {
        errno = -result;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    Py_RETURN_NONE;
}

static PyObject *native_end_ledger(PyObject *self, PyObject *args)
{
    int code;
    (void)self;
    if (!PyArg_ParseTuple(args, "i", &code))
        return 0;
    ftf_ledger_end(code);
    Py_RETURN_NONE;
}

static PyObject *native_set_python_dumper(PyObject *self, PyObject *args)
{
    int current, all, fd;
    (void)self;
    if (!PyArg_ParseTuple(args, "iii", &current, &all, &fd))
        return 0;
    int result = ftf_set_python_dumper(current, all, fd);
    if (result != 0) {
        errno = -result;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    Py_RETURN_NONE;
}

static PyObject *native_set_faulthandler_fd(PyObject *self, PyObject *args)
{
    int fd;
    (void)self;
    if (!PyArg_ParseTuple(args, "i", &fd))
        return 0;
    ftf.user_faulthandler_fd = fd;
    Py_RETURN_NONE;
}

static PyObject *native_set_python_state(PyObject *self, PyObject *args)
{
    int state;
    (void)self;
    if (!PyArg_ParseTuple(args, "i", &state))
        return 0;
    ftf.python_state = state >= 0 && state <= 2 ? state : 0;
    Py_RETURN_NONE;
}

static PyObject *native_set_phase(PyObject *self, PyObject *args)
{
    PyObject *sequence, *kept;
    (void)self;
    if (!PyArg_ParseTuple(args, "O", &sequence))
        return 0;
    char **names = borrow_list(sequence, &kept);
    if (names) {
        int depth = 0;
        Py_ssize_t count = PyTuple_Size(kept);
        char **first = count > FTF_PHASE_DEPTH ? names + count - FTF_PHASE_DEPTH : names; /* the innermost tell more */
        ftf.phase_depth = 0;
        for (; first[depth]; depth++) {
            strncpy(ftf.phases[depth], first[depth], FTF_PHASE_SIZE - 1);
            ftf.phases[depth][FTF_PHASE_SIZE - 1] = 0;
        }
        ftf.phase_ns = ftf_clock_ns(CLOCK_MONOTONIC);
        ftf.phase_depth = depth;
        ftf_recorder_phase(); /* the watcher wakes up, so the pace quickens now and not at the next turn */
    }
    free(names);
    Py_XDECREF(kept);
    if (!names)
        return 0;
    Py_RETURN_NONE;
}

static PyObject *native_set_step(PyObject *self, PyObject *args)
{
    long long step;
    (void)self;
    if (!PyArg_ParseTuple(args, "L", &step))
        return 0;
    ftf.step = step;
    ftf.has_step = true;
    ftf_recorder_step();
    Py_RETURN_NONE;
}

static PyObject *native_set_note(PyObject *self, PyObject *args)
{
    const char *text;
    Py_ssize_t size;
    (void)self;
    if (!PyArg_ParseTuple(args, "y#", &text, &size))
        return 0;
    if (size > FTF_NOTE_SIZE - 1)
        size = FTF_NOTE_SIZE - 1;
    memcpy(ftf.note, text, (size_t)size);
    ftf.note[size] = 0;
    ftf_recorder_note();
    Py_RETURN_NONE;
}

static PyObject *native_check_handlers(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    if (ftf.installed)
        ftf_install_refresh();
    return PyLong_FromLong(ftf_ownership_check());
}

static PyObject *native_check_thread(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    if (ftf.installed)
        ftf_altstack_check();
    Py_RETURN_NONE;
}

/* The frame that called os.fork() last, or NULL: see start_pending. */
static PyObject *forking;

static PyObject *frame_back(PyObject *frame)
{
    PyObject *back = PyObject_GetAttrString(frame, "f_back");
    if (!back)
        PyErr_Clear();
    return back == Py_None ? (Py_DECREF(back), NULL) : back;
}

/* Whether os.fork() has not returned yet: then we run inside some Python function that it called (a fork hook of the job's,
   logging's for one), so that the frame that forks is below the current one but is not the current one. */
static bool still_forking(void)
{
    PyObject *frame = (PyObject *)PyEval_GetFrame();
    if (!forking || !frame || frame == forking)
        return false;
    Py_INCREF(frame);
    while (frame && frame != forking) {
        PyObject *back = frame_back(frame);
        Py_DECREF(frame);
        frame = back;
    }
    Py_XDECREF(frame);
    return frame != NULL;
}

static int start_result; /* of the watcher: 0 or a negative errno */

/* Python 3.12 counts threads before its after_in_parent hooks, 3.13 after them, and a pending call runs at the next
   function entry, which may be another hook: wait until os.fork() itself is over. */
static int start_pending(void *unused)
{
    (void)unused;
    if (still_forking() && Py_AddPendingCall(start_pending, 0) == 0)
        return 0;
    Py_CLEAR(forking);
    if (ftf.installed)
        start_result = ftf_watcher_start();
    return 0;
}

static int check_main_thread(void *unused)
{
    (void)unused;
    if (ftf.installed)
        ftf_altstack_check();
    return 0;
}

static PyObject *native_start_watcher(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    start_result = 0;
    start_pending(0);
    if (start_result != 0)
        return PyUnicode_DecodeLocale(strerror(-start_result), "surrogateescape");
    if (ftf_getpid() != ftf_gettid()) /* installed from another thread: pending calls run in the main one */
        Py_AddPendingCall(check_main_thread, 0);
    Py_RETURN_NONE;
}

static PyObject *native_start_watcher_later(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    if (ftf.installed && Py_AddPendingCall(start_pending, 0) != 0)
        ftf_watcher_start(); /* the queue is full: better a warning than no watcher */
    Py_RETURN_NONE;
}

static PyObject *native_stop_watcher(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    ftf_watcher_stop();
    /* The caller is our fork hook, its caller is the frame that forks. */
    Py_CLEAR(forking);
    PyObject *hook = (PyObject *)PyEval_GetFrame();
    if (hook)
        forking = frame_back(hook);
    Py_RETURN_NONE;
}

static PyObject *native_after_fork_child(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    if (ftf.installed) {
        ftf_altstack_check();
        if (Py_AddPendingCall(start_pending, 0) != 0)
            ftf_watcher_start();
    }
    Py_RETURN_NONE;
}

static PyObject *native_threads_started(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    return PyLong_FromLong(ftf_altstack_count());
}

static PyObject *native_test_hook(PyObject *self, PyObject *args)
{
    static const struct {
        const char *name;
        int kind;
    } kinds[] = {{"segv", SIGSEGV},           {"bus", SIGBUS},        {"ill", SIGILL},
                 {"abrt", SIGABRT},           {"fpe", SIGFPE},        {"hang", FTF_HOOK_HANG},
                 {"malloc", FTF_HOOK_MALLOC}, {"kill", FTF_HOOK_KILL}};
    const char *step, *kind;
    (void)self;
    if (!PyArg_ParseTuple(args, "ss", &step, &kind))
        return 0;
    int number = 0;
    for (size_t i = 0; i < FTF_LENGTH(kinds); i++)
        if (strcmp(kinds[i].name, kind) == 0)
            number = kinds[i].kind;
    if ((number == 0 && kind[0] != 0) || strlen(step) >= sizeof ftf_hooks[0].step)
        return PyErr_Format(PyExc_ValueError, "unknown trouble %s for step %s", kind, step);
    struct ftf_hook *slot = 0;
    for (int i = FTF_MAX_HOOKS - 1; i >= 0; i--)
        if (strcmp(ftf_hooks[i].step, step) == 0 || (!slot && ftf_hooks[i].kind == 0))
            slot = &ftf_hooks[i];
    if (!slot)
        return PyErr_Format(PyExc_ValueError, "all %d test hooks are taken", FTF_MAX_HOOKS);
    strcpy(slot->step, step);
    slot->kind = number;
    Py_RETURN_NONE;
}

/* Runs last in Py_FinalizeEx: faulthandler has by then put back what it had found, maybe over us, and freed its alternate
   stack, on which this thread may have relied. */
static void after_finalization(void)
{
    ftf.python_state = 2;
    ftf_install_recheck();
    if (ftf.installed)
        ftf_altstack_check();
}

static PyMethodDef methods[] = {
    {"install", native_install, METH_VARARGS, 0},
    {"uninstall", native_uninstall, METH_NOARGS, 0},
    {"is_installed", native_is_installed, METH_NOARGS, 0},
    {"record_path", native_record_path, METH_NOARGS, 0},
    {"configure_recorder", native_configure_recorder, METH_VARARGS, 0},
    {"start_recorder", native_start_recorder, METH_NOARGS, 0},
    {"ring_path", native_ring_path, METH_NOARGS, 0},
    {"duplicate", native_duplicate, METH_VARARGS, 0},
    {"leave", native_leave, METH_VARARGS, 0},
    {"remove_at_success", native_remove_at_success, METH_VARARGS, 0},
    {"come_back", native_come_back, METH_NOARGS, 0},
    {"configure_ledger", native_configure_ledger, METH_VARARGS, 0},
    {"end_ledger", native_end_ledger, METH_VARARGS, 0},
    {"set_python_dumper", native_set_python_dumper, METH_VARARGS, 0},
    {"set_faulthandler_fd", native_set_faulthandler_fd, METH_VARARGS, 0},
    {"set_python_state", native_set_python_state, METH_VARARGS, 0},
    {"set_phase", native_set_phase, METH_VARARGS, 0},
    {"set_step", native_set_step, METH_VARARGS, 0},
    {"set_note", native_set_note, METH_VARARGS, 0},
    {"check_handlers", native_check_handlers, METH_NOARGS, 0},
    {"check_thread", native_check_thread, METH_NOARGS, 0},
    {"start_watcher", native_start_watcher, METH_NOARGS, 0},
    {"start_watcher_later", native_start_watcher_later, METH_NOARGS, 0},
    {"stop_watcher", native_stop_watcher, METH_NOARGS, 0},
    {"after_fork_child", native_after_fork_child, METH_NOARGS, 0},
    {"threads_started", native_threads_started, METH_NOARGS, 0},
    {"wrap_method", ftf_wrap_method, METH_VARARGS, 0},
    {"wrap_function", ftf_wrap_function, METH_VARARGS, 0},
    {"test_hook", native_test_hook, METH_VARARGS, 0},
    {"nearest_symbols", ftf_nearest_symbols, METH_VARARGS, 0},
    {0, 0, 0, 0},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_native", 0, -1, methods, 0, 0, 0, 0};

PyMODINIT_FUNC PyInit__native(void)
{
    static bool registered;
    ftf.frames_dump = ftf_frames_dump;
    if (!registered)
        registered = Py_AtExit(after_finalization) == 0;
    return PyModule_Create(&definition);
}
