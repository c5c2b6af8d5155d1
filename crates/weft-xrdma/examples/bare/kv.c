#include "kv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

/* Receive requests: the peer's window, and the frames with credits outside it. */
#define RECEIVES (2 * DEPTH)
/* Number of received frames after which a frame with credits only is sent. */
#define CREDIT_EVERY (DEPTH / 2)

enum kind { MESSAGE = 1, LARGE = 2, READ_DONE = 3, CREDIT = 4 };

/* The header of every frame. */
struct header {
	uint8_t kind;
	uint8_t reserved[3];
	/* Frames that the sender has received since its last credits. */
	uint32_t credits;
	uint64_t length;
	/* The address, the key and the number of a large message. */
	uint64_t address;
	uint32_t rkey;
	uint32_t number;
};

#define FRAME (sizeof(struct header) + SMALL)

/* A message that waits for the window or, if it is large, until the receiver has read it. */
struct outgoing {
	struct outgoing *next;
	uint32_t number;
	size_t length;
	struct buffer body;
};

/* The purpose of a work request; the request's wr_id is the address of this. */
struct request {
	struct peer *peer;
	enum work { RECEIVE, SEND, READ } work;
	unsigned slot;
};

struct peer {
	struct device *device;
	const struct owner *owner;
	struct ibv_qp *qp;
	int socket;
	struct buffer receives, sends;
	/* Frames that may still be sent, free slots of `sends`, and received frames whose credits were not sent
		 * yet. */
	unsigned credits, unsent_credits;
	unsigned free_slots[RECEIVES], free_count;
	/* Messages that wait to be sent, in order; large ones that wait to be read; READ_DONE frames to send. */
	struct outgoing *waiting, **waiting_end, *lent;
	uint32_t next_number;
	/* Messages whose bodies are being read, in order; the READ of the first is in progress. */
	struct incoming *reading, **reading_end;
	uint32_t done[DEPTH];
	unsigned done_count;
	struct request received[RECEIVES], sent[RECEIVES], read;
};

/* A large message that is read from the peer. */
struct incoming {
	struct incoming *next;
	struct header header;
	struct buffer body;
};

/* The parameters of an end, exchanged over TCP. */
struct hello {
	uint32_t qp;
	uint32_t psn;
	union ibv_gid gid;
};

static int buffer_make(struct device *device, struct buffer *buffer, size_t length)
{
	size_t pages = (length + 4095) / 4096 * 4096;
	buffer->bytes = aligned_alloc(4096, pages);
	buffer->length = length;
	if (!buffer->bytes)
		return -1;
	buffer->mr = ibv_reg_mr(device->pd, buffer->bytes, pages, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
	if (!buffer->mr) {
		free(buffer->bytes);
		buffer->bytes = NULL;
		return -1;
	}
	return 0;
}

static void buffer_free(struct buffer *buffer)
{
	if (buffer->mr)
		ibv_dereg_mr(buffer->mr);
	free(buffer->bytes);
	*buffer = (struct buffer) { 0 };
}

/* Finds the address for peers, preferably IPv4. */
static int find_gid(struct device *device)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	struct ibv_port_attr port;
	if (ibv_query_port(device->context, 1, &port))
		return -1;
	device->mtu = port.active_mtu;
	int found = -1;
	for (int row = 0; row < port.gid_tbl_len; row++) {
		union ibv_gid gid;
		if (ibv_query_gid(device->context, 1, row, &gid) || !(gid.global.subnet_prefix | gid.global.interface_id))
			continue;
		int is_mapped = !memcmp(gid.raw, mapped, sizeof mapped);
		if (found >= 0 && !is_mapped)
			continue;
		device->gid = gid;
		found = device->gid_index = row;
		if (is_mapped)
			break;
	}
	return found < 0 ? -1 : 0;
}

int device_open(struct device *device)
{
	*device = (struct device) { 0 };
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);
	if (!list || count == 0) {
		errno = ENODEV;
		return -1;
	}
	device->context = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	if (!device->context || find_gid(device))
		return -1;
	device->pd = ibv_alloc_pd(device->context);
	device->channel = ibv_create_comp_channel(device->context);
	if (!device->pd || !device->channel)
		return -1;
	int flags = fcntl(device->channel->fd, F_GETFL);
	if (fcntl(device->channel->fd, F_SETFL, flags | O_NONBLOCK))
		return -1;
	device->cq = ibv_create_cq(device->context, 1 << 16, NULL, device->channel, 0);
	return device->cq ? 0 : -1;
}

