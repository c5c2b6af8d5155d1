/*
 * Messages over RDMA in three nouns: a context owns channels, a channel carries messages. Link with -lxrdma.
 *
 * A context belongs to the thread that created it, and only that thread may use it and its objects: nothing here
 * locks. Other threads use their own contexts.
 *
 * Functions that return a number return a negative errno(3) value when they fail, and xrdma_last_error returns the
 * reason as text. A context, channel or message that is null, gone or another thread's is such a failure. All other
 * arguments must be valid: texts end in NUL and are UTF-8, buffers have the given length, and pointers for results
 * are null or valid.
 *
 * This file is generated from the sources of weft-xrdma-c: `cargo xtask docs`.
 */

#ifndef XRDMA_H
#define XRDMA_H

#include <stddef.h>
#include <stdint.h>

/**
 * A flag for sending: the body lies in memory of xrdma_reg_mem(3), which is not copied and must not change until
 * XRDMA_EVENT_DELIVERED comes for the message, or its channel is gone.
 */
#define XRDMA_LENT 1

/**
 * What carries a channel's frames.
 */
typedef enum xrdma_carrier {
  /**
   * Its queue pair.
   */
  XRDMA_CARRIER_RDMA = 0,
  /**
   * A TCP connection, because RDMA broke.
   */
  XRDMA_CARRIER_TCP = 1,
} xrdma_carrier;

/**
 * Whether a message asks, answers, or neither.
 */
typedef enum xrdma_msg_kind {
  /**
   * It is no message: the handle is null, or was released.
   */
  XRDMA_MSG_NONE = 0,
  /**
   * Neither.
   */
  XRDMA_MSG_ONE_WAY = 1,
  /**
   * It asks: answer with xrdma_send_response(3).
   */
  XRDMA_MSG_REQUEST = 2,
  /**
   * It answers the request of its number.
   */
  XRDMA_MSG_RESPONSE = 3,
} xrdma_msg_kind;

/**
 * What happened.
 */
typedef enum xrdma_event_kind {
  /**
   * A channel that xrdma_connect_async(3) asked for is there. `number` is what that call returned.
   */
  XRDMA_EVENT_CONNECTED = 1,
  /**
   * A channel that xrdma_connect_async(3) asked for is not to be had: `number`, `error`, `text`.
   */
  XRDMA_EVENT_CONNECT_FAILED = 2,
  /**
   * A peer began a channel, after xrdma_listen(3).
   */
  XRDMA_EVENT_ACCEPTED = 3,
  /**
   * A message arrived: `msg`, which is to be released.
   */
  XRDMA_EVENT_MESSAGE = 4,
  /**
   * The peer has the message `number`; what was lent to it with XRDMA_LENT is free again.
   */
  XRDMA_EVENT_DELIVERED = 5,
  /**
   * The channel is gone, and this is the last that its handle is good for: `error` is 0 if this end closed it, and
   * `text` says why. What was lent on it is free again.
   */
  XRDMA_EVENT_CLOSED = 6,
  /**
   * The thread did not poll for `nanos`, which is more than `polling_warn`, while something waited.
   */
  XRDMA_EVENT_SLOW_POLL = 7,
  /**
   * The answer to request `number` took `nanos`, which is more than `slow_threshold`.
   */
  XRDMA_EVENT_SLOW_CALL = 8,
  /**
   * This end answers fewer requests than come: `number` of them wait, and the peer does until some are answered
   * or declined (xrdma_decline(3)).
   */
  XRDMA_EVENT_SLOW_ANSWERS = 9,
  /**
   * A channel that a peer began did not come about, or none can be taken for a while: `error`, `text`.
   */
  XRDMA_EVENT_ACCEPT_FAILED = 10,
} xrdma_event_kind;

/**
 * A connection that carries messages, in both directions and in any number.
 */
typedef struct xrdma_channel xrdma_channel;

/**
 * A device, its memory, and the channels of one thread. Only that thread may use it.
 */
typedef struct xrdma_context xrdma_context;

/**
 * A message that arrived. Its memory is the context's until xrdma_msg_release(3).
 */
typedef struct xrdma_msg xrdma_msg;

/**
 * What a context is like.
 */
