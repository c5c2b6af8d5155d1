/* A receiver that stops polling, and its senders, on bare verbs: `incast QPS MESSAGES DEPTH RNR_RETRY STOP_MS`.
 * Two processes connect over a pipe. Prints the number of broken queue pairs, the number of messages received, the
 * milliseconds until the last message, and the senders' processor time in seconds. */
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SIZE = 64 };

struct end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp **qps;
	union ibv_gid gid;
	char *memory;
};

static int qps, messages, depth, rnr_retry, stop_ms;

static void check(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		exit(1);
	}
}

static double now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static void open_end(struct end *end)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	check(list && list[0], "no RDMA device");
	end->context = ibv_open_device(list[0]);
	check(end->context != NULL, "ibv_open_device");
	ibv_free_device_list(list);
	check(!ibv_query_gid(end->context, 1, 0, &end->gid), "ibv_query_gid");
	size_t length = (size_t)qps * depth * SIZE;
	end->memory = aligned_alloc(4096, (length + 4095) / 4096 * 4096);
	end->pd = ibv_alloc_pd(end->context);
	check(end->memory && end->pd, "ibv_alloc_pd");
	end->mr = ibv_reg_mr(end->pd, end->memory, length, IBV_ACCESS_LOCAL_WRITE);
	end->cq = ibv_create_cq(end->context, qps * (messages > depth ? messages : depth), NULL, NULL, 0);
	end->qps = calloc(qps, sizeof *end->qps);
	check(end->mr && end->cq && end->qps, "ibv_reg_mr, ibv_create_cq");
	struct ibv_qp_init_attr init = {
		.send_cq = end->cq, .recv_cq = end->cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
		.cap = { .max_send_wr = messages, .max_recv_wr = depth, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	for (int i = 0; i < qps; i++) {
		end->qps[i] = ibv_create_qp(end->pd, &init);
		check(end->qps[i] != NULL, "ibv_create_qp");
	}
}

static void connect_qp(struct ibv_qp *qp, uint32_t number, const union ibv_gid *gid)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	check(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
	      "to INIT");
	attr = (struct ibv_qp_attr) {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = number, .min_rnr_timer = 12,
		.max_dest_rd_atomic = 1,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = *gid, .hop_limit = 64 } },
	};
	check(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
	      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "to RTR");
	attr = (struct ibv_qp_attr) {
		.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = rnr_retry, .max_rd_atomic = 1,
	};
	check(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
	      IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC), "to RTS");
}

static void post_receive(struct end *end, int qp, int slot)
{
	uint64_t index = (uint64_t)qp * depth + slot;
	struct ibv_sge sge = { (uintptr_t)end->memory + index * SIZE, SIZE, end->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = index, .sg_list = &sge, .num_sge = 1 }, *bad;
	check(!ibv_post_recv(end->qps[qp], &wr, &bad), "ibv_post_recv");
}

static void meet(struct end *end, int with)
{
	for (int i = 0; i < qps; i++) {
		uint32_t number;
		check(write(with, &end->qps[i]->qp_num, 4) == 4 && read(with, &number, 4) == 4, "the other end");
		/* Both ends are on this host. */
		connect_qp(end->qps[i], number, &end->gid);
	}
}

/* Waits until the other end has finished a step. */
static void sync_with(int with)
{
	char byte = 0;
	check(write(with, &byte, 1) == 1 && read(with, &byte, 1) == 1, "the other end");
}

/* Prints the number of broken queue pairs. */
static void send_all(int with)
{
	struct end end = { 0 };
	open_end(&end);
	meet(&end, with);
	sync_with(with);
	struct ibv_sge sge = { (uintptr_t)end.memory, SIZE, end.mr->lkey };
	for (int m = 0; m < messages; m++)
		for (int i = 0; i < qps; i++) {
			struct ibv_send_wr wr = {
				.wr_id = i, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
			}, *bad;
			/* The queue pair may be broken already. */
			(void)ibv_post_send(end.qps[i], &wr, &bad);
		}
	int broken = 0, left = qps * messages;
	char *is_broken = calloc(qps, 1);
	while (left > 0) {
		struct ibv_wc wc[64];
		int n = ibv_poll_cq(end.cq, 64, wc);
		for (int i = 0; i < n; i++) {
			left--;
			if (wc[i].status == IBV_WC_SUCCESS || is_broken[wc[i].wr_id])
				continue;
			if (broken++ == 0)
				fprintf(stderr, "the first to break: %s\n", ibv_wc_status_str(wc[i].status));
			is_broken[wc[i].wr_id] = 1;
		}
		if (n == 0)
			usleep(100);
	}
	printf("%d ", broken);
	fflush(stdout);
	sync_with(with);
}

/* Prints the number of messages received, and the time of the last. */
static void receive_all(int with)
{
	struct end end = { 0 };
	open_end(&end);
	meet(&end, with);
	for (int i = 0; i < qps; i++)
		for (int slot = 0; slot < depth; slot++)
			post_receive(&end, i, slot);
	sync_with(with);
	double began = now_ms(), last = began;
	usleep(stop_ms * 1000);
	struct pollfd from_senders = { .fd = with, .events = POLLIN };
	int came = 0, over = 0;
	while (came < qps * messages && !over) {
		/* Senders that have finished have no messages in flight. */
		over = poll(&from_senders, 1, 0) > 0;
		struct ibv_wc wc[64];
		int n;
		while ((n = ibv_poll_cq(end.cq, 64, wc)) > 0)
			for (int i = 0; i < n; i++) {
				if (wc[i].status != IBV_WC_SUCCESS)
					continue;
				came++;
				last = now_ms();
				post_receive(&end, wc[i].wr_id / depth, wc[i].wr_id % depth);
			}
	}
	sync_with(with);
	printf("%d %.0f ", came, last - began);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	check(argc == 6, "usage: incast QPS MESSAGES DEPTH RNR_RETRY STOP_MS");
	qps = atoi(argv[1]), messages = atoi(argv[2]), depth = atoi(argv[3]);
	rnr_retry = atoi(argv[4]), stop_ms = atoi(argv[5]);
	int sockets[2];
	check(!socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), "socketpair");
	pid_t sender = fork();
	if (sender == 0) {
		close(sockets[0]);
		send_all(sockets[1]);
		return 0;
	}
	close(sockets[1]);
	receive_all(sockets[0]);
	struct rusage usage;
	int status;
	check(wait4(sender, &status, 0, &usage) == sender && status == 0, "the senders");
	double cpu = usage.ru_utime.tv_sec + usage.ru_stime.tv_sec +
	             (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
	printf("%.2f\n", cpu);
	return 0;
}
