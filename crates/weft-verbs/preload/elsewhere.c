/* Warns when a program looked for RDMA devices, made no queue pair, and had TCP connections instead: stacks that can use
 * both take TCP without a word when they reject a device. Part of the library that `weft run` preloads. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* The device's name if the program listed it and made no queue pair, else null. From libibverbs.so.1. */
extern const char *weft_unused_device(void);

static int has_connections;

static int is_number(int socket, int option, int one, int other)
{
    int number;
    socklen_t size = sizeof(number);

    return !getsockopt(socket, SOL_SOCKET, option, &number, &size) && (number == one || number == other);
}

/* Remembers that there is a connection if the socket is one of TCP. */
static void note(int socket)
{
    int before = errno;

    if (!has_connections && is_number(socket, SO_TYPE, SOCK_STREAM, SOCK_STREAM) &&
        is_number(socket, SO_DOMAIN, AF_INET, AF_INET6))
        has_connections = 1;
    errno = before;
}

int connect(int socket, __CONST_SOCKADDR_ARG address, socklen_t size)
{
    static int (*next)(int, __CONST_SOCKADDR_ARG, socklen_t);

    if (!next)
        next = (__typeof__(next))dlsym(RTLD_NEXT, "connect");
    note(socket);
    return next(socket, address, size);
}

int accept(int socket, __SOCKADDR_ARG address, socklen_t *restrict size)
{
    static int (*next)(int, __SOCKADDR_ARG, socklen_t *restrict);
    int connection;

    if (!next)
        next = (__typeof__(next))dlsym(RTLD_NEXT, "accept");
    connection = next(socket, address, size);
    if (connection >= 0)
        note(connection);
    return connection;
}

int accept4(int socket, __SOCKADDR_ARG address, socklen_t *restrict size, int flags)
{
    static int (*next)(int, __SOCKADDR_ARG, socklen_t *restrict, int);
    int connection;

    if (!next)
        next = (__typeof__(next))dlsym(RTLD_NEXT, "accept4");
    connection = next(socket, address, size, flags);
    if (connection >= 0)
        note(connection);
    return connection;
}

__attribute__((destructor)) static void warn(void)
{
    const char *choice = getenv("WEFT_WARN_UNUSED"), *device;

    if (!has_connections || (choice && !strcmp(choice, "off")) || !(device = weft_unused_device()))
        return;
    fprintf(stderr,
            "weft: %s looked for RDMA devices, found %s and made no queue pair on it: what it sent went over TCP. Its own log "
            "may say why, `weft run --for` sets what a stack needs, and WEFT_WARN_UNUSED=off hides this line\n",
            program_invocation_short_name, device);
}
