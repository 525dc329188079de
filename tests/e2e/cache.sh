#!/usr/bin/env bash
# The kernel cache when things go wrong: processes racing, one killed in the middle of a write, a flipped byte, a directory that cannot be
# written, a full disk, a directory of another user. Every run has the right result; what is wrong is said in exactly one warning.
set -uo pipefail
work=$(mktemp -d)
mounted=
trap '[ -z "$mounted" ] || umount "$mounted"; rm -rf "$work"' EXIT
export OMP_NUM_THREADS=1
unset ATOLL_LOG
atoll=$ATOLL_BIN/atoll
failed=0
skipped=
wrong() {
    echo "$1"
    failed=1
}
echo 'graph @g(%x: f32[n,3] input, %y: i64[n] input, %w: f32[4,3] param {init="normal:0.5"}) {
  %h = linear(%x, %w)
  %t = tanh(%h)
  %loss = cross_entropy(%t, %y)
  return loss=%loss, logits=%t
}' >"$work/m.graph"
for i in $(seq 40); do echo "0.$i,-0.$((i * 7 % 40)),1.$((i * 3 % 17)),$((i % 4))"; done >"$work/m.csv"
train() { # CACHE: $work/NAME.result and .err
    ATOLL_CACHE=$1 "$atoll" train "$work/m.graph" --data "$work/m.csv" --batch 8 --epochs 1 --quiet --save "$work/$2.safetensors" >"$work/$2.out" 2>"$work/$2.err"
}
train 0 right || wrong "no cache: $(cat "$work/right.err")"
runs() { # WHAT CACHE WARNINGS PATTERN
    train "$2" now || wrong "$1: it fails: $(cat "$work/now.err")"
    cmp "$work/now.safetensors" "$work/right.safetensors" || wrong "$1: another result"
    local n
    n=$(grep -c '^atoll: warning: ' "$work/now.err")
    [ "$n" -eq "$3" ] || wrong "$1: $n warnings, expected $3: $(cat "$work/now.err")"
    [ "$3" -eq 0 ] || grep -qE -- "$4" "$work/now.err" || wrong "$1: not '$4': $(cat "$work/now.err")"
}
entries() { find "$1" -name '*.kernels' | wc -l; }

# Processes that compile the same kernels at once: each writes the same bytes to a file of its own and renames it, so there is one entry,
# every result is right, and nothing to warn of.
cache=$work/race
pids=
for i in 1 2 3; do
    train "$cache" "race$i" &
    pids="$pids $!"
done
for pid in $pids; do wait "$pid" || wrong "a racing process fails"; done
for i in 1 2 3; do
    cmp "$work/race$i.safetensors" "$work/right.safetensors" || wrong "racing process $i: another result"
    [ ! -s "$work/race$i.err" ] || wrong "racing process $i: $(cat "$work/race$i.err")"
done
[ "$(entries "$cache")" -eq 1 ] || wrong "racing: $(entries "$cache") entries"
runs "after the race" "$cache" 0

