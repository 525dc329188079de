#!/usr/bin/env bash
# docs/errors.md has a row for every status (name, code, text, exit code of the command line) and every verifier rule (code, rule), as the
# tables and frontend/cli/main.c say, and no other.
set -uo pipefail
doc=$ATOLL_SOURCE/docs/errors.md
bad=0
rows() { # WHAT, expected rows, rows of the page
    if [ -z "$2" ] || [ "$2" != "$3" ]; then
        echo "docs/errors.md, $1: < in the table of the source only, > in the page only"
        diff <(echo "$2") <(echo "$3") | grep '^[<>]'
        bad=1
    fi
}
# name|code|text|exit: exit_code() of main.c is a switch of cases that share a return
statuses=$(cat "$ATOLL_SOURCE/frontend/cli/cli.h" "$ATOLL_SOURCE/frontend/cli/main.c" "$ATOLL_SOURCE/include/atoll/status.def" | awk -F'[(,)"]' '
    /^enum \{ EXIT_/ { n = split($0, part, /[ ,;{}]+/); for (i = 1; i < n; i++) if (part[i] == "=") number[part[i - 1]] = part[i + 1] }
    /^static int exit_code/ { in_it = 1 }
    /^}/ { in_it = 0 }
    in_it && /case ATOLL_/ { match($0, /ATOLL_[A-Z_]+/); waiting[substr($0, RSTART + 6, RLENGTH - 6)] }
    in_it && /default:/ { is_default = 1 }
    in_it && /return/ {
        match($0, /return [A-Z_0-9]+/); word = substr($0, RSTART + 7, RLENGTH - 7); code = word in number ? number[word] : word
        for (name in waiting) { exits[name] = code; delete waiting[name] }
        if (is_default) otherwise = code
    }
    /^X\([A-Z_]+, [0-9]+, "/ { gsub(/ /, "", $3); print $2 "|" $3 "|" $5 "|" ($2 in exits ? exits[$2] : otherwise) }')
rows statuses "$statuses" \
    "$(sed -n 's/^| `\([A-Z_]*\)` | \([0-9]*\) | \([^|]*\) | \([0-9]*\) |.*/\1|\2|\3|\4/p' "$doc")"
rows verifier \
    "$(sed -n 's/^X(\(V[0-9]*\), "\(.*\)")$/\1|\2/p' "$ATOLL_SOURCE/ir/verify.def")" \
    "$(sed -n 's/^| \(V[0-9]*\) | \([^|]*\) |.*/\1|\2/p' "$doc")"
exit $bad
