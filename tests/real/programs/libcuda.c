/* A libcuda.so.1 for machines without a GPU: it reports the CUDA level it was compiled for (-DLEVEL=12010) and has, as
   the real one, no entry point that came with a later CUDA. There is no GPU: everything else says so. With
   FAULT_IN_DRIVER in the environment it dies when it is initialised. */

#include <stdlib.h>
#include <string.h>

#define CUDA_SUCCESS 0
#define CUDA_ERROR_NO_DEVICE 100
#define CUDA_ERROR_NOT_FOUND 500

typedef int CUresult;

/* Entry points and the CUDA that brought them, as libcudart 12.8 asks for them. */
static const struct {
    const char *name;
    int since;
} LATER[] = {
    {"cuGraphAddNode", 12020},
    {"cuGraphNodeSetParams", 12020},
    {"cuGraphExecNodeSetParams", 12020},
    {"cuFuncGetName", 12030},
    {"cuKernelGetName", 12030},
    {"cuGraphConditionalHandleCreate", 12030},
    {"cuStreamBeginCaptureToGraph", 12030},
    {"cuFuncGetParamInfo", 12040},
    {"cuKernelGetParamInfo", 12040},
    {"cuLibraryEnumerateKernels", 12040},
    {"cuLibraryGetKernelCount", 12040},
    {"cuMemcpyBatchAsync", 12080},
    {"cuMemcpy3DBatchAsync", 12080},
    {"cuStreamGetDevice", 12080},
};

static CUresult no_device(void) { return CUDA_ERROR_NO_DEVICE; }

CUresult cuInit(unsigned flags)
{
    (void)flags;
    if (getenv("FAULT_IN_DRIVER")) {
        *(volatile int *)0x28 = 1;
    }
    return CUDA_ERROR_NO_DEVICE;
}

CUresult cuDriverGetVersion(int *version)
{
    *version = LEVEL;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
    *count = 0;
    return CUDA_SUCCESS;
}

CUresult cuGetProcAddress_v2(const char *name, void **function, int version, unsigned long flags, int *status)
{
    (void)flags;
    int missing = version > LEVEL;
    for (size_t i = 0; i < sizeof LATER / sizeof *LATER && !missing; i++) {
        missing = strcmp(name, LATER[i].name) == 0 && LATER[i].since > LEVEL;
    }
    *function = missing                                   ? NULL
                : strcmp(name, "cuDriverGetVersion") == 0 ? (void *)cuDriverGetVersion
                : strcmp(name, "cuGetProcAddress") == 0   ? (void *)cuGetProcAddress_v2
                : strcmp(name, "cuInit") == 0             ? (void *)cuInit
                : strcmp(name, "cuDeviceGetCount") == 0   ? (void *)cuDeviceGetCount
                                                          : (void *)no_device;
    if (status) {
        *status = missing ? 1 : 0; /* CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND */
    }
    return missing ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}

CUresult cuGetProcAddress(const char *name, void **function, int version, unsigned long flags)
{
    return cuGetProcAddress_v2(name, function, version, flags, NULL);
}
