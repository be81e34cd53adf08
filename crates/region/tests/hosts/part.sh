# What `comb run-part` is to a launcher, by a test program: its test `part` serves at descriptor 3, out of the way of what the harness prints.
exec 3>&1 >/dev/null
COMB_TEST_PART=1 exec "$1" --exact part --nocapture --test-threads=1
