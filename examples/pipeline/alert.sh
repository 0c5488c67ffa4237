#!/bin/bash
# Run only when the upstream step has failed.
echo "Run $PUNCTUAL_RUN_ID: a step failed, please check it"