typedef struct xrdma_context_state {
  /**
   * Bytes of registered memory.
   */
  uint64_t memory_bytes;
  /**
   * Of them, those in use.
   */
  uint64_t memory_used_bytes;
  /**
   * Channels there are.
   */
  uint64_t channels;
  /**
   * Channels that were begun.
   */
  uint64_t channels_begun;
  /**
   * Channels that ended.
   */
  uint64_t channels_closed;
  /**
   * Queue pairs that wait for the next channels.
   */
  uint64_t qps_cached;
  /**
   * Queue pairs made.
   */
  uint64_t qps_created;
  /**
   * Queue pairs taken from the cache.
   */
  uint64_t qps_reused;
  /**
   * Polls that were late.
   */
  uint64_t slow_polls;
  /**
   * Calls that were slow.
   */
  uint64_t slow_calls;
} xrdma_context_state;

/**
 * What a channel is like.
 */
typedef struct xrdma_channel_state {
  /**
   * Messages sent.
   */
  uint64_t sent;
  /**
   * Bytes of their bodies.
   */
  uint64_t sent_bytes;
  /**
   * Messages received.
   */
  uint64_t received;
  /**
   * Bytes of their bodies.
   */
  uint64_t received_bytes;
  /**
   * Of both, those too long for a frame.
   */
  uint64_t large;
  /**
   * ACK frames sent.
   */
  uint64_t acks;
  /**
   * NOPs sent.
   */
  uint64_t nops;
  /**
   * Probes of a silent peer.
   */
  uint64_t probes;
  /**
   * Changes of the carrier.
   */
  uint64_t switches;
  /**
   * Frames sent again by another carrier.
   */
  uint64_t repeats;
  /**
   * Receive requests that were late for want of memory.
   */
  uint64_t starved;
  /**
   * Bytes of registered memory that it holds for receiving.
   */
  uint64_t receive_bytes;
  /**
   * How far the peer's clock is ahead, ns; 0 until a call was traced.
   */
  int64_t clock_offset_ns;
  /**
   * Frames under way.
   */
  uint32_t in_flight;
  /**
   * Frames that may be.
   */
  uint32_t depth;
  /**
   * Messages that wait for the window.
   */
  uint32_t backlog;
  /**
   * Large messages that are being read.
   */
  uint32_t fetching;
  /**
   * Requests that wait for their response.
   */
  uint32_t asked;
  /**
   * What carries its frames.
   */
  enum xrdma_carrier carrier;
} xrdma_channel_state;

/**
 * Where the time of a traced call went.
 */
typedef struct xrdma_trace {
  /**
   * The request's way, ns: T2 - T1 - Toff.
   */
  uint64_t request_ns;
  /**
   * At the peer, ns: T3 - T2.
   */
  uint64_t peer_ns;
  /**
   * The response's way, ns: T4 - T3 + Toff.
   */
  uint64_t response_ns;
  /**
   * How far the peer's clock is ahead, ns: Toff.
   */
  int64_t offset_ns;
} xrdma_trace;

/**
 * What happened, and to whom. What a kind of event has no use for is zero.
 */
