/* Handles that are null, gone, forged or another thread's, and invalid arguments, give errors and no crash. */
#include <pthread.h>

#include "check.h"

static xrdma_context *context;
static xrdma_channel *channel;

/* Makes every call with handles that are invalid. */
static void refuse(xrdma_context *c, xrdma_channel *ch, xrdma_msg *m, const char *why) {
    xrdma_context_state context_state;
    xrdma_channel_state channel_state;
    xrdma_channel *new_channel = NULL;
    xrdma_trace trace;
    xrdma_event event;
    xrdma_msg *response = NULL;
    void *memory = NULL;
    FAILS(xrdma_context_destroy(c), EINVAL, why);
    FAILS(xrdma_set_flag(c, "keepalive", "1s"), EINVAL, why);
    FAILS(xrdma_context_status(c, &context_state, sizeof context_state), EINVAL, why);
    FAILS(xrdma_listen(c, "127.0.0.1:0"), EINVAL, why);
    FAILS(xrdma_connect(c, "127.0.0.1:1", &new_channel), EINVAL, why);
    FAILS(xrdma_connect_async(c, "127.0.0.1:1"), EINVAL, why);
    FAILS(xrdma_polling(c, &event, 1), EINVAL, why);
    FAILS(xrdma_wait(c, 0), EINVAL, why);
    FAILS(xrdma_get_event_fd(c), EINVAL, why);
    FAILS(xrdma_arm(c), EINVAL, why);
    FAILS(xrdma_process_event(c), EINVAL, why);
    FAILS(xrdma_reg_mem(c, 4096, &memory), EINVAL, why);
    FAILS(xrdma_dereg_mem(c, &memory), EINVAL, why);
    FAILS(xrdma_close(ch), EINVAL, why);
    FAILS(xrdma_abort(ch), EINVAL, why);
    FAILS(xrdma_set_user_data(ch, &event), EINVAL, why);
    CHECK(xrdma_user_data(ch) == NULL);
    FAILS(xrdma_channel_status(ch, &channel_state, sizeof channel_state), EINVAL, why);
    FAILS(xrdma_send_msg(ch, "x", 1, 0), EINVAL, why);
    FAILS(xrdma_send_request(ch, "x", 1, 0), EINVAL, why);
    FAILS(xrdma_send_response(ch, 1, "x", 1, 0), EINVAL, why);
    FAILS(xrdma_call(ch, "x", 1, 0, 0, &response), EINVAL, why);
    FAILS(xrdma_forget(ch, 1), EINVAL, why);
    FAILS(xrdma_decline(ch, 1), EINVAL, why);
    CHECK(xrdma_msg_data(m) == NULL && xrdma_msg_len(m) == 0 && xrdma_msg_number(m) == 0);
    CHECK(xrdma_msg_kind_of(m) == XRDMA_MSG_NONE && xrdma_msg_channel(m) == NULL);
    FAILS(xrdma_msg_release(m), EINVAL, why);
    FAILS(xrdma_trace_request(m, &trace), EINVAL, why);
    CHECK(new_channel == NULL && response == NULL && memory == NULL);
}

static void *elsewhere(void *message) {
    refuse(context, channel, (xrdma_msg *)message, "another thread");
    /* A thread's contexts end with it, also without xrdma_context_destroy(3). */
    xrdma_context *own;
    CHECK(xrdma_context_create(NULL, &own) == 0);
    return NULL;
}

static void bad_arguments(void) {
    xrdma_event event;
    void *memory;
    FAILS(xrdma_context_create(NULL, NULL), EINVAL, "null");
    FAILS(xrdma_context_create("depth", &context), EINVAL, "NAME=VALUE");
    FAILS(xrdma_context_create("depth=\xff", &context), EINVAL, "UTF-8");
    FAILS(xrdma_listen(context, NULL), EINVAL, "null");
    FAILS(xrdma_listen(context, "no port"), EINVAL, "HOST:PORT");
    FAILS(xrdma_connect(context, NULL, &channel), EINVAL, "null");
    FAILS(xrdma_connect(context, "127.0.0.1:1", NULL), EINVAL, "null");
    FAILS(xrdma_polling(context, NULL, 1), EINVAL, "null");
    FAILS(xrdma_polling(context, &event, -1), EINVAL, "count is negative");
    FAILS(xrdma_set_flag(context, NULL, "1"), EINVAL, "null");
    FAILS(xrdma_context_status(context, NULL, 8), EINVAL, "null");
    FAILS(xrdma_channel_status(channel, NULL, 8), EINVAL, "null");
    FAILS(xrdma_reg_mem(context, 0, &memory), EINVAL, "1 to 4294967295");
    FAILS(xrdma_reg_mem(context, (size_t)1 << 40, &memory), EINVAL, "1 to 4294967295");
    FAILS(xrdma_reg_mem(context, (size_t)3 << 30, &memory), ENOMEM, "memory_limit");
    FAILS(xrdma_reg_mem(context, 1, NULL), EINVAL, "null");
    FAILS(xrdma_send_msg(channel, NULL, 1, 0), EINVAL, "no body");
    FAILS(xrdma_send_msg(channel, &event, (size_t)-1, 0), EINVAL, "no body");
    FAILS(xrdma_send_msg(channel, "x", 1, 2), EINVAL, "flags");
    FAILS(xrdma_send_msg(channel, "x", 1, XRDMA_LENT), EFAULT, "xrdma_reg_mem");
    FAILS(xrdma_send_response(channel, 12345, "x", 1, 0), ENOENT, "not there to be answered");
    FAILS(xrdma_call(channel, "x", 1, 0, 0, NULL), EINVAL, "null");
    size_t long_one = (size_t)65 << 20;
    char *body = (char *)calloc(1, long_one);
    FAILS(xrdma_send_msg(channel, body, long_one, 0), EMSGSIZE, "67108864");
    free(body);
}

/* The argument is a ping-pong's address. */
int main(int count, char **words) {
    CHECK(count == 2);
    refuse(NULL, NULL, NULL, "is null");
    refuse((xrdma_context *)16, (xrdma_channel *)16, (xrdma_msg *)16, "is no ");
    refuse((xrdma_context *)&count, (xrdma_channel *)&count, (xrdma_msg *)&count, "");
    CHECK(xrdma_context_create(NULL, &context) == 0);
    CHECK(xrdma_connect(context, words[1], &channel) == 0);
    bad_arguments();

    xrdma_msg *message, *released;
    CHECK(xrdma_call(channel, "x", 1, 0, 5000, &released) == 0);
    CHECK(xrdma_msg_release(released) == 0);
    CHECK(xrdma_call(channel, "y", 1, 0, 5000, &message) == 0);
    FAILS(xrdma_msg_release(released), EINVAL, "gone");
    CHECK(xrdma_msg_len(message) == 1);
    FAILS(xrdma_trace_request(message, (xrdma_trace *)NULL), EINVAL, "null");
    xrdma_trace trace;
    FAILS(xrdma_trace_request(message, &trace), ENODATA, "trace_every");
    refuse((xrdma_context *)channel, (xrdma_channel *)message, (xrdma_msg *)context, "is no ");

    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, elsewhere, message) == 0);
    CHECK(pthread_join(thread, NULL) == 0);

    /* The context's objects are destroyed with it. */
    CHECK(xrdma_context_destroy(context) == 0);
    refuse(context, channel, message, "gone");
    printf("all was refused\n");
    return 0;
}
