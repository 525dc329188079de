#!/usr/bin/env bash
# Every .c and .h is as clang-format leaves it.
set -euo pipefail
if ! command -v clang-format >/dev/null; then
    echo "skipped: clang-format is missing (scripts/setup installs it)"
    exit 77
fi
if ! git -C "$ATOLL_SOURCE" rev-parse >/dev/null 2>&1; then
    echo "skipped: not a git checkout"
    exit 77
fi
exec "$ATOLL_SOURCE/scripts/format" --check
