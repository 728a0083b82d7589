/* A Python extension built on the CUDA runtime, as third parties write them: it fetches a driver's entry point itself
   and calls it without looking whether it is there. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <dlfcn.h>

int cudaRuntimeGetVersion(int *version);
int cudaDriverGetVersion(int *version);
int cudaGetDeviceCount(int *count);

/* As NCCL's cudawrap does: the driver by its name, the function by cuGetProcAddress. */
__attribute__((noinline)) int fused_graph_launch(void)
{
    int (*add_node)(void *, void *, void *, size_t, void *) = NULL;
    int (*get)(const char *, void **, int, unsigned long, int *) = NULL;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    *(void **)&get = driver ? dlsym(driver, "cuGetProcAddress_v2") : NULL;
    if (get == NULL) {
        return -1;
    }
    get("cuGraphAddNode", (void **)&add_node, 12020, 0, NULL);
    return add_node(NULL, NULL, NULL, 0, NULL) + 1;
}

__attribute__((noinline)) int fused_accumulate(volatile int *target)
{
    *target = 1;
    return *target + 1;
}

static PyObject *launch(PyObject *self, PyObject *none)
{
    (void)self, (void)none;
    return PyLong_FromLong(fused_graph_launch());
}

static PyObject *accumulate(PyObject *self, PyObject *none)
{
    (void)self, (void)none;
    return PyLong_FromLong(fused_accumulate(NULL));
}

/* () -> (runtime's version, driver's version, error of the first call that needs a driver) */
static PyObject *versions(PyObject *self, PyObject *none)
{
    (void)self, (void)none;
    int runtime = 0, driver = 0, count = 0;
    cudaRuntimeGetVersion(&runtime);
    cudaDriverGetVersion(&driver);
    return Py_BuildValue("iii", runtime, driver, cudaGetDeviceCount(&count));
}

static PyMethodDef METHODS[] = {{"launch", launch, METH_NOARGS, NULL},
                                {"accumulate", accumulate, METH_NOARGS, NULL},
                                {"versions", versions, METH_NOARGS, NULL},
                                {NULL, NULL, 0, NULL}};
static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "fused_ops", NULL, -1, METHODS, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_fused_ops(void) { return PyModule_Create(&MODULE); }
