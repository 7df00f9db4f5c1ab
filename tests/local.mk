# What all tests share: data, and the test that looks for leftovers.
