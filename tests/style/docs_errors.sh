#!/usr/bin/env bash
# docs/errors.md has a row for every status (name, code, text) and every verifier rule (code, rule), as the tables say, and no other.
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
rows statuses \
    "$(sed -n 's/^X(\([A-Z_]*\), \([0-9]*\), "\(.*\)")$/\1|\2|\3/p' "$ATOLL_SOURCE/include/atoll/status.def")" \
    "$(sed -n 's/^| `\([A-Z_]*\)` | \([0-9]*\) | \([^|]*\) |.*/\1|\2|\3/p' "$doc")"
rows verifier \
    "$(sed -n 's/^X(\(V[0-9]*\), "\(.*\)")$/\1|\2/p' "$ATOLL_SOURCE/ir/verify.def")" \
    "$(sed -n 's/^| \(V[0-9]*\) | \([^|]*\) |.*/\1|\2/p' "$doc")"
exit $bad
