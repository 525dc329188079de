#!/usr/bin/env bash
# An arena that is a local variable dies with its frame: when memory runs out nobody but the recovery point can free it, and that only
# frees scratch arenas (ir/base.h).
set -uo pipefail
cd "$ATOLL_SOURCE" || exit 1
found=$(find $(ls -d ir passes codegen runtime frontend 2>/dev/null) -name '*.[ch]' ! -path 'frontend/cli/*' -print0 |
    xargs -0 -r grep -nE '^[[:space:]]+struct arena [a-z_]+ = \{0?\};' /dev/null)
if [ -n "$found" ]; then
    echo "$found"
    echo "a local arena starts as SCRATCH_ARENA: struct arena scratch = SCRATCH_ARENA;"
    exit 1
fi
