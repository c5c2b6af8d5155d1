/* Two processes of this host, each with a queue pair to the other one's and memory of two times `SIZE` bytes. */
#include "loopback.h"

struct end {
    uint32_t qp, rkey;
    uint64_t address;
    uint64_t inode; /* of shared memory, else 0 */
};

static struct loopback l;
static struct end other;

static void notify(int to) { must(write(to, "x", 1) == 1); }

static void await_notice(int from)
{
    char byte;
    must(read(from, &byte, 1) == 1);
}

/* Registers this process's memory, and connects its queue pair to the other process's. */
static void meet(int socket, char *memory, uint64_t inode)
{
    l.context = open_device();
    must(l.pd = ibv_alloc_pd(l.context));
    must(l.cq = ibv_create_cq(l.context, 256, NULL, NULL, 0));
    must(l.memory = memory);
    must(l.mr = ibv_reg_mr(l.pd, l.memory, 2 * SIZE,
                           IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ));
    l.qp[0] = make_qp(&l);
    struct end own = { l.qp[0]->qp_num, l.mr->rkey, (uintptr_t)l.memory, inode };
    must(write(socket, &own, sizeof own) == sizeof own);
    must(read(socket, &other, sizeof other) == sizeof other);
    struct ibv_qp peer = { .qp_num = other.qp };
    join(l.qp[0], &peer);
    notify(socket);
    await_notice(socket);
}

/* Has `SIZE` bytes read or written at an offset in the other process's memory. */
static enum ibv_wc_status carry_out(enum ibv_wr_opcode opcode, char *local, uint64_t offset)
{
    struct ibv_sge sge = { (uintptr_t)local, SIZE, l.mr->lkey };
    struct ibv_send_wr request = { .sg_list = &sge, .num_sge = 1, .opcode = opcode }, *bad;
    request.wr.rdma.remote_addr = other.address + offset;
    request.wr.rdma.rkey = other.rkey;
    must(ibv_post_send(l.qp[0], &request, &bad) == 0);
    struct ibv_wc wc;
    int count;
    while ((count = ibv_poll_cq(l.cq, 1, &wc)) == 0) {}
    must(count == 1);
    return wc.status;
}
