#!/usr/bin/env bash
# docs/ops.md is what the op table of this build prints.
set -uo pipefail
if ! "$ATOLL_BIN/ops_doc" | diff "$ATOLL_SOURCE/docs/ops.md" - >&2; then
    echo "docs/ops.md is stale: run scripts/docs"
    exit 1
fi
