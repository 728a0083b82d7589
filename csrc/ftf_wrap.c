/* CONTEXT: NORMAL. See ftf_wrap.h. A C method descriptor carries no closure, so there is one C function a slot; a
   function has its `self` for that. */
#include "ftf_wrap.h"

#include "ftf_keep.h"

#define SLOTS 6

static struct slot {
    PyObject *original, *before, *after;
    char name[40];
} slots[SLOTS];

static void call_hook(PyObject *hook, PyObject *args)
{
    PyObject *type, *value, *traceback;
    if (!hook || hook == Py_None)
        return;
    PyErr_Fetch(&type, &value, &traceback); /* the original's exception stays */
    PyObject *result = PyObject_CallObject(hook, args);
    if (!result)
        PyErr_Clear();
    Py_XDECREF(result);
    PyErr_Restore(type, value, traceback);
}

static PyObject *call_slot(const struct slot *slot, PyObject *self, PyObject *args, PyObject *kwargs)
{
    Py_ssize_t count = PyTuple_Size(args);
    PyObject *full = PyTuple_New(count + 1);
    if (!full)
        return 0;
    Py_INCREF(self);
    PyTuple_SetItem(full, 0, self);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item = PyTuple_GetItem(args, i);
        Py_INCREF(item);
        PyTuple_SetItem(full, i + 1, item);
    }
    call_hook(slot->before, 0);
    PyObject *result = PyObject_Call(slot->original, full, kwargs);
    call_hook(slot->after, 0);
    Py_DECREF(full);
    return result;
}

#define FUNCTION(n)                                                                                                    \
    static PyObject *slot_##n(PyObject *self, PyObject *args, PyObject *kwargs)                                        \
    {                                                                                                                  \
        return call_slot(&slots[n], self, args, kwargs);                                                               \
    }
FUNCTION(0)
FUNCTION(1)
FUNCTION(2)
FUNCTION(3)
FUNCTION(4)
FUNCTION(5)

static PyMethodDef definitions[SLOTS] = {
    {slots[0].name, (PyCFunction)(void (*)(void))slot_0, METH_VARARGS | METH_KEYWORDS, 0},
    {slots[1].name, (PyCFunction)(void (*)(void))slot_1, METH_VARARGS | METH_KEYWORDS, 0},
    {slots[2].name, (PyCFunction)(void (*)(void))slot_2, METH_VARARGS | METH_KEYWORDS, 0},
    {slots[3].name, (PyCFunction)(void (*)(void))slot_3, METH_VARARGS | METH_KEYWORDS, 0},
    {slots[4].name, (PyCFunction)(void (*)(void))slot_4, METH_VARARGS | METH_KEYWORDS, 0},
    {slots[5].name, (PyCFunction)(void (*)(void))slot_5, METH_VARARGS | METH_KEYWORDS, 0},
};

PyObject *ftf_wrap_method(PyObject *self, PyObject *args)
{
    PyObject *type, *before, *after;
    const char *name;
    (void)self;
    if (!PyArg_ParseTuple(args, "OsOO", &type, &name, &before, &after))
        return 0;
    if (!PyType_Check(type) || strlen(name) >= sizeof slots[0].name)
        return PyErr_Format(PyExc_TypeError, "wrap_method wants a class and the name of one of its methods");
    PyObject *original = PyObject_GetAttrString(type, name);
    if (!original)
        return 0;
    for (int i = 0; i < SLOTS; i++) {
        if (slots[i].original && slots[i].original != original)
            continue;
        /* A wrapper that was undone may still be running somewhere: its slot keeps its references for good. */
        Py_XINCREF(before);
        Py_XINCREF(after);
        slots[i].original = original;
        slots[i].before = before;
        slots[i].after = after;
        strcpy(slots[i].name, name);
        return PyDescr_NewMethod((PyTypeObject *)type, &definitions[i]);
    }
    Py_DECREF(original);
    return PyErr_Format(PyExc_RuntimeError, "all %d wrappers are taken", SLOTS);
}

/* The exception that the original has just raised, as `except` would have it. */
static void tell_raised(PyObject *hook)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (value && traceback)
        PyException_SetTraceback(value, traceback);
    PyObject *args = value ? PyTuple_Pack(1, value) : 0;
    if (args)
        call_hook(hook, args);
    else
        PyErr_Clear();
    Py_XDECREF(args);
    PyErr_Restore(type, value, traceback);
}

/* self: what ftf_wrap_function() was given */
static PyObject *call_function(PyObject *self, PyObject *args, PyObject *kwargs)
{
    PyObject *raised = PyTuple_GetItem(self, 2);
    call_hook(PyTuple_GetItem(self, 1), args);
    PyObject *result = PyObject_Call(PyTuple_GetItem(self, 0), args, kwargs);
    if (!result && raised != Py_None)
        tell_raised(raised);
    return result;
}

PyObject *ftf_wrap_function(PyObject *self, PyObject *args)
{
    PyObject *original, *before, *raised;
    const char *name;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOs", &original, &before, &raised, &name))
        return 0;
    PyMethodDef *definition = PyMem_Malloc(sizeof *definition); /* the function may live as long as the process */
    const char *kept = ftf_keep(name, strlen(name));
    PyObject *parts = PyTuple_Pack(3, original, before, raised);
    if (!definition || !kept || !parts) {
        PyMem_Free(definition);
        Py_XDECREF(parts);
        return PyErr_NoMemory();
    }
    *definition = (PyMethodDef){kept, (PyCFunction)(void (*)(void))call_function, METH_VARARGS | METH_KEYWORDS, 0};
    PyObject *made = PyCFunction_NewEx(definition, parts, 0);
    Py_DECREF(parts);
    return made;
}
