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
 * A send flag: the body lies in memory of xrdma_reg_mem(3). It is not copied and must not change until
 * XRDMA_EVENT_DELIVERED arrives for the message, or its channel is gone.
 */
#define XRDMA_LENT 1

/**
 * The transport of a channel's frames.
 */
typedef enum xrdma_carrier {
  /**
   * The channel's queue pair.
   */
  XRDMA_CARRIER_RDMA = 0,
  /**
   * A TCP connection, because RDMA broke.
   */
  XRDMA_CARRIER_TCP = 1,
} xrdma_carrier;

/**
 * The kind of a message.
 */
typedef enum xrdma_msg_kind {
  /**
   * No message: the handle is null, or was released.
   */
  XRDMA_MSG_NONE = 0,
  /**
   * A one-way message: the sender expects no response.
   */
  XRDMA_MSG_ONE_WAY = 1,
  /**
   * A request: respond with xrdma_send_response(3).
   */
  XRDMA_MSG_REQUEST = 2,
  /**
   * A response to the request of the same number.
   */
  XRDMA_MSG_RESPONSE = 3,
} xrdma_msg_kind;

/**
 * The kind of an event.
 */
typedef enum xrdma_event_kind {
  /**
   * A channel of xrdma_connect_async(3) is open. `number` is the number that call returned.
   */
  XRDMA_EVENT_CONNECTED = 1,
  /**
   * A channel of xrdma_connect_async(3) could not be opened: `number`, `error`, `text`.
   */
  XRDMA_EVENT_CONNECT_FAILED = 2,
  /**
   * A peer opened a channel, after xrdma_listen(3).
   */
  XRDMA_EVENT_ACCEPTED = 3,
  /**
   * A message arrived: `msg`, which the program must release.
   */
  XRDMA_EVENT_MESSAGE = 4,
  /**
   * The peer has message `number`, which was sent with XRDMA_LENT: its memory is free again.
   */
  XRDMA_EVENT_DELIVERED = 5,
  /**
   * The channel is gone, and its handle is invalid after this event: `error` is 0 if this end closed it, and
   * `text` has the reason. Memory lent on it is free again.
   */
  XRDMA_EVENT_CLOSED = 6,
  /**
   * The thread did not poll for `nanos`, more than `polling_warn`, while work was pending.
   */
  XRDMA_EVENT_SLOW_POLL = 7,
  /**
   * The response to request `number` took `nanos`, more than `slow_threshold`.
   */
  XRDMA_EVENT_SLOW_CALL = 8,
  /**
   * This end answers fewer requests than arrive: `number` of them are pending, and the peer cannot send more
   * until some are answered or declined (xrdma_decline(3)).
   */
  XRDMA_EVENT_SLOW_ANSWERS = 9,
  /**
   * A peer's channel could not be opened, or this end cannot accept any for a while: `error`, `text`.
   */
  XRDMA_EVENT_ACCEPT_FAILED = 10,
} xrdma_event_kind;

/**
 * A connection that carries messages, in both directions and in any number.
 */
typedef struct xrdma_channel xrdma_channel;

/**
 * A context: a device, its memory and the channels of one thread. Only that thread may use it.
 */
typedef struct xrdma_context xrdma_context;

/**
 * A received message. The context owns its memory; xrdma_msg_release(3) gives it back.
 */
typedef struct xrdma_msg xrdma_msg;

/**
 * The state and counters of a context.
 */
typedef struct xrdma_context_state {
  /**
   * Bytes of registered memory.
   */
  uint64_t memory_bytes;
  /**
   * Bytes of registered memory in use.
   */
  uint64_t memory_used_bytes;
  /**
   * Number of channels now.
   */
  uint64_t channels;
  /**
   * Number of channels opened.
   */
  uint64_t channels_begun;
  /**
   * Number of channels ended.
   */
  uint64_t channels_closed;
  /**
   * Number of queue pairs in the cache.
   */
  uint64_t qps_cached;
  /**
   * Number of queue pairs created.
   */
  uint64_t qps_created;
  /**
   * Number of queue pairs reused from the cache.
   */
  uint64_t qps_reused;
  /**
   * Number of polls later than `polling_warn`.
   */
  uint64_t slow_polls;
  /**
   * Number of calls slower than `slow_threshold`.
   */
  uint64_t slow_calls;
} xrdma_context_state;

