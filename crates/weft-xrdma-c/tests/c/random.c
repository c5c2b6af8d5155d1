/* Calls in random order with handles that are good, null, gone or of another kind, of two connected contexts: nothing
 * crashes, and in the end all memory is back. The argument is a seed. */
#include "check.h"

enum { HANDLES = 64, STEPS = 3000 };

static uint64_t seed;
static int seen;
static xrdma_context *contexts[2];
static void *channels[HANDLES], *messages[HANDLES], *memories[HANDLES];
static char address[32], body[100000];

/* SplitMix64 (Steele et al. 2014). */
static uint64_t draw(uint64_t below) {
    uint64_t z = (seed += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) % below;
}

/* Returns a handle, mostly of the kind wanted, which may be invalid. */
static void *any(void **handles) {
    void **all[] = {channels, messages, memories, handles, handles, handles, handles, handles};
    return all[draw(8)][draw(HANDLES)];
}

static xrdma_channel *channel(void) { return (xrdma_channel *)any(channels); }
static xrdma_msg *message(void) { return (xrdma_msg *)any(messages); }

/* Stores what arrives in a random place, and releases what was there, which may be released already. */
static void look(xrdma_context *context) {
    xrdma_event events[16];
    int count = xrdma_polling(context, events, 16);
    CHECK(count >= 0);
    for (int at = 0; at < count; at++) {
        uint64_t place = draw(HANDLES);
        if (events[at].kind == XRDMA_EVENT_ACCEPTED || events[at].kind == XRDMA_EVENT_CONNECTED) {
            xrdma_abort((xrdma_channel *)channels[place]);
            channels[place] = events[at].channel;
        }
        if (events[at].kind == XRDMA_EVENT_MESSAGE) {
            CHECK(xrdma_msg_kind_of(events[at].msg) != XRDMA_MSG_NONE);
            xrdma_msg_release((xrdma_msg *)messages[place]);
            messages[place] = events[at].msg;
            seen++;
        }
    }
}

static void step(xrdma_context *context) {
    xrdma_channel_state state;
    xrdma_trace trace;
    xrdma_msg *response = NULL;
    void *memory;
    size_t len = draw(4) ? draw(200) : draw(sizeof body);
    switch (draw(16)) {
    case 0: xrdma_connect_async(context, address); break;
    case 1: xrdma_close(channel()); break;
    case 2: if (!draw(4)) xrdma_abort(channel()); break;
    case 3: xrdma_send_msg(channel(), body, len, 0); break;
    case 4: xrdma_send_request(channel(), body, len, 0); break;
    case 5: case 6: {
        xrdma_msg *request = message();
        xrdma_send_response(xrdma_msg_channel(request), xrdma_msg_number(request), body, len, 0);
        break;
    }
    case 7: xrdma_msg_release(message()); break;
    case 8: xrdma_channel_status(channel(), &state, draw(2 * sizeof state)); break;
    case 9: {
        uint64_t place = draw(HANDLES);
        if (!memories[place] && xrdma_reg_mem(context, len + 1, &memory) == 0) memories[place] = memory;
        break;
    }
    case 10: {
        uint64_t place = draw(HANDLES);
        if (xrdma_dereg_mem(context, memories[place]) == 0) memories[place] = NULL;
        break;
    }
    case 11: xrdma_send_msg(channel(), any(memories), draw(300), XRDMA_LENT); break;
    case 12: xrdma_call(channel(), body, len, 0, 0, &response); break;
    case 13: xrdma_trace_request(message(), &trace); break;
    case 14: draw(2) ? xrdma_forget(channel(), draw(1000)) : xrdma_decline(channel(), draw(1000)); break;
    default: xrdma_set_user_data(channel(), body); break;
    }
    if (response) xrdma_msg_release(response);
}

/* Releases channels and messages, then lent memory; the context keeps only its own memory. */
static void give_everything_back(xrdma_context *context) {
    for (int at = 0; at < HANDLES; at++) {
        xrdma_abort((xrdma_channel *)channels[at]);
        xrdma_msg_release((xrdma_msg *)messages[at]);
    }
    look(context);
}

int main(int count, char **words) {
    CHECK(count == 2);
    seed = strtoull(words[1], NULL, 10);
    /* Channels whose events were not read yet end within the test. */
    for (int at = 0; at < 2; at++)
        CHECK(xrdma_context_create("keepalive=20ms close_timeout=50ms trace_every=2 backlog=8", &contexts[at]) == 0);
    int port = xrdma_listen(contexts[1], "127.0.0.1:0");
    CHECK(port > 0);
    snprintf(address, sizeof address, "127.0.0.1:%d", port);
    for (int at = 0; at < STEPS; at++) {
        step(contexts[draw(2)]);
        look(contexts[draw(2)]);
    }
    xrdma_context_state state = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    for (int tries = 0; tries < 2000; tries++) {
        uint64_t used = 0;
        for (int at = 0; at < 2; at++) {
            give_everything_back(contexts[at]);
            for (int place = 0; place < HANDLES; place++)
                if (xrdma_dereg_mem(contexts[at], memories[place]) == 0) memories[place] = NULL;
            CHECK(xrdma_wait(contexts[at], 1) >= 0);
            CHECK(xrdma_context_status(contexts[at], &state, sizeof state) == 0);
            used += state.memory_used_bytes + state.channels;
        }
        if (used == 0) {
            CHECK(xrdma_context_destroy(contexts[0]) == 0 && xrdma_context_destroy(contexts[1]) == 0);
            printf("%d messages, and all memory is back\n", seen);
            return 0;
        }
    }
    fprintf(stderr, "%llu bytes, %llu channels\n", (unsigned long long)state.memory_used_bytes, (unsigned long long)state.channels);
    return 1;
}
