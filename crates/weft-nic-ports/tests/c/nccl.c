/* Opens a libibverbs as NCCL does, and connects queue pairs of one host to themselves: nccl LIBRARY COUNT. It prints the
 * object that has each function that NCCL requires, and the number of each queue pair. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *library;

static void *find(const char *name)
{
	Dl_info info;
	void *symbol = dlvsym(library, name, "IBVERBS_1.1");
	if (!symbol || !dladdr(symbol, &info)) {
		fprintf(stderr, "%s: %s\n", name, dlerror());
		exit(1);
	}
	printf("%s in %s\n", name, strrchr(info.dli_fname, '/') + 1);
	return symbol;
}

#define FIND(name) __typeof__(name) *my_##name = find(#name)
#define CHECK(condition) \
	if (!(condition)) { fprintf(stderr, "line %d: %s\n", __LINE__, #condition); exit(1); }

static const char *others[] = {
	"ibv_fork_init", "ibv_get_async_event", "ibv_ack_async_event", "ibv_get_device_name", "ibv_query_device",
	"ibv_dealloc_pd", "ibv_close_device", "ibv_free_device_list", "ibv_reg_mr", "ibv_dereg_mr", "ibv_destroy_cq",
	"ibv_destroy_qp", "ibv_query_qp", "ibv_event_type_str",
};

int main(int count, char **words)
{
	CHECK(count == 3);
	library = dlopen(words[1], RTLD_NOW);
	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	for (unsigned i = 0; i < sizeof(others) / sizeof(*others); i++)
		find(others[i]);
	FIND(ibv_get_device_list);
	FIND(ibv_open_device);
	int (*my_ibv_query_port)(struct ibv_context *, uint8_t, struct ibv_port_attr *) = find("ibv_query_port");
	FIND(ibv_query_gid);
	FIND(ibv_alloc_pd);
	FIND(ibv_create_cq);
	FIND(ibv_create_qp);
	FIND(ibv_modify_qp);

	struct ibv_device **devices = my_ibv_get_device_list(NULL);
	CHECK(devices && devices[0]);
	struct ibv_context *context = my_ibv_open_device(devices[0]);
	CHECK(context);
	struct ibv_port_attr port;
	CHECK(!my_ibv_query_port(context, 1, &port));
	union ibv_gid gid;
	CHECK(!my_ibv_query_gid(context, 1, 0, &gid));
	printf("gid %u.%u.%u.%u\n", gid.raw[12], gid.raw[13], gid.raw[14], gid.raw[15]);
	struct ibv_pd *pd = my_ibv_alloc_pd(context);
	struct ibv_cq *cq = my_ibv_create_cq(context, 16, NULL, NULL, 0);
	CHECK(pd && cq);
	for (int i = atoi(words[2]); i > 0; i--) {
		struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
			.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 } };
		struct ibv_qp *qp = my_ibv_create_qp(pd, &init);
		CHECK(qp);
		struct ibv_qp_attr to = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
		CHECK(!my_ibv_modify_qp(qp, &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
		to = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = port.active_mtu, .dest_qp_num = qp->qp_num,
			.max_dest_rd_atomic = 1, .min_rnr_timer = 12,
			.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .hop_limit = 64 } } };
		CHECK(!my_ibv_modify_qp(qp, &to, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
		to = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1 };
		CHECK(!my_ibv_modify_qp(qp, &to, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
		printf("queue pair %u\n", qp->qp_num);
	}
	return 0;
}