/**
 * The state and counters of a channel.
 */
typedef struct xrdma_channel_state {
  /**
   * Number of messages sent.
   */
  uint64_t sent;
  /**
   * Bytes of the bodies of messages sent.
   */
  uint64_t sent_bytes;
  /**
   * Number of messages received.
   */
  uint64_t received;
  /**
   * Bytes of the bodies of messages received.
   */
  uint64_t received_bytes;
  /**
   * Number of messages sent or received that were too long for one frame.
   */
  uint64_t large;
  /**
   * Number of ACK frames sent.
   */
  uint64_t acks;
  /**
   * Number of NOP frames sent because the window stayed full.
   */
  uint64_t nops;
  /**
   * Number of probes sent to a silent peer.
   */
  uint64_t probes;
  /**
   * Number of changes between RDMA and TCP.
   */
  uint64_t switches;
  /**
   * Number of frames retransmitted after a change between RDMA and TCP.
   */
  uint64_t frames_retransmitted;
  /**
   * Number of receive requests posted late because memory was short.
   */
  uint64_t starved;
  /**
   * Bytes of registered memory that the channel holds for receiving.
   */
  uint64_t receive_bytes;
  /**
   * The offset of the peer's clock, ns, positive if it is ahead; 0 if no call was traced in the last 100 s.
   */
  int64_t clock_offset_ns;
  /**
   * Number of frames in flight.
   */
  uint32_t in_flight;
  /**
   * Maximum number of frames in flight.
   */
  uint32_t depth;
  /**
   * Number of messages that wait for the window.
   */
  uint32_t backlog;
  /**
   * Number of large messages being read.
   */
  uint32_t fetching;
  /**
   * Number of requests that wait for their response.
   */
  uint32_t asked;
  /**
   * The transport of its frames.
   */
  enum xrdma_carrier carrier;
} xrdma_channel_state;

/**
 * The times of a traced call.
 */
typedef struct xrdma_trace {
  /**
   * The request's transit time, ns: T2 - T1 - Toff.
   */
  uint64_t request_ns;
  /**
   * The time at the peer, ns: T3 - T2.
   */
  uint64_t peer_ns;
  /**
   * The response's transit time, ns: T4 - T3 + Toff.
   */
  uint64_t response_ns;
  /**
   * The offset of the peer's clock, ns: Toff, positive if it is ahead.
   */
  int64_t offset_ns;
} xrdma_trace;

/**
 * An event. Fields that its kind does not use are zero.
 */
typedef struct xrdma_event {
  /**
   * The kind of the event.
   */
  enum xrdma_event_kind kind;
  /**
   * Zero, or a negative number of errno(3).
   */
  int error;
  /**
   * The channel that the event is about.
   */
  struct xrdma_channel *channel;
  /**
   * The pointer that xrdma_set_user_data(3) set for the channel.
   */
  void *user_data;
  /**
   * The message.
   */
  struct xrdma_msg *msg;
  /**
   * The number of the message, request or call.
   */
  uint64_t number;
  /**
   * The duration, ns.
   */
  uint64_t nanos;
  /**
   * The reason as text, valid until the next xrdma_polling(3).
   */
  const char *text;
} xrdma_event;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Opens an RDMA device and creates a context on it for this thread.
 *
 * `options` is null, or words NAME=VALUE separated by spaces: `device` (a name; default the first device), `address`
 * (the address that peers use; default the device's first), `pages` (anonymous, huge or malloc), `streams` (true
 * keeps a TCP connection, which is not encrypted, for each channel that this end opens and moves the channel there
 * when RDMA breaks), `show` (a name for `weft stat`, or off), `spin` (the time to poll before sleeping in
 * xrdma_wait(3) and xrdma_call(3)), the labels of its packets on RoCE (`traffic_class`, default 106; `sl`, default 3;
 * `flow_label`, default 0; `source_ports`, a range), and the parameters of xrdma_set_flag(3). The environment variable
 * WEFT_ROCE sets labels that the options do not.
 *
 * Errors:
 * * EINVAL: an option does not exist, or its value or WEFT_ROCE is invalid.
 * * EOPNOTSUPP: `source_ports`, and no library of the device's driver sets them.
 * * EACCES: `streams` is true, and WEFT_ENCRYPTION, WEFT_PRESHARED_KEY or WEFT_PEERS requires encryption.
 * * ENODEV: there is no libibverbs.so.1, or no device.
 * * EADDRNOTAVAIL: the device has no such address.
 */
