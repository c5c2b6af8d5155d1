/* The functions of CUDA that NCCL's memory allocation mentions. Its socket transport uses no memory of a GPU. */
#include <stddef.h>

int cudaGetDevice(int *device) { *device = 0; return 0; }
int cudaGetLastError(void) { return 0; }
const char *cudaGetErrorString(int error) { return "no CUDA"; }
int cudaHostGetDevicePointer(void **device, void *host, unsigned flags) { return 1; }
int cudaHostRegister(void *host, size_t size, unsigned flags) { return 1; }
int cudaHostUnregister(void *host) { return 1; }
int cudaThreadExchangeStreamCaptureMode(int *mode) { return 0; }
