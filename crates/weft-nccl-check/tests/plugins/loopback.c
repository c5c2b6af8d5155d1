/* A net plugin for NCCL whose ranks are threads of one process: a send copies into the receive that the peer has posted. It exports
 * versions 8 and 12, whose structures are declared here, apart from the crate that the check uses. MISTAKE, a number at compile time,
 * adds one mistake, which the check must find. */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum mistake { NONE, WRONG_SIZE, LOST_COMPLETION, OUT_OF_ORDER, FLIPPED_BIT, OVERRUN, BLOCKING_ACCEPT, FLAG_FIRST, HALF_WORDS, NO_NAME,
               NO_DEVICE, REFUSES_EMPTY, LATE_ERROR };
#ifndef MISTAKE
#define MISTAKE NONE
#endif

enum { SUCCESS = 0, INTERNAL = 3, REQUESTS = 32, LISTENERS = 4096 };

struct request {
    volatile int used, done;
    size_t size, room;
    char *data;
    struct comm *comm;
};

/* Both ends of a connection point to one of these. */
struct comm {
    pthread_mutex_t lock;
    struct request sends[REQUESTS], receives[REQUESTS];
    struct request *posted[REQUESTS];
    unsigned head, tail, ends;
    uint64_t messages;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct comm *waiting[LISTENERS];
static int listeners;

static int init_8(void *log) { return SUCCESS; }
static int init_12(void **context, uint64_t id, void *config, void *log, void *profile) { *context = NULL; return SUCCESS; }
static int finalize(void *context) { return SUCCESS; }
static int devices(int *count) { *count = MISTAKE == NO_DEVICE ? 0 : 1; return SUCCESS; }

static int listen_8(int device, int *handle, void **comm) {
    pthread_mutex_lock(&lock);
    handle[0] = listeners++;
    handle[1] = 0;
    pthread_mutex_unlock(&lock);
    *comm = &waiting[handle[0] % LISTENERS];
    return SUCCESS;
}

static int connect_8(int device, int *handle, void **comm, void **offload) {
    *comm = NULL;
    if (handle[1]++ == 0) return SUCCESS; /* The first call is too early. */
    struct comm *new = calloc(1, sizeof *new);
    pthread_mutex_init(&new->lock, NULL);
    new->ends = 2;
    pthread_mutex_lock(&lock);
    waiting[handle[0] % LISTENERS] = new;
    pthread_mutex_unlock(&lock);
    *comm = new;
    return SUCCESS;
}

static int accept_8(struct comm **listener, void **comm, void **offload) {
    if (MISTAKE == BLOCKING_ACCEPT) usleep(2500000);
    pthread_mutex_lock(&lock);
    *comm = *listener;
    *listener = NULL;
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

static int register_memory(void *comm, void *data, size_t size, int kind, void **memory) { *memory = data; return SUCCESS; }
static int deregister(void *comm, void *memory) { return SUCCESS; }

static struct request *unused(struct request *of, struct comm *comm) {
    for (int i = 0; i < REQUESTS; i++)
        if (!of[i].used) {
            of[i] = (struct request){ .used = 1, .comm = comm };
            return &of[i];
        }
    return NULL;
}

/* Copies word by word; the last word of each 128 bytes last. */
static void copy(char *to, const char *from, size_t size) {
    volatile uint64_t *words = (volatile uint64_t *)to;
    const uint64_t *source = (const uint64_t *)from;
    for (size_t i = 0; i < size / 8; i++) {
        if (MISTAKE == FLAG_FIRST && i == 0 && 15 < size / 8) {
            words[15] = source[15];
            usleep(300);
        }
        if (MISTAKE == HALF_WORDS) {
            ((volatile uint32_t *)to)[2 * i + 1] = source[i] >> 32;
            /* The flag of the first line stays half long enough for a reader that shares its processor. */
            if (i == 15) usleep(300);
        }
        __atomic_store_n(&words[i], source[i], __ATOMIC_RELEASE);
    }
    memcpy(to + size / 8 * 8, from + size / 8 * 8, size % 8);
}

static int send_8(struct comm *comm, char *data, size_t size, int tag, void *memory, void **request) {
    *request = NULL;
    if (MISTAKE == REFUSES_EMPTY && size == 0) return INTERNAL;
    pthread_mutex_lock(&comm->lock);
    unsigned waiting = comm->tail - comm->head;
    struct request *own = waiting ? unused(comm->sends, comm) : NULL;
    if (own) {
        uint64_t number = comm->messages++;
        unsigned at = comm->head;
        if (MISTAKE == OUT_OF_ORDER && number % 10 == 9 && waiting > 1) {
            struct request *first = comm->posted[at % REQUESTS];
            comm->posted[at % REQUESTS] = comm->posted[(at + 1) % REQUESTS];
            comm->posted[(at + 1) % REQUESTS] = first;
        }
        struct request *to = comm->posted[at % REQUESTS];
        comm->head++;
        copy(to->data, data, size);
        if (MISTAKE == FLIPPED_BIT && number == 20 && size) to->data[size / 2] ^= 4;
        if (MISTAKE == OVERRUN && size < to->room) to->data[size] = 0;
        to->size = MISTAKE == WRONG_SIZE ? to->room : size;
        to->done = !(MISTAKE == LOST_COMPLETION && number == 20);
        own->size = size;
        own->done = 1;
        *request = own;
    }
    int late = MISTAKE == LATE_ERROR && comm->messages > 50;
    pthread_mutex_unlock(&comm->lock);
    return late ? INTERNAL : SUCCESS;
}
static int send_int(struct comm *comm, char *data, int size, int tag, void *memory, void **request) {
    return send_8(comm, data, size, tag, memory, request);
}
static int send_12(struct comm *comm, char *data, size_t size, int tag, void *memory, void *profile, void **request) {
    return send_8(comm, data, size, tag, memory, request);
}

static int receive(struct comm *comm, char *data, size_t size, void **request) {
    pthread_mutex_lock(&comm->lock);
    struct request *own = unused(comm->receives, comm);
    if (own) {
        own->data = data;
        own->room = size;
        comm->posted[comm->tail++ % REQUESTS] = own;
    }
    *request = own;
    pthread_mutex_unlock(&comm->lock);
    return SUCCESS;
}
static int receive_int(struct comm *comm, int n, char **data, int *sizes, int *tags, void **memory, void **request) {
    return receive(comm, data[0], sizes[0], request);
}
static int receive_12(struct comm *comm, int n, char **data, size_t *sizes, int *tags, void **memory, void **profile, void **request) {
    return receive(comm, data[0], sizes[0], request);
}

static int flush(void *comm, int n, void **data, int *sizes, void **memory, void **request) { *request = NULL; return SUCCESS; }

static int test(struct request *request, int *done, int *size) {
    pthread_mutex_lock(&request->comm->lock);
    *done = request->done;
    if (request->done) {
        if (size) *size = request->size;
        request->used = 0;
    }
    pthread_mutex_unlock(&request->comm->lock);
    return SUCCESS;
}

static int close_comm(struct comm *comm) {
    pthread_mutex_lock(&comm->lock);
    unsigned left = --comm->ends;
    pthread_mutex_unlock(&comm->lock);
    if (!left) free(comm);
    return SUCCESS;
}
static int close_listener(void *listener) { return SUCCESS; }

static int listen_12(void *context, int device, void *handle, void **comm) { return listen_8(device, handle, comm); }
static int connect_12(void *context, int device, void *handle, void **comm, void **offload) { return connect_8(device, handle, comm, offload); }

struct properties_8 {
    const char *name, *pci; uint64_t guid; int pointers, global, speed, port; float latency; int comms, receives, type, version;
};
static int properties_8(int device, struct properties_8 *of) {
    *of = (struct properties_8){ .name = MISTAKE == NO_NAME ? NULL : "loop0", .guid = 1, .pointers = 1, .speed = 1000, .comms = 1000, .receives = 1 };
    return SUCCESS;
}

struct properties_12 {
    const char *name, *pci; uint64_t guid; int pointers, global, force, speed, port; float latency; int comms, receives, type, version;
    struct { int count, devices[8]; } parts; size_t p2p, coll; int multi; int16_t rail, plane;
};
static int properties_12(int device, struct properties_12 *of) {
    *of = (struct properties_12){ .name = MISTAKE == NO_NAME ? NULL : "loop0", .guid = 1, .pointers = 1, .speed = 1000, .comms = 1000, .receives = 1,
                                  .parts = { 1, { device } }, .p2p = 1 << 30, .coll = 1 << 30, .multi = 1, .rail = -1, .plane = -1 };
    return SUCCESS;
}

struct net_8 {
    const char *name;
    void *init, *devices, *properties, *listen, *connect, *accept, *reg, *reg_dmabuf, *dereg, *isend, *irecv, *iflush, *test, *close_send,
        *close_recv, *close_listen, *device_mr, *consumed;
} ncclNetPlugin_v8 = { "Loopback", init_8, devices, properties_8, listen_8, connect_8, accept_8, register_memory, NULL, deregister, send_int,
                       receive_int, flush, test, close_comm, close_comm, close_listener, NULL, NULL };

struct net_12 {
    const char *name;
    void *init, *devices, *properties, *listen, *connect, *accept, *reg, *reg_dmabuf, *dereg, *isend, *irecv, *iflush, *test, *close_send,
        *close_recv, *close_listen, *device_mr, *consumed, *virtual_device, *finalize, *attributes;
} ncclNetPlugin_v12 = { "Loopback", init_12, devices, properties_12, listen_12, connect_12, accept_8, register_memory, NULL, deregister, send_12,
                        receive_12, flush, test, close_comm, close_comm, close_listener, NULL, NULL, NULL, finalize, NULL };
