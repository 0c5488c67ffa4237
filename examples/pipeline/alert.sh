#!/bin/bash
# Runs only when the step it watches has failed.
echo "Run $PUNCTUAL_RUN_ID: a step failed, somebody should look"
