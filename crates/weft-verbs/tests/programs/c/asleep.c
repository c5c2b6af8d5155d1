/* A process that sleeps in poll(2) gets its events, and an idle process's memory is written and read. */
#include "loopback.h"
#include <fcntl.h>
#include <poll.h>

int main(void)
{
    struct ibv_context *context = open_device();
    struct loopback l = open_loopback(context);
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    must(channel);
    must(fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK) == 0);

    /* The process watches memory without a call while the peer writes it. */
    volatile char *last = l.memory + 2 * SIZE - 1;
    l.memory[SIZE - 1] = 42;
    struct ibv_sge from = { (uintptr_t)l.memory, SIZE, l.mr->lkey };
    struct ibv_send_wr write = { .wr_id = 7, .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE };
    struct ibv_send_wr *bad;
    write.wr.rdma.remote_addr = (uintptr_t)l.memory + SIZE;
    write.wr.rdma.rkey = l.mr->rkey;
    must(ibv_post_send(l.qp[0], &write, &bad) == 0);
    while (*last != 42) {}
    must(completed(&l) == 7);

    /* The process gets an event for a completion that it does not poll for. */
    struct ibv_cq *about, *cq = ibv_create_cq(context, 16, &l, channel, 0);
    must(cq);
    struct loopback by_event = l;
    by_event.cq = cq;
    by_event.qp[0] = make_qp(&by_event);
    by_event.qp[1] = make_qp(&by_event);
    join(by_event.qp[0], by_event.qp[1]);
    join(by_event.qp[1], by_event.qp[0]);
    void *context_of;
    must(ibv_get_cq_event(channel, &about, &context_of) == -1 && errno == EAGAIN);
    must(ibv_req_notify_cq(cq, 0) == 0);
    must(ibv_post_send(by_event.qp[0], &write, &bad) == 0);
    struct pollfd wait = { .fd = channel->fd, .events = POLLIN };
    must(poll(&wait, 1, 10000) == 1);
    must(ibv_get_cq_event(channel, &about, &context_of) == 0 && about == cq && context_of == &l);
    ibv_ack_cq_events(cq, 1);
    must(completed(&by_event) == 7);
    puts("done");
    return 0;
}
