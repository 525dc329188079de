/* Status codes of the whole library; texts in status.def. */
#ifndef ATOLL_STATUS_H
#define ATOLL_STATUS_H

typedef enum atoll_status {
#define X(name, code, text) ATOLL_##name = code,
#include "status.def"
#undef X
} atoll_status;

#ifdef __cplusplus
extern "C" {
#endif

/* The text of a status, a static string; never NULL. */
const char *atoll_status_text(atoll_status status);

#ifdef __cplusplus
}
#endif

#endif
