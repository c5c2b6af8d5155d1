/* A client of the sharded key-value store on bare verbs: `kv_client HOST:PORT[,HOST:PORT...] set KEY VALUE |
 * get KEY | del KEY`, or any number of these commands on its input, one per line. */
#include "kv.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SHARDS 256

static struct device device;
static struct peer *shards[SHARDS];
static unsigned shard_count;
static int answered;

static void answer(struct peer *shard, const char *bytes, size_t length)
{
	(void)shard;
	fwrite(bytes, 1, length, stdout);
	putchar('\n');
	answered = 1;
}

static void gone(struct peer *shard, const char *why)
{
	(void)shard;
	fprintf(stderr, "a shard is gone: %s\n", why);
	exit(1);
}

static const struct owner owner = { answer, gone };

static int connect_to(char *at)
{
	char *colon = strrchr(at, ':');
	if (!colon || shard_count == SHARDS) {
		errno = EINVAL;
		return -1;
	}
	*colon = 0;
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *found;
	if (getaddrinfo(at, colon + 1, &hints, &found)) {
		errno = EADDRNOTAVAIL;
		return -1;
	}
	int socket_ = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int failed = socket_ < 0 || connect(socket_, found->ai_addr, found->ai_addrlen);
	freeaddrinfo(found);
	if (failed)
		return -1;
	struct peer *shard = peer_meet(&device, socket_, &owner);
	if (!shard)
		return -1;
	shards[shard_count++] = shard;
	return 0;
}

static double seconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

/* Waits for the response, five seconds at most. */
static int wait_for_answer(struct peer *shard)
{
	double until = seconds() + 5;
	for (answered = 0; !answered;) {
		if (device_arm(&device))
			return -1;
		double left = until - seconds();
		if (answered)
			break;
		if (left <= 0) {
			errno = ETIMEDOUT;
			return -1;
		}
		struct pollfd fds[2] = {
			{ .fd = device.channel->fd, .events = POLLIN }, { .fd = peer_socket(shard), .events = POLLIN },
		};
		if (poll(fds, 2, left * 1000 + 1) < 0 && errno != EINTR)
			return -1;
		if (fds[1].revents && !fds[0].revents)
			gone(shard, "its connection ended");
	}
	return 0;
}

static int run(char *line)
{
	line[strcspn(line, "\n")] = 0;
	char *operation = line, *key = "", *value = "", *space = strchr(operation, ' ');
	if (space) {
		*space = 0;
		key = space + 1;
		space = strchr(key, ' ');
	}
	if (space) {
		*space = 0;
		value = space + 1;
	}
	size_t key_length = strlen(key), value_length = strlen(value), length = 2 + key_length + value_length;
	if (key_length > 255) {
		errno = ENAMETOOLONG;
		return -1;
	}
	char *request = malloc(length);
	if (!request)
		return -1;
	request[0] = operation[0] ? operation[0] : '?';
	request[1] = (char)key_length;
	memcpy(request + 2, key, key_length);
	memcpy(request + 2 + key_length, value, value_length);
	uint64_t hash = 0xcbf29ce484222325;
	for (size_t i = 0; i < key_length; i++)
		hash = (hash ^ (uint8_t)key[i]) * 0x100000001b3;
	struct peer *shard = shards[hash % shard_count];
	int failed = peer_send(shard, request, length) || wait_for_answer(shard);
	free(request);
	return failed ? -1 : 0;
}

static int run_all(int argc, char **argv)
{
	char *line = NULL;
	size_t room = 0;
	if (argc == 2) {
		while (getline(&line, &room, stdin) > 0)
			if (run(line))
				return -1;
		free(line);
		return 0;
	}
	for (int i = 2; i < argc; i++)
		room += strlen(argv[i]) + 1;
	line = calloc(1, room + 1);
	if (!line)
		return -1;
	for (int i = 2; i < argc; i++) {
		strcat(line, i > 2 ? " " : "");
		strcat(line, argv[i]);
	}
	int failed = run(line);
	free(line);
	return failed;
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		fprintf(stderr, "usage: kv_client HOST:PORT[,HOST:PORT...] [set KEY VALUE | get KEY | del KEY]\n");
		return 2;
	}
	if (device_open(&device)) {
		perror("no RDMA device");
		return 1;
	}
	for (char *at = strtok(argv[1], ","); at; at = strtok(NULL, ","))
		if (connect_to(at)) {
			perror(at);
			return 1;
		}
	int failed = run_all(argc, argv);
	if (failed)
		perror("no answer");
	for (unsigned i = 0; i < shard_count; i++)
		peer_free(shards[i]);
	device_close(&device);
	return failed ? 1 : 0;
}
