/* Two contexts of one thread exchange messages: every call of the header does what its comment says. */
#include <poll.h>

#include "check.h"

static xrdma_context *client, *server;

/* Returns the context's next event, which must be of this kind; events of the other context stay queued. */
static xrdma_event expect(xrdma_context *context, xrdma_event_kind kind) {
    xrdma_context *other = context == client ? server : client;
    for (int tries = 0; tries < 1000; tries++) {
        xrdma_event event;
        /* The other end acknowledges meanwhile. */
        CHECK(xrdma_polling(other, NULL, 0) == 0);
        CHECK(xrdma_wait(context, 10) >= 0);
        if (xrdma_polling(context, &event, 1) == 0) continue;
        if (event.kind == XRDMA_EVENT_SLOW_POLL || event.kind == XRDMA_EVENT_SLOW_CALL) continue;
        if (event.kind != kind) {
            fprintf(stderr, "event %d instead of %d: %s\n", event.kind, kind, event.text);
            exit(1);
        }
        return event;
    }
    fprintf(stderr, "no event %d\n", kind);
    exit(1);
}

/* Opens a channel between the two contexts and returns both ends. */
static void connect_both(const char *at, xrdma_channel **near_end, xrdma_channel **far_end) {
    int64_t number = xrdma_connect_async(client, at);
    CHECK(number > 0);
    xrdma_event event = expect(client, XRDMA_EVENT_CONNECTED);
    CHECK(event.number == (uint64_t)number && event.error == 0);
    *near_end = event.channel;
    *far_end = expect(server, XRDMA_EVENT_ACCEPTED).channel;
}

static void one_way(xrdma_channel *near_end, xrdma_channel *far_end, size_t len) {
    char *body = (char *)malloc(len + 1);
    for (size_t at = 0; at < len; at++) body[at] = (char)(at * 7);
    CHECK(xrdma_send_msg(near_end, body, len, 0) > 0);
    xrdma_event event = expect(server, XRDMA_EVENT_MESSAGE);
    CHECK(event.channel == far_end && xrdma_msg_channel(event.msg) == far_end);
    CHECK(xrdma_msg_kind_of(event.msg) == XRDMA_MSG_ONE_WAY && xrdma_msg_number(event.msg) == 0);
    CHECK(xrdma_msg_len(event.msg) == len);
    CHECK(memcmp(xrdma_msg_data(event.msg), body, len) == 0);
    CHECK(xrdma_msg_release(event.msg) == 0);
    free(body);
}

static void request_and_response(xrdma_channel *near_end) {
    CHECK(xrdma_set_flag(client, "trace_every", "1") == 0);
    int64_t number = xrdma_send_request(near_end, "question", 8, 0);
    CHECK(number > 0);
    xrdma_event asked = expect(server, XRDMA_EVENT_MESSAGE);
    CHECK(xrdma_msg_kind_of(asked.msg) == XRDMA_MSG_REQUEST);
    uint64_t request = xrdma_msg_number(asked.msg);
    CHECK(request == (uint64_t)number);
    /* The request's memory is not needed any more, only its number is. */
    CHECK(xrdma_msg_release(asked.msg) == 0);
    CHECK(xrdma_send_response(asked.channel, request, "answer", 6, 0) > 0);
    FAILS(xrdma_send_response(asked.channel, request, "answer", 6, 0), ENOENT, "not there to be answered");

    xrdma_event answer = expect(client, XRDMA_EVENT_MESSAGE);
    CHECK(xrdma_msg_kind_of(answer.msg) == XRDMA_MSG_RESPONSE);
    CHECK(xrdma_msg_number(answer.msg) == (uint64_t)number);
    CHECK(xrdma_msg_len(answer.msg) == 6 && memcmp(xrdma_msg_data(answer.msg), "answer", 6) == 0);
    xrdma_trace trace;
    CHECK(xrdma_trace_request(answer.msg, &trace) == 0);
    CHECK(trace.request_ns + trace.peer_ns + trace.response_ns > 0);
    CHECK(xrdma_msg_release(answer.msg) == 0);

    CHECK(xrdma_set_flag(client, "trace_every", "0") == 0);
    xrdma_msg *none = NULL;
    /* No response arrives: the server is of this thread too. */
    FAILS(xrdma_call(near_end, "question", 8, 0, 20, &none), ETIMEDOUT, "no response in time");
    CHECK(none == NULL);
    asked = expect(server, XRDMA_EVENT_MESSAGE);
    CHECK(xrdma_send_response(asked.channel, xrdma_msg_number(asked.msg), "late", 4, 0) > 0);
    CHECK(xrdma_msg_release(asked.msg) == 0);

    CHECK(xrdma_send_request(near_end, "question", 8, 0) > 0);
    asked = expect(server, XRDMA_EVENT_MESSAGE);
    CHECK(xrdma_decline(asked.channel, xrdma_msg_number(asked.msg)) == 0);
    FAILS(xrdma_send_response(asked.channel, xrdma_msg_number(asked.msg), "x", 1, 0), ENOENT, "not there to be answered");
    CHECK(xrdma_msg_release(asked.msg) == 0);
}

