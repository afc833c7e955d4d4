#!/usr/bin/env bash
# Runs the tests on real pods, in the sandbox with its node: first those that may run side by side, then those that hurt the whole node.
#
#   scripts/pods/test.sh PYTHON PYTEST-ARGUMENT…
set -euo pipefail
python=$1
shift
workers=${PODS_WORKERS:-3}     # they wait for leases and pods more than they compute

status=5                       # pytest's: no test was asked for
run() {
  local ended=0
  "$python" -m pytest tests/pods "$@" || ended=$?
  case $ended,$status in 5,*) ;; 0,[05]) status=0 ;; *) status=1 ;; esac
}
run -n "$workers" -m 'not whole_node' "$@"
run -m whole_node "$@"
exit "$status"