int xrdma_context_create(const char *options,
                         struct xrdma_context **context);

/**
 * Destroys a context at once, with its channels, messages and registered memory. Messages in flight are lost: close
 * the channels first with xrdma_close(3), and poll until they are closed.
 *
 * A thread's contexts are also destroyed when the thread ends.
 *
 * Errors:
 * * EINVAL: the context is null, gone, or another thread's.
 */
int xrdma_context_destroy(struct xrdma_context *context);

/**
 * Changes a parameter of a running context.
 *
 * The parameters are those of table III of the paper: `qp_cache`, `outstanding`, `outstanding_min`, `backlog`,
 * `unanswered`, `memory_limit`, `memory_keep`, `keepalive`, `keepalive_timeout`, `ack_delay`, `deadlock_after`, `close_timeout`,
 * `slow_threshold`, `polling_warn`, `carrier` (rdma or tcp), `rdma_retry`, `congested_rtt`, `congested_for`,
 * `trace_every`, and, only in xrdma_context_create(3), `depth`,
 * `ack_every`, `small`, `longest`, `fragment`, `srq`, `reads`, `memory_region`. Values are as in `64`, `64KiB` or `10ms`.
 *
 * `filter` injects faults into messages: `none`, or rules separated by semicolons, each a direction, a fault, and as
 * wanted a chance and a kind of message, as in `out drop 1/100; in delay 5ms responses`.
 *
 * Errors:
 * * EINVAL: there is no such parameter, it cannot change while the context runs, or the value is out of range; or
 *   the context is null, gone, or another thread's.
 */
int xrdma_set_flag(struct xrdma_context *context,
                   const char *name,
                   const char *value);

/**
 * Writes a context's state and counters to `state`. `size` is the size of `state` when the program was compiled; a
 * newer library writes no more than that.
 *
 * Errors:
 * * EINVAL: the context is null, gone, or another thread's; or `state` is null.
 */
int xrdma_context_status(const struct xrdma_context *context,
                         struct xrdma_context_state *state,
                         size_t size);

/**
 * Accepts channels at an address, HOST:PORT; port 0 selects a free port. XRDMA_EVENT_ACCEPTED follows for each.
 *
 * Returns the port.
 *
 * Errors:
 * * EINVAL: the text is not an address; or the context is null, gone, or another thread's.
 * * EADDRINUSE, EADDRNOTAVAIL: the address is in use, or not this host's.
 */
int xrdma_listen(struct xrdma_context *context,
                 const char *address);

/**
 * Opens a channel to an address, HOST:PORT, and waits until it is open, 5 seconds at most.
 *
 * Errors:
 * * EINVAL: the text is not an address; or the context is null, gone, or another thread's.
 * * ECONNREFUSED, EHOSTUNREACH, ETIMEDOUT: no peer answers at the address.
 * * EPROTO: the peer does not speak X-RDMA.
 * * ENOMEM: the device has no room.
 */
int xrdma_connect(struct xrdma_context *context,
                  const char *address,
                  struct xrdma_channel **channel);

/**
 * Starts to open a channel to HOST:PORT. XRDMA_EVENT_CONNECTED or XRDMA_EVENT_CONNECT_FAILED follows, with the
 * number that this call returns.
 *
 * Errors:
 * * EINVAL: the text is not an address; or the context is null, gone, or another thread's.
 * * ENOMEM: the device has no room.
 */
int64_t xrdma_connect_async(struct xrdma_context *context,
                            const char *address);

/**
 * Closes a channel: messages already sent still arrive, no more can be sent. XRDMA_EVENT_CLOSED follows.
 *
 * Errors:
 * * EINVAL: the channel is null, gone, or another thread's.
 */
int xrdma_close(struct xrdma_channel *channel);

/**
 * Ends a channel at once and drops its messages in flight, without notice to the peer. XRDMA_EVENT_CLOSED follows.
 *
 * Errors:
 * * EINVAL: the channel is null, gone, or another thread's.
 */
int xrdma_abort(struct xrdma_channel *channel);

