/* Random operations of threads on every function of malloc, compared with a model: each block has its alignment, its
 * room, and the bytes that were written to it, whichever thread frees it. */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define must(condition) ((condition) ? (void)0 : (fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno), abort()))

enum { SLOTS = 64, THREADS = 4, OPERATIONS = 3000, PAGE = 4096 };

struct block {
    unsigned char *start;
    size_t bytes;
    unsigned char fill;
};

static struct block slots[SLOTS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static uint64_t next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Half of the blocks are short; a few have megabytes. */
static size_t some_bytes(uint64_t *state)
{
    static const size_t MOST[] = {100, 5000, 65536, 70000, 300000, 3000000};

    return next(state) % (MOST[next(state) % 6] + 1);
}

static void fill(struct block *block, uint64_t *state)
{
    must(malloc_usable_size(block->start) >= block->bytes);
    block->fill = (unsigned char)next(state);
    memset(block->start, block->fill, block->bytes);
}

static void check(const unsigned char *start, unsigned char byte, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        must(start[i] == byte);
}

static struct block allocate(uint64_t *state)
{
    struct block block = {.bytes = some_bytes(state)};
    size_t align = (size_t)16 << next(state) % 18;
    void *start = NULL;

    switch (next(state) % 8) {
    case 0:
        start = malloc(block.bytes);
        align = 16;
        break;
    case 1:
        block.bytes -= block.bytes % 7;
        start = calloc(block.bytes / 7, 7);
        align = 16;
        must(start);
        check(start, 0, block.bytes);
        break;
    case 2:
        must(!posix_memalign(&start, align, block.bytes));
        break;
    case 3:
        start = aligned_alloc(align, block.bytes);
        break;
    case 4:
        start = memalign(align, block.bytes);
        break;
    case 5:
        start = valloc(block.bytes);
        align = PAGE;
        break;
    case 6:
        start = pvalloc(block.bytes);
        align = PAGE;
        block.bytes = (block.bytes + PAGE - 1) / PAGE * PAGE;
        break;
    default:
        start = realloc(NULL, block.bytes);
        align = 16;
    }
    must(start && (uintptr_t)start % align == 0);
    block.start = start;
    fill(&block, state);
    return block;
}

static void resize(struct block *block, uint64_t *state)
{
    size_t bytes = some_bytes(state) + 4;
    void *start;

    if (next(state) % 2) {
        start = realloc(block->start, bytes);
    } else {
        bytes -= bytes % 4;
        start = reallocarray(block->start, bytes / 4, 4);
    }
    must(start);
    check(start, block->fill, bytes < block->bytes ? bytes : block->bytes);
    block->start = start;
    block->bytes = bytes;
    fill(block, state);
}

/* Takes blocks that any thread has put there, and puts others there. */
static void *operate(void *seed)
{
    uint64_t state = (uintptr_t)seed;

    for (int i = 0; i < OPERATIONS; i++) {
        struct block *slot = &slots[next(&state) % SLOTS], block;

        pthread_mutex_lock(&lock);
        block = *slot;
        slot->start = NULL;
        pthread_mutex_unlock(&lock);
        if (!block.start) {
            block = allocate(&state);
        } else {
            check(block.start, block.fill, block.bytes);
            if (next(&state) % 3)
                resize(&block, &state);
            else
                block.bytes = 0;
        }
        if (block.bytes) {
            pthread_mutex_lock(&lock);
            if (!slot->start) {
                *slot = block;
                block.start = NULL;
            }
            pthread_mutex_unlock(&lock);
        }
        errno = 77;
        free(block.start);
        must(errno == 77);
    }
    return NULL;
}

/* What no memory can fulfil, and what is no alignment. */
static void refusals(void)
{
    volatile size_t most = SIZE_MAX, half = SIZE_MAX / 2;
    void *block = malloc(100000), *other = block;

    must(!malloc(most) && errno == ENOMEM);
    must(!malloc(half) && errno == ENOMEM);
    errno = 0;
    must(!calloc(half, 4) && errno == ENOMEM);
    errno = 0;
    must(!realloc(block, half) && errno == ENOMEM);
    errno = 0;
    must(!reallocarray(block, half, 4) && errno == ENOMEM);
    errno = 0;
    must(!pvalloc(most) && errno == ENOMEM);
    must(posix_memalign(&other, PAGE, half) == ENOMEM && other == block);
    must(posix_memalign(&other, 3 * PAGE, 100000) == EINVAL && other == block);
    must(posix_memalign(&other, 4, 100000) == EINVAL && other == block);
    errno = 0;
    must(!aligned_alloc(3 * PAGE, 100000) && errno == EINVAL);
    must(malloc_usable_size(NULL) == 0);
    must(!realloc(block, 0));
    free(NULL);
}

/* A block that grows is moved once, whatever is allocated meanwhile: it is then where it can grow. */
static void growth(void)
{
    char *block = malloc(1 << 16);
    int moves = 0;

    for (size_t bytes = 1 << 17; bytes <= 64 << 20; bytes *= 2) {
        uintptr_t before = (uintptr_t)block;

        must(block = realloc(block, bytes));
        must(malloc(100000));
        moves += (uintptr_t)block != before;
        block[bytes - 1] = 1;
    }
    must(moves == 1);
    uintptr_t before = (uintptr_t)block;
    block = realloc(block, 100);
    must((uintptr_t)block == before && malloc_usable_size(block) == PAGE);
    free(block);
}

int main(void)
{
    pthread_t threads[THREADS];

    refusals();
    growth();
    for (uintptr_t i = 0; i < THREADS; i++)
        must(!pthread_create(&threads[i], NULL, operate, (void *)(i + 1)));
    for (int i = 0; i < THREADS; i++)
        must(!pthread_join(threads[i], NULL));
    puts("done");
    return 0;
}