/* Sends without a copy: the peer receives the bytes of the registered memory. */
static void lent(xrdma_channel *near_end) {
    size_t len = 100000;
    void *memory;
    CHECK(xrdma_reg_mem(client, len, &memory) == 0);
    memset(memory, 'x', len);
    int64_t number = xrdma_send_msg(near_end, (char *)memory + 10, len - 10, XRDMA_LENT);
    CHECK(number > 0);
    FAILS(xrdma_dereg_mem(client, memory), EBUSY, "not delivered yet");
    FAILS(xrdma_send_msg(near_end, (char *)memory + 10, len, XRDMA_LENT), EFAULT, "xrdma_reg_mem");
    xrdma_event event = expect(server, XRDMA_EVENT_MESSAGE);
    CHECK(xrdma_msg_len(event.msg) == len - 10);
    CHECK(((const char *)xrdma_msg_data(event.msg))[len - 11] == 'x');
    CHECK(xrdma_msg_release(event.msg) == 0);
    event = expect(client, XRDMA_EVENT_DELIVERED);
    CHECK(event.number == (uint64_t)number && event.channel == near_end);
    CHECK(xrdma_dereg_mem(client, memory) == 0);
    FAILS(xrdma_dereg_mem(client, memory), EINVAL, "not where registered memory begins");
}

/* Runs an event loop of the program: arm, poll(2), process. */
static void event_loop(xrdma_channel *near_end) {
    struct pollfd waits = {xrdma_get_event_fd(server), POLLIN, 0};
    CHECK(waits.fd >= 0);
    CHECK(xrdma_send_msg(near_end, "", 0, 0) > 0);
    for (int tries = 0; tries < 1000; tries++) {
        CHECK(xrdma_polling(client, NULL, 0) == 0);
        int timeout = xrdma_arm(server);
        CHECK(timeout >= 0);
        poll(&waits, 1, timeout < 10 ? timeout : 10);
        if (xrdma_process_event(server) > 0) {
            xrdma_event event = expect(server, XRDMA_EVENT_MESSAGE);
            CHECK(xrdma_msg_len(event.msg) == 0);
            CHECK(xrdma_msg_release(event.msg) == 0);
            return;
        }
    }
    CHECK(!"the descriptor was readable");
}

static void states(xrdma_channel *near_end) {
    xrdma_channel_state state;
    memset(&state, 0, sizeof state);
    CHECK(xrdma_channel_status(near_end, &state, sizeof state) == 0);
    CHECK(state.sent > 0 && state.depth == 16 && state.carrier == XRDMA_CARRIER_RDMA);
    /* A program that was compiled with fewer fields. */
    xrdma_context_state older = {0, 0, 77, 0, 0, 0, 0, 0, 0, 0};
    CHECK(xrdma_context_status(client, &older, 2 * sizeof(uint64_t)) == 0);
    CHECK(older.memory_used_bytes > 0 && older.channels == 77);
}

/* Waits until the channel's frames have this carrier, while both ends poll. */
static void expect_carrier(xrdma_channel *channel, xrdma_carrier carrier) {
    for (int tries = 0; tries < 1000; tries++) {
        CHECK(xrdma_polling(server, NULL, 0) == 0 && xrdma_polling(client, NULL, 0) == 0);
        CHECK(xrdma_wait(client, 1) >= 0);
        xrdma_channel_state state;
        CHECK(xrdma_channel_status(channel, &state, sizeof state) == 0);
        if (state.carrier == carrier) return;
    }
    CHECK(!"the carrier changes");
}

