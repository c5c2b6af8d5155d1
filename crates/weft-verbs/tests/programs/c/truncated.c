/* A process truncates memory that its neighbour has mapped: the neighbour lives, and its request fails. The process
 * itself is ended by its own access, as it would be by a packet. The program's own faults are handled as it chose before:
 * by its handler, or, with the argument "default", by its end. */
#define _GNU_SOURCE
#include "loopback.h"
#include "status.h"
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

struct end {
    uint32_t qp, rkey;
    uint64_t address;
};

static struct loopback l;
static struct end other;
static int file;
static sigjmp_buf after_fault;

static void notify(int to) { must(write(to, "x", 1) == 1); }

static void await_notice(int from)
{
    char byte;
    must(read(from, &byte, 1) == 1);
}

static void meet(int socket)
{
    l.context = open_device();
    must(l.pd = ibv_alloc_pd(l.context));
    must(l.cq = ibv_create_cq(l.context, 256, NULL, NULL, 0));
    file = memfd_create("truncated", MFD_CLOEXEC);
    must(file >= 0 && ftruncate(file, 2 * SIZE) == 0);
    l.memory = mmap(NULL, 2 * SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    must(l.memory != MAP_FAILED);
    must(l.mr = ibv_reg_mr(l.pd, l.memory, 2 * SIZE,
                           IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ));
    l.qp[0] = make_qp(&l);
    struct end own = { l.qp[0]->qp_num, l.mr->rkey, (uintptr_t)l.memory };
    must(write(socket, &own, sizeof own) == sizeof own);
    must(read(socket, &other, sizeof other) == sizeof other);
    struct ibv_qp peer = { .qp_num = other.qp };
    join(l.qp[0], &peer);
    notify(socket);
    await_notice(socket);
}

static enum ibv_wc_status write_to_end(void)
{
    struct ibv_sge sge = { (uintptr_t)l.memory, SIZE, l.mr->lkey };
    struct ibv_send_wr request = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE }, *bad;
    request.wr.rdma.remote_addr = other.address + SIZE;
    request.wr.rdma.rkey = other.rkey;
    must(ibv_post_send(l.qp[0], &request, &bad) == 0);
    struct ibv_wc wc;
    int count;
    while ((count = ibv_poll_cq(l.cq, 1, &wc)) == 0) {}
    must(count == 1);
    return wc.status;
}

static void on_fault(int signal)
{
    must(signal == SIGBUS);
    siglongjmp(after_fault, 1);
}

/* A fault in memory of this program alone. */
static void fault(void)
{
    int own = memfd_create("own", MFD_CLOEXEC);
    must(own >= 0 && ftruncate(own, 4096) == 0);
    volatile char *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, own, 0);
    must(memory != MAP_FAILED && ftruncate(own, 0) == 0);
    if (sigsetjmp(after_fault, 1) == 0) {
        *memory = 1;
        must(!"the access succeeded");
    }
}

/* Returns the signal that ends a child with a fault of its own, or 0. */
static int end_of_child(void)
{
    int status;
    pid_t child = fork();
    must(child >= 0);
    if (child == 0) {
        fault();
        _exit(0);
    }
    must(waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : status;
}

static void lend(int socket)
{
    signal(SIGBUS, SIG_DFL);
    meet(socket);
    await_notice(socket);
    must(ftruncate(file, SIZE) == 0);
    notify(socket);
    for (;;)
        pause();
}

int main(int count, char **arguments)
{
    int sockets[2], status, is_default = count > 1 && !strcmp(arguments[1], "default");
    must(signal(SIGBUS, is_default ? SIG_DFL : on_fault) != SIG_ERR);
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    pid_t lender = fork();
    must(lender >= 0);
    if (lender == 0)
        lend(sockets[1]);
    meet(sockets[0]);
    for (int i = 0; i < 3; i++)
        must(write_to_end() == IBV_WC_SUCCESS);
    await_status(MAPPED_REQUESTS, 2);
    notify(sockets[0]);
    /* The file shrinks while this process writes. */
    enum ibv_wc_status result;
    while ((result = write_to_end()) == IBV_WC_SUCCESS) {}
    must(result == IBV_WC_RETRY_EXC_ERR);
    must(waitpid(lender, &status, 0) == lender && WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
    must(end_of_child() == (is_default ? SIGBUS : 0));
    if (!is_default) {
        fault();
        fault();
    }
    puts("done");
    return 0;
}
