/* A shard of the key-value store on bare verbs: `kv_server 7000`. It serves the same requests as ../kv_server.rs: a
 * request is an operation (`s`, `g` or `d`), the key's length in a byte, the key, and a value to set; a response is
 * `+` and a value, or `-`. */
#include "kv.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BUCKETS 4096
#define CLIENTS 1024

struct entry {
	struct entry *next;
	size_t key_length, value_length;
	char *key, *value;
};

static struct entry *store[BUCKETS];
static struct peer *clients[CLIENTS];
static unsigned client_count;

static struct entry **find(const char *key, size_t length)
{
	uint64_t hash = 0xcbf29ce484222325;
	for (size_t i = 0; i < length; i++)
		hash = (hash ^ (uint8_t)key[i]) * 0x100000001b3;
	struct entry **link = &store[hash % BUCKETS];
	while (*link && ((*link)->key_length != length || memcmp((*link)->key, key, length)))
		link = &(*link)->next;
	return link;
}

static void entry_free(struct entry *entry)
{
	free(entry->key);
	free(entry->value);
	free(entry);
}

static char *copy(const char *bytes, size_t length)
{
	char *made = malloc(length + 1);
	if (made)
		memcpy(made, bytes, length);
	return made;
}

static int set(struct entry **link, const char *key, size_t key_length, const char *value, size_t value_length)
{
	struct entry *entry = calloc(1, sizeof *entry);
	if (!entry)
		return -1;
	*entry = (struct entry) { NULL, key_length, value_length, copy(key, key_length), copy(value, value_length) };
	if (!entry->key || !entry->value) {
		entry_free(entry);
		return -1;
	}
	if (*link) {
		struct entry *old = *link;
		entry->next = old->next;
		entry_free(old);
	}
	*link = entry;
	return 0;
}

static int respond(struct peer *client, const char *value, size_t length)
{
	char *answer = malloc(length + 1);
	if (!answer)
		return -1;
	answer[0] = '+';
	memcpy(answer + 1, value, length);
	int sent = peer_send(client, answer, length + 1);
	free(answer);
	return sent;
}

static void request(struct peer *client, const char *bytes, size_t length)
{
	size_t key_length = length < 2 ? 0 : (uint8_t)bytes[1];
	if (length < 2 + key_length) {
		peer_send(client, "-", 1);
		return;
	}
	const char *key = bytes + 2;
	struct entry **link = find(key, key_length), *entry = *link;
	if (bytes[0] == 's') {
		/* The response is the old value, as in the other store. */
		int sent = entry ? respond(client, entry->value, entry->value_length) : respond(client, "", 0);
		if (set(link, key, key_length, key + key_length, length - 2 - key_length) || sent)
			fprintf(stderr, "no memory for a value\n");
	} else if (bytes[0] == 'g' && entry) {
		if (respond(client, entry->value, entry->value_length))
			perror("answering");
	} else if (bytes[0] == 'd' && entry) {
		if (respond(client, entry->value, entry->value_length))
			perror("answering");
		*link = entry->next;
		entry_free(entry);
	} else {
		peer_send(client, "-", 1);
	}
}

static void gone(struct peer *client, const char *why)
{
	(void)why;
	for (unsigned i = 0; i < client_count; i++)
		if (clients[i] == client) {
			clients[i] = clients[--client_count];
			break;
		}
	peer_free(client);
}

static const struct owner owner = { request, gone };

static int listen_at(uint16_t port)
{
	int socket_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(port) };
	socklen_t length = sizeof at;
	setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
	if (socket_ < 0 || bind(socket_, (struct sockaddr *)&at, sizeof at) || listen(socket_, CLIENTS) ||
	    getsockname(socket_, (struct sockaddr *)&at, &length))
		return -1;
	printf("serving at 0.0.0.0:%u\n", ntohs(at.sin_port));
	fflush(stdout);
	return socket_;
}

static void take_client(struct device *device, int listener)
{
	int socket_ = accept(listener, NULL, NULL), yes = 1, soon = 1;
	if (socket_ < 0) {
		perror("accept");
		return;
	}
	/* Keep-alives detect a client whose host is gone. */
	setsockopt(socket_, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
	setsockopt(socket_, IPPROTO_TCP, TCP_KEEPIDLE, &soon, sizeof soon);
	setsockopt(socket_, IPPROTO_TCP, TCP_KEEPINTVL, &soon, sizeof soon);
	if (client_count == CLIENTS) {
		fprintf(stderr, "more than %d clients\n", CLIENTS);
		close(socket_);
		return;
	}
	struct peer *client = peer_meet(device, socket_, &owner);
	if (client)
		clients[client_count++] = client;
	else
		perror("a client");
}

/* Runs one turn: completions, new clients, disconnected clients. */
static int turn(struct device *device, int listener)
{
	struct pollfd fds[2 + CLIENTS] = {
		{ .fd = listener, .events = POLLIN }, { .fd = device->channel->fd, .events = POLLIN },
	};
	if (device_arm(device))
		return -1;
	unsigned count = client_count;
	struct peer *polled[CLIENTS];
	for (unsigned i = 0; i < count; i++) {
		polled[i] = clients[i];
		fds[2 + i] = (struct pollfd) { .fd = peer_socket(clients[i]), .events = POLLIN };
	}
	if (poll(fds, 2 + count, -1) < 0)
		return errno == EINTR ? 0 : -1;
	/* After its greeting a client sends nothing: its socket becomes readable only when it ends. */
	for (unsigned i = 0; i < count; i++)
		if (fds[2 + i].revents)
			gone(polled[i], "its connection ended");
	if (fds[0].revents)
		take_client(device, listener);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: kv_server PORT\n");
		return 2;
	}
	struct device device;
	if (device_open(&device)) {
		perror("no RDMA device");
		return 1;
	}
	int listener = listen_at(atoi(argv[1]));
	if (listener < 0) {
		perror(argv[1]);
		return 1;
	}
	while (!turn(&device, listener))
		;
	perror("polling");
	return 1;
}