static void carriers_and_faults(xrdma_channel *near_end, xrdma_channel *far_end) {
    FAILS(xrdma_switch(near_end, 7), EINVAL, "carrier 7 does not exist");
    CHECK(xrdma_switch(near_end, XRDMA_CARRIER_TCP) == 0);
    expect_carrier(near_end, XRDMA_CARRIER_TCP);
    one_way(near_end, far_end, 4096);
    CHECK(xrdma_set_flag(client, "carrier", "rdma") == 0);
    expect_carrier(near_end, XRDMA_CARRIER_RDMA);
    one_way(near_end, far_end, 1);
    FAILS(xrdma_set_flag(client, "filter", "out dorp"), EINVAL, "is no filter rule");
    CHECK(xrdma_set_flag(client, "filter", "out drop") == 0);
    CHECK(xrdma_send_msg(near_end, "lost", 4, 0) > 0);
    CHECK(xrdma_set_flag(client, "filter", "none") == 0);
    one_way(near_end, far_end, 64);
}

static void endings(const char *at, xrdma_channel *near_end, xrdma_channel *far_end) {
    int mine = 7;
    CHECK(xrdma_user_data(far_end) == NULL);
    CHECK(xrdma_set_user_data(far_end, &mine) == 0 && xrdma_user_data(far_end) == &mine);
    CHECK(xrdma_close(near_end) == 0);
    FAILS(xrdma_send_msg(near_end, "late", 4, 0), ENOTCONN, "closed");
    xrdma_event event = expect(server, XRDMA_EVENT_CLOSED);
    CHECK(event.channel == far_end && event.user_data == &mine && event.error == -EPIPE);
    CHECK(strcmp(event.text, "closed by the peer") == 0);
    event = expect(client, XRDMA_EVENT_CLOSED);
    CHECK(event.channel == near_end && event.error == 0);
    FAILS(xrdma_close(near_end), EINVAL, "the channel is gone");

    connect_both(at, &near_end, &far_end);
    CHECK(xrdma_abort(near_end) == 0);
    CHECK(expect(client, XRDMA_EVENT_CLOSED).error == -ECONNABORTED);
    /* Its queue pair waits for the next channel. */
    xrdma_context_state state;
    CHECK(xrdma_context_status(client, &state, sizeof state) == 0);
    CHECK(state.channels == 0 && state.channels_begun == 2 && state.qps_reused == 1);
}

static void refusals(void) {
    int64_t number = xrdma_connect_async(client, "127.0.0.1:1");
    CHECK(number > 0);
    xrdma_event event = expect(client, XRDMA_EVENT_CONNECT_FAILED);
    CHECK(event.number == (uint64_t)number && event.error == -ECONNREFUSED);
    CHECK(strstr(event.text, "nobody listens there") != NULL);
    xrdma_channel *none = NULL;
    FAILS(xrdma_connect(client, "127.0.0.1:1", &none), ECONNREFUSED, "nobody listens there");
    FAILS(xrdma_connect(client, "127.0.0.1", &none), EINVAL, "HOST:PORT");
    CHECK(none == NULL);
    FAILS(xrdma_set_flag(client, "depth", "64"), EINVAL, "off-line");
    FAILS(xrdma_set_flag(client, "keepalife", "1s"), EINVAL, "keepalive");
    xrdma_context *context = NULL;
    FAILS(xrdma_context_create("device=nothing", &context), ENODEV, "nothing");
    FAILS(xrdma_context_create("depth=2", &context), EINVAL, "expected 3 to 4096");
    CHECK(context == NULL);
}

int main(void) {
    xrdma_channel *near_end, *far_end;
    CHECK(xrdma_context_create("depth=16 keepalive=50ms streams=true", &client) == 0);
    CHECK(xrdma_context_create("depth=16", &server) == 0);
    int port = xrdma_listen(server, "127.0.0.1:0");
    CHECK(port > 0);
    char at[32];
    snprintf(at, sizeof at, "127.0.0.1:%d", port);
    connect_both(at, &near_end, &far_end);
    one_way(near_end, far_end, 1);
    one_way(near_end, far_end, 4096);
    one_way(near_end, far_end, 1000000);
    request_and_response(near_end);
    lent(near_end);
    event_loop(near_end);
    states(near_end);
    carriers_and_faults(near_end, far_end);
    endings(at, near_end, far_end);
    refusals();
    CHECK(xrdma_context_destroy(client) == 0 && xrdma_context_destroy(server) == 0);
    printf("all calls behave as documented\n");
    return 0;
}