/**
 * Moves a channel to `carrier`, XRDMA_CARRIER_RDMA or XRDMA_CARRIER_TCP, in both directions. Messages in flight are not
 * lost, repeated or reordered. The carrier changes while both ends poll; xrdma_channel_status(3) reports it.
 *
 * Errors:
 * * EINVAL: there is no such carrier; or the channel is null, gone, or another thread's.
 * * ENOTCONN: the channel is not open.
 * * EOPNOTSUPP: it has no TCP connection: the end that opened it had not the option `streams`.
 * * ENETDOWN: its queue pair is broken.
 */
int xrdma_switch(struct xrdma_channel *channel,
                 int carrier);

/**
 * Sets a channel's user pointer, which its events carry.
 *
 * Errors:
 * * EINVAL: the channel is null, gone, or another thread's.
 */
int xrdma_set_user_data(struct xrdma_channel *channel, void *user_data);

/**
 * Returns the pointer that xrdma_set_user_data(3) set for a channel.
 *
 * Errors:
 * Returns null if no pointer was set, or the channel is null, gone, or another thread's.
 */
void *xrdma_user_data(const struct xrdma_channel *channel);

/**
 * Writes a channel's state and counters to `state`. `size` is the size of `state` when the program was compiled; a
 * newer library writes no more than that.
 *
 * Errors:
 * * EINVAL: the channel is null, gone, or another thread's; or `state` is null.
 * * ENOTCONN: the channel ended, and XRDMA_EVENT_CLOSED is pending.
 */
int xrdma_channel_status(const struct xrdma_channel *channel,
                         struct xrdma_channel_state *state,
                         size_t size);

/**
 * Sends a one-way message. Its body is copied, unless `flags` has XRDMA_LENT.
 *
 * Returns the message's number, which is positive and unique in the context.
 *
 * Errors:
 * * EINVAL: the channel is null, gone, or another thread's; `data` is null; or a flag does not exist.
 * * ENOTCONN: the channel is closed or closing.
 * * EAGAIN: the queue of waiting messages is full (`backlog`): poll, and try again.
 * * EMSGSIZE: the body is longer than the peer's maximum (`longest`).
 * * ENOMEM: the context has no memory left (`memory_limit`).
 * * EFAULT: XRDMA_LENT, and the body is not in registered memory.
 */
int64_t xrdma_send_msg(struct xrdma_channel *channel,
                       const void *data,
                       size_t len,
                       unsigned int flags);

/**
 * Sends a request: a message of kind XRDMA_MSG_RESPONSE follows, with the number that this call returns, or
 * XRDMA_EVENT_CLOSED. xrdma_call(3) waits for the response.
 *
 * Errors:
 * As xrdma_send_msg(3).
 */
int64_t xrdma_send_request(struct xrdma_channel *channel,
                           const void *data,
                           size_t len,
                           unsigned int flags);

/**
 * Answers a request that arrived on this channel: `request` is its number, from xrdma_msg_number(3). The request may
 * have been released.
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
 * Other events stay for xrdma_polling(3).
 *
 * Errors:
 * As xrdma_send_msg(3), and
 * * ETIMEDOUT: no response arrived in time; a later one is dropped.
 * * EPIPE, ECONNRESET, ENOTCONN: the channel ended. XRDMA_EVENT_CLOSED follows.
 */
int xrdma_call(struct xrdma_channel *channel,
               const void *data,
               size_t len,
               unsigned int flags,
               int timeout_ms,
               struct xrdma_msg **response);

/**
 * Cancels a request of xrdma_send_request(3): its response is dropped if it arrives.
 *
 * Errors:
 * * EINVAL: the channel is null, gone, or another thread's.
 */
int xrdma_forget(struct xrdma_channel *channel, uint64_t request);

/**
 * Declines to answer a request that arrived on this channel. The requester is not notified; but only `unanswered`
 * requests can be pending at a time, and a declined one no longer counts.
 *
 * Errors:
 * * EINVAL: the channel is null, gone, or another thread's.
 */
int xrdma_decline(struct xrdma_channel *channel,
                  uint64_t request);

/**
 * Returns the body of a message, which is valid until the message is released.
 *
 * Errors:
 * Returns null if the message is null, released, or another thread's.
 */
const void *xrdma_msg_data(const struct xrdma_msg *msg);

/**
 * Returns the length of a message's body in bytes.
 *
 * Errors:
 * Returns 0 if the message is null, released, or another thread's.
 */
