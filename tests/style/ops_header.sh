#!/usr/bin/env bash
# include/atoll/ops.h is what the op table of this build prints.
set -uo pipefail
if ! "$ATOLL_BIN/ops_header" | diff "$ATOLL_SOURCE/include/atoll/ops.h" - >&2; then
    echo "include/atoll/ops.h is stale: run scripts/docs"
    exit 1
fi
