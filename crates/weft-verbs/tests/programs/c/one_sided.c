/* A peer that was authorised once accesses the memory directly while its owner's process is stopped, and no longer
 * after the owner has revoked the access. The first argument is the kind of the memory: private memory is accessed by
 * system calls, and shared memory is mapped. */
#define _GNU_SOURCE
#include "neighbours.h"
#include "status.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { ROUNDS = 500 };

static const char *kind;
static uint64_t own_inode;

static char *map_file(int file)
{
    struct stat stat;
    must(file >= 0 && ftruncate(file, 2 * SIZE) == 0 && fstat(file, &stat) == 0);
    own_inode = stat.st_ino;
    char *memory = mmap(NULL, 2 * SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    must(memory != MAP_FAILED);
    return memory;
}

static char *allocate(void)
{
    if (!strcmp(kind, "private"))
        return calloc(2, SIZE);
    if (!strcmp(kind, "memfd"))
        return map_file(memfd_create("one-sided", MFD_CLOEXEC));
    if (!strcmp(kind, "sealed")) {
        int file = memfd_create("one-sided", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        char *memory = map_file(file);
        must(fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
        return memory;
    }
    if (!strcmp(kind, "shm") || !strcmp(kind, "closed")) {
        char name[64];
        snprintf(name, sizeof name, "/weft-one-sided-%d", getpid());
        int file = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
        char *memory = map_file(file);
        if (!strcmp(kind, "shm"))
            must(shm_unlink(name) == 0);
        else
            must(close(file) == 0);
        return memory;
    }
    must(!strcmp(kind, "segment"));
    int segment = shmget(IPC_PRIVATE, 2 * SIZE, IPC_CREAT | 0600);
    must(segment >= 0);
    char *memory = shmat(segment, NULL, 0);
    must(memory != (char *)-1 && shmctl(segment, IPC_RMID, NULL) == 0);
    own_inode = segment;
    return memory;
}

/* Removes what `allocate` left in the file system. */
static void clean_up(void)
{
    char name[64];
    snprintf(name, sizeof name, "/weft-one-sided-%d", getpid());
    must(shm_unlink(name) == 0 || strcmp(kind, "closed"));
}

static int is_stopped(pid_t process)
{
    char name[64], state = 0;
    snprintf(name, sizeof name, "/proc/%d/stat", process);
    FILE *stat = fopen(name, "r");
    must(stat && fscanf(stat, "%*d (%*[^)]) %c", &state) == 1);
    fclose(stat);
    return state == 'T';
}

/* Returns the number of this process's mappings of the other's memory. */
static int count_mappings(void)
{
    char line[512];
    unsigned long inode;
    int count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    must(maps);
    while (fgets(line, sizeof line, maps))
        count += sscanf(line, "%*s %*s %*s %*s %lu", &inode) == 1 && inode == other.inode &&
                 strstr(line, "rw-s");
    fclose(maps);
    return count;
}

/* It is mapped here, and not in a child. */
static void check_mappings(void)
{
    must(count_mappings() == 1);
    pid_t child = fork();
    must(child >= 0);
    if (child == 0)
        _exit(count_mappings());
    int status;
    must(waitpid(child, &status, 0) == child && status == 0);
}

static void reach(int socket)
{
    pid_t lender = getppid();
    char *memory = allocate();
    meet(socket, memory, own_inode);
    must(carry_out(IBV_WR_RDMA_WRITE, l.memory, 0) == IBV_WC_SUCCESS);
    must(kill(lender, SIGSTOP) == 0);
    while (!is_stopped(lender)) {}
    for (int round = 1; round <= ROUNDS; round++) {
        memset(l.memory, round, SIZE);
        must(carry_out(IBV_WR_RDMA_WRITE, l.memory, 0) == IBV_WC_SUCCESS);
        must(carry_out(IBV_WR_RDMA_READ, l.memory + SIZE, 0) == IBV_WC_SUCCESS);
        must(memcmp(l.memory, l.memory + SIZE, SIZE) == 0);
    }
    must(is_stopped(lender));
    int is_private = !strcmp(kind, "private");
    /* The last state is published within a fraction of a second. */
    await_status(is_private ? REQUESTS_BY_CALL : MAPPED_REQUESTS, 2 * ROUNDS);
    must(read_status(is_private ? MAPPED_REQUESTS : REQUESTS_BY_CALL) == 0);
    if (!is_private)
        check_mappings();
    must(kill(lender, SIGCONT) == 0);
    notify(socket);
    enum ibv_wc_status status;
    do
        l.memory[SIZE - 1]++;
    while ((status = carry_out(IBV_WR_RDMA_WRITE, l.memory, 0)) == IBV_WC_SUCCESS);
    must(status == IBV_WC_REM_ACCESS_ERR);
}

static void lend(int socket)
{
    char *memory = allocate();
    meet(socket, memory, own_inode);
    await_notice(socket);
    for (int i = 0; i < SIZE - 1; i++)
        must(l.memory[i] == (char)ROUNDS);
    volatile char *last = l.memory + SIZE - 1;
    for (char before = *last; *last == before;) {}
    must(ibv_dereg_mr(l.mr) == 0);
    memset(l.memory, 7, SIZE);
}

int main(int count, char **arguments)
{
    must(count == 2);
    kind = arguments[1];
    int sockets[2], status;
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    pid_t child = fork();
    must(child >= 0);
    if (child == 0) {
        reach(sockets[1]);
        clean_up();
        _exit(0);
    }
    lend(sockets[0]);
    must(waitpid(child, &status, 0) == child && status == 0);
    for (int i = 0; i < SIZE; i++)
        must(l.memory[i] == 7);
    clean_up();
    puts("done");
    return 0;
}
