/* Reads the device's folders as the stacks do that choose devices by them. */
#define _FORTIFY_SOURCE 2 /* As wheels are compiled: realpath and open with sizes known get other names. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <libgen.h>
#include <limits.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define must(condition)                                                              \
    do {                                                                             \
        if (!(condition)) {                                                          \
            fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #condition, strerror(errno)); \
            exit(1);                                                                 \
        }                                                                            \
    } while (0)

#define SLOT "/sys/devices/pci5745:00/5745:00:00.0"

/* Reads the first line of a file. */
static char *line_of(const char *path)
{
    static char line[256];
    FILE *file = fopen(path, "r");

    must(file && fgets(line, sizeof(line), file));
    fclose(file);
    line[strcspn(line, "\n")] = 0;
    return line;
}

/* Mooncake finds the memory node of a device, and leaves out devices where that fails. */
static void as_mooncake(void)
{
    char path[PATH_MAX], resolved[PATH_MAX];
    struct stat about;

    must(realpath("/sys/class/infiniband/weft0/../..", resolved));
    must(!strcmp(resolved, SLOT) && !strcmp(basename(resolved), "5745:00:00.0"));
    snprintf(path, sizeof(path), "%s/numa_node", SLOT);
    must(atoi(line_of(path)) >= -1);
    must(!stat("/dev/infiniband/weft0", &about) && S_ISCHR(about.st_mode));
    must(!access("/dev/infiniband/weft0", R_OK | W_OK));
    must(realpath("/sys/bus/pci/devices/5745:00:00.0", resolved) && !strcmp(resolved, SLOT));
}

/* NCCL finds the place on the PCI bus, and the RoCE version of each GID. */
static void as_nccl(struct ibv_context *context)
{
    struct ibv_gid_entry entry;
    char path[PATH_MAX], gid[64], name[IF_NAMESIZE], *slot;
    int row;

    slot = realpath("/sys/class/infiniband/weft0/device", NULL);
    must(slot && !strcmp(slot, SLOT));
    free(slot);
    slot = realpath("/sys/class/pci_bus/5745:00/../../5745:00:00.0", NULL);
    must(slot && !strcmp(slot, SLOT));
    free(slot);
    must(strstr(line_of(SLOT "/max_link_speed"), "GT/s"));
    for (row = 0; !ibv_query_gid_ex(context, 1, row, &entry, 0); row++) {
        snprintf(path, sizeof(path), "/sys/class/infiniband/weft0/ports/1/gid_attrs/types/%d", row);
        must(!strcmp(line_of(path), "RoCE v2"));
        for (int i = 0; i < 8; i++)
            sprintf(gid + 5 * i, "%02x%02x:", entry.gid.raw[2 * i], entry.gid.raw[2 * i + 1]);
        gid[39] = 0;
        snprintf(path, sizeof(path), "/sys/class/infiniband/weft0/ports/1/gids/%d", row);
        must(!strcmp(line_of(path), gid));
        snprintf(path, sizeof(path), "/sys/class/infiniband/weft0/ports/1/gid_attrs/ndevs/%d", row);
        must(!strcmp(line_of(path), if_indextoname(entry.ndev_ifindex, name)));
    }
    must(row > 0);
}

/* NCCL calls what it finds in the file that it opens: by the name of headers' packages before 2.30, else NCCL_IBVERBS_LIB. */
static void as_nccl_links(void)
{
    static const char *const NAMES[] = {
        "ibv_get_device_list", "ibv_free_device_list", "ibv_get_device_name", "ibv_open_device", "ibv_close_device",
        "ibv_get_async_event", "ibv_ack_async_event", "ibv_query_device", "ibv_query_port", "ibv_query_gid",
        "ibv_query_qp", "ibv_alloc_pd", "ibv_dealloc_pd", "ibv_reg_mr", "ibv_dereg_mr", "ibv_create_cq",
        "ibv_destroy_cq", "ibv_create_qp", "ibv_modify_qp", "ibv_destroy_qp", "ibv_fork_init", "ibv_event_type_str",
    };
    void *library = dlopen("libibverbs.so", RTLD_NOW);

    must(library && library == dlopen("libibverbs.so.1", RTLD_NOW));
    for (size_t i = 0; i < sizeof(NAMES) / sizeof(*NAMES); i++)
        must(dlvsym(library, NAMES[i], "IBVERBS_1.1"));
    must(dlsym(library, "weft_sysfs_root"));
}

/* UCX reads files below the path in the list of devices, some of them relative to an open folder. */
static void as_ucx(struct ibv_device *device)
{
    char buffer[64];
    int folder, file;

    must(ibv_read_sysfs_file(device->ibdev_path, "ports/1/rate", buffer, sizeof(buffer)) > 0);
    must(!strcmp(buffer, "100 Gb/sec (4X EDR)"));
    must(ibv_read_sysfs_file(device->dev_path, "ibdev", buffer, sizeof(buffer)) > 0);
    must(!strcmp(buffer, "weft0"));
    must((folder = open(device->ibdev_path, O_RDONLY | O_DIRECTORY)) >= 0);
    must((file = openat(folder, "device/local_cpus", O_RDONLY)) >= 0 && read(file, buffer, 8) == 8);
    close(file);
    close(folder);
}

/* Scripts list the devices. */
static void as_scripts(void)
{
    struct dirent **list, *entry;
    DIR *folder = opendir("/sys/class/infiniband");
    char target[PATH_MAX];
    int count = 0;

    must(folder);
    while ((entry = readdir(folder)))
        if (entry->d_name[0] != '.') {
            must(!strcmp(entry->d_name, "weft0") && entry->d_type == DT_LNK);
            count++;
        }
    closedir(folder);
    must(count == 1 && scandir("/sys/class/infiniband/weft0/ports", &list, NULL, alphasort) == 3);
    must(readlink("/sys/class/infiniband/weft0", target, sizeof(target)) > 0);
    must(!strncmp(target, "../../devices/", 14));
    must(open("/sys/class/infiniband/weft1/node_guid", O_RDONLY) < 0 && errno == ENOENT);
    /* The kernel's other folders are as they were. */
    must(realpath("/sys/class/net/lo", target) && !strcmp(target, "/sys/devices/virtual/net/lo"));
}

int main(void)
{
    struct ibv_device **devices = ibv_get_device_list(NULL);
    struct ibv_context *context;

    must(devices && devices[0] && (context = ibv_open_device(devices[0])));
    as_mooncake();
    as_nccl(context);
    as_nccl_links();
    as_ucx(devices[0]);
    as_scripts();
    ibv_close_device(context);
    puts("done");
    return 0;
}
