#!/bin/bash
# Step 3: would load the result into a warehouse; this example only writes a receipt.
set -euo pipefail

mkdir -p out
printf '{"run": "%s", "loaded": true}\n' "$PUNCTUAL_RUN_ID" >out/result.json
echo "Run $PUNCTUAL_RUN_ID: loaded"
