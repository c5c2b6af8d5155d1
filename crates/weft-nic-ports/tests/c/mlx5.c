/* The function of an mlx5 NIC's library that sets a port, where there is no such NIC: it writes what it was told into the
 * file that RECORD names. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>

int mlx5dv_modify_qp_udp_sport(struct ibv_qp *qp, uint16_t port)
{
	const char *name = getenv("RECORD");
	struct ibv_qp_attr is;
	struct ibv_qp_init_attr init;
	if (ibv_query_qp(qp, &is, IBV_QP_STATE, &init) || is.qp_state != IBV_QPS_RTS)
		return EINVAL; /* as an mlx5 NIC */
	FILE *record = name ? fopen(name, "a") : NULL;
	if (!record)
		return EIO;
	fprintf(record, "%u %u\n", qp->qp_num, port);
	return fclose(record) ? EIO : 0;
}
