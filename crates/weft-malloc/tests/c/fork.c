/* Each process of a fork has its memory as at the call, whatever the other one stores, frees or allocates. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define must(condition) ((condition) ? (void)0 : (fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition), abort()))

enum { MB = 1 << 20 };

/* Two pipes, by which the processes take turns. */
static int turns[2][2];

static void give(int to)
{
    must(write(turns[to][1], "", 1) == 1);
}

static void wait_for(int turn)
{
    char byte;

    must(read(turns[turn][0], &byte, 1) == 1);
}

static void check(const char *block, char byte, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        must(block[i] == byte);
}

/* Returns the number of mappings of shared memory of `malloc`. */
static int shared_mappings(void)
{
    char line[400];
    int count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");

    while (fgets(line, sizeof(line), maps))
        count += strstr(line, "rw-s") && strstr(line, "memfd:weft-malloc");
    fclose(maps);
    return count;
}

static void child(char *stays, char *freed, char *sparse)
{
    wait_for(0);
    check(stays, 1, 5 * MB);
    check(freed, 2, 30 * MB);
    must(sparse[3 * MB] == 7 && sparse[200 * MB] == 0);
    memset(stays, 9, MB);
    free(freed);
    must((sparse = realloc(sparse, 600L * MB)) && sparse[3 * MB] == 7);
    free(memset(malloc(40 * MB), 3, 40 * MB));
    must(shared_mappings() > 0);
    /* Its child has what it has. */
    pid_t grandchild = fork();
    if (!grandchild) {
        check(stays, 9, MB);
        memset(stays, 4, MB);
        _exit(0);
    }
    int status;
    must(waitpid(grandchild, &status, 0) == grandchild && status == 0);
    check(stays, 9, MB);
    check(stays + MB, 1, 4 * MB);
    give(1);
    _exit(0);
}

static void in_turns(void)
{
    char *stays = memset(malloc(5 * MB), 1, 5 * MB);
    char *freed = memset(malloc(30 * MB), 2, 30 * MB);
    char *sparse = calloc(1, 500L * MB);
    int status;

    must(!pipe(turns[0]) && !pipe(turns[1]));
    sparse[3 * MB] = 7;
    pid_t pid = fork();
    if (!pid)
        child(stays, freed, sparse);
    memset(stays, 5, 5 * MB);
    sparse[200 * MB] = 1;
    free(freed);
    char *next = memset(malloc(30 * MB), 6, 30 * MB);
    give(0);
    wait_for(1);
    must(waitpid(pid, &status, 0) == pid && status == 0);
    check(stays, 5, 5 * MB);
    check(next, 6, 30 * MB);
    must(sparse[3 * MB] == 7 && sparse[200 * MB] == 1);
}

static atomic_int is_over;

static void *allocates(void *unused)
{
    while (!is_over) {
        char *block = malloc(MB);

        block[100] = 1;
        free(realloc(block, 3 * MB));
    }
    return unused;
}

/* A thread that holds the allocator's lock is not in the child. */
static void while_threads_allocate(void)
{
    pthread_t threads[2];

    for (int i = 0; i < 2; i++)
        must(!pthread_create(&threads[i], NULL, allocates, NULL));
    for (int i = 0; i < 20; i++) {
        int status;
        pid_t pid = fork();

        if (!pid) {
            free(memset(malloc(MB), 1, MB));
            _exit(0);
        }
        must(waitpid(pid, &status, 0) == pid && status == 0);
    }
    is_over = 1;
    for (int i = 0; i < 2; i++)
        must(!pthread_join(threads[i], NULL));
}

/* Without its descriptor the arena's blocks are copied whole. */
static void without_descriptor(void)
{
    char *block = memset(malloc(5 * MB), 1, 5 * MB);
    int status;

    closefrom(3);
    pid_t pid = fork();
    if (!pid) {
        memset(block, 2, MB);
        must(shared_mappings() > 0);
        _exit(0);
    }
    must(waitpid(pid, &status, 0) == pid && status == 0);
    check(block, 1, 5 * MB);
}

int main(void)
{
    in_turns();
    while_threads_allocate();
    without_descriptor();
    puts("done");
    return 0;
}
