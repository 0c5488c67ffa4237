#!/bin/bash
# Step 1: create a thousand readings of a sensor. SOURCE=broken fails with code 7.
set -euo pipefail

if [ "${SOURCE:-sensor}" = broken ]; then
    echo "The source does not answer." >&2
    exit 7
fi
mkdir -p out
for n in $(seq 1 1000); do
    echo "$n,$((n * n % 97))"
done >out/readings.csv
echo "Run $PUNCTUAL_RUN_ID: extracted $(wc -l <out/readings.csv) readings"
