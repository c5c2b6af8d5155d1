// Exports NCCL's socket transport as a net plugin, with the few functions of NCCL's core that it calls.
#include "nccl_net.h"
#include "debug.h"
#include "utils.h"
#include "os.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

extern ncclNet_t ncclNetSocket;
extern "C" __attribute__((visibility("default"))) ncclNet_t ncclNetPlugin_v12;
ncclNet_t ncclNetPlugin_v12;
__attribute__((constructor)) static void fill() { ncclNetPlugin_v12 = ncclNetSocket; }

int ncclDebugLevel = NCCL_LOG_WARN;
uint64_t ncclDebugMask = 0;
thread_local int ncclDebugNoWarn = 0;
void ncclDebugLogInternal(ncclDebugLogLevel level, unsigned long, const char *, const char *, int, const char *format, ...) {
  if (level != NCCL_LOG_WARN || !getenv("SOCKET_LOG")) return;
  va_list arguments;
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  fputc('\n', stderr);
}

extern "C" bool ncclParamIsCacheDisabled(const char *) { return false; }
ncclResult_t ncclInitEnv(void) { return ncclSuccess; }
const char *ncclEnvPluginGetEnv(const char *name) { return getenv(name); }
int64_t ncclParamSetCpuStackSize() { return 0; }
void ncclSetThreadName(std::thread &, const char *, ...) {}

// The selection of interfaces, without ports: a comma list of names or prefixes.
int parseStringList(const char *text, struct netIf *list, int room) {
  int count = 0;
  for (const char *at = text; at && *at && count < room;) {
    size_t length = strcspn(at, ",");
    snprintf(list[count].prefix, sizeof list[count].prefix, "%.*s", (int)length, at);
    list[count++].port = -1;
    at += length + (at[length] == ',');
  }
  return count;
}
bool matchIfList(const char *name, int, struct netIf *list, int count, bool whole, int *index) {
  if (index) *index = -1;
  for (int i = 0; i < count; i++) {
    if (whole ? strcmp(name, list[i].prefix) : strncmp(name, list[i].prefix, strlen(list[i].prefix))) continue;
    if (index) *index = i;
    return true;
  }
  return count == 0;
}
