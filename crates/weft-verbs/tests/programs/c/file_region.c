/* A region of a file (ibv_reg_dmabuf_mr): its keys address it by `iova`, wherever the library has mapped it. */
#define _GNU_SOURCE
#include "loopback.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum {
    PAGE = 4096,
    FILE_SIZE = 64 * PAGE,
    /* Regions need not begin at a page. */
    OFFSET = 5 * PAGE + 100,
    LENGTH = 20 * PAGE,
};

static const uint64_t IOVA = 0x700000000000 + 100;
static const int ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                       IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_RELAXED_ORDERING;

static struct loopback l;

static enum ibv_wc_status status_of(enum ibv_wr_opcode opcode, uint64_t remote, uint32_t rkey)
{
    struct ibv_sge sge = { (uintptr_t)l.memory, PAGE, l.mr->lkey };
    struct ibv_send_wr send = { .sg_list = &sge, .num_sge = 1, .opcode = opcode }, *bad;
    struct ibv_wc wc;
    int count;

    send.wr.rdma.remote_addr = remote;
    send.wr.rdma.rkey = rkey;
    must(ibv_post_send(l.qp[0], &send, &bad) == 0);
    while ((count = ibv_poll_cq(l.cq, 1, &wc)) == 0) {}
    must(count == 1);
    return wc.status;
}

/* SENDs a page of the region to itself, by its local key. */
static void send_by_lkey(struct ibv_mr *mr, uint64_t from, uint64_t to)
{
    struct ibv_sge source = { from, PAGE, mr->lkey }, target = { to, PAGE, mr->lkey };
    struct ibv_recv_wr receive = { .wr_id = 1, .sg_list = &target, .num_sge = 1 }, *bad_receive;
    struct ibv_send_wr send = { .wr_id = 2, .sg_list = &source, .num_sge = 1, .opcode = IBV_WR_SEND };
    struct ibv_send_wr *bad_send;

    must(ibv_post_recv(l.qp[1], &receive, &bad_receive) == 0);
    must(ibv_post_send(l.qp[0], &send, &bad_send) == 0);
    must(completed(&l) + completed(&l) == 3);
}

static void refused(int error, uint64_t offset, size_t length, uint64_t iova, int fd, int access)
{
    errno = 0;
    must(!ibv_reg_dmabuf_mr(l.pd, offset, length, iova, fd, access) && errno == error);
}

static void refusals(int file)
{
    int pipes[2], read_only, sealed = memfd_create("sealed", MFD_ALLOW_SEALING);
    char path[64];

    snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
    must(!pipe(pipes) && (read_only = open(path, O_RDONLY)) >= 0);
    must(!ftruncate(sealed, PAGE) && !fcntl(sealed, F_ADD_SEALS, F_SEAL_WRITE));
    refused(EBADF, 0, PAGE, 0, -1, ALL);
    refused(EBADF, 0, PAGE, 0, 1000, ALL);
    refused(EINVAL, 0, 0, 0, file, ALL);
    refused(EINVAL, 0, FILE_SIZE + 1, 0, file, ALL);
    refused(EINVAL, FILE_SIZE, PAGE, 0, file, ALL);
    refused(EINVAL, PAGE, SIZE_MAX, 0, file, ALL);
    refused(EINVAL, UINT64_MAX - PAGE + 1, PAGE, 0, file, ALL);
    refused(EINVAL, 100, PAGE, 0, file, ALL);
    refused(EINVAL, 0, PAGE, 0, file, IBV_ACCESS_REMOTE_WRITE);
    refused(EINVAL, 0, PAGE, 0, file, ALL | IBV_ACCESS_MW_BIND);
    refused(EINVAL, 0, PAGE, 0, file, ALL | IBV_ACCESS_ON_DEMAND);
    refused(EINVAL, 0, PAGE, 0, pipes[0], ALL);
    refused(EACCES, 0, PAGE, 0, read_only, ALL);
    refused(EPERM, 0, PAGE, 0, sealed, ALL);
    struct ibv_mr *readable = ibv_reg_dmabuf_mr(l.pd, 0, PAGE, 0, read_only, IBV_ACCESS_REMOTE_READ);
    must(readable && !ibv_dereg_mr(readable));
    close(pipes[0]);
    close(pipes[1]);
    close(read_only);
    close(sealed);
}

/* Returns the number of mappings of the file in this process. */
static int mappings(void)
{
    char line[400];
    int count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");

    while (fgets(line, sizeof(line), maps))
        count += strstr(line, "memfd:region") != NULL;
    fclose(maps);
    return count;
}

int main(void)
{
    struct ibv_context *context = open_device();
    int file = memfd_create("region", 0), status;
    char page[PAGE], *contents;

    l = open_loopback(context);
    must(file >= 0 && !ftruncate(file, FILE_SIZE));
    refusals(file);
    must(contents = mmap(NULL, FILE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    struct ibv_mr *mr = ibv_reg_dmabuf_mr(l.pd, OFFSET, LENGTH, IOVA, file, ALL);
    must(mr && mr->length == LENGTH && mr->addr == (void *)OFFSET && mr->pd == l.pd);
    /* The region keeps the file. */
    must(!close(file));

    memset(l.memory, 'w', PAGE);
    must(status_of(IBV_WR_RDMA_WRITE, IOVA + PAGE, mr->rkey) == IBV_WC_SUCCESS);
    memset(page, 'w', PAGE);
    must(!memcmp(contents + OFFSET + PAGE, page, PAGE));
    must(!contents[OFFSET + PAGE - 1] && !contents[OFFSET + 2 * PAGE]);
    memset(contents + OFFSET + LENGTH - PAGE, 'r', PAGE);
    must(status_of(IBV_WR_RDMA_READ, IOVA + LENGTH - PAGE, mr->rkey) == IBV_WC_SUCCESS);
    memset(page, 'r', PAGE);
    must(!memcmp(l.memory, page, PAGE));
    send_by_lkey(mr, IOVA + PAGE, IOVA + 7 * PAGE);
    must(contents[OFFSET + 7 * PAGE] == 'w' && contents[OFFSET + 8 * PAGE - 1] == 'w');

    errno = 0;
    must(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE) ==
             IBV_REREG_MR_ERR_INPUT && errno == EINVAL);

    must(mappings() == 2);
    pid_t child = fork();
    if (!child) {
        /* Only the program's own mapping is inherited. */
        must(mappings() == 1 && ibv_dereg_mr(mr) == EIO);
        _exit(0);
    }
    must(waitpid(child, &status, 0) == child && status == 0);
    must(status_of(IBV_WR_RDMA_WRITE, IOVA, mr->rkey) == IBV_WC_SUCCESS);

    must(!ibv_dereg_mr(mr) && mappings() == 1);
    struct ibv_mr *zero = NULL;
    file = memfd_create("other", 0);
    must(!ftruncate(file, PAGE) && (zero = ibv_reg_dmabuf_mr(l.pd, 0, PAGE, 0, file, ALL)));
    must(status_of(IBV_WR_RDMA_WRITE, 0, zero->rkey) == IBV_WC_SUCCESS);
    must(status_of(IBV_WR_RDMA_WRITE, PAGE, zero->rkey) == IBV_WC_REM_ACCESS_ERR);
    must(!ibv_dereg_mr(zero));
    close_loopback(&l);
    must(ibv_close_device(context) == 0);
    puts("done");
    return 0;
}
