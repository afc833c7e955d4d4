#!/usr/bin/env bash
# make test and make test-long: the tests of one tier (tests/kit/groups.py) on several workers, then those that assert seconds, alone.
#
#   test.sh gate|long PYTHON WORKERS [PYTEST-ARGUMENT…]
#
# What the tests run on is fetched first, apart from the Kubernetes API server: while that is built, the tests run that need none.
# With arguments, some of the tests are asked for: each of them fetches what it needs.
set -uo pipefail
tier=$1 python=$2 workers=$3
shift 3

status=0 fetching= testing=
# Whatever is begun here ends with this script.
trap 'kill $fetching $testing 2>/dev/null' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
tests() {
  "$python" -m pytest --tier "$tier" "$@" &
  testing=$!
  wait $testing
  case $? in 0|5) ;; *) status=1 ;; esac  # 5: of the tests asked for, none is among these
  testing=
}

among="not timing"
if [ $# = 0 ]; then
  "$python" -m tests.kit.fetch "$tier" --slow &
  fetching=$!
  "$python" -m tests.kit.fetch "$tier" --no-slow &
  testing=$!
  wait $testing || exit 1
  for _ in {1..10}; do kill -0 $fetching 2>/dev/null && sleep 0.5; done
  # The gate sees what it fetches, and nothing else. The long tier's pieces are all there are.
  if [ "$tier" = gate ]; then set -- --fetched; fi
  if kill -0 $fetching 2>/dev/null; then
    echo "The Kubernetes API server is not there yet: first the tests that need none."
    tests -n "$workers" -m "not apiserver and not timing" "$@"
    among="apiserver and not timing"
    echo "Now the others."
  fi
  wait $fetching || exit 1
  fetching=
fi
tests -n "$workers" -m "$among" "$@"
if [ "$tier" = long ]; then
  echo "Tests that assert seconds, one at a time:"
  tests -m timing "$@"
fi
exit $status
