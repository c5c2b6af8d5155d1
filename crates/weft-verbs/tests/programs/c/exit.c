/* A program that ends while its threads poll. */
#include "loopback.h"
#include <pthread.h>

static void *poll_for_ever(void *cq)
{
    struct ibv_wc completion;
    for (;;)
        ibv_poll_cq(cq, 1, &completion); /* fails once the device has ended */
    return NULL;
}

int main(void)
{
    struct loopback l = open_loopback(open_device());
    carry(&l, 1);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        must(pthread_create(&threads[i], NULL, poll_for_ever, l.cq) == 0);
    usleep(10000);
    puts("done");
    return 0;
}
