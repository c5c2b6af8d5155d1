/* A program whose daemon is killed and started again, time after time: each time it gets an error and a fatal event, opens the
   device anew and goes on. A line says when it may be killed. */
#include "../../../../weft-verbs/tests/programs/c/loopback.h"
#include <dirent.h>
#include <time.h>

enum { TIMES = 3 };

static int descriptors(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    must(folder);
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

/* Writes until the daemon has ended. */
static void write_until_the_end(struct loopback *l)
{
    struct ibv_sge from = { (uintptr_t)l->memory, SIZE, l->mr->lkey };
    struct ibv_send_wr write = { .wr_id = 7, .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE };
    struct ibv_send_wr *bad;
    struct ibv_wc wc = { .status = IBV_WC_SUCCESS };
    write.wr.rdma.remote_addr = (uintptr_t)l->memory + SIZE;
    write.wr.rdma.rkey = l->mr->rkey;
    /* Four requests are always posted, so that the daemon leaves some. */
    for (int i = 0; i < 4; i++)
        must(ibv_post_send(l->qp[0], &write, &bad) == 0);
    puts("writing");
    fflush(stdout);
    int count = 0;
    while (count >= 0 && wc.status == IBV_WC_SUCCESS) {
        count = ibv_poll_cq(l->cq, 1, &wc);
        if (count == 1 && wc.status == IBV_WC_SUCCESS)
            ibv_post_send(l->qp[0], &write, &bad);
    }
    /* The daemon may have completed all of them, so that none was left to flush. */
    must(count < 0 || (wc.status == IBV_WC_WR_FLUSH_ERR && wc.wr_id == 7));
    must(ibv_post_send(l->qp[0], &write, &bad) != 0);

    struct ibv_async_event event;
    must(ibv_get_async_event(l->context, &event) == 0);
    must(event.event_type == IBV_EVENT_DEVICE_FATAL);
    ibv_ack_async_event(&event);
    must(ibv_alloc_pd(l->context) == NULL && errno == EIO);
}

/* Opens the device as soon as there is a daemon again. */
static struct ibv_context *open_again(struct ibv_device *device)
{
    struct ibv_context *context = NULL;
    for (time_t begin = time(NULL); !context && time(NULL) - begin < 30;)
        context = ibv_open_device(device);
    must(context);
    int count = 0;
    struct ibv_device **list = ibv_get_device_list(&count);
    must(count == 1 && strcmp(ibv_get_device_name(list[0]), ibv_get_device_name(device)) == 0);
    ibv_free_device_list(list);
    return context;
}

int main(void)
{
    int before = 0;
    struct ibv_context *context = open_device();
    for (int i = 0; i < TIMES; i++) {
        struct loopback l = open_loopback(context);
        carry(&l, 3 * i);
        if (i == 0)
            before = descriptors();
        must(descriptors() == before);
        write_until_the_end(&l);
        context = open_again(l.context->device);
        /* The objects of the device that is gone can be given up. */
        struct ibv_context *gone = l.context;
        close_loopback(&l);
        must(ibv_close_device(gone) == 0);
    }
    must(ibv_close_device(context) == 0);
    puts("done");
    return 0;
}
