/* A peer that was authorised once accesses the memory directly while its owner's process is stopped, and no longer
 * after the owner has revoked the access. */
#include "loopback.h"
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { ROUNDS = 500 };

struct end {
    uint32_t qp, rkey;
    uint64_t address;
};

static struct loopback l;
static struct end other;

static void notify(int to) { must(write(to, "x", 1) == 1); }

static void await_notice(int from)
{
    char byte;
    must(read(from, &byte, 1) == 1);
}

/* Connects a queue pair to the other process's. */
static void meet(int socket)
{
    l.context = open_device();
    must(l.pd = ibv_alloc_pd(l.context));
    must(l.cq = ibv_create_cq(l.context, 256, NULL, NULL, 0));
    must(l.memory = calloc(2, SIZE));
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

static enum ibv_wc_status carry_out(enum ibv_wr_opcode opcode, char *local)
{
    struct ibv_sge sge = { (uintptr_t)local, SIZE, l.mr->lkey };
    struct ibv_send_wr request = { .sg_list = &sge, .num_sge = 1, .opcode = opcode }, *bad;
    request.wr.rdma.remote_addr = other.address;
    request.wr.rdma.rkey = other.rkey;
    must(ibv_post_send(l.qp[0], &request, &bad) == 0);
    struct ibv_wc wc;
    int count;
    while ((count = ibv_poll_cq(l.cq, 1, &wc)) == 0) {}
    must(count == 1);
    return wc.status;
}

static int is_stopped(pid_t process)
{
    char name[64], state = 0;
    snprintf(name, sizeof name, "/proc/%d/stat", process);
    FILE *stat = fopen(name, "r");
    must(stat && fscanf(stat, "%*d (%*[^)]) %c", &state) == 1);
    fclose(stat);
    return state == 'T';
}

static void reach(int socket)
{
    pid_t lender = getppid();
    meet(socket);
    must(carry_out(IBV_WR_RDMA_WRITE, l.memory) == IBV_WC_SUCCESS);
    must(kill(lender, SIGSTOP) == 0);
    while (!is_stopped(lender)) {}
    for (int round = 1; round <= ROUNDS; round++) {
        memset(l.memory, round, SIZE);
        must(carry_out(IBV_WR_RDMA_WRITE, l.memory) == IBV_WC_SUCCESS);
        must(carry_out(IBV_WR_RDMA_READ, l.memory + SIZE) == IBV_WC_SUCCESS);
        must(memcmp(l.memory, l.memory + SIZE, SIZE) == 0);
    }
    must(is_stopped(lender));
    must(kill(lender, SIGCONT) == 0);
    notify(socket);
    enum ibv_wc_status status;
    do
        l.memory[SIZE - 1]++;
    while ((status = carry_out(IBV_WR_RDMA_WRITE, l.memory)) == IBV_WC_SUCCESS);
    must(status == IBV_WC_REM_ACCESS_ERR);
}

static void lend(int socket)
{
    meet(socket);
    await_notice(socket);
    for (int i = 0; i < SIZE - 1; i++)
        must(l.memory[i] == (char)ROUNDS);
    volatile char *last = l.memory + SIZE - 1;
    for (char before = *last; *last == before;) {}
    must(ibv_dereg_mr(l.mr) == 0);
    memset(l.memory, 7, SIZE);
}

int main(void)
{
    int sockets[2], status;
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    pid_t child = fork();
    must(child >= 0);
    if (child == 0) {
        reach(sockets[1]);
        _exit(0);
    }
    lend(sockets[0]);
    must(waitpid(child, &status, 0) == child && status == 0);
    for (int i = 0; i < SIZE; i++)
        must(l.memory[i] == 7);
    puts("done");
    return 0;
}