void device_close(struct device *device)
{
	if (device->cq)
		ibv_destroy_cq(device->cq);
	if (device->channel)
		ibv_destroy_comp_channel(device->channel);
	if (device->pd)
		ibv_dealloc_pd(device->pd);
	if (device->context)
		ibv_close_device(device->context);
}

int device_arm(struct device *device)
{
	struct ibv_cq *cq;
	void *context;
	while (!ibv_get_cq_event(device->channel, &cq, &context))
		ibv_ack_cq_events(cq, 1);
	if (ibv_req_notify_cq(device->cq, 0))
		return -1;
	/* Earlier completions do not make the descriptor readable. */
	return device_poll(device);
}

static int post_receive(struct peer *peer, unsigned slot)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)peer->receives.bytes + slot * FRAME, .length = FRAME, .lkey = peer->receives.mr->lkey,
	};
	struct ibv_recv_wr wr = { .wr_id = (uintptr_t)&peer->received[slot], .sg_list = &sge, .num_sge = 1 }, *bad;
	return ibv_post_recv(peer->qp, &wr, &bad) ? -1 : 0;
}

static int to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_READ,
	};
	return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

static int to_ready(struct peer *peer, const struct hello *own, const struct hello *other)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = peer->device->mtu, .dest_qp_num = other->qp, .rq_psn = other->psn,
		.max_dest_rd_atomic = 1, .min_rnr_timer = 12,
		.ah_attr = {
			.is_global = 1, .port_num = 1,
			.grh = { .dgid = other->gid, .sgid_index = peer->device->gid_index, .hop_limit = 64 },
		},
	};
	int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
	           IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	if (ibv_modify_qp(peer->qp, &attr, mask))
		return -1;
	/* Credits ensure that every receiver is ready, so that RNR cannot occur. */
	attr = (struct ibv_qp_attr) {
		.qp_state = IBV_QPS_RTS, .sq_psn = own->psn, .timeout = 14, .retry_cnt = 7, .rnr_retry = 0,
		.max_rd_atomic = 1,
	};
	mask = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
	       IBV_QP_MAX_QP_RD_ATOMIC;
	return ibv_modify_qp(peer->qp, &attr, mask);
}

static int exchange(int socket, const struct hello *own, struct hello *other)
{
	struct timeval timeout = { .tv_sec = 5 };
	setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
	if (send(socket, own, sizeof *own, MSG_NOSIGNAL) != sizeof *own)
		return -1;
	ssize_t got = recv(socket, other, sizeof *other, MSG_WAITALL);
	if (got >= 0 && got != sizeof *other)
		errno = ECONNRESET;
	return got == sizeof *other ? 0 : -1;
}

struct peer *peer_meet(struct device *device, int socket, const struct owner *owner)
{
	struct peer *peer = calloc(1, sizeof *peer);
	if (!peer) {
		close(socket);
		return NULL;
	}
	*peer = (struct peer) { .device = device, .owner = owner, .socket = socket, .credits = DEPTH };
	peer->waiting_end = &peer->waiting;
	peer->reading_end = &peer->reading;
	peer->read = (struct request) { peer, READ, 0 };
	struct ibv_qp_init_attr init = {
		.send_cq = device->cq, .recv_cq = device->cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
		.cap = {
			.max_send_wr = RECEIVES + 1, .max_recv_wr = RECEIVES, .max_send_sge = 1, .max_recv_sge = 1,
		},
	};
	if (buffer_make(device, &peer->receives, RECEIVES * FRAME) || buffer_make(device, &peer->sends, RECEIVES * FRAME))
		goto failed;
	peer->qp = ibv_create_qp(device->pd, &init);
	if (!peer->qp || to_init(peer->qp))
		goto failed;
	for (unsigned slot = 0; slot < RECEIVES; slot++) {
		peer->received[slot] = (struct request) { peer, RECEIVE, slot };
		peer->sent[slot] = (struct request) { peer, SEND, slot };
		if (post_receive(peer, slot))
			goto failed;
		peer->free_slots[peer->free_count++] = slot;
	}
	struct hello own = { peer->qp->qp_num, lrand48() & 0xffffff, device->gid }, other;
	if (exchange(socket, &own, &other) || to_ready(peer, &own, &other))
		goto failed;
	return peer;
failed:
	peer_free(peer);
	return NULL;
}

