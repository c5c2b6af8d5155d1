/* Loaded before a program by `weft run`. The program and its children find Weft's device where the kernel shows devices
 * that have a driver: in sysfs and in /dev/infiniband. Calls that take a path there use the folder that libibverbs.so.1
 * fills (src/sysfs); the kernel handles every other path. Programs that make system calls themselves (Go, static ones) see
 * the kernel's folders. */
#undef _FORTIFY_SOURCE /* Its inline functions have the names that are defined here. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The folder that holds the device's `sys` and `dev`; null without a device. From libibverbs.so.1. */
extern const char *weft_sysfs_root(void);

/* The places of the device. weft-verbs' tests compare them with what its folder contains. */
static const char *const PLACES[] = {
    "/sys/class/infiniband",
    "/sys/class/infiniband_verbs",
    "/sys/class/pci_bus/5745:00",
    "/sys/bus/pci/devices/5745:00:00.0",
    "/sys/devices/pci5745:00",
    "/dev/infiniband",
};

static int is_below(const char *path, const char *folder)
{
    size_t length = strlen(folder);

    return !strncmp(path, folder, length) && (path[length] == '/' || !path[length]);
}

/* Returns the path to use: `path`, or, if it is one of the device's, that in the folder, which is written to `to`. */
static const char *redirect(const char *path, char to[PATH_MAX])
{
    const char *root;
    size_t i;

    if (!path || (strncmp(path, "/sys/", 5) && strncmp(path, "/dev/", 5)))
        return path;
    for (i = 0; i < sizeof(PLACES) / sizeof(*PLACES); i++)
        if (is_below(path, PLACES[i]))
            break;
    if (i == sizeof(PLACES) / sizeof(*PLACES) || !(root = weft_sysfs_root()))
        return path;
    return snprintf(to, PATH_MAX, "%s%s", root, path) < PATH_MAX ? to : path;
}

/* Returns the path that a program expects for one in the folder: without the folder. Changes it in place. */
static char *restore(char *path)
{
    const char *root = weft_sysfs_root();
    size_t length = strlen(root);

    if (path && is_below(path, root))
        memmove(path, path + length, strlen(path + length) + 1);
    return path;
}

