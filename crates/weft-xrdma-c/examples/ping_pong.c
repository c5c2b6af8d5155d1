/* A ping-pong of messages. One end: ping_pong 7000. The other: ping_pong 10.0.0.1:7000 [SIZE [COUNT]]. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xrdma.h>

static int check(const char *what, int result) {
    if (result >= 0) return result;
    fprintf(stderr, "%s: %s\n", what, xrdma_last_error());
    exit(1);
}

static void answer(xrdma_context *context) {
    xrdma_event event;
    check("waiting", xrdma_wait(context, -1));
    while (check("polling", xrdma_polling(context, &event, 1)) > 0) {
        if (event.kind != XRDMA_EVENT_MESSAGE) continue;
        /* A peer that is gone needs no answer. */
        xrdma_send_response(event.channel, xrdma_msg_number(event.msg), xrdma_msg_data(event.msg),
                            xrdma_msg_len(event.msg), 0);
        xrdma_msg_release(event.msg);
    }
}

int main(int count, char **words) {
    xrdma_context *context;
    xrdma_channel *channel;
    xrdma_msg *response;
    if (count < 2) return fprintf(stderr, "a port, or an address and port\n"), 2;
    check("opening a device", xrdma_context_create(NULL, &context));
    if (strchr(words[1], ':') == NULL) {
        char at[32];
        snprintf(at, sizeof at, "0.0.0.0:%s", words[1]);
        printf("answering at 0.0.0.0:%d\n", check("listening", xrdma_listen(context, at)));
        for (fflush(stdout);;) answer(context);
    }
    size_t size = count > 2 ? strtoul(words[2], NULL, 10) : 64;
    long rounds = count > 3 ? atol(words[3]) : 10000;
    char *body = (char *)calloc(1, size + 1);
    check("connecting", xrdma_connect(context, words[1], &channel));
    for (long round = 0; round < rounds; round++) {
        check("calling", xrdma_call(channel, body, size, 0, -1, &response));
        int same = xrdma_msg_len(response) == size && !memcmp(xrdma_msg_data(response), body, size);
        check("releasing", xrdma_msg_release(response));
        if (!same) return fprintf(stderr, "another body came back\n"), 1;
    }
    printf("%ld times %zu bytes there and back\n", rounds, size);
    return check("closing", xrdma_context_destroy(context));
}
