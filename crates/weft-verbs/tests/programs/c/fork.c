/* A child cannot use inherited objects, but can open its own device; its parent continues. */
#include "loopback.h"
#include <sys/wait.h>

int main(void)
{
    struct ibv_context *context = open_device();
    struct loopback l = open_loopback(context);
    carry(&l, 1);
    for (int i = 0; i < 3; i++) {
        pid_t child = fork();
        must(child >= 0);
        if (child == 0) {
            must(!ibv_alloc_pd(context) && errno == EIO);
            must(ibv_destroy_qp(l.qp[0]) == EIO);
            struct loopback own = open_loopback(open_device());
            must(own.qp[0]->qp_num != l.qp[0]->qp_num);
            carry(&own, 2);
            close_loopback(&own);
            exit(0);
        }
        carry(&l, 3);
        int status;
        must(waitpid(child, &status, 0) == child && status == 0);
        carry(&l, 4);
    }
    close_loopback(&l);
    must(ibv_close_device(context) == 0);
    puts("done");
    return 0;
}
