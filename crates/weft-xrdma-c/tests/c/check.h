/* What the programs of this folder share. They are C and C++ alike. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xrdma.h>

/* Ends the program, and says where, unless it holds. */
#define CHECK(holds)                                                                          \
    do {                                                                                      \
        if (!(holds)) {                                                                       \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #holds, xrdma_last_error()); \
            exit(1);                                                                          \
        }                                                                                     \
    } while (0)

/* A call that must fail, with what and why. */
#define FAILS(call, number, why)                                 \
    do {                                                         \
        CHECK((call) == -(number));                              \
        CHECK(strstr(xrdma_last_error(), why) != NULL);          \
    } while (0)