int peer_socket(const struct peer *peer)
{
	return peer->socket;
}

static void outgoing_free(struct outgoing *message)
{
	buffer_free(&message->body);
	free(message);
}

void peer_free(struct peer *peer)
{
	/* Destroy the queue pair first, so that the device stops using the memory. */
	if (peer->qp)
		ibv_destroy_qp(peer->qp);
	while (peer->waiting) {
		struct outgoing *message = peer->waiting;
		peer->waiting = message->next;
		outgoing_free(message);
	}
	while (peer->lent) {
		struct outgoing *message = peer->lent;
		peer->lent = message->next;
		outgoing_free(message);
	}
	while (peer->reading) {
		struct incoming *message = peer->reading;
		peer->reading = message->next;
		buffer_free(&message->body);
		free(message);
	}
	buffer_free(&peer->receives);
	buffer_free(&peer->sends);
	close(peer->socket);
	free(peer);
}

/* Sends a frame with the pending credits. */
static int post_frame(struct peer *peer, struct header header, const char *body)
{
	unsigned slot = peer->free_slots[--peer->free_count];
	char *frame = peer->sends.bytes + slot * FRAME;
	size_t within = header.kind == MESSAGE ? header.length : 0;
	header.credits = peer->unsent_credits;
	peer->unsent_credits = 0;
	memcpy(frame, &header, sizeof header);
	if (within)
		memcpy(frame + sizeof header, body, within);
	struct ibv_sge sge = { (uintptr_t)frame, sizeof header + within, peer->sends.mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = (uintptr_t)&peer->sent[slot], .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
	}, *bad;
	return ibv_post_send(peer->qp, &wr, &bad) ? -1 : 0;
}

/* Sends the frames that the window allows. */
static int flush(struct peer *peer)
{
	while (peer->done_count && peer->credits && peer->free_count) {
		struct header header = { .kind = READ_DONE, .number = peer->done[--peer->done_count] };
		peer->credits--;
		if (post_frame(peer, header, NULL))
			return -1;
	}
	while (peer->waiting && peer->credits && peer->free_count) {
		struct outgoing *message = peer->waiting;
		peer->waiting = message->next;
		if (!peer->waiting)
			peer->waiting_end = &peer->waiting;
		int large = message->length > SMALL;
		struct header header = {
			.kind = large ? LARGE : MESSAGE, .length = message->length, .number = message->number,
			.address = (uintptr_t)message->body.bytes, .rkey = large ? message->body.mr->rkey : 0,
		};
		peer->credits--;
		int failed = post_frame(peer, header, message->body.bytes);
		if (large) {
			message->next = peer->lent;
			peer->lent = message;
		} else {
			outgoing_free(message);
		}
		if (failed)
			return -1;
	}
	/* Credits are sent outside the window; otherwise two full windows would wait for each other. */
	if (peer->unsent_credits >= CREDIT_EVERY && peer->free_count)
		return post_frame(peer, (struct header) { .kind = CREDIT }, NULL);
	return 0;
}

int peer_send(struct peer *peer, const char *bytes, size_t length)
{
	if (length > MAX_MESSAGE) {
		errno = EMSGSIZE;
		return -1;
	}
	struct outgoing *message = calloc(1, sizeof *message);
	if (!message)
		return -1;
	message->length = length;
	message->number = peer->next_number++;
	if (length > SMALL) {
		if (buffer_make(peer->device, &message->body, length)) {
			free(message);
			return -1;
		}
	} else {
		message->body.bytes = malloc(length + 1);
		if (!message->body.bytes) {
			free(message);
			return -1;
		}
	}
	memcpy(message->body.bytes, bytes, length);
	*peer->waiting_end = message;
	peer->waiting_end = &message->next;
	return flush(peer);
}

