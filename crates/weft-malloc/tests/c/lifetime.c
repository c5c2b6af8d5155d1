/* Memory of freed blocks returns to the system; locked and protected blocks, destructors of threads and of the process,
 * mlockall and closed descriptors. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define must(condition) ((condition) ? (void)0 : (fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition), abort()))

enum { MB = 1 << 20 };

static pthread_key_t key;

/* Allocates before `main`. */
static char *early;

__attribute__((constructor)) static void before_main(void)
{
    early = calloc(1, 8 * MB);
    early[5] = 1;
}

__attribute__((destructor)) static void after_main(void)
{
    free(memset(malloc(2 * MB), 1, 2 * MB));
}

/* Returns the resident shared memory, bytes. */
static long resident(void)
{
    char line[200];
    long kilobytes = -1;
    FILE *status = fopen("/proc/self/status", "r");

    while (fgets(line, sizeof(line), status))
        sscanf(line, "RssShmem: %ld", &kilobytes);
    fclose(status);
    return kilobytes * 1024;
}

static void end_of_thread(void *block)
{
    free(block);
    free(memset(malloc(3 * MB), 1, 3 * MB));
}

static void *thread(void *unused)
{
    pthread_setspecific(key, memset(malloc(2 * MB), 1, 2 * MB));
    return unused;
}

static void returns_memory(void)
{
    for (int round = 0; round < 2; round++) {
        char *blocks[16];

        for (int i = 0; i < 16; i++)
            blocks[i] = memset(malloc(20 * MB), 1, 20 * MB);
        must(resident() > 300L * MB);
        for (int i = 0; i < 16; i++)
            free(blocks[(i * 7) % 16]);
        must(resident() < 100L * MB);
    }
}

/* What a program has set for its pages does not follow them into the next block. */
static void protected_blocks(void)
{
    char *locked = malloc(40 * MB), *protected = memset(malloc(40 * MB), 1, 40 * MB);

    mlock(locked, MB);
    must(!mprotect(protected, 40 * MB, PROT_READ));
    errno = 77;
    free(locked);
    free(protected);
    must(errno == 77);
    must(resident() < 100L * MB);
    for (int i = 0; i < 2; i++) {
        char *block = calloc(1, 40 * MB);

        for (int at = 0; at < 40 * MB; at += 4096)
            must(block[at] == 0);
        memset(block, 1, 40 * MB);
    }
}

int main(void)
{
    pthread_t one;

    must(early[5] == 1 && early[6] == 0);
    must(!pthread_key_create(&key, end_of_thread));
    must(!pthread_create(&one, NULL, thread, NULL) && !pthread_join(one, NULL));
    returns_memory();
    protected_blocks();
    /* A program that locks all of its memory has not locked the free addresses. */
    if (!mlockall(MCL_CURRENT | MCL_FUTURE))
        must(resident() < 200L * MB);
    munlockall();
    /* A file that gets the descriptor's number stays as it is. */
    closefrom(3);
    for (int i = 0; i < 8; i++) {
        int file = memfd_create("other", 0);

        must(file >= 0 && write(file, "12345", 5) == 5);
    }
    free(memset(malloc(100 * MB), 1, 100 * MB));
    must(resident() < 200L * MB);
    for (int file = 3; file < 11; file++) {
        char bytes[6] = "";

        must(pread(file, bytes, 5, 0) == 5 && !strcmp(bytes, "12345"));
    }
    puts("done");
    return 0;
}
