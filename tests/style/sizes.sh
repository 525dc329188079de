#!/usr/bin/env bash
# Files of at most 900 lines, functions of at most 100 (a body runs from "{" in column 1 to "}" in column 1;
# tables end in "};" and are exempt).
set -uo pipefail
cd "$ATOLL_SOURCE" || exit 1
find $(ls -d ir passes codegen runtime frontend include tests examples bench 2>/dev/null) -name '*.[ch]' -print0 | sort -z |
    xargs -0 awk '
    function close_file() { if (file != "" && n > 900) { print file ": " n " lines, at most 900"; bad = 1 } }
    FNR == 1 { close_file(); file = FILENAME; start = 0 }
    { n = FNR }
    /^\{/ { start = FNR }
    /^\}/ {
        if (start && $0 !~ /^\};/ && FNR - start - 1 > 100) {
            print FILENAME ":" start ": function of " FNR - start - 1 " lines, at most 100"; bad = 1
        }
        start = 0
    }
    END { close_file(); exit bad }'