/* Starts to read the first large message from the peer's memory. */
static int read_next(struct peer *peer)
{
	struct incoming *message = peer->reading;
	if (!message)
		return 0;
	struct ibv_sge sge = { (uintptr_t)message->body.bytes, message->header.length, message->body.mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = (uintptr_t)&peer->read, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_READ,
		.wr.rdma = { .remote_addr = message->header.address, .rkey = message->header.rkey },
	}, *bad;
	return ibv_post_send(peer->qp, &wr, &bad) ? -1 : 0;
}

static const char *begin_read(struct peer *peer, const struct header *header)
{
	if (header->length <= SMALL || header->length > MAX_MESSAGE)
		return "it announced a message of a length that none has";
	struct incoming *message = calloc(1, sizeof *message);
	if (!message || buffer_make(peer->device, &message->body, header->length)) {
		free(message);
		return "no memory for a message";
	}
	message->header = *header;
	int idle = !peer->reading;
	*peer->reading_end = message;
	peer->reading_end = &message->next;
	return idle && read_next(peer) ? "posting a READ failed" : NULL;
}

/* Delivers the first large message, whose READ has completed. */
static const char *read_done(struct peer *peer)
{
	struct incoming *message = peer->reading;
	peer->reading = message->next;
	if (!peer->reading)
		peer->reading_end = &peer->reading;
	const char *why = NULL;
	if (peer->done_count == DEPTH)
		why = "it has more messages under way than its window";
	else
		peer->done[peer->done_count++] = message->header.number;
	peer->unsent_credits++;
	if (!why)
		peer->owner->message(peer, message->body.bytes, message->header.length);
	buffer_free(&message->body);
	free(message);
	if (!why && read_next(peer))
		why = "posting a READ failed";
	return why;
}

/* Frees a large message of this end that the peer has read. */
static void lent_back(struct peer *peer, uint32_t number)
{
	for (struct outgoing **link = &peer->lent; *link; link = &(*link)->next)
		if ((*link)->number == number) {
			struct outgoing *message = *link;
			*link = message->next;
			outgoing_free(message);
			return;
		}
}

/* Processes a received frame. Returns the error, or NULL. */
static const char *take_frame(struct peer *peer, unsigned slot, size_t got)
{
	char *frame = peer->receives.bytes + slot * FRAME;
	struct header header;
	if (got < sizeof header)
		return "it sent a frame without header";
	memcpy(&header, frame, sizeof header);
	if (header.credits > DEPTH || peer->credits + header.credits > DEPTH)
		return "it took frames that were never sent";
	peer->credits += header.credits;
	const char *why = NULL;
	switch (header.kind) {
	case MESSAGE:
		if (header.length != got - sizeof header)
			return "a frame's length is not that of its body";
		peer->unsent_credits++;
		peer->owner->message(peer, frame + sizeof header, header.length);
		break;
	case LARGE:
		why = begin_read(peer, &header);
		break;
	case READ_DONE:
		peer->unsent_credits++;
		lent_back(peer, header.number);
		break;
	case CREDIT:
		break;
	default:
		return "it sent a frame of no known kind";
	}
	if (!why && post_receive(peer, slot))
		why = "posting a receive request failed";
	return why;
}

/* Processes a completion. Returns the reason if the peer is gone, or NULL. */
static const char *completed(struct peer *peer, const struct request *request, const struct ibv_wc *wc)
{
	if (wc->status != IBV_WC_SUCCESS)
		return ibv_wc_status_str(wc->status);
	const char *why = NULL;
	switch (request->work) {
	case RECEIVE:
		why = take_frame(peer, request->slot, wc->byte_len);
		break;
	case SEND:
		peer->free_slots[peer->free_count++] = request->slot;
		break;
	case READ:
		why = read_done(peer);
		break;
	}
	return why ? why : flush(peer) ? "posting a SEND failed" : NULL;
}

int device_poll(struct device *device)
{
	/* One at a time: the completions of a peer that is gone are dropped with it. */
	struct ibv_wc wc;
	int got;
	while ((got = ibv_poll_cq(device->cq, 1, &wc)) > 0) {
		const struct request *request = (const struct request *)(uintptr_t)wc.wr_id;
		struct peer *peer = request->peer;
		const char *why = completed(peer, request, &wc);
		if (why)
			peer->owner->gone(peer, why);
	}
	return got;
}
