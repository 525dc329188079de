/* Devices by name: the table of backends, and how a name finds its row. */
#include "backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct backend *const BACKENDS[] = {&cuda_backend};

status device_open(const char *name, const struct device_options *o, struct device **out,
                   struct error *e)
{
    *out = NULL;
    if (strcmp(name, "cpu") == 0) {
        return ATOLL_OK;
    }
    for (uint32_t i = 0; i < ARRAY_LEN(BACKENDS); i++) {
        size_t length = strlen(BACKENDS[i]->name);
        char *end = NULL;
        if (strncmp(name, BACKENDS[i]->name, length) != 0) {
            continue;
        }
        bool has_number = name[length] == ':' && name[length + 1] >= '0' && name[length + 1] <= '9';
        long ordinal = has_number ? strtol(name + length + 1, &end, 10) : 0;
        if (name[length] == '\0' || (has_number && *end == '\0' && ordinal < 1000)) {
            return BACKENDS[i]->open((int)ordinal, o, out, e);
        }
    }
    return fail(e, ATOLL_USAGE, "'%s' is no device: expected cpu, cuda or cuda:N", name);
}

void device_close(struct device *d)
{
    if (d != NULL) {
        d->backend->close(d);
    }
}

void devices_describe(const struct device_options *o, struct text *t)
{
    for (uint32_t i = 0; i < ARRAY_LEN(BACKENDS); i++) {
        struct error e = {0};
        int count = 0;
        if (BACKENDS[i]->count(o, &count, &e) != ATOLL_OK) {
            text_add(t, "%s: not available: %s\n", BACKENDS[i]->name, e.text);
            continue;
        }
        for (int n = 0; n < count; n++) {
            struct device *d = NULL;
            e = (struct error){0};
            if (BACKENDS[i]->open(n, o, &d, &e) == ATOLL_OK) {
                text_add(t, "%s\n", d->name);
                device_close(d);
            } else {
                text_add(t, "%s:%d: %s\n", BACKENDS[i]->name, n, e.text);
            }
        }
    }
}
