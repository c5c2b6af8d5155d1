/* Two reliable queue pairs of one process, connected to each other. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define must(condition)                                                                        \
    do {                                                                                       \
        if (!(condition)) {                                                                    \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, strerror(errno)); \
            _exit(1);                                                                          \
        }                                                                                      \
    } while (0)

#include <unistd.h>

enum { SIZE = 65536 };

struct loopback {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_qp *qp[2];
    struct ibv_mr *mr;
    char *memory; /* what is sent, then what is received */
};

static struct ibv_context *open_device(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    must(list && list[0]);
    struct ibv_context *context = ibv_open_device(list[0]);
    must(context);
    ibv_free_device_list(list);
    return context;
}

static struct ibv_qp *make_qp(struct loopback *l)
{
    struct ibv_qp_init_attr init = {
        .send_cq = l->cq,
        .recv_cq = l->cq,
        .cap = { .max_send_wr = 64, .max_recv_wr = 64, .max_send_sge = 1, .max_recv_sge = 1 },
        .qp_type = IBV_QPT_RC,
        .sq_sig_all = 1,
    };
    struct ibv_qp *qp = ibv_create_qp(l->pd, &init);
    must(qp);
    return qp;
}

static void join(struct ibv_qp *qp, struct ibv_qp *peer)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT,
        .port_num = 1,
        .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
    };
    must(ibv_modify_qp(qp, &attr,
                       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = peer->qp_num;
    attr.max_dest_rd_atomic = 1;
    attr.min_rnr_timer = 12;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.is_global = 1;
    must(ibv_query_gid(qp->context, 1, 0, &attr.ah_attr.grh.dgid) == 0);
    must(ibv_modify_qp(qp, &attr,
                       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                           IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 14;
    attr.retry_cnt = 7;
    attr.rnr_retry = 7;
    attr.max_rd_atomic = 1;
    must(ibv_modify_qp(qp, &attr,
                       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                           IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

static struct loopback open_loopback(struct ibv_context *context)
{
    struct loopback l = { .context = context };
    must(l.pd = ibv_alloc_pd(context));
    must(l.cq = ibv_create_cq(context, 256, NULL, NULL, 0));
    must(l.memory = calloc(2, SIZE));
    must(l.mr = ibv_reg_mr(l.pd, l.memory, 2 * SIZE,
                           IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ));
    l.qp[0] = make_qp(&l);
    l.qp[1] = make_qp(&l);
    join(l.qp[0], l.qp[1]);
    join(l.qp[1], l.qp[0]);
    return l;
}

/* Waits for a completion, which must be a success, and returns its number. */
static uint64_t completed(struct loopback *l)
{
    struct ibv_wc wc;
    int count;
    while ((count = ibv_poll_cq(l->cq, 1, &wc)) == 0) {}
    must(count == 1);
    if (wc.status != IBV_WC_SUCCESS) {
        fprintf(stderr, "%s\n", ibv_wc_status_str(wc.status));
        _exit(1);
    }
    return wc.wr_id;
}

/* Sends bytes that begin with `first` from one queue pair to the other, and checks the received bytes. */
static void carry(struct loopback *l, unsigned first)
{
    struct ibv_sge from = { (uintptr_t)l->memory, SIZE, l->mr->lkey };
    struct ibv_sge to = { (uintptr_t)l->memory + SIZE, SIZE, l->mr->lkey };
    for (unsigned i = 0; i < SIZE; i++)
        l->memory[i] = (char)(first + i * 7);
    struct ibv_recv_wr receive = { .wr_id = 1, .sg_list = &to, .num_sge = 1 }, *bad_receive;
    struct ibv_send_wr send = { .wr_id = 2, .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND };
    struct ibv_send_wr *bad_send;
    must(ibv_post_recv(l->qp[1], &receive, &bad_receive) == 0);
    must(ibv_post_send(l->qp[0], &send, &bad_send) == 0);
    must(completed(l) + completed(l) == 3);
    must(memcmp(l->memory, l->memory + SIZE, SIZE) == 0);
}

static void close_loopback(struct loopback *l)
{
    must(ibv_destroy_qp(l->qp[0]) == 0);
    must(ibv_destroy_qp(l->qp[1]) == 0);
    must(ibv_dereg_mr(l->mr) == 0);
    must(ibv_destroy_cq(l->cq) == 0);
    must(ibv_dealloc_pd(l->pd) == 0);
    free(l->memory);
}
