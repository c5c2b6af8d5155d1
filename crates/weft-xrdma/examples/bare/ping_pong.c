/* A minimal ping-pong of SENDs on bare verbs: one queue, no completion for most SENDs, no copies.
 * It does the same as ping_pong.rs, and is the baseline for messages (benches/ping_pong).
 *
 *     cc -O2 ping_pong.c -libverbs -o ping_pong
 *     ping_pong 7000                              one end; port 0 is any
 *     ping_pong 10.0.0.1:7000 [SIZE [COUNT]]      the other
 */
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { RECEIVES = 16, SIGNAL_EVERY = 64, PORT = 1 };

/* The parameters of an end, exchanged over TCP. */
struct hello {
    union ibv_gid gid;
    uint32_t qpn, size, count;
};

static struct ibv_context *context;
static union ibv_gid gid;
static int gid_index;
static enum ibv_mtu mtu;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_mr *send_mr, *receive_mr;
static char *sent, *received;
static uint32_t size;
static unsigned posted;

static void die(const char *what) {
    fprintf(stderr, "%s: %s\n", what, errno ? strerror(errno) : "not as expected");
    exit(1);
}

static void *made(void *object, const char *what) {
    if (!object) die(what);
    return object;
}

static void done(int result, const char *what) {
    if (result) {
        if (result > 0) errno = result;
        die(what);
    }
}

static void open_device(void) {
    int count = 0;
    errno = 0;
    struct ibv_device **list = ibv_get_device_list(&count);
    if (!list || count == 0) die("no RDMA device");
    context = made(ibv_open_device(list[0]), "ibv_open_device");
    ibv_free_device_list(list);
    struct ibv_port_attr port;
    done(ibv_query_port(context, PORT, &port), "ibv_query_port");
    mtu = port.active_mtu;
    for (int row = port.gid_tbl_len - 1; row >= 0; row--) {
        union ibv_gid found;
        static const char zero[16];
        if (ibv_query_gid(context, PORT, row, &found) || !memcmp(found.raw, zero, 16)) continue;
        int ipv4 = !memcmp(found.raw, zero, 10) && found.raw[10] == 0xff && found.raw[11] == 0xff;
        /* Select the first row with an IPv4 address, or else the first row. */
        if (ipv4 || !gid_index) gid_index = row, gid = found;
    }
    pd = made(ibv_alloc_pd(context), "ibv_alloc_pd");
}

static void make_queues(void) {
    size_t room = size ? size : 1;
    sent = made(malloc(room), "malloc");
    memset(sent, 7, room);
    received = made(calloc(1, room), "malloc");
    send_mr = made(ibv_reg_mr(pd, sent, room, 0), "ibv_reg_mr");
    receive_mr = made(ibv_reg_mr(pd, received, room, IBV_ACCESS_LOCAL_WRITE), "ibv_reg_mr");
    cq = made(ibv_create_cq(context, 4 * SIGNAL_EVERY, NULL, NULL, 0), "ibv_create_cq");
    struct ibv_qp_init_attr init = {
        .send_cq = cq,
        .recv_cq = cq,
        .cap = {.max_send_wr = 2 * SIGNAL_EVERY, .max_recv_wr = RECEIVES, .max_send_sge = 1,
                .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC,
    };
    qp = made(ibv_create_qp(pd, &init), "ibv_create_qp");
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = PORT};
    done(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
         "to INIT");
}

static void connect_queues(const struct hello *peer) {
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = mtu,
        .dest_qp_num = ntohl(peer->qpn),
        .max_dest_rd_atomic = 1,
        .min_rnr_timer = 12,
        .ah_attr = {.is_global = 1, .port_num = PORT,
                    .grh = {.dgid = peer->gid, .sgid_index = gid_index, .hop_limit = 64}},
    };
    done(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                       IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "to RTR");
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
                                .max_rd_atomic = 1};
    done(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                       IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC), "to RTS");
}

static void destroy_queues(void) {
    ibv_destroy_qp(qp);
    ibv_destroy_cq(cq);
    ibv_dereg_mr(send_mr);
    ibv_dereg_mr(receive_mr);
    free(sent);
    free(received);
}

