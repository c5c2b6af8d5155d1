/* A server receives one message of each connection and disconnects at once. The client polls for completions,
 * sleeps, and polls for events: the disconnection must not arrive before the message's completion.
 *
 *   last_word -p PORT             runs the server, for CONNECTIONS connections
 *   last_word ADDRESS -p PORT     runs the client */
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CONNECTIONS = 10, BYTES = 64, AWAY_NANOSECONDS = 5000000 };

static char buffer[BYTES];

static void need(int done, const char *what) {
    if (!done) {
        perror(what);
        exit(1);
    }
}

/* Makes an endpoint for ADDRESS; null is any address. */
static struct rdma_cm_id *end_point(const char *address, const char *port) {
    struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP}, *found;
    struct ibv_qp_init_attr init = {
        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
        .sq_sig_all = 1,
    };
    struct rdma_cm_id *id;
    hints.ai_flags = address ? 0 : RAI_PASSIVE;
    need(!rdma_getaddrinfo(address, port, &hints, &found), "rdma_getaddrinfo");
    need(!rdma_create_ep(&id, found, NULL, &init), "rdma_create_ep");
    rdma_freeaddrinfo(found);
    return id;
}

static void serve(const char *port) {
    struct rdma_cm_id *listener = end_point(NULL, port);
    need(!rdma_listen(listener, CONNECTIONS), "rdma_listen");
    for (int i = 0; i < CONNECTIONS; i++) {
        struct rdma_cm_id *id;
        struct ibv_wc done;
        need(!rdma_get_request(listener, &id), "rdma_get_request");
        struct ibv_mr *region = rdma_reg_msgs(id, buffer, BYTES);
        need(region && !rdma_post_recv(id, NULL, buffer, BYTES, region), "rdma_post_recv");
        need(!rdma_accept(id, NULL), "rdma_accept");
        need(rdma_get_recv_comp(id, &done) == 1 && done.status == IBV_WC_SUCCESS, "the message");
        need(!rdma_disconnect(id), "rdma_disconnect");
        rdma_dereg_mr(region);
        rdma_destroy_ep(id);
    }
    rdma_destroy_ep(listener);
}

/* Returns nonzero if the completion was seen before the disconnection. */
static int arrives(const char *address, const char *port) {
    struct rdma_cm_id *id = end_point(address, port);
    struct ibv_mr *region = rdma_reg_msgs(id, buffer, BYTES);
    need(region && !rdma_connect(id, NULL), "rdma_connect");
    need(!rdma_post_send(id, NULL, buffer, BYTES, region, 0), "rdma_post_send");
    struct pollfd events = {.fd = id->channel->fd, .events = POLLIN};
    int arrived = 0, ended = 0;
    while (!ended) {
        struct ibv_wc done;
        int found = ibv_poll_cq(id->send_cq, 1, &done);
        need(found >= 0 && (!found || done.status == IBV_WC_SUCCESS), "ibv_poll_cq");
        arrived += found;
        nanosleep(&(struct timespec){.tv_nsec = AWAY_NANOSECONDS}, NULL);
        ended = poll(&events, 1, 0);
    }
    struct rdma_cm_event *event;
    need(!rdma_get_cm_event(id->channel, &event), "rdma_get_cm_event");
    need(event->event == RDMA_CM_EVENT_DISCONNECTED, "another event");
    rdma_ack_cm_event(event);
    rdma_dereg_mr(region);
    rdma_destroy_ep(id);
    return arrived;
}

int main(int argc, char **argv) {
    const char *port = argv[argc - 1];
    if (argc < 3 || strcmp(argv[argc - 2], "-p"))
        return fprintf(stderr, "usage: last_word [ADDRESS] -p PORT\n"), 2;
    if (argc == 3)
        return serve(port), 0;
    int arrived = 0;
    for (int i = 0; i < CONNECTIONS; i++)
        arrived += arrives(argv[1], port);
    printf("%d of %d messages were seen to arrive\n", arrived, CONNECTIONS);
    return arrived != CONNECTIONS;
}
