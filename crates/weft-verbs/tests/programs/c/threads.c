/* Threads with a device each, or all with one: every message arrives unchanged. */
#include "loopback.h"
#include <pthread.h>

static struct ibv_context *shared;

static void *work(void *number)
{
    unsigned thread = (unsigned)(uintptr_t)number;
    struct ibv_context *context = thread % 2 ? shared : open_device();
    struct loopback l = open_loopback(context);
    for (unsigned i = 0; i < 50; i++)
        carry(&l, thread * 50 + i);
    close_loopback(&l);
    if (context != shared)
        must(ibv_close_device(context) == 0);
    return NULL;
}

int main(void)
{
    pthread_t threads[4];
    shared = open_device();
    for (uintptr_t i = 0; i < 4; i++)
        must(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    for (int i = 0; i < 4; i++)
        must(pthread_join(threads[i], NULL) == 0);
    must(ibv_close_device(shared) == 0);
    puts("done");
    return 0;
}
