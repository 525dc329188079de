#!/usr/bin/env bash
# Who may include whom: the arrows of the design as a table; any other include between folders fails.
set -uo pipefail
cd "$ATOLL_SOURCE" || exit 1
find $(ls -d ir passes codegen runtime frontend include 2>/dev/null) -name '*.[ch]' -print0 | sort -z |
    xargs -0 awk '
    BEGIN {
        # folder: folders or single files that it may include
        allowed["include"]  = "include"
        allowed["ir"]       = "include ir"
        allowed["passes"]   = "include ir passes"
        allowed["codegen"]  = "include ir codegen"
        allowed["runtime"]  = "include ir runtime codegen/kernel.h codegen/cc.h codegen/nvrtc.h codegen/prelude"
        allowed["frontend"] = "include ir passes codegen runtime frontend"
        n_folders = split("ir passes codegen runtime frontend tests examples bench", folders, " ")
    }
    /^[ \t]*#[ \t]*include[ \t]*"/ {
        match($0, /"[^"]*"/); path = substr($0, RSTART + 1, RLENGTH - 2)
        from = FILENAME; sub(/\/.*/, "", from)
        if (path ~ /\.\./) { print FILENAME ":" FNR ": \"" path "\" climbs out of its folder: write it from the root"; bad = 1; next }
        to = path ~ /^atoll\// ? "include" : from
        for (i = 1; i <= n_folders; i++) if (index(path, folders[i] "/") == 1) to = folders[i]
        n = split(allowed[from], may, " "); ok = 0
        for (i = 1; i <= n; i++) if (may[i] == to || may[i] == path || index(path, may[i] "/") == 1) ok = 1
        if (!ok) { print FILENAME ":" FNR ": " from " may not include \"" path "\" (it may: " allowed[from] ")"; bad = 1 }
    }
    END { exit bad }'
