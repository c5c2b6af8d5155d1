/* The common part of both ends of the key-value store on bare verbs: a queue pair per peer, messages of any length in
 * order, and no receiver without a buffer. The store's requests and responses are those of ../kv_server.rs. */
#ifndef KV_H
#define KV_H

#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdint.h>

/* Maximum bytes of a message in its frame; the frame of a longer one has only its address. */
#define SMALL 4096
#define MAX_MESSAGE (64u << 20)
/* Maximum frames in flight in a direction; there are that many receive requests, and one for each credit frame. */
#define DEPTH 16

struct device {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	union ibv_gid gid;
	uint8_t gid_index;
	enum ibv_mtu mtu;
};

/* Registered memory. */
struct buffer {
	char *bytes;
	size_t length;
	struct ibv_mr *mr;
};

struct peer;

/* The callbacks of a peer's owner: for a message, and for a peer that is gone. */
struct owner {
	void (*message)(struct peer *, const char *bytes, size_t length);
	void (*gone)(struct peer *, const char *why);
};

int device_open(struct device *device);
void device_close(struct device *device);
/* Arms the device: the next completion makes the channel's descriptor readable. */
int device_arm(struct device *device);
/* Processes completions and calls the owners' callbacks. */
int device_poll(struct device *device);

/* Connects to the other end over a TCP connection, which the peer then owns: when it ends, the peer is gone. */
struct peer *peer_meet(struct device *device, int socket, const struct owner *owner);
int peer_socket(const struct peer *peer);
/* Sends a copy of a message. Returns 0, or -1 with errno. */
int peer_send(struct peer *peer, const char *bytes, size_t length);
void peer_free(struct peer *peer);

#endif
