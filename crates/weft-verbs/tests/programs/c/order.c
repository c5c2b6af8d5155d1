/* Objects in use cannot be destroyed, and a program's attempt has no effect. */
#include "loopback.h"

int main(void)
{
    struct ibv_context *context = open_device();
    struct loopback l = open_loopback(context);
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    struct ibv_cq *other = ibv_create_cq(context, 4, NULL, channel, 0);
    must(channel && other);
    struct ibv_srq_init_attr wanted = { .attr = { .max_wr = 4, .max_sge = 1 } };
    struct ibv_srq *srq = ibv_create_srq(l.pd, &wanted);
    must(srq);
    struct ibv_ah_attr where = { .port_num = 1, .is_global = 1 };
    must(ibv_query_gid(context, 1, 0, &where.grh.dgid) == 0);
    struct ibv_ah *ah = ibv_create_ah(l.pd, &where);
    must(ah);

    must(ibv_dealloc_pd(l.pd) == EBUSY);
    must(ibv_destroy_cq(l.cq) == EBUSY);
    must(ibv_destroy_comp_channel(channel) == EBUSY);
    carry(&l, 5);

    must(ibv_destroy_cq(other) == 0);
    must(ibv_destroy_comp_channel(channel) == 0);
    must(ibv_destroy_srq(srq) == 0);
    must(ibv_destroy_qp(l.qp[0]) == 0);
    must(ibv_destroy_qp(l.qp[1]) == 0);
    must(ibv_dereg_mr(l.mr) == 0);
    must(ibv_dealloc_pd(l.pd) == EBUSY);
    must(ibv_destroy_ah(ah) == 0);
    must(ibv_dealloc_pd(l.pd) == 0);
    must(ibv_destroy_cq(l.cq) == 0);
    must(ibv_close_device(context) == 0);

    /* Closing a device with all its objects releases everything. */
    context = open_device();
    l = open_loopback(context);
    must(ibv_close_device(context) == 0);
    l = open_loopback(open_device());
    carry(&l, 6);
    puts("done");
    return 0;
}