size_t xrdma_msg_len(const struct xrdma_msg *msg);

/**
 * Returns the kind of a message: one-way, request or response.
 *
 * Errors:
 * Returns XRDMA_MSG_NONE if the message is null, released, or another thread's.
 */
enum xrdma_msg_kind xrdma_msg_kind_of(const struct xrdma_msg *msg);

/**
 * Returns the number of a request, as its sender numbered it, or of the request that a response answers.
 *
 * Errors:
 * Returns 0 for one-way messages, and if the message is null, released, or another thread's.
 */
uint64_t xrdma_msg_number(const struct xrdma_msg *msg);

/**
 * Returns the channel on which a message arrived, which may be gone.
 *
 * Errors:
 * Returns null if the message is null, released, or another thread's.
 */
struct xrdma_channel *xrdma_msg_channel(const struct xrdma_msg *msg);

/**
 * Releases a message and its memory.
 *
 * Errors:
 * * EINVAL: the message is null, released, or another thread's.
 */
int xrdma_msg_release(struct xrdma_msg *msg);

/**
 * Writes the times of a call to `trace`: `response` is its response. One request in `trace_every` is traced, see
 * xrdma_set_flag(3); 1 traces every request.
 *
 * Errors:
 * * EINVAL: the response is null, released, or another thread's; or `trace` is null.
 * * ENODATA: the call was not traced, or the message is not a response.
 */
int xrdma_trace_request(const struct xrdma_msg *response,
                        struct xrdma_trace *trace);

/**
 * Allocates `len` bytes of registered memory from the context's cache, to send from without a copy (XRDMA_LENT).
 * The bytes are not zeroed.
 *
 * Errors:
 * * EINVAL: the length is 0 or at least 4 GiB; or the context is null, gone, or another thread's.
 * * ENOMEM: the cache is at its limit (`memory_limit`), or the device has no room.
 */
int xrdma_reg_mem(struct xrdma_context *context,
                  size_t len,
                  void **memory);

/**
 * Frees memory of xrdma_reg_mem(3).
 *
 * Errors:
 * * EINVAL: there is no such memory, or it was freed; or the context is null, gone, or another thread's.
 * * EBUSY: the memory is lent to a message that is not delivered yet.
 */
int xrdma_dereg_mem(struct xrdma_context *context,
                    void *memory);

/**
 * Makes progress on all channels and writes up to `count` events to `events`, oldest first. It makes no system calls
 * on the data path and never waits.
 *
 * Returns the number of events written, possibly 0.
 *
 * Errors:
 * * EINVAL: the context is null, gone, or another thread's; `events` is null; or `count` is negative.
 */
int xrdma_polling(struct xrdma_context *context,
                  struct xrdma_event *events,
                  int count);

/**
 * Waits for an event, `timeout_ms` milliseconds at most, or for ever if negative. It polls first, then sleeps.
 * Signals do not end it.
 *
 * Returns 1 if there are events for xrdma_polling(3), 0 after the timeout.
 *
 * Errors:
 * * EINVAL: the context is null, gone, or another thread's.
 */
int xrdma_wait(struct xrdma_context *context,
               int timeout_ms);

/**
 * Returns the descriptor for the program's own event loop, with poll(2), select(2) or epoll(7). It is readable when
 * xrdma_process_event(3) has work. Call xrdma_arm(3) before each wait. The descriptor is closed with the context.
 *
 * Errors:
 * * EINVAL: the context is null, gone, or another thread's.
 */
int xrdma_get_event_fd(const struct xrdma_context *context);

/**
 * Prepares to sleep on xrdma_get_event_fd(3).
 *
 * Returns the maximum time to sleep in milliseconds, a timeout for poll(2). It is 0 when work is pending.
 *
 * Errors:
 * * EINVAL: the context is null, gone, or another thread's.
 */
int xrdma_arm(struct xrdma_context *context);

/**
 * Processes pending work after a wait for xrdma_get_event_fd(3), both when it is readable and after the timeout.
 *
 * Returns the number of events that wait for xrdma_polling(3).
 *
 * Errors:
 * * EINVAL: the context is null, gone, or another thread's.
 */
int xrdma_process_event(struct xrdma_context *context);

/**
 * Returns the reason of this thread's last failed call as text, which is valid until the next failed call.
 */
const char *xrdma_last_error(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* XRDMA_H */
