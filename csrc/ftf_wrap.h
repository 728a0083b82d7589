/* CONTEXT: NORMAL. Methods and functions wrapped in C, so that no frame of ours appears in anybody's traceback. */
#ifndef FTF_WRAP_H
#define FTF_WRAP_H

#include <Python.h>

PyObject *ftf_wrap_method(PyObject *self, PyObject *args);
PyObject *ftf_wrap_function(PyObject *self, PyObject *args);

#endif