/* The function of this name that programs called without this library. */
#define NEXT(name)                                          \
    ({                                                      \
        static __typeof__(&name) next;                      \
        if (!next)                                          \
            next = (__typeof__(&name))dlsym(RTLD_NEXT, #name); \
        next;                                               \
    })

/* Defines a function that calls the next one of its name with another `path`. */
#define REDIRECTED(type, name, parameters, ...) \
    type name parameters                        \
    {                                           \
        char to[PATH_MAX];                      \
                                                \
        path = redirect(path, to);              \
        return NEXT(name)(__VA_ARGS__);         \
    }

/* The same for functions whose last argument, a mode, is there only if they may make a file. */
#define REDIRECTED_OPEN(name, parameters, ...)                                    \
    int name parameters                                                           \
    {                                                                             \
        char to[PATH_MAX];                                                        \
        mode_t mode = 0;                                                          \
                                                                                  \
        if ((flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE) {              \
            va_list rest;                                                         \
                                                                                  \
            va_start(rest, flags);                                                \
            mode = va_arg(rest, mode_t);                                          \
            va_end(rest);                                                         \
        }                                                                         \
        path = redirect(path, to);                                                \
        return NEXT(name)(__VA_ARGS__, mode);                                     \
    }

/* Functions without a declaration in headers: those that headers call for programs compiled with _FORTIFY_SOURCE, and
 * those of programs linked before glibc 2.33. */
int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int folder, const char *path, int flags);
int __openat64_2(int folder, const char *path, int flags);
char *__realpath_chk(const char *path, char *resolved, size_t size);
ssize_t __readlink_chk(const char *path, char *target, size_t length, size_t size);
ssize_t __readlinkat_chk(int folder, const char *path, char *target, size_t length, size_t size);
int __xstat(int version, const char *path, struct stat *about);
int __xstat64(int version, const char *path, struct stat64 *about);
int __lxstat(int version, const char *path, struct stat *about);
int __lxstat64(int version, const char *path, struct stat64 *about);
int __fxstatat(int version, int folder, const char *path, struct stat *about, int flags);
int __fxstatat64(int version, int folder, const char *path, struct stat64 *about, int flags);

REDIRECTED_OPEN(open, (const char *path, int flags, ...), path, flags)
REDIRECTED_OPEN(open64, (const char *path, int flags, ...), path, flags)
REDIRECTED_OPEN(openat, (int folder, const char *path, int flags, ...), folder, path, flags)
REDIRECTED_OPEN(openat64, (int folder, const char *path, int flags, ...), folder, path, flags)
REDIRECTED(int, __open_2, (const char *path, int flags), path, flags)
REDIRECTED(int, __open64_2, (const char *path, int flags), path, flags)
REDIRECTED(int, __openat_2, (int folder, const char *path, int flags), folder, path, flags)
REDIRECTED(int, __openat64_2, (int folder, const char *path, int flags), folder, path, flags)

REDIRECTED(FILE *, fopen, (const char *path, const char *mode), path, mode)
REDIRECTED(FILE *, fopen64, (const char *path, const char *mode), path, mode)
REDIRECTED(FILE *, freopen, (const char *path, const char *mode, FILE *file), path, mode, file)
REDIRECTED(FILE *, freopen64, (const char *path, const char *mode, FILE *file), path, mode, file)

REDIRECTED(int, stat, (const char *path, struct stat *about), path, about)
REDIRECTED(int, stat64, (const char *path, struct stat64 *about), path, about)
REDIRECTED(int, lstat, (const char *path, struct stat *about), path, about)
REDIRECTED(int, lstat64, (const char *path, struct stat64 *about), path, about)
REDIRECTED(int, fstatat, (int folder, const char *path, struct stat *about, int flags), folder, path, about, flags)
REDIRECTED(int, fstatat64, (int folder, const char *path, struct stat64 *about, int flags), folder, path, about, flags)
REDIRECTED(int, __xstat, (int version, const char *path, struct stat *about), version, path, about)
REDIRECTED(int, __xstat64, (int version, const char *path, struct stat64 *about), version, path, about)
REDIRECTED(int, __lxstat, (int version, const char *path, struct stat *about), version, path, about)
REDIRECTED(int, __lxstat64, (int version, const char *path, struct stat64 *about), version, path, about)
REDIRECTED(int, __fxstatat, (int version, int folder, const char *path, struct stat *about, int flags),
           version, folder, path, about, flags)
REDIRECTED(int, __fxstatat64, (int version, int folder, const char *path, struct stat64 *about, int flags),
           version, folder, path, about, flags)
REDIRECTED(int, statx, (int folder, const char *path, int flags, unsigned mask, struct statx *about),
           folder, path, flags, mask, about)

REDIRECTED(int, access, (const char *path, int mode), path, mode)
REDIRECTED(int, eaccess, (const char *path, int mode), path, mode)
REDIRECTED(int, euidaccess, (const char *path, int mode), path, mode)
REDIRECTED(int, faccessat, (int folder, const char *path, int mode, int flags), folder, path, mode, flags)

REDIRECTED(ssize_t, readlink, (const char *path, char *target, size_t size), path, target, size)
REDIRECTED(ssize_t, readlinkat, (int folder, const char *path, char *target, size_t size), folder, path, target, size)
REDIRECTED(ssize_t, __readlink_chk, (const char *path, char *target, size_t length, size_t size),
           path, target, length, size)
REDIRECTED(ssize_t, __readlinkat_chk, (int folder, const char *path, char *target, size_t length, size_t size),
           folder, path, target, length, size)

REDIRECTED(int, chdir, (const char *path), path)
REDIRECTED(DIR *, opendir, (const char *path), path)
REDIRECTED(int, scandir, (const char *path, struct dirent ***list, int (*chosen)(const struct dirent *),
                          int (*order)(const struct dirent **, const struct dirent **)), path, list, chosen, order)
REDIRECTED(int, scandir64, (const char *path, struct dirent64 ***list, int (*chosen)(const struct dirent64 *),
                            int (*order)(const struct dirent64 **, const struct dirent64 **)),
           path, list, chosen, order)

/* The functions that return a path. */
#define RESTORED(name, parameters, ...)             \
    char *name parameters                           \
    {                                               \
        char to[PATH_MAX], *result;                 \
                                                    \
        path = redirect(path, to);                  \
        result = NEXT(name)(__VA_ARGS__);           \
        return path == to ? restore(result) : result; \
    }

RESTORED(realpath, (const char *path, char *resolved), path, resolved)
RESTORED(__realpath_chk, (const char *path, char *resolved, size_t size), path, resolved, size)
RESTORED(canonicalize_file_name, (const char *path), path)
