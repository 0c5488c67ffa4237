#!/bin/bash
# Report the usage of this run's file systems; exit with 3 when one is fuller than LIMIT_PERCENT.
set -euo pipefail
limit=${LIMIT_PERCENT:-90}

echo "Disk report for ${PUNCTUAL_SCHEDULED_FOR}, limit ${limit} %"
mkdir -p out
printf 'path,size_kb,used_percent\n' >out/disk.csv

full=0
for path in /work /tmp; do
    read -r _ size _ _ used _ < <(df -P -k "$path" | tail -n 1)
    printf '%-8s %12s KB %5s used\n' "$path" "$size" "$used"
    printf '%s,%s,%s\n' "$path" "$size" "${used%\%}" >>out/disk.csv
    if [ "${used%\%}" -gt "$limit" ]; then
        echo "$path is fuller than $limit %" >&2
        full=1
    fi
done
[ "$full" -eq 0 ] || exit 3
echo "All file systems are below the limit."