static void post_receive(void) {
    struct ibv_sge sge = {(uintptr_t)received, size, receive_mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad;
    done(ibv_post_recv(qp, &wr, &bad), "ibv_post_recv");
}

static void post_send(void) {
    struct ibv_sge sge = {(uintptr_t)sent, size, send_mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
    wr.send_flags = ++posted % SIGNAL_EVERY ? 0 : IBV_SEND_SIGNALED;
    done(ibv_post_send(qp, &wr, &bad), "ibv_post_send");
}

/* Polls until a message arrives. */
static void receive(void) {
    for (;;) {
        struct ibv_wc wc;
        int got = ibv_poll_cq(cq, 1, &wc);
        if (got == 0) continue;
        errno = 0;
        if (got < 0 || wc.status != IBV_WC_SUCCESS) die(got < 0 ? "ibv_poll_cq" : ibv_wc_status_str(wc.status));
        if (wc.wr_id == 1) return;
    }
}

/* Exchanges parameters with the peer. */
static struct hello greet(int tcp, uint32_t count) {
    struct hello own = {gid, htonl(qp->qp_num), htonl(size), htonl(count)}, peer;
    errno = 0;
    if (write(tcp, &own, sizeof own) != sizeof own) die("sending to the peer");
    if (recv(tcp, &peer, sizeof peer, MSG_WAITALL) != sizeof peer) die("receiving from the peer");
    return peer;
}

static void serve(int listener) {
    int tcp = accept(listener, NULL, NULL);
    if (tcp < 0) die("accept");
    struct hello peer;
    if (recv(tcp, &peer, sizeof peer, MSG_WAITALL | MSG_PEEK) != sizeof peer) return (void)close(tcp);
    size = ntohl(peer.size);
    make_queues();
    for (int i = 0; i < RECEIVES; i++) post_receive();
    connect_queues(&peer);
    greet(tcp, 0);
    for (uint32_t left = ntohl(peer.count); left > 0; left--) {
        receive();
        post_send();
        /* The reply was sent first, so this does not delay it. */
        post_receive();
    }
    /* The last SEND has arrived when the client closes the connection. */
    read(tcp, &peer, 1);
    destroy_queues();
    close(tcp);
}

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void ping(int tcp, uint32_t count) {
    make_queues();
    for (int i = 0; i < RECEIVES; i++) post_receive();
    struct hello peer = greet(tcp, count);
    connect_queues(&peer);
    uint64_t *took = made(calloc(count + 1, sizeof *took), "calloc"), start = now(), before = start;
    for (uint32_t i = 0; i < count; i++) {
        post_send();
        if (i > 0) post_receive();
        receive();
        uint64_t after = now();
        took[i] = after - before;
        before = after;
    }
    qsort(took, count, sizeof *took, by_value);
    if (memcmp(sent, received, size)) die("the message that came back");
    printf("%u times %u bytes there and back: %.3f us one way, median %.3f\n", count, size,
           (before - start) / 2e3 / count, took[count / 2] / 2e3);
    destroy_queues();
}

int main(int argc, char **argv) {
    if (argc < 2) return fprintf(stderr, "usage: ping_pong PORT | ADDRESS:PORT [SIZE [COUNT]]\n"), 2;
    char *colon = strrchr(argv[1], ':');
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(atoi(colon ? colon + 1 : argv[1]))};
    if (colon) *colon = 0, inet_pton(AF_INET, argv[1], &at.sin_addr);
    int tcp = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    open_device();
    if (colon) {
        size = argc > 2 ? atoi(argv[2]) : 64;
        if (connect(tcp, (void *)&at, sizeof at)) die(argv[1]);
        setsockopt(tcp, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        ping(tcp, argc > 3 ? atoi(argv[3]) : 10000);
        return 0;
    }
    socklen_t len = sizeof at;
    setsockopt(tcp, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(tcp, (void *)&at, len) || listen(tcp, 8)) die("listening");
    getsockname(tcp, (void *)&at, &len);
    printf("answering at 0.0.0.0:%d\n", ntohs(at.sin_port));
    fflush(stdout);
    for (;;) serve(tcp);
}
