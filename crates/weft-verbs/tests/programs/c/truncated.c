/* A process truncates memory that its neighbour has mapped: the neighbour lives, and its request fails. The process
 * itself is ended by its own access, as it would be by a packet. The program's own faults are handled as it chose before:
 * by its handler, or, with the argument "default", by its end. */
#define _GNU_SOURCE
#include "neighbours.h"
#include "status.h"
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

static int file;
static sigjmp_buf after_fault;

static void meet_in_file(int socket)
{
    file = memfd_create("truncated", MFD_CLOEXEC);
    must(file >= 0 && ftruncate(file, 2 * SIZE) == 0);
    char *memory = mmap(NULL, 2 * SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    must(memory != MAP_FAILED);
    meet(socket, memory, 0);
}

static enum ibv_wc_status write_to_end(void) { return carry_out(IBV_WR_RDMA_WRITE, l.memory, SIZE); }

static void on_fault(int signal)
{
    must(signal == SIGBUS);
    siglongjmp(after_fault, 1);
}

/* A fault in memory of this program alone. */
static void fault(void)
{
    int own = memfd_create("own", MFD_CLOEXEC);
    must(own >= 0 && ftruncate(own, 4096) == 0);
    volatile char *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, own, 0);
    must(memory != MAP_FAILED && ftruncate(own, 0) == 0);
    if (sigsetjmp(after_fault, 1) == 0) {
        *memory = 1;
        must(!"the access succeeded");
    }
}

/* Returns the signal that ends a child with a fault of its own, or 0. */
static int end_of_child(void)
{
    int status;
    pid_t child = fork();
    must(child >= 0);
    if (child == 0) {
        fault();
        _exit(0);
    }
    must(waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : status;
}

static void lend(int socket)
{
    signal(SIGBUS, SIG_DFL);
    meet_in_file(socket);
    await_notice(socket);
    must(ftruncate(file, SIZE) == 0);
    notify(socket);
    for (;;)
        pause();
}

int main(int count, char **arguments)
{
    int sockets[2], status, is_default = count > 1 && !strcmp(arguments[1], "default");
    must(signal(SIGBUS, is_default ? SIG_DFL : on_fault) != SIG_ERR);
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    pid_t lender = fork();
    must(lender >= 0);
    if (lender == 0)
        lend(sockets[1]);
    meet_in_file(sockets[0]);
    for (int i = 0; i < 3; i++)
        must(write_to_end() == IBV_WC_SUCCESS);
    await_status(MAPPED_REQUESTS, 2);
    notify(sockets[0]);
    /* The file shrinks while this process writes. */
    enum ibv_wc_status result;
    while ((result = write_to_end()) == IBV_WC_SUCCESS) {}
    must(result == IBV_WC_RETRY_EXC_ERR);
    must(waitpid(lender, &status, 0) == lender && WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
    must(end_of_child() == (is_default ? SIGBUS : 0));
    if (!is_default) {
        fault();
        fault();
    }
    puts("done");
    return 0;
}
