/* A tuner that prefers rings, in version 4, with a mistake. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>

enum { NONE, REVIVES, NOT_A_NUMBER, OVERRUN, NOTHING_LEFT, CHANNELS, FAILS, FORGETS };

static int init(size_t ranks, size_t nodes, void *log, void **context)
{
    static int calls;
    int *state = malloc(sizeof *state);
    *state = calls++;
    *context = state;
    return 0;
}

static int get_coll_info(void *context, int function, size_t bytes, int operations, float **table, int algorithms,
                         int protocols, int registered, int *channels)
{
    float(*costs)[protocols] = (void *)table;
    for (int protocol = 0; protocol < protocols; protocol++)
        if (costs[0][protocol] >= 0)
            costs[0][protocol] += 1e6f;
    if (MISTAKE == REVIVES)
        costs[4][2] = 1;
    if (MISTAKE == NOT_A_NUMBER)
        costs[1][1] = NAN;
    if (MISTAKE == OVERRUN)
        costs[algorithms][0] = 0;
    if (MISTAKE == NOTHING_LEFT)
        for (int i = 0; i < algorithms * protocols; i++)
            costs[0][i] = -1;
    if (MISTAKE == CHANNELS)
        *channels = 65;
    if (MISTAKE == FORGETS && *(int *)context > 0)
        costs[1][0] = 1;
    return MISTAKE == FAILS ? 3 : 0;
}

static int destroy(void *context)
{
    free(context);
    return 0;
}

struct tuner {
    const char *name;
    int (*init)(size_t, size_t, void *, void **);
    int (*get_coll_info)(void *, int, size_t, int, float **, int, int, int, int *);
    int (*destroy)(void *);
};

const struct tuner ncclTunerPlugin_v4 = { "mistaken", init, get_coll_info, destroy };
