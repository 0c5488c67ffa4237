#!/bin/sh
# Compiles each .in file to exact versions with hashes, for every platform and Python 3.11+.
set -eu
cd "$(dirname "$0")"
compile() {
    uv pip compile --universal --python-version 3.11 --generate-hashes --no-strip-extras --no-annotate --quiet \
        --custom-compile-command "sh requirements/compile.sh" --no-emit-index-url --no-emit-find-links \
        "$@"
}
compile runtime.in -o ../requirements.txt
compile embedded.in -c ../requirements.txt -o embedded.txt
compile dev.in -c embedded.txt -o dev.txt
