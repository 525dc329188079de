/* Devices of a compiled function: opened when an option first names them, closed with it. A device
 * belongs to one thread at a time, so whoever makes, runs or drops what lies on one holds
 * on_device; it is taken before in_store. */
#include "compiled.h"

#include <stdlib.h>
#include <string.h>

struct opened {
    char *name;
    struct device *device;
    struct opened *next;
};

static struct opened *find(const struct atoll_compiled *f, const char *name)
{
    struct opened *o = f->devices;
    while (o != NULL && strcmp(o->name, name) != 0) {
        o = o->next;
    }
    return o;
}

static status open_new(struct atoll_compiled *f, const char *name, struct device **out,
                       struct error *e)
{
    struct device_options where = context_devices(&f->context);
    struct opened *o = calloc(1, sizeof *o);
    char *copy = strdup(name);
    status code = o != NULL && copy != NULL ? device_open(name, &where, out, e)
                                            : fail(e, ATOLL_OUT_OF_MEMORY, "out of memory");
    if (code != ATOLL_OK) {
        free(copy);
        free(o);
        return code;
    }
    *o = (struct opened){.name = copy, .device = *out, .next = f->devices};
    f->devices = o;
    return ATOLL_OK;
}

status compiled_device(struct atoll_compiled *f, const char *name, struct device **out,
                       struct error *e)
{
    *out = NULL;
    if (name == NULL || strcmp(name, "cpu") == 0) {
        return ATOLL_OK;
    }
    pthread_mutex_lock(&f->on_device);
    const struct opened *o = find(f, name);
    status code = ATOLL_OK;
    if (o != NULL) {
        *out = o->device;
    } else {
        code = open_new(f, name, out, e);
    }
    pthread_mutex_unlock(&f->on_device);
    return code;
}

void compiled_devices_free(struct atoll_compiled *f)
{
    while (f->devices != NULL) {
        struct opened *o = f->devices;
        f->devices = o->next;
        device_close(o->device);
        free(o->name);
        free(o);
    }
}
