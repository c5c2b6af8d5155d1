/* Messages of every kind between two hosts, whose bytes are checked. One end: echoes 7000. The other: echoes
 * 10.0.0.1:7000. */
#include "check.h"

enum { CHANNELS = 8, TIME_LIMIT_MS = 20000 };

/* The lengths of bodies: empty, one byte, the longest in a frame and the next one, and two that READs fetch. */
static const size_t LENGTHS[] = {0, 1, 4096, 4097, 100000, 2000000};

/* Writes bytes that follow from their place and from the message's number. */
static void fill(unsigned char *body, size_t len, size_t number) {
    for (size_t at = 0; at < len; at++) body[at] = (unsigned char)(at * 7 + at / 256 + number);
}

/* Checks a message's bytes and releases it. */
static void check(xrdma_msg *message, const unsigned char *body, size_t len) {
    CHECK(xrdma_msg_len(message) == len);
    CHECK(memcmp(xrdma_msg_data(message), body, len) == 0);
    CHECK(xrdma_msg_release(message) == 0);
}

/* Returns the context's next event of this kind. */
static xrdma_event expect(xrdma_context *context, xrdma_event_kind kind) {
    for (int waited = 0; waited < TIME_LIMIT_MS; waited += 10) {
        xrdma_event event;
        CHECK(xrdma_wait(context, 10) >= 0);
        while (xrdma_polling(context, &event, 1) > 0) {
            if (event.kind == kind) return event;
            CHECK(event.kind != XRDMA_EVENT_CLOSED);
        }
    }
    CHECK(!"it comes in time");
    exit(1);
}

/* Sends back what arrives: a response to a request, a message for a message. */
static void serve(xrdma_context *context, const char *port) {
    char at[32];
    snprintf(at, sizeof at, "0.0.0.0:%s", port);
    printf("at 0.0.0.0:%d\n", xrdma_listen(context, at));
    for (fflush(stdout);;) {
        xrdma_event event;
        CHECK(xrdma_wait(context, -1) >= 0);
        while (xrdma_polling(context, &event, 1) > 0) {
            if (event.kind != XRDMA_EVENT_MESSAGE) continue;
            const void *body = xrdma_msg_data(event.msg);
            size_t len = xrdma_msg_len(event.msg);
            if (xrdma_msg_kind_of(event.msg) == XRDMA_MSG_REQUEST)
                CHECK(xrdma_send_response(event.channel, xrdma_msg_number(event.msg), body, len, 0) > 0);
            else
                CHECK(xrdma_send_msg(event.channel, body, len, 0) > 0);
            CHECK(xrdma_msg_release(event.msg) == 0);
        }
    }
}

/* Exchanges a call, a message and a message of registered memory on a channel. */
static void exchange(xrdma_context *context, xrdma_channel *channel, unsigned char *lent, size_t len, size_t number) {
    xrdma_msg *response;
    unsigned char *body = (unsigned char *)malloc(len + 1);
    fill(body, len, number);
    CHECK(xrdma_call(channel, body, len, 0, TIME_LIMIT_MS, &response) == 0);
    check(response, body, len);
    CHECK(xrdma_send_msg(channel, body, len, 0) > 0);
    check(expect(context, XRDMA_EVENT_MESSAGE).msg, body, len);
    fill(lent, len, number);
    CHECK(xrdma_send_request(channel, lent, len, XRDMA_LENT) > 0);
    check(expect(context, XRDMA_EVENT_MESSAGE).msg, body, len);
    free(body);
}

int main(int count, char **words) {
    xrdma_context *context;
    xrdma_channel *channels[CHANNELS];
    void *lent;
    CHECK(count == 2);
    CHECK(xrdma_context_create(NULL, &context) == 0);
    if (strchr(words[1], ':') == NULL) serve(context, words[1]);
    size_t lengths = sizeof LENGTHS / sizeof *LENGTHS, exchanged = 0;
    CHECK(xrdma_reg_mem(context, LENGTHS[lengths - 1], &lent) == 0);
    for (int at = 0; at < CHANNELS; at++) CHECK(xrdma_connect(context, words[1], &channels[at]) == 0);
    for (size_t at = 0; at < lengths; at++)
        for (int channel = 0; channel < CHANNELS; channel++, exchanged++)
            exchange(context, channels[channel], (unsigned char *)lent, LENGTHS[at], exchanged);
    printf("%zu exchanges, all bytes as they were sent\n", exchanged);
    CHECK(xrdma_context_destroy(context) == 0);
    return 0;
}
