#!/usr/bin/env bash
# docs/field_cases.md: each case once; its id stands in the test that the table names, or a reason does; and every id in a test is in the
# table.
set -uo pipefail
cd "$ATOLL_SOURCE" || exit 1
table=docs/field_cases.md
bad=0
say() {
    echo "$1"
    bad=1
}
while IFS='|' read -r _ id _ test _; do
    id=${id// /} test=${test# } test=${test% }
    if [[ $test == -\ * ]]; then
        [ ${#test} -gt 10 ] || say "$table: $id has no test and no reason"
    elif ! grep -qiE "\"?$id" tests/*/"$test" 2>/dev/null; then
        say "$table: $id is not in $test"
    fi
done < <(grep -E '^\| FC' $table)
doubled=$(grep -oE '^\| FC[0-9]+' $table | sort | uniq -d)
[ -z "$doubled" ] || say "$table: more than one line for$doubled"
[ "$(grep -cE '^\| FC' $table)" -gt 0 ] || say "$table: no cases"
for id in $(grep -ohE '"FC[0-9]{3}|START_TEST\(fc[0-9]{3}' tests/*/*.c | grep -oiE 'fc[0-9]{3}' | tr f F | tr c C | sort -u); do
    grep -qE "^\| $id \|" $table || say "$table: $id is tested but not listed"
done
exit $bad
