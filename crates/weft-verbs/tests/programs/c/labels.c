/* The labels of a queue pair's packets: the traffic class and the flow label of its address vector, then another source
 * port. Run on two hosts: `labels TRAFFIC_CLASS FLOW_LABEL SOURCE_PORT -p PORT [SERVER]`. */
#include "loopback.h"
#include <arpa/inet.h>
#include <infiniband/mlx5dv.h>
#include <netdb.h>
#include <sys/socket.h>

enum { ROUNDS = 8, SERVICE_LEVEL = 3 };

struct end {
    uint32_t qp;
    union ibv_gid gid;
};

static struct loopback l;

/* Returns a TCP connection between the two ends. */
static int meet(const char *port, const char *server)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(atoi(port)) };
    int socket_ = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    if (server) {
        must(inet_pton(AF_INET, server, &address.sin_addr) == 1);
        must(connect(socket_, (void *)&address, sizeof address) == 0);
        return socket_;
    }
    must(setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0);
    must(bind(socket_, (void *)&address, sizeof address) == 0 && listen(socket_, 1) == 0);
    return accept(socket_, NULL, NULL);
}

static void wait_for_both(int socket_)
{
    char byte;
    must(write(socket_, "x", 1) == 1 && read(socket_, &byte, 1) == 1);
}

static void join_labelled(const struct end *peer, uint8_t traffic_class, uint32_t flow_label)
{
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
    must(ibv_modify_qp(l.qp[0], &attr,
                       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = peer->qp;
    attr.ah_attr = (struct ibv_ah_attr){ .port_num = 1, .is_global = 1, .sl = SERVICE_LEVEL };
    attr.ah_attr.grh.dgid = peer->gid;
    attr.ah_attr.grh.traffic_class = traffic_class;
    attr.ah_attr.grh.flow_label = flow_label;
    must(ibv_modify_qp(l.qp[0], &attr,
                       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                           IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
    /* Like on a NIC, only a queue pair that may send gets another port. */
    must(mlx5dv_modify_qp_udp_sport(l.qp[0], 0xc123) == EINVAL);
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 14;
    attr.retry_cnt = 7;
    attr.rnr_retry = 7;
    must(ibv_modify_qp(l.qp[0], &attr,
                       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                           IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

/* The attributes that were set come back. */
static void check_query(uint8_t traffic_class, uint32_t flow_label)
{
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    must(ibv_query_qp(l.qp[0], &attr, IBV_QP_AV, &init) == 0);
    must(attr.ah_attr.grh.traffic_class == traffic_class);
    must(attr.ah_attr.grh.flow_label == flow_label);
    must(attr.ah_attr.sl == SERVICE_LEVEL);
}

/* Sends messages to the peer, and receives as many. */
static void exchange(int socket_)
{
    struct ibv_sge from = { (uintptr_t)l.memory, SIZE, l.mr->lkey };
    struct ibv_sge to = { (uintptr_t)l.memory + SIZE, SIZE, l.mr->lkey };
    struct ibv_recv_wr receive = { .sg_list = &to, .num_sge = 1 }, *bad_receive;
    struct ibv_send_wr send = { .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad_send;
    for (int i = 0; i < ROUNDS; i++)
        must(ibv_post_recv(l.qp[0], &receive, &bad_receive) == 0);
    wait_for_both(socket_);
    for (int i = 0; i < ROUNDS; i++)
        must(ibv_post_send(l.qp[0], &send, &bad_send) == 0);
    for (int i = 0; i < 2 * ROUNDS; i++)
        completed(&l);
    wait_for_both(socket_);
}

int main(int count, char **words)
{
    must(count >= 6);
    uint8_t traffic_class = strtoul(words[1], NULL, 0);
    uint32_t flow_label = strtoul(words[2], NULL, 0);
    uint16_t source_port = strtoul(words[3], NULL, 0);
    l.context = open_device();
    must(l.pd = ibv_alloc_pd(l.context));
    must(l.cq = ibv_create_cq(l.context, 256, NULL, NULL, 0));
    must(l.memory = calloc(2, SIZE));
    must(l.mr = ibv_reg_mr(l.pd, l.memory, 2 * SIZE, IBV_ACCESS_LOCAL_WRITE));
    l.qp[0] = make_qp(&l);
    int socket_ = meet(words[5], count > 6 ? words[6] : NULL);
    must(socket_ >= 0);
    struct end own = { .qp = l.qp[0]->qp_num }, peer;
    must(ibv_query_gid(l.context, 1, 0, &own.gid) == 0);
    must(write(socket_, &own, sizeof own) == sizeof own);
    must(recv(socket_, &peer, sizeof peer, MSG_WAITALL) == sizeof peer);
    join_labelled(&peer, traffic_class, flow_label);
    check_query(traffic_class, flow_label);
    exchange(socket_);
    /* A service's port is none that a program may send from. */
    must(mlx5dv_modify_qp_udp_sport(l.qp[0], 53) == EINVAL);
    must(mlx5dv_modify_qp_udp_sport(l.qp[0], source_port) == 0);
    exchange(socket_);
    check_query(traffic_class, flow_label);
    puts("done");
    return 0;
}
