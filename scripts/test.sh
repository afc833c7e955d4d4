#!/usr/bin/env bash
# make test and make test-long: the tests of one tier (tests/kit/groups.py) on several workers, then those that assert seconds, alone.
#
#   test.sh gate|long PYTHON WORKERS [PYTEST-ARGUMENT…]
#
# What the tests run on is fetched meanwhile: where that takes longer than a look at the cache, the tests begin that need nothing of it.
# With arguments, some of the tests are asked for: each of them fetches what it needs.
set -uo pipefail
tier=$1 python=$2 workers=$3
shift 3

status=0
tests() {
  "$python" -m pytest --tier "$tier" "$@"
  case $? in 0|5) ;; *) status=1 ;; esac  # 5: of the tests asked for, none is among these
}

among="not timing"
if [ $# = 0 ]; then
  "$python" -m tests.kit.fetch "$tier" &
  fetching=$!
  trap 'kill $fetching 2>/dev/null' EXIT
  for _ in {1..30}; do kill -0 $fetching 2>/dev/null && sleep 0.5; done
  if kill -0 $fetching 2>/dev/null; then
    echo "Not everything is fetched yet: first the tests that need nothing of it."
    tests -n "$workers" -m "unfetched and not timing"
    among="not unfetched and not timing"
    echo "Now the others."
  fi
  wait $fetching || exit 1
fi
tests -n "$workers" -m "$among" "$@"
if [ "$tier" = long ]; then
  echo "Tests that assert seconds, one at a time:"
  tests -m timing "$@"
fi
exit $status