# A library that fails writes to *.tmp files on purpose: kills the process halfway, or says that the disk is full.
cat >"$work/trouble.c" <<'C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
ssize_t write(int fd, const void *data, size_t size)
{
    ssize_t (*real)(int, const void *, size_t) = (ssize_t(*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    char link[64], path[4096];
    const char *trouble = getenv("TROUBLE");
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = '\0';
    if (trouble == NULL || strstr(path, ".kernels.") == NULL) {
        return real(fd, data, size);
    }
    if (strcmp(trouble, "full") == 0) {
        errno = ENOSPC;
        return -1;
    }
    real(fd, data, size / 2);
    raise(SIGKILL);
    return -1;
}
C
preload=
if [ -z "${ATOLL_SANITIZED:-}" ] && cc -shared -fPIC -o "$work/trouble.so" "$work/trouble.c" -ldl 2>"$work/cc.err"; then
    preload=$work/trouble.so
fi

# kill -9 in the middle of the write: no entry, half a temporary file; the next run makes the entry, removes the half one and says so.
cache=$work/killed
if [ -n "$preload" ]; then
    { LD_PRELOAD=$preload TROUBLE=kill train "$cache" killed; } 2>"$work/shell"
    [ $? -eq 137 ] || wrong "the process was not killed in its write"
    [ "$(entries "$cache")" -eq 0 ] || wrong "killed: half an entry is there"
    [ "$(find "$cache" -name '*.tmp' | wc -l)" -eq 1 ] || wrong "killed: no half-written file"
    runs "after a kill" "$cache" 1 "cache .*: removed [0-9]+ bytes of an unfinished write: a process was killed"
    [ "$(find "$cache" -name '*.tmp' | wc -l)" -eq 0 ] || wrong "after a kill: the half-written file is still there"
    [ "$(entries "$cache")" -eq 1 ] || wrong "after a kill: no entry"
    runs "from the entry after a kill" "$cache" 0
else
    skipped="$skipped; a killed write (no library can be preloaded here)"
fi

# The same without a preloaded library: a file that a process left which is no more.
cache=$work/left
mkdir "$cache"
echo half >"$cache/0123456789abcdef.kernels.$(bash -c 'echo $$').000000001.tmp"
runs "a file left" "$cache" 1 "cache .*: removed 5 bytes of an unfinished write"
runs "after a file left" "$cache" 0

# A flipped byte: one warning, and the entry is made again.
cache=$work/race
entry=$(find "$cache" -name '*.kernels')
size=$(stat -c %s "$entry")
printf '\xff' | dd of="$entry" bs=1 seek=$((size / 2)) conv=notrunc status=none
before=$(cksum <"$entry")
runs "a flipped byte" "$cache" 1 "cache entry .*checksum.*compiled again"
[ "$(cksum <"$entry")" != "$before" ] || wrong "the damaged entry is still there"
runs "after a flipped byte" "$cache" 0

# A directory that cannot be written: a read-only file system where root may mount one, else its mode.
cache=$work/readonly
mkdir "$cache"
if [ "$(id -u)" -eq 0 ]; then
    if mount -t tmpfs -o ro,size=1m none "$cache" 2>"$work/mount"; then
        mounted=$cache
        runs "a read-only directory" "$cache" 1 "cache .*kernels are compiled each time.*[Rr]ead-only"
        umount "$cache" && mounted=
    else
        skipped="$skipped; a read-only directory ($(head -1 "$work/mount"))"
    fi
else
    chmod 555 "$cache"
    runs "a read-only directory" "$cache" 1 "cache .*kernels are compiled each time"
fi

# A full disk: a file system of 16 KiB where root may mount one, else a write that says so.
cache=$work/full
mkdir "$cache"
if [ "$(id -u)" -eq 0 ] && mount -t tmpfs -o size=8k none "$cache" 2>"$work/mount"; then
    mounted=$cache
    head -c 8192 /dev/zero >"$cache/fills_it" 2>"$work/mount"
    runs "a full disk" "$cache" 1 "cache .*kernels are compiled each time.*No space left"
    umount "$cache" && mounted=
elif [ -n "$preload" ]; then
    LD_PRELOAD=$preload TROUBLE=full runs "a full disk" "$cache" 1 "cache .*kernels are compiled each time.*No space left"
else
    skipped="$skipped; a full disk (no mount: $(head -1 "$work/mount"))"
fi

# A limit: entries unused for longest go first, what was just loaded last; said under ATOLL_LOG=kernels only.
cache=$work/limited
policy() { # POLICY LIMIT
    ATOLL_CACHE=$cache ATOLL_CACHE_LIMIT=$2 ATOLL_LOG=kernels "$atoll" train "$work/m.graph" --data "$work/m.csv" --batch 8 --epochs 1 --policy "$1" \
        --quiet >"$work/now.out" 2>"$work/now.err" || wrong "$1, limit $2: $(cat "$work/now.err")"
    [ "$(grep -c '^atoll: warning: ' "$work/now.err")" -eq 0 ] || wrong "$1, limit $2: $(cat "$work/now.err")"
}
policy fp32 0
size=$(find "$cache" -type f -printf '%s\n' | awk '{ n += $1 } END { print n }')
policy bf16 0
[ "$(entries "$cache")" -eq 2 ] || wrong "no limit: $(entries "$cache") entries"
policy fp32 0 # used again: bf16 is now the one unused for longest
grep -q 'loaded in' "$work/now.err" || wrong "no limit: not loaded"
policy fp16 $((size * 5 / 2))
[ "$(entries "$cache")" -eq 2 ] || wrong "a limit of two and a half: $(entries "$cache") entries"
grep -q "kernels: 1 entries of [0-9]* bytes, unused for longest, removed from the cache: it is limited to $((size * 5 / 2)) bytes" "$work/now.err" ||
    wrong "a limit: not told: $(cat "$work/now.err")"
policy fp32 $((size * 5 / 2))
grep -q 'loaded in' "$work/now.err" || wrong "a limit: what was used last is gone"
policy bf16 2G
grep -q 'not in the cache' "$work/now.err" || wrong "a limit: what was unused for longest is there"
ATOLL_CACHE_LIMIT=2Q "$atoll" train "$work/m.graph" --data "$work/m.csv" >"$work/now.out" 2>"$work/now.err"
[ $? -eq 2 ] && grep -q "ATOLL_CACHE_LIMIT: found '2Q', expected bytes, such as 500M or 2G" "$work/now.err" || wrong "a bad limit: $(cat "$work/now.err")"

# A directory of another user: nothing in it is used.
cache=$work/race
if [ "$(id -u)" -eq 0 ] && chown 65534 "$cache" 2>"$work/chown"; then
    runs "another user's directory" "$cache" 1 "cache .*belongs to user 65534: not used"
else
    skipped="$skipped; another user's directory (only root can give one away)"
fi
[ -z "$skipped" ] || echo "skipped:${skipped#;}"
[ $failed -eq 0 ] && echo "the cache never changes a result"
exit $failed
