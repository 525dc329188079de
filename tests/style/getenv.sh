#!/usr/bin/env bash
# The environment is read in one place, frontend/context.c (STYLE: knobs are rows of env.def). Handing
# the whole environment on to a child process (environ) is not reading it.
set -uo pipefail
cd "$ATOLL_SOURCE" || exit 1
found=$(find $(ls -d ir passes codegen runtime frontend 2>/dev/null) -name '*.[ch]' ! -path frontend/context.c -print0 |
    xargs -0 -r grep -nE '\b(secure_)?(getenv|setenv|putenv)\b' /dev/null)
if [ -n "$found" ]; then
    echo "$found"
    echo "the environment may only be read in frontend/context.c: pass the value in an options struct"
    exit 1
fi