typedef struct xrdma_event {
  /**
   * What.
   */
  enum xrdma_event_kind kind;
  /**
   * Zero, or a negative number of errno(3).
   */
  int error;
  /**
   * Where.
   */
  struct xrdma_channel *channel;
  /**
   * What xrdma_set_user_data(3) gave the channel.
   */
  void *user_data;
  /**
   * The message.
   */
  struct xrdma_msg *msg;
  /**
   * Of which message, or of which call.
   */
  uint64_t number;
  /**
   * How long it took, ns.
   */
  uint64_t nanos;
  /**
   * Why, in words, until xrdma_polling(3) is called again.
   */
  const char *text;
} xrdma_event;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Opens an RDMA device and makes a context on it, for this thread.
 *
 * `options` is null, or words NAME=VALUE with space between them: `device` (its name, otherwise the first there
 * is), `address` (the one that peers are told, otherwise the device's first), `pages` (anonymous, huge or malloc), `streams`
 * (true keeps a TCP connection beside each channel that this end begins, which carries it when RDMA breaks), `show` (a name for `weft stat`, or off), `spin`
 * (a time to poll before sleeping in xrdma_wait(3) and xrdma_call(3)), and the parameters of xrdma_set_flag(3).
 *
 * Errors:
 * * EINVAL: an option that does not exist, or a value that is none.
 * * ENODEV: there is no libibverbs.so.1, or no device.
 * * EADDRNOTAVAIL: the device has no such address.
 */
int xrdma_context_create(const char *options,
                         struct xrdma_context **context);

/**
 * Ends a context at once, with its channels, messages and registered memory. Messages that are under way are lost:
 * close channels first, with xrdma_close(3), and poll until they are.
 *
 * A thread that ends without it ends its contexts as well.
 *
 * Errors:
 * * EINVAL: the context is null, gone, or another thread's.
 */
int xrdma_context_destroy(struct xrdma_context *context);

/**
 * Changes a parameter of a running context.
 *
 * The parameters are those of table III of the paper: `qp_cache`, `outstanding`, `backlog`, `unanswered`,
 * `memory_limit`, `memory_keep`, `keepalive`, `ack_delay`, `deadlock_after`, `close_timeout`, `slow_threshold`,
 * `polling_warn`, `trace_every`, and, only before a context is made (xrdma_context_create(3)), `depth`, `ack_every`,
 * `small`, `longest`, `fragment`, `srq`, `reads`, `memory_region`. Values are as in `64`, `64KiB` or `10ms`.
 *
 * Errors:
 * * EINVAL: there is no such parameter, it cannot change while the context runs, or the value is out of range; also a
 *   context that is null, gone, or another thread's.
 */
int xrdma_set_flag(struct xrdma_context *context,
                   const char *name,
                   const char *value);

/**
 * Says what a context is like. `size` is the size of `state` as the program was compiled; newer libraries fill no
 * more of it.
 *
 * Errors:
 * * EINVAL: the context is null, gone, or another thread's; or `state` is null.
 */
int xrdma_context_status(const struct xrdma_context *context,
                         struct xrdma_context_state *state,
                         size_t size);

/**
 * Takes channels at an address, HOST:PORT, where port 0 is any. XRDMA_EVENT_ACCEPTED follows for each.
 *
 * Returns the port.
 *
 * Errors:
 * * EINVAL: the text is no address, or the context null, gone, or another thread's.
 * * EADDRINUSE, EADDRNOTAVAIL: somebody listens there, or the address is not this host's.
 */
int xrdma_listen(struct xrdma_context *context,
                 const char *address);

/**
 * Begins a channel to an address, HOST:PORT, and waits until it is there, which takes 5 seconds at most.
 *
 * Errors:
 * * EINVAL: the text is no address, or the context null, gone, or another thread's.
 * * ECONNREFUSED, EHOSTUNREACH, ETIMEDOUT: nobody is there.
 * * EPROTO: who is there does not speak X-RDMA.
 * * ENOMEM: the device has no room.
 */
int xrdma_connect(struct xrdma_context *context,
                  const char *address,
                  struct xrdma_channel **channel);

/**
 * Begins a channel to an address, HOST:PORT. XRDMA_EVENT_CONNECTED or XRDMA_EVENT_CONNECT_FAILED follows, with the
 * number that this call returns.
 *
 * Errors:
 * * EINVAL: the text is no address, or the context null, gone, or another thread's.
 * * ENOMEM: the device has no room.
 */
int64_t xrdma_connect_async(struct xrdma_context *context,
                            const char *address);

/**
 * Closes a channel: what was sent still arrives, nothing more can be sent. XRDMA_EVENT_CLOSED follows.
 *
 * Errors:
 * * EINVAL: the channel is null, gone, or another thread's.
 */
int xrdma_close(struct xrdma_channel *channel);

/**
 * Ends a channel at once, with what is under way on it; the peer finds out by itself. XRDMA_EVENT_CLOSED follows.
 *
 * Errors:
 * * EINVAL: the channel is null, gone, or another thread's.
 */
int xrdma_abort(struct xrdma_channel *channel);

/**
 * Gives a channel a pointer of the program's, which its events carry.
 *
 * Errors:
 * * EINVAL: the channel is null, gone, or another thread's.
 */
int xrdma_set_user_data(struct xrdma_channel *channel, void *user_data);

/**
 * The pointer that xrdma_set_user_data(3) gave a channel.
 *
 * Errors:
 * Null, if there is none, or the channel is null, gone, or another thread's.
 */
void *xrdma_user_data(const struct xrdma_channel *channel);

/**
 * Says what a channel is like. `size` is the size of `state` as the program was compiled; newer libraries fill no
 * more of it.
 *
 * Errors:
 * * EINVAL: the channel is null, gone, or another thread's; or `state` is null.
 * * ENOTCONN: the channel ended, and XRDMA_EVENT_CLOSED waits.
 */
int xrdma_channel_status(const struct xrdma_channel *channel,
                         struct xrdma_channel_state *state,
                         size_t size);

/**
 * Sends a message that asks for no answer. Its body is copied, unless `flags` has XRDMA_LENT.
 *
 * Returns the message's number, which is positive and new in the context.
 *
 * Errors:
 * * EINVAL: the channel is null, gone, or another thread's; `data` is null; or a flag does not exist.
 * * ENOTCONN: the channel is closed or closing.
 * * EAGAIN: as many messages wait as may (`backlog`): poll, and try again.
 * * EMSGSIZE: the body is longer than the peer takes (`longest`).
 * * ENOMEM: the context has no memory left (`memory_limit`).
 * * EFAULT: XRDMA_LENT, and the body is not in registered memory.
 */
int64_t xrdma_send_msg(struct xrdma_channel *channel,
                       const void *data,
                       size_t len,
                       unsigned int flags);

/**
 * Sends a message that asks for an answer: a message of kind XRDMA_MSG_RESPONSE follows, with the number that this
 * call returns, or XRDMA_EVENT_CLOSED. xrdma_call(3) waits for it.
 *
 * Errors:
 * As xrdma_send_msg(3).
 */
int64_t xrdma_send_request(struct xrdma_channel *channel,
                           const void *data,
                           size_t len,
                           unsigned int flags);

/**
 * Answers a request that came by this channel: `request` is its number, xrdma_msg_number(3). The request may have
 * been released.
 *
 * Returns the response's number.
 *
 * Errors:
 * As xrdma_send_msg(3), and
 * * ENOENT: there is no such request, or it was answered.
 */
int64_t xrdma_send_response(struct xrdma_channel *channel,
                            uint64_t request,
                            const void *data,
                            size_t len,
                            unsigned int flags);

/**
 * Sends a request and waits for its response, `timeout_ms` milliseconds at most, or for ever if that is negative.
 * What else happens meanwhile is for xrdma_polling(3).
 *
 * Errors:
 * As xrdma_send_msg(3), and
 * * ETIMEDOUT: no response came in time; it is dropped if it comes.
 * * EPIPE, ECONNRESET, ENOTCONN: the channel ended. XRDMA_EVENT_CLOSED follows.
 */
int xrdma_call(struct xrdma_channel *channel,
               const void *data,
               size_t len,
               unsigned int flags,
               int timeout_ms,
               struct xrdma_msg **response);

/**
 * Gives up a request of xrdma_send_request(3): its response is dropped if it comes.
 *
 * Errors:
 * * EINVAL: the channel is null, gone, or another thread's.
 */
int xrdma_forget(struct xrdma_channel *channel, uint64_t request);

/**
 * Says that a request that came by this channel will not be answered. Who made it hears nothing; but as many requests
 * as may (`unanswered`) wait for answers, and those that never get one are to make room.
 *
 * Errors:
 * * EINVAL: the channel is null, gone, or another thread's.
 */
int xrdma_decline(struct xrdma_channel *channel,
                  uint64_t request);

/**
 * The body of a message, until it is released.
 *
 * Errors:
 * Null, if the message is null, released, or another thread's.
 */
const void *xrdma_msg_data(const struct xrdma_msg *msg);

/**
 * The length of a message's body, bytes.
 *
 * Errors:
 * Zero, if the message is null, released, or another thread's.
 */
size_t xrdma_msg_len(const struct xrdma_msg *msg);

/**
 * Whether a message asks, answers, or neither.
 *
 * Errors:
 * XRDMA_MSG_NONE, if the message is null, released, or another thread's.
 */
enum xrdma_msg_kind xrdma_msg_kind_of(const struct xrdma_msg *msg);

/**
 * The number of a request, as its sender numbered it, or of the request that a response answers.
 *
 * Errors:
 * Zero, for one-way messages, and if the message is null, released, or another thread's.
 */
uint64_t xrdma_msg_number(const struct xrdma_msg *msg);

/**
 * The channel that a message came by. It may be gone.
 *
 * Errors:
 * Null, if the message is null, released, or another thread's.
 */
struct xrdma_channel *xrdma_msg_channel(const struct xrdma_msg *msg);

/**
 * Gives a message and its memory back.
 *
 * Errors:
 * * EINVAL: the message is null, released, or another thread's.
 */
int xrdma_msg_release(struct xrdma_msg *msg);

/**
 * Says where the time of a call went: `response` is its response. One request in `trace_every` is traced, see
 * xrdma_set_flag(3); 1 is every one.
 *
 * Errors:
 * * EINVAL: the response is null, released, or another thread's; or `trace` is null.
 * * ENODATA: the call was not traced, or the message is no response.
 */
int xrdma_trace_request(const struct xrdma_msg *response,
                        struct xrdma_trace *trace);

/**
 * Takes `len` bytes from the context's memory cache, which are registered with its device, to send from without a
 * copy (XRDMA_LENT). They are not zero.
 *
 * Errors:
 * * EINVAL: no length, or a length over 4 GiB; or the context is null, gone, or another thread's.
 * * ENOMEM: the cache is at its limit (`memory_limit`), or the device has no room.
 */
int xrdma_reg_mem(struct xrdma_context *context,
                  size_t len,
                  void **memory);

/**
 * Gives back memory of xrdma_reg_mem(3).
 *
 * Errors:
 * * EINVAL: there is no such memory, or it was given back; or the context is null, gone, or another thread's.
 * * EBUSY: a message that it is lent to is not delivered yet.
 */
int xrdma_dereg_mem(struct xrdma_context *context,
                    void *memory);

/**
 * Moves everything that can move, and says what happened: up to `count` events are put into `events`, the oldest
 * first. It asks the kernel for nothing on the data path and never waits.
 *
 * Returns how many events there are, possibly 0.
 *
 * Errors:
 * * EINVAL: the context is null, gone, or another thread's; `events` is null; or `count` is negative.
 */
int xrdma_polling(struct xrdma_context *context,
                  struct xrdma_event *events,
                  int count);

/**
 * Waits until something happened, `timeout_ms` milliseconds at most, or for ever if that is negative: polling
 * first, then asleep. Signals do not end it.
 *
 * Returns 1 if there are events for xrdma_polling(3), 0 if the time is over.
 *
 * Errors:
 * * EINVAL: the context is null, gone, or another thread's.
 */
int xrdma_wait(struct xrdma_context *context,
               int timeout_ms);

/**
 * The descriptor to wait for in a loop of the program's own, with poll(2), select(2) or epoll(7): it is readable
 * when something is to be done with xrdma_process_event(3). Before each wait there is xrdma_arm(3). It is closed
 * with the context.
 *
 * Errors:
 * * EINVAL: the context is null, gone, or another thread's.
 */
int xrdma_get_event_fd(const struct xrdma_context *context);

/**
 * Gets ready to sleep on xrdma_get_event_fd(3).
 *
 * Returns for how many milliseconds at most: the timeout for poll(2). That is 0 when something is to be done first.
 *
 * Errors:
 * * EINVAL: the context is null, gone, or another thread's.
 */
int xrdma_arm(struct xrdma_context *context);

/**
 * Does what is to be done after a wait for xrdma_get_event_fd(3), whether it is readable or the time was over.
 *
 * Returns how many events wait for xrdma_polling(3).
 *
 * Errors:
 * * EINVAL: the context is null, gone, or another thread's.
 */
int xrdma_process_event(struct xrdma_context *context);

/**
 * Says in words why the last call of this thread that failed did so. The text stays until the next that fails.
 */
const char *xrdma_last_error(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* XRDMA_H */
