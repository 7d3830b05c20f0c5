#!/bin/sh
set -eu
echo "--- Building with $(busybox | head -n 1)"
wc -l ./*.sh
