/* What both ends of the key-value store on bare verbs need: a queue pair each, messages of any length in order,
 * and no receiver without a buffer. The store's requests and responses are those of ../kv_server.rs. */
#ifndef KV_H
#define KV_H

#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of a message that travels in its frame; of a longer one only where it lies. */
#define SMALL 4096
#define LONGEST (64u << 20)
/* Frames under way in a direction; receive requests are as many, and one for each credit that comes alone. */
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

/* Memory that was registered. */
struct buffer {
	char *bytes;
	size_t length;
	struct ibv_mr *mr;
};

struct peer;

/* What a peer's owner does with a message, and with a peer that is gone. */
struct owner {
	void (*message)(struct peer *, const char *bytes, size_t length);
	void (*gone)(struct peer *, const char *why);
};

int device_open(struct device *device);
void device_close(struct device *device);
/* Has the channel's descriptor become readable at the next completion. */
int device_arm(struct device *device);
/* Does what completed; owners hear of it. */
int device_poll(struct device *device);

/* Meets the other end over a TCP connection, which the peer has from then on: its end is the peer's. */
struct peer *peer_meet(struct device *device, int socket, const struct owner *owner);
int peer_socket(const struct peer *peer);
/* Sends a copy of a message; 0, or -1 with errno. */
int peer_send(struct peer *peer, const char *bytes, size_t length);
void peer_free(struct peer *peer);

#endif
